"""The matrix unit in lockstep with the simulator: random programs, every start, retirement and accumulator word.

Environment: MXU_CHIP (preset or file), MXU_CHANGES (JSON: fields of its `mxu` group), MXU_SEEDS ("first:last", last not
included), MXU_TILES (weight tiles a program), MXU_RECORDING (a pickled (Recording, Chip)), MXU_SHOWN (differences
listed).
"""

from __future__ import annotations

import gc
import json
import os
import pickle
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeAlias

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, Timer

from systolith.hw.patterns import PATTERN_BITS, array, pack
from systolith.hw.tb.build import mxu_parameters, variant
from systolith.hw.tb.generate import Generator
from systolith.hw.tb.pack import ISSUE_BITS, NO_TOKEN
from systolith.hw.tb.record import ACC_PORT, Events, Recorder, Recording, Words
from systolith.isa.chip import Chip, load_chip

Dut: TypeAlias = Any  # a handle: its ports are found when it runs

DRAIN = 4  # cycles after the last retirement in which nothing may happen
SHOWN = int(os.environ.get("MXU_SHOWN", "4"))  # differences that a failure lists


class Driver:
    """Plays a recording's events into the unit, and writes memories."""

    def __init__(self, dut: Dut) -> None:
        self.dut = dut
        self.others = len(dut.signalled_i) // 8
        self.write_bytes = len(dut.write_i)
        self._idle = Events()
        self._driven = True

    async def reset(self) -> None:
        """Nothing goes in; all state but the accumulators is cleared."""
        dut = self.dut
        dut.rst_ni.value = 0
        dut.acc_read_i.value = 0
        dut.write_clk_i.value = 0
        self._driven = True
        self.drive(self._idle)
        for _ in range(3):
            await RisingEdge(dut.clk_i)

    def drive(self, events: Events) -> None:
        """Inputs of the cycle that has just begun."""
        if events is self._idle and not self._driven:
            return
        dut = self.dut
        self._driven = events is not self._idle
        push = events.push
        dut.push_i.value = 0 if push is None else 1 << push.queue
        if push is not None:
            dut.issue_i.value, dut.words_i.value, dut.pattern_i.value = push.issue, push.words, push.pattern
        for port, tokens in ((dut.signalled_i, events.signalled), (dut.taken_i, events.taken)):
            if len(tokens) > self.others:
                raise RuntimeError(f"{len(tokens)} tokens in a cycle, the bench has {self.others} ports")
            port.value = int.from_bytes(bytes(tokens) + bytes([NO_TOKEN]) * (self.others - len(tokens)), "little")
        self.accumulators(events.accumulators)

    def accumulators(self, values: Sequence[tuple[int, int]]) -> None:
        """Write accumulators, (number, word) each, at the end of this cycle."""
        dut = self.dut
        if len(values) > ACC_PORT:
            raise RuntimeError(f"{len(values)} accumulators written in a cycle, the port takes {ACC_PORT}")
        dut.acc_write_i.value = (1 << len(values)) - 1
        if values:
            dut.acc_address_i.value = pack(array([4 * number for number, _ in values], 32))
            dut.acc_data_i.value = pack(array([word for _, word in values], 32))

    async def fill_accumulators(self, acc: Words) -> None:
        """Write them all."""
        values = list(enumerate(acc.reshape(-1).tolist()))
        for first in range(0, len(values), ACC_PORT):
            self.accumulators(values[first : first + ACC_PORT])
            await RisingEdge(self.dut.clk_i)
        self.accumulators(())

    async def write(self, address: int, data: bytes) -> None:
        """Write memory; takes no cycle of the unit's clock when called for a few lines."""
        dut, size = self.dut, self.write_bytes
        for at in range(0, len(data), size):
            line = data[at : at + size]
            dut.write_i.value = (1 << len(line)) - 1
            dut.write_address_i.value = address + at
            dut.write_data_i.value = int.from_bytes(line.ljust(size, b"\0"), "little")
            await Timer(1, "ps")
            dut.write_clk_i.value = 1
            await Timer(1, "ps")
            dut.write_clk_i.value = 0
        await Timer(1, "ps")


class Monitor:
    """Records the unit's outputs, cycle by cycle."""

    def __init__(self, dut: Dut, columns: int) -> None:
        self.dut = dut
        self.columns = columns
        self.starts: tuple[list[int], list[int]] = ([], [])
        self.retires: tuple[list[int], list[int]] = ([], [])
        self.rows: list[tuple[int, tuple[int, ...]]] = []

    def sample(self, cycle: int) -> None:
        """The outputs of a cycle, settled."""
        dut = self.dut
        started = int(dut.start_o.value)
        retired = int(dut.retired_o.value)
        for queue in range(2):
            if started >> queue & 1:
                self.starts[queue].append(cycle)
            self.retires[queue].extend([cycle] * (retired >> 16 * queue & 0xFFFF))
        if int(dut.row_write_o.value):
            row = int(dut.row_address_o.value) // (4 * self.columns)
            self.rows.append((row, words(int(dut.row_data_o.value), self.columns)))


def words(bits: int, count: int) -> tuple[int, ...]:
    """A packed array of 32-bit words, word 0 first."""
    return tuple(bits >> 32 * i & 0xFFFFFFFF for i in range(count))


