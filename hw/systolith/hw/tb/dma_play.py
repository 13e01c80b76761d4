"""Plays a case into a bench's list runner, and compares memories and times."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, First, RisingEdge, Timer

from systolith.hw.patterns import PATTERN_BITS
from systolith.hw.tb.dma_cases import MEMORIES, Bytes, Case

Dut: TypeAlias = Any  # a handle: its ports are found when it runs

PERIOD = 2  # ns
_LIMIT = 100_000  # cycles that a list may take


@dataclass(frozen=True)
class Outcome:
    """The RTL's run: the memories after it, and when each instruction started and was done, in cycles."""

    after: Bytes
    starts: list[int]
    dones: list[int]


def packed(values: Sequence[int], width: int) -> int:
    """Element 0 at the bottom."""
    bits = 0
    for value in reversed(values):
        bits = bits << width | value
    return bits


def whole(data: Bytes) -> int:
    return int.from_bytes(data.tobytes(), "little")


def words(handle: Dut, count: int) -> list[int]:
    """The first `count` words of a packed array of 32-bit words."""
    bits = int(handle.value)
    return [bits >> 32 * i & 0xFFFFFFFF for i in range(count)]


def begin(dut: Dut) -> None:
    """Start the clock."""
    gc.disable()  # nothing here is cyclic
    dut.rst_ni.value = 0
    dut.load_i.value = 0
    dut.run_i.value = 0
    Clock(dut.clk_i, PERIOD, "ns").start()


async def play(dut: Dut, case: Case, images: Bytes, most_words: int) -> Outcome:
    """Load the images, run the list, and record the outcome.

    Raises:
        AssertionError: the list does not end.
    """
    count = len(case.program.code)
    await FallingEdge(dut.clk_i)
    dut.rst_ni.value = 0
    dut.run_i.value = 0
    dut.load_i.value = 1
    dut.images_i.value = whole(images)
    dut.count_i.value = count
    dut.gaps_i.value = packed(case.gaps, 8)
    dut.words_i.value = packed(case.words(most_words), 32)
    dut.patterns_i.value = packed(case.patterns(), PATTERN_BITS)
    await FallingEdge(dut.clk_i)
    dut.load_i.value = 0
    dut.rst_ni.value = 1
    await FallingEdge(dut.clk_i)
    dut.run_i.value = 1
    late = Timer(_LIMIT * PERIOD, "ns")
    assert await First(RisingEdge(dut.finished_o), late) is not late, f"{case.name}: does not end"
    await FallingEdge(dut.clk_i)
    data = int(dut.images_o.value).to_bytes(images.size, "little")
    after = np.frombuffer(data, np.uint8).reshape(images.shape)
    return Outcome(after, words(dut.start_at_o, count), words(dut.done_at_o, count))


def compare_memories(case: Case, got: Bytes, want: Bytes, names: Sequence[str] = MEMORIES) -> None:
    """Raise AssertionError at the first byte that differs."""
    for name, have, expected in zip(names, got, want, strict=True):
        bad = np.flatnonzero(have != expected)
        assert not len(bad), (
            f"{case.name}: {name}: {len(bad)} bytes differ, byte {bad[0]}: RTL {have[bad[0]]:#04x}, "
            f"simulator {expected[bad[0]]:#04x}"
        )
