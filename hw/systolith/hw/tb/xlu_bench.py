"""The cross-lane unit against the simulator: random lists of shuffles and reductions, every byte and every time.

Environment: XLU_CHIP (preset), XLU_CHANGES (JSON: its fields as "group.field"), XLU_SEEDS ("first:last", last not
included).
"""

from __future__ import annotations

import json
import os

import cocotb

from systolith.hw.fuzz.patterns import loops_of
from systolith.hw.tb.dma_build import changed
from systolith.hw.tb.dma_cases import LENGTH, MEMORIES, Case, Streams, bench_chip, finish
from systolith.hw.tb.dma_play import Dut, begin, compare_memories, play
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import DTYPES, DType
from systolith.isa.instruction import Instruction, Space
from systolith.isa.opcodes import REDUCE_FUNCTIONS
from systolith.isa.pattern import MAX_LOOPS

WORDS = 16
VMEM = MEMORIES.index("VMEM")


def shuffle(streams: Streams) -> Instruction:
    """A `xlu.shuffle`."""
    draw = streams.draw
    size, half, elements = draw.pick((1, 2, 4)), draw.below(2), streams.elements()
    src, dst = (
        streams.make(Space.VMEM, half ^ side, streams.type_of(size), loops_of(draw, elements)) for side in range(2)
    )
    return Instruction("xlu.shuffle", {"src": src, "dst": dst})


def _types(function: str) -> list[DType]:
    """Element types that a function takes."""
    kinds = {"f32": ("float",), "s32": ("signed", "pred"), "u32": ("unsigned", "pred")}
    allowed = kinds.get(function.rpartition(".")[2], ("float", "signed", "unsigned", "pred"))
    return [t for t in DTYPES.values() if t.bits <= 32 and t.kind in allowed]


def _pick(streams: Streams, types: list[DType]) -> DType:
    """One of them; half the time one of 32 bits, in which sums are inexact and the order matters."""
    wide = [t for t in types if t.bits == 32]
    return streams.draw.pick(wide if streams.draw.chance(0.5) else types)


def reduction(streams: Streams, lanes: int) -> Instruction:
    """A `xlu.reduce`."""
    draw = streams.draw
    function, half = draw.pick(tuple(REDUCE_FUNCTIONS)), draw.below(2)
    taken = _pick(streams, _types(function))
    given = _pick(streams, [t for t in DTYPES.values() if t.size <= 4 and t.is_float is taken.is_float])
    rows = draw.between(1, draw.weighted((4, 40), (1, 2)))
    counts = (*loops_of(draw, rows, MAX_LOOPS - 1), draw.between(1, lanes))
    src = streams.make(Space.VMEM, half, taken, counts)
    dst = streams.make(Space.VMEM, 1 - half, given, loops_of(draw, rows))
    return Instruction("xlu.reduce", {"src": src, "dst": dst, "function": function})


def instructions(chip: Chip, seed: int) -> Case:
    """A list of random instructions."""
    streams = Streams("shuffles and reductions", seed)
    streams.program.code = [
        shuffle(streams) if streams.draw.chance(0.5) else reduction(streams, chip.vpu.lanes) for _ in range(LENGTH)
    ]
    return finish(streams, chip)


@cocotb.test()
async def random_instructions(dut: Dut) -> None:
    changes = json.loads(os.environ.get("XLU_CHANGES", "{}"))
    chip = bench_chip(changed(load_chip(os.environ.get("XLU_CHIP", "tiny")), changes))
    begin(dut)
    first, last = os.environ.get("XLU_SEEDS", "0:10").split(":")
    for seed in range(int(first), int(last)):
        case = instructions(chip, seed)
        memory = slice(VMEM, VMEM + 1)
        outcome = await play(dut, case, case.before[memory], WORDS)
        for i, cost in enumerate(case.costs):
            took = outcome.dones[i] - outcome.starts[i]
            assert took == cost.occupancy, f"{case.name}: {i}: {took} cycles, simulator {cost.occupancy}"
        compare_memories(case, outcome.after, case.after[memory], MEMORIES[memory])