class Checker:
    """Compares a monitor's record with the expectations of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.problems: list[str] = []

    def _compare(self, what: str, got: Sequence[object], want: Sequence[object], names: Sequence[str] = ()) -> None:
        if len(got) != len(want):
            self.problems.append(f"{what}: {len(got)} of {len(want)}")
        differing = [i for i, (g, w) in enumerate(zip(got, want, strict=False)) if g != w]
        for i in differing[:SHOWN]:
            name = f" ({names[i]})" if names else ""
            self.problems.append(f"{what} {i}{name}: RTL {_text(got[i])}, simulator {_text(want[i])}")

    def check(self, monitor: Monitor, acc: list[int]) -> None:
        """Compare everything; `acc`: the accumulators at the end, read through their port."""
        r = self.recording
        for queue, name in enumerate("ws"):
            self._compare(f"start in {name}", monitor.starts[queue], r.starts[queue], r.names[queue])
            order = sorted(range(len(r.retires[queue])), key=r.retires[queue].__getitem__)
            want = [r.retires[queue][i] for i in order]
            names = [r.names[queue][i] for i in order]
            self._compare(f"retirement in {name}", monitor.retires[queue], want, names)
        self._compare("row written", monitor.rows, r.rows)
        self._compare("accumulator", acc, r.acc.reshape(-1).tolist())

    def finish(self) -> None:
        """Raise the differences found.

        Raises:
            AssertionError: the RTL and the simulator differ.
        """
        assert not self.problems, f"{self.recording.name}: " + "; ".join(self.problems)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_text(v) for v in value) + ")"
    return f"{value:#x}" if isinstance(value, int) and value > 0xFFFF else str(value)


async def play(dut: Dut, recording: Recording) -> None:
    """Reset, play a recording, check.

    Raises:
        AssertionError: the RTL and the simulator differ.
    """
    driver, monitor, checker = Driver(dut), Monitor(dut, recording.acc.shape[1]), Checker(recording)
    await driver.reset()
    await driver.write(0, recording.vmem.tobytes().rstrip(b"\0"))
    await driver.fill_accumulators(recording.acc_before)
    await RisingEdge(dut.clk_i)
    dut.rst_ni.value = 1
    for cycle in range(recording.cycles + DRAIN):
        if cycle:
            await RisingEdge(dut.clk_i)
        events = recording.events.get(cycle, driver._idle)
        for address, data in events.written:
            await driver.write(address, data)
        driver.drive(events)
        await FallingEdge(dut.clk_i)
        monitor.sample(cycle)
        if events.push is not None and not int(dut.ready_o.value) >> events.push.queue & 1:
            checker.problems.append(f"cycle {cycle}: queue {events.push.queue} is full, in the simulator it is not")
    if not int(dut.idle_o.value):
        checker.problems.append("at the end: the queues are not idle")
    checker.check(monitor, [word async for word in _read(dut, recording.acc.size)])
    checker.finish()


async def _read(dut: Dut, count: int) -> AsyncIterator[int]:
    """The first `count` accumulators."""
    for first in range(0, count, ACC_PORT):
        size = min(ACC_PORT, count - first)
        dut.acc_read_i.value = (1 << size) - 1
        dut.acc_address_i.value = pack(array(range(4 * first, 4 * (first + size), 4), 32))
        await Timer(1, "ps")
        for word in words(int(dut.acc_data_o.value), size):
            yield word
    dut.acc_read_i.value = 0


def check_parameters(dut: Dut, chip: Chip) -> None:
    """The RTL was built for this chip, and takes instructions as wide as the bench makes them."""
    for name, value in mxu_parameters(chip).items():
        built = int(getattr(dut, name).value)
        assert built == value, f"{name}: the RTL has {built}, chip {chip.name} {value}"
    for port, bits in ((dut.issue_i, ISSUE_BITS), (dut.pattern_i, PATTERN_BITS), (dut.acc_read_i, ACC_PORT)):
        assert len(port) == bits, f"{port._name}: the RTL has {len(port)} bits, the bench {bits}"


async def _clock(dut: Dut) -> None:
    await Clock(dut.clk_i, 2, "ns").start()


async def start(dut: Dut, chip: Chip) -> None:
    """Check the configuration and start the clock."""
    check_parameters(dut, chip)
    gc.disable()  # nothing here is cyclic, and looking for cycles takes a third of the time
    cocotb.start_soon(_clock(dut))


def chosen_chip() -> Chip:
    """The chip that the environment asks for."""
    chip = load_chip(os.environ.get("MXU_CHIP", "tiny"))
    return variant(chip, **json.loads(os.environ.get("MXU_CHANGES", "{}")))


@cocotb.test()
async def random_programs(dut: Dut) -> None:
    chip = chosen_chip()
    await start(dut, chip)
    first, last = os.environ.get("MXU_SEEDS", "0:10").split(":")
    for seed in range(int(first), int(last)):
        case = Generator(chip, seed).case(int(os.environ.get("MXU_TILES", "6")))
        await play(dut, Recorder(case.program, chip).run(case.name, case.fill))


@cocotb.test()
async def recorded(dut: Dut) -> None:
    with open(os.environ["MXU_RECORDING"], "rb") as file:
        recording, chip = pickle.load(file)
    await start(dut, chip)
    await play(dut, recording)
