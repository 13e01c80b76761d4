"""Random `vpu.run` instructions: kernels of all micro-operations, streams of every kind, memories full of anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from systolith.hw.fuzz.draw import Draw
from systolith.isa.chip import Chip
from systolith.isa.dtypes import DTYPES
from systolith.isa.errors import ProgramError
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.kernel import CONST0, MAX_NEST, MAX_STREAMS, SCALAR0, Kernel, MicroOp
from systolith.isa.microops import MICROOPS, Slot
from systolith.isa.pattern import MAX_COORDS, UNBOUNDED, Coord, Pattern
from systolith.isa.program import Program
from systolith.isa.schedule import VIRTUAL0, schedule_kernel
from systolith.isa.verify import verify_program
from systolith.sim import kernels
from systolith.sim.independence import check_independent
from systolith.sim.memory import Machine, SimulationError

ITERATIONS = 150  # more than the rotating registers
INDEX_BYTES = 4 * (ITERATIONS + 8)  # small numbers at the bottom of VMEM; nothing is stored there
_WORDS = ("f32", "s32", "u32")
_NARROW = tuple(t.name for t in DTYPES.values() if t.size < 4)
_ARITHMETIC = tuple(m for m in MICROOPS.values() if m.name not in ("ld", "st", "coord", "inside"))


@dataclass(frozen=True)
class Case:
    """A program of one `vpu.run`.

    Attributes:
        program, chip: of the run.
        memory: VMEM before it, in words; the accumulators have the same ones, turned.
        pause: cycles after it in which nothing starts.
    """

    program: Program
    chip: Chip
    memory: np.ndarray[tuple[int], np.dtype[np.uint32]]
    pause: int

    @property
    def instruction(self) -> Instruction:
        return self.program.code[0]

    def machine(self) -> Machine:
        """A machine whose VMEM and accumulators hold the case's words."""
        m = Machine(self.program, self.chip, {})
        m.vmem[:] = self.memory.view(np.uint8)
        for number, acc in enumerate(m.acc):
            acc.reshape(-1)[:] = np.roll(self.memory, number + 1)[: acc.size]
        return m


