"""SEQ against the simulator: every push, store and sync of random programs, bit for bit and cycle for cycle.

Environment: SEQ_CHIP (preset), SEQ_CHANGES (JSON: fields of its `seq` group), SEQ_SEEDS ("first:last", last not
included), SEQ_ITEMS (instructions a program), SEQ_OPERANDS (of each operation of the arithmetic), SEQ_FAULT (a name of
FAULTS).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, Timer
from numpy.typing import NDArray

from systolith.hw.tb.seq_generate import EDGES, Generator
from systolith.hw.tb.seq_model import (
    Expectation,
    Push,
    Stimulus,
    Store,
    Sync,
    check_times,
    expected_of,
    random_stimulus,
    register_flags,
    timed_stimulus,
)
from systolith.isa.chip import Chip, load_chip
from systolith.isa.encode import encode_code
from systolith.isa.instruction import Instruction, Reg
from systolith.isa.opcodes import BY_CODE, OPCODES
from systolith.isa.program import Program
from systolith.sim.memory import SimulationError
from systolith.sim.scalar import ALU, BRANCH

Dut: TypeAlias = Any  # a handle: its ports are found when it runs
Words: TypeAlias = NDArray[np.uint32]
Case: TypeAlias = tuple[Program, Stimulus, Expectation]

DRAIN = 4  # cycles after the halt in which nothing may happen
CYCLES = 100_000  # of random stimulus


def bench_chip() -> Chip:
    """The chip that the top was built for."""
    chip = load_chip(os.environ.get("SEQ_CHIP", "tiny"))
    return replace(chip, seq=replace(chip.seq, **json.loads(os.environ.get("SEQ_CHANGES", "{}"))))


def four(bits: int) -> tuple[int, ...]:
    """Tokens of an instruction word."""
    return tuple(bits.to_bytes(4, "little"))


class Monitor:
    """Records SEQ's outputs, cycle by cycle."""

    def __init__(self, dut: Dut) -> None:
        self.dut = dut
        self.seen = Expectation(halted=-1)
        self._offered: tuple[int, int] | None = None
        self._retires = False

    def sample(self, cycle: int, ready: int) -> None:
        """The outputs of a cycle, settled; `ready`: which queues have a slot."""
        dut = self.dut
        if not int(dut.event_o.value):
            assert not self._retires, f"cycle {cycle}: no retirement of a sync"
            assert self._offered is None, f"cycle {cycle}: no longer offered"
            return
        self._queues(cycle, ready)
        if int(dut.smem_write_o.value):
            self.seen.stores.append(Store(cycle, int(dut.smem_address_o.value), int(dut.smem_data_o.value)))
        assert int(dut.sync_retire_o.value) == self._retires, f"cycle {cycle}: retirement of a sync"
        if self._retires:
            self.seen.syncs[-1] = self.seen.syncs[-1]._replace(signals=four(int(dut.sync_signals_o.value)))
        self._retires = bool(int(dut.sync_start_o.value))
        if self._retires:
            number, waits = int(dut.sync_number_o.value), int(dut.sync_waits_o.value)
            self.seen.syncs.append(Sync(cycle, number, four(waits), ()))
        if int(dut.halted_o.value) and self.seen.halted < 0:
            self.seen.halted = cycle

    def _queues(self, cycle: int, ready: int) -> None:
        dut, valid = self.dut, int(self.dut.valid_o.value)
        if self._offered is not None:
            assert valid == self._offered[1], f"cycle {cycle}: offered to {valid:#b}, before {self._offered[1]:#b}"
        elif valid:
            assert valid.bit_count() == 1, f"cycle {cycle}: several queues offered to: {valid:#b}"
            self._offered = cycle, valid
        if valid & ready:
            assert self._offered is not None
            tokens = four(int(dut.waits_o.value)), four(int(dut.signals_o.value))
            kind = int(dut.kind_o.value)
            words = np.frombuffer(int(dut.words_o.value).to_bytes(len(dut.words_o) // 8, "little"), np.uint32)
            where = self._offered[0], cycle, valid.bit_length() - 1, int(dut.number_o.value)
            flags = bool(kind & 4), bool(kind & 2), bool(kind & 1)
            self.seen.pushes.append(Push(*where, *tokens, *flags, tuple(words.tolist())))
            self._offered = None


def without_flags(push: Push) -> Push:
    """As the simulator has it: the flags of registers clear, no words beyond the instruction, which are zero."""
    op, length = BY_CODE[push.words[0] & 0xFF], push.words[0] >> 12 & 0xFF
    assert not any(push.words[length:]), f"push {push.number}: words beyond the instruction"
    words = list(push.words[:length])
    streams = (None,) * (words[3] >> 27 & 15) if op.name == "vpu.run" else ()
    shape = Instruction(op.name, {"streams": streams})  # type: ignore[dict-item]
    for word, mask in register_flags(shape).items():
        words[word] &= ~mask
    return push._replace(words=tuple(words))


def compare(name: str, seen: Expectation, want: Expectation) -> None:
    """Raise AssertionError at the first difference of each kind."""
    problems = []
    for kind in ("pushes", "syncs", "stores"):
        got, expected = getattr(seen, kind), getattr(want, kind)
        at = next((i for i, (g, w) in enumerate(zip(got, expected, strict=False)) if g != w), None)
        if at is not None:
            problems.append(f"{kind}[{at}]: RTL {got[at]}, simulator {expected[at]}")
        elif len(got) != len(expected):
            problems.append(f"{len(got)} {kind}, simulator {len(expected)}")
    if seen.halted != want.halted:
        problems.append(f"halted in {seen.halted}, simulator {want.halted}")
    assert not problems, f"{name}: " + "; ".join(problems)


async def load(dut: Dut, program: Program) -> None:
    """Reset, and write the program's words."""
    dut.rst_ni.value = 0
    dut.go_i.value = 0
    dut.ready_i.value = 0
    dut.tokens_i.value = 0
    line = len(dut.write_data_i) // 32
    words = np.array(encode_code(program.code), "<u4")
    assert len(words) <= int(dut.ImemWords.value), f"{program.name}: {len(words)} words"
    dut.write_i.value = 1
    for at in range(0, len(words), line):
        dut.write_address_i.value = at
        dut.write_data_i.value = int.from_bytes(words[at : at + line].tobytes(), "little")
        await RisingEdge(dut.clk_i)
        await Timer(1, "ps")
    dut.write_i.value = 0
    await RisingEdge(dut.clk_i)
    dut.rst_ni.value = 1
    for _ in range(2):  # before `go_i` nothing happens
        await FallingEdge(dut.clk_i)
        assert not int(dut.event_o.value), f"{program.name}: something happens before go"
    await RisingEdge(dut.clk_i)


async def play(dut: Dut, program: Program, stimulus: Stimulus, cycles: int) -> Expectation:
    """Run a program, with `go_i` high from its first cycle on or in that cycle only."""
    await load(dut, program)
    monitor = Monitor(dut)
    places = 1 << np.arange(stimulus.ready.shape[1])
    ready, tokens = (stimulus.ready @ places).tolist(), stimulus.tokens.tolist()
    last = len(ready) - 1
    for cycle in range(cycles + DRAIN):
        at = min(cycle, last)
        dut.go_i.value = int(cycle == 0 or len(program.code) % 2)
        dut.ready_i.value = ready[at]
        dut.tokens_i.value = int(tokens[at])
        await FallingEdge(dut.clk_i)
        monitor.sample(cycle, ready[at])
        await RisingEdge(dut.clk_i)
    monitor.seen.pushes = [without_flags(p) for p in monitor.seen.pushes]
    return monitor.seen


async def play_all(dut: Dut, prepare: Callable[[Chip, int, int], Case]) -> None:
    """Play a program for each seed; a few may be too long, or nest too deep."""
    Clock(dut.clk_i, 2, "ns").start()
    first, last = os.environ.get("SEQ_SEEDS", "0:20").split(":")
    seeds, items = range(int(first), int(last)), int(os.environ.get("SEQ_ITEMS", "150"))
    played = cycles = 0
    for seed in seeds:
        try:
            program, stimulus, want = prepare(bench_chip(), seed, items)
        except SimulationError as e:
            if "still running" in str(e) or "nest deeper" in str(e):
                continue
            raise
        compare(program.name, await play(dut, program, stimulus, want.halted), want)
        played, cycles = played + 1, cycles + want.halted
    assert played * 4 >= len(seeds) * 3, f"only {played} of {len(seeds)} programs can be played"
    dut._log.info("%d programs, %d cycles", played, cycles)


def wild(chip: Chip, seed: int, items: int) -> Case:
    program = Generator(chip, seed).generate(items)
    stimulus = random_stimulus(chip, seed, CYCLES)
    return program, stimulus, expected_of(program, chip, stimulus)


def timed(chip: Chip, seed: int, items: int) -> Case:
    program = Generator(chip, seed, timed=True).generate(items)
    stimulus, trace = timed_stimulus(program, chip)
    want = expected_of(program, chip, stimulus)
    check_times(want, trace)
    return program, stimulus, want


@cocotb.test()
async def wild_programs(dut: Dut) -> None:
    """Every instruction with arbitrary fields; queues full and tokens missing at random."""
    await play_all(dut, wild)


@cocotb.test()
async def timed_programs(dut: Dut) -> None:
    """Queues as full, and tokens as late, as the simulator says they are."""
    await play_all(dut, timed)


FAULTS: dict[str, list[Instruction]] = {
    "opcode": [Instruction("halt")],  # its code is changed below
    "nest": [Instruction("loop", {"count": 2, "end": 10})] * 9,
    "empty": [Instruction("loop", {"count": 2, "end": 1})],
    "misaligned": [Instruction("lds", {"rd": Reg(1), "ra": Reg(0), "imm": 6})],
    "queue": [Instruction("mxu.latch", unit=7)],
}


@cocotb.test()
async def fault(dut: Dut) -> None:
    """Something that no program may do: an assertion of the RTL ends the simulation."""
    Clock(dut.clk_i, 2, "ns").start()
    name = os.environ.get("SEQ_FAULT", "opcode")
    code = [*FAULTS[name], Instruction("halt")]
    await load(dut, Program(name, "tiny", "", code))
    if name == "opcode":
        dut.rst_ni.value = 0
        dut.write_i.value = 1
        dut.write_address_i.value = 0
        dut.write_data_i.value = 0x3000 | 0xEE
        await RisingEdge(dut.clk_i)
        await Timer(1, "ps")
        dut.write_i.value = 0
        dut.rst_ni.value = 1
    dut.go_i.value = 1
    for _ in range(40):
        await RisingEdge(dut.clk_i)


@cocotb.test()
async def trap(dut: Dut) -> None:
    """SEQ stops, and says with which code; the instructions after it are not executed."""
    Clock(dut.clk_i, 2, "ns").start()
    code = [Instruction("li", {"rd": Reg(1), "imm": 5}), Instruction("trap", {"code": 0xBEEF})]
    code.append(Instruction("sts", {"rb": Reg(1), "ra": Reg(0), "imm": 0}))
    program = Program("trap", "tiny", "", [*code, Instruction("halt")])
    seen = await play(dut, program, random_stimulus(bench_chip(), 0, 10), 6)
    compare("trap", seen, Expectation(halted=2))
    assert int(dut.trapped_o.value)
    assert int(dut.trap_code_o.value) == 0xBEEF


@cocotb.test()
async def arithmetic(dut: Dut) -> None:
    """Every operation on corner cases and random operands (top: seq_alu_tb)."""
    count, lanes = int(os.environ.get("SEQ_OPERANDS", "100000")), len(dut.a_i) // 32
    random = np.random.default_rng(1)
    edges = np.array([e & 0xFFFFFFFF for e in EDGES], np.uint32)
    corners = np.array(np.meshgrid(edges, edges), np.uint32).reshape(2, -1)
    for name, function in (*ALU.items(), *BRANCH.items()):
        wide = random.integers(0, 1 << 32, (2, count), np.uint32) >> random.integers(0, 32, (2, count), np.uint32)
        same = random.random(count) < 0.05
        wide[1, same] = wide[0, same]
        a, b = np.concatenate([corners, wide], 1)
        got = await _apply(dut, OPCODES[name].code, a, b, lanes)
        want = np.array([int(function(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)], np.uint32)
        bad = np.flatnonzero(got != want)
        if len(bad):
            i = bad[0]
            given = f"{a[i]:#x}, {b[i]:#x}"
            raise AssertionError(f"{name}: {len(bad)} of {len(got)} differ; {given}: {got[i]:#x}, want {want[i]:#x}")


async def _apply(dut: Dut, code: int, a: Words, b: Words, lanes: int) -> Words:
    """Put operands through all lanes, a batch after the other."""
    out = np.zeros(-(-len(a) // lanes) * lanes, np.uint32)
    dut.op_i.value = code
    for at in range(0, len(a), lanes):
        dut.a_i.value = int.from_bytes(a[at : at + lanes].tobytes(), "little")
        dut.b_i.value = int.from_bytes(b[at : at + lanes].tobytes(), "little")
        await Timer(1, "ns")
        out[at : at + lanes] = np.frombuffer(int(dut.result_o.value).to_bytes(lanes * 4, "little"), np.uint32)
    return out[: len(a)]