def memory_words(draw: Draw, words: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Numbers of moderate size, whole numbers, special values and any bits; the index list's entries first."""
    g = draw.generator
    kinds = [
        g.standard_normal(words).astype(np.float32).view(np.uint32),
        (g.standard_normal(words) * 1e3).astype(np.int32).view(np.uint32),
        g.integers(0, 2**32, words, np.uint32),
        np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FA00001, 1, 0xFFFFFFFF], np.uint32)[
            g.integers(0, 8, words)
        ],
    ]
    out = np.choose(g.choice(4, words, p=(0.5, 0.2, 0.2, 0.1)), kinds)
    out[: INDEX_BYTES // 4] = g.integers(-2, 7, INDEX_BYTES // 4).astype(np.int32).view(np.uint32)
    return out


def _coord(draw: Draw, loops: int, size: int) -> Coord:
    lo = draw.between(-3, 4)
    return Coord(
        coefs=tuple(draw.pick((0, 0, 1, 1, 2, -1, 3, -5)) for _ in range(loops)),
        offset=draw.between(-6, 6),
        lo=draw.pick((lo, UNBOUNDED[0], UNBOUNDED[0])),
        hi=draw.pick((lo + draw.between(0, 14), UNBOUNDED[1], UNBOUNDED[1])),
        div=draw.pick((1, 1, 1, 2, 3, 7)),
        stride=draw.pick((0, 0, size, -size, 4 * size, 12)),
        bias=draw.between(-1, 1),
    )


def _pattern(draw: Draw, nest: tuple[int, ...], chip: Chip, dtype: str) -> Pattern:
    sublanes, lanes = chip.vpu.sublanes, chip.vpu.lanes
    vector = draw.pick(((sublanes, lanes), (1, lanes), (draw.between(1, sublanes), draw.between(1, lanes))))
    counts = (*nest, *vector)
    size = DTYPES[dtype].size
    strides = [size * prod(counts[k + 1 :]) for k in range(len(counts))]
    shape = draw.below(4)
    if shape == 0:
        strides = [s * draw.pick((1, 1, 0, -1, 2)) for s in strides]
    elif shape == 1:
        strides = [size * draw.between(-6, 10) for _ in strides]
    coords = tuple(_coord(draw, len(counts), size) for _ in range(draw.pick((0, 0, 0, 1, 1, 2, MAX_COORDS))))
    fill = draw.pick((0, 0x3F800000, 0xFF800000, 0x7FA00001, 5, draw.word()))
    indirect = draw.below(len(counts)) if draw.chance(0.2) else -1
    return Pattern(DTYPES[dtype], counts, tuple(strides), coords, fill, indirect)


def _stream(draw: Draw, program: Program, nest: tuple[int, ...], chip: Chip, at: int) -> Stream:
    """A stream whose elements lie around VMEM address `at` (0: anywhere), or in the accumulators."""
    space = draw.weighted((Space.VMEM, Space.ACC, Space.NONE), (8, 2, 1))
    dtype = draw.pick(_WORDS) if space is Space.ACC or draw.chance(0.5) else draw.pick(_NARROW)
    program.patterns.append(_pattern(draw, nest, chip, dtype))
    base = at or draw.pick((8192, 8192 + 4 * draw.below(16), 12000, 16384, 20000 + draw.below(8)))
    if space is Space.ACC:
        base = draw.pick((1024, 2048, 4096)) + 4 * draw.below(16)
    number = draw.below(chip.mxu.count) if space is Space.ACC else 0
    bias = (draw.between(-4, 4), draw.between(-4, 4))
    return Stream(space, len(program.patterns) - 1, base, number, bias, 4 * draw.below(8))


class _Section:
    """Micro-operations on virtual registers, in any order that is right."""

    def __init__(self, draw: Draw, program: Program, streams: tuple[Stream, ...], constants: int, apart: bool) -> None:
        self.draw = draw
        self.program = program
        self.streams = streams
        memory = [n for n, s in enumerate(streams) if s.space is not Space.NONE]
        self.loads = [n for n in memory if not (apart and n % 2)]
        self.stores = [n for n in memory if n % 2 or not apart]
        self.fixed = [*range(CONST0, CONST0 + constants), *range(SCALAR0, SCALAR0 + 4)]
        self.next = VIRTUAL0
        self.live: list[int] = []

    def fresh(self) -> int:
        """A register not used so far."""
        self.next += 1
        return self.next - 1

    def ops(self, count: int, targets: tuple[int, ...] = ()) -> list[MicroOp]:
        """`count` operations, some of which write `targets`, each of them once."""
        out: list[MicroOp] = []
        at = dict(zip(self.draw.sample(range(count), len(targets)), targets, strict=False))
        for i in range(count):
            m = self._one(at.get(i))
            out.append(m)
            if m.dst >= 0 and m.dst not in self.live:
                self.live.append(m.dst)
        return out

    def _one(self, target: int | None) -> MicroOp:
        draw, kind = self.draw, self.draw.below(20)
        if kind < 4 and target is None and self.stores:
            return MicroOp("st", -1, (self._source(),), draw.pick(self.stores))
        dst = self.fresh() if target is None else target
        if kind < 9 and self.loads:
            return MicroOp("ld", dst, (), draw.pick(self.loads))
        if kind in (9, 10):
            n = draw.below(len(self.streams))
            coords = len(self.program.patterns[self.streams[n].pattern].coords)
            if coords and draw.chance(0.7):
                return MicroOp("coord", dst, (), n + 16 * draw.below(coords))
            return MicroOp("inside", dst, (), n)
        info = draw.pick([m for m in _ARITHMETIC if (m.slot is Slot.TRANS) == (kind == 11)])
        return MicroOp(info.name, dst, tuple(self._source() for _ in range(info.sources)))

    def _source(self) -> int:
        if self.live and self.draw.chance(0.85):
            return int(self.draw.pick(self.live[-6:]))
        return int(self.draw.pick(self.fixed))


def _kernel(draw: Draw, program: Program, streams: tuple[Stream, ...], chip: Chip, apart: bool) -> Kernel:
    constants = tuple(draw.image() for _ in range(draw.below(5)))
    code = _Section(draw, program, streams, len(constants), apart)
    shape = draw.below(3)  # 0: body alone; 1: sections around it; 2: carried registers
    first: list[MicroOp] = []
    if shape:
        first = code.ops(draw.between(0, 4))
    carried = tuple(code.fresh() for _ in range(draw.between(1, 3))) if shape == 2 else ()
    for c in carried:
        first.append(MicroOp("mov", c, (code._source(),)))
        code.live.append(c)
    many = draw.weighted((draw.between(0, 2), draw.between(2, 12), draw.between(12, 40)), (1, 8, 2))
    body = code.ops(many, carried)
    last = code.ops(draw.between(0, 5)) if shape else []
    for section in ((body, last) if shape else (body,)) if code.stores else ():
        section.append(MicroOp("st", -1, (code._source(),), draw.pick(code.stores)))
    return schedule_kernel(f"k{len(program.kernels)}", first, body, last, constants, chip)


def _instruction(draw: Draw, program: Program, chip: Chip) -> Instruction:
    loops = draw.pick((1, draw.between(1, MAX_NEST)))
    total = draw.pick((1, 4, 20, ITERATIONS))
    nest = tuple(draw.split(total, loops)) if loops > 1 else (total,)
    many = draw.weighted((1, 2, 4, MAX_STREAMS), (2, 4, 6, 1))
    # Half of the time iterations are to be independent: odd streams are for stores, and lie apart.
    apart = draw.chance(0.5) and many > 1
    places = (8192, 20000) if apart else (0, 0)
    streams = tuple(_stream(draw, program, nest, chip, places[n % 2]) for n in range(many))
    for _ in range(draw.weighted((1, 3), (4, 1))):
        program.kernels.append(_kernel(draw, program, streams, chip, apart))
    return Instruction(
        "vpu.run",
        {
            "kernel": draw.below(len(program.kernels)),
            "counts": nest,
            "inner": draw.pick((len(nest), draw.between(0, len(nest)))),
            "serial": int(draw.chance(0.25)),
            "scalars": tuple(draw.image() for _ in range(4)),
            "streams": streams,
        },
    )


def _attempt(draw: Draw, chip: Chip) -> Case | None:
    """A case; None if the one drawn is not legal."""
    program = Program("vpu", chip.name, chip.digest())
    try:
        instr = _instruction(draw, program, chip)
        program.code = [instr, Instruction("halt")]
        verify_program(program, chip)
    except ProgramError:
        return None
    case = Case(program, chip, memory_words(draw, chip.vmem.bytes // 4), draw.pick((0, 0, 3)))
    machine = case.machine()
    try:
        check_independent(kernels.prepare(machine, instr))
    except SimulationError:
        # Iterations that depend on each other are for serial mode.
        program.code[0] = replace(instr, args={**instr.args, "serial": 1})
    return case


def long_case(chip: Chip) -> Case:
    """More iterations than rotating registers, values that live for many of them, and a sum in a static register."""
    program = Program("vpu", chip.name, chip.digest())
    size = chip.vpu.lanes * 4
    pattern = Pattern(DTYPES["f32"], (ITERATIONS, 1, chip.vpu.lanes), (size, size, 4))
    program.patterns = [pattern, replace(pattern, strides=(0, size, 4))]
    total, x, y, z = range(VIRTUAL0, VIRTUAL0 + 4)
    body = [
        MicroOp("ld", x, (), 0),
        MicroOp("exp.f32", y, (x,)),
        MicroOp("add.f32", z, (x, y)),
        MicroOp("add.f32", total, (total, x)),
        MicroOp("st", -1, (z,), 1),
    ]
    last = [MicroOp("st", -1, (total,), 2)]
    program.kernels = [schedule_kernel("k", [MicroOp("mov", total, (CONST0,))], body, last, (0,), chip)]
    streams = tuple(Stream(Space.VMEM, p, base) for p, base in ((0, 1024), (0, 12288), (1, 24576)))
    program.code = [
        Instruction(
            "vpu.run",
            {
                "kernel": 0,
                "counts": (ITERATIONS,),
                "inner": 1,
                "serial": 0,
                "scalars": (0,) * 4,
                "streams": streams,
            },
        ),
        Instruction("halt"),
    ]
    verify_program(program, chip)
    return Case(program, chip, memory_words(Draw(0), chip.vmem.bytes // 4), 0)


def random_case(seed: int, chip: Chip) -> Case:
    """A legal case; the same seed gives the same one."""
    draw = Draw(seed)
    while True:
        case = _attempt(draw, chip)
        if case is not None:
            return case
