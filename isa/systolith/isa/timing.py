"""Closed forms: how long an instruction occupies its unit and when it is done.

Pure functions of instruction, patterns, kernels and chip: the compiler's cost model and the simulator both call these.
Times do not depend on addresses or data, so a `CostModel` remembers one cost for each combination of patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from systolith.isa.geometry import row_accesses, runs, side_accesses
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.kernel import CONST0, Kernel, Section
from systolith.isa.opcodes import queue_of, size_words
from systolith.isa.pattern import Pattern

if TYPE_CHECKING:
    from systolith.isa.chip import Chip
    from systolith.isa.program import Program


@dataclass(frozen=True)
class Cost:
    """Time of one instruction, in cycles.

    Attributes:
        occupancy: from its start to the earliest start of the next in its queue.  With `chunks` the arbiter decides;
            these are the cycles of bandwidth that its chunks take.
        latency: from its start to its retirement.  With `chunks`: `hbm.latency` after the last grant; this is that
            after `occupancy`.
        chunks: grants of HBM that it needs; 0 if it does not touch HBM.
        hbm_bytes: bytes that HBM moves for it, whole granules.
        array_active: cycles in which a row enters the array.
        host_bytes: that the host must have, or have room for, before the occupancy begins.
        causes: where the occupancy goes besides useful work: `self_conflict` (accesses of strided or wide rows),
            `weight_shift`, `granularity` (chunks moved for nothing), `fill` (pipelines that fill and drain),
            `host_link` (the host's link is slower than the memories, and is set up).
    """

    occupancy: int
    latency: int
    chunks: int = 0
    hbm_bytes: int = 0
    array_active: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    host_bytes: int = 0


def issue_cycles(instr: Instruction, chip: Chip) -> int:
    """Cycles that SEQ spends on an instruction (a taken branch: `seq.branch_penalty` more; a loop's way back: none)."""
    if queue_of(instr) == "seq":
        return 1
    return -(-size_words(instr) // chip.seq.fetch_words)


def row_cycles(pattern: Pattern, row_loops: int, segments: int, segment_bytes: int) -> int:
    """Cycles to read one row through a port of `segments` accesses of `segment_bytes` a cycle."""
    return -(-row_accesses(pattern, row_loops, segment_bytes) // segments)


def vector_cycles(pattern: Pattern, chip: Chip) -> int:
    """Cycles in which a VPU port reads or writes one vector: the last two loops of the pattern."""
    return row_cycles(pattern, max(len(pattern.counts) - 2, 0), chip.vpu.sublanes, chip.vpu.lanes * 4)


def _mxu_rows(pattern: Pattern, row_loops: int, chip: Chip) -> tuple[int, int]:
    """(rows, cycles a row)."""
    return prod(pattern.counts[:row_loops]), row_cycles(pattern, row_loops, chip.mxu.segments, chip.mxu.segment_bytes)


def load_cost(pattern: Pattern, row_loops: int, chip: Chip) -> Cost:
    """`mxu.load`: rows x row cost; `mxu.load_latency` more until done."""
    rows, each = _mxu_rows(pattern, row_loops, chip)
    causes = {"weight_shift": rows, "self_conflict": rows * (each - 1)}
    return Cost(rows * each, rows * each + chip.mxu.load_latency, causes=causes)


def array_latency(chip: Chip) -> int:
    """Cycles from the last row that enters a matrix unit to its sums in the accumulators."""
    return chip.mxu.rows + chip.mxu.cols + chip.mxu.pipeline


def matmul_cost(pattern: Pattern, row_loops: int, chip: Chip) -> Cost:
    """`mxu.matmul`: rows x row cost; the way through the array and `mxu.pipeline` more until done."""
    rows, each = _mxu_rows(pattern, row_loops, chip)
    latency = rows * each + array_latency(chip)
    return Cost(rows * each, latency, array_active=rows, causes={"self_conflict": rows * (each - 1)})


def carried(kernel: Kernel) -> bool:
    """Whether the body reads a register before it writes it."""
    written: set[int] = set()
    for m in kernel.body.ops:
        if any(s < CONST0 and s not in written for s in m.srcs):
            return True
        written.add(m.dst)
    return False


def _extra(section: Section, vectors: Sequence[int]) -> int:
    """Cycles by which a section's loads and stores exceed one access each."""
    return sum(vectors[m.imm] - 1 for m in section.ops if m.op in ("ld", "st"))


def nest_cycles(outer: int, inner: int, interval: int, length: int) -> int:
    """Cycles of a kernel's loops, without filling the pipeline.

    Args:
        outer: times that the inner loop runs, each after the one before is done; 1: all iterations overlap.
        inner: iterations of the inner loop.
        interval: cycles from one of these to the next.
        length: cycles of one of these, and of the code before and after the inner loop.
    """
    return outer * ((inner - 1) * interval + length)


def vpu_cost(
    kernel: Kernel, counts: Sequence[int], inner: int, serial: bool, streams: Sequence[Pattern], chip: Chip
) -> Cost:
    """`vpu.run`: a modulo schedule; every access beyond the first of a load or store stalls the pipeline a cycle.

    With II' = II + extra and length' = length + extra: (N - 1) x II' + length' for kernels whose iterations all
    overlap; outer x (prologue' + (inner - 1) x II' + length' + epilogue') for those with prologue, epilogue or carried
    registers.  serial: II' is at least length'.
    """
    vectors = [vector_cycles(p, chip) for p in streams]
    stalls = [_extra(s, vectors) for s in (kernel.prologue, kernel.body, kernel.epilogue)]
    first, length, last = (
        s.length + e for s, e in zip((kernel.prologue, kernel.body, kernel.epilogue), stalls, strict=True)
    )
    ii = max(kernel.ii + stalls[1], length) if serial else kernel.ii + stalls[1]
    total = prod(counts)
    if kernel.prologue.ops or kernel.epilogue.ops or carried(kernel):
        outer = prod(counts[: len(counts) - inner])
    else:
        outer = 1
    cycles = max(nest_cycles(outer, total // outer, ii, first + length + last), 1)
    causes = {
        "self_conflict": outer * (stalls[0] + stalls[2]) + total * stalls[1],
        "fill": max(outer * (kernel.prologue.length + kernel.body.length - kernel.ii + kernel.epilogue.length), 0),
    }
    return Cost(cycles, cycles, causes=causes)


def shuffle_cost(src: Pattern, dst: Pattern, chip: Chip) -> Cost:
    """`xlu.shuffle`: `xlu.latency` and the accesses of the side that has more."""
    accesses = max(side_accesses(p, chip.vpu.lanes) for p in (src, dst))
    cycles = chip.xlu.latency + accesses
    least = -(-src.elements // chip.vpu.lanes)
    return Cost(cycles, cycles, causes={"self_conflict": accesses - least, "fill": chip.xlu.latency})


def reduce_cost(src: Pattern, chip: Chip) -> Cost:
    """`xlu.reduce`: `xlu.latency` and a vector's cycles for each row of the source."""
    each = row_cycles(src, len(src.counts) - 1, chip.vpu.sublanes, chip.vpu.lanes * 4)
    rows = prod(src.counts[:-1])
    cycles = chip.xlu.latency + rows * each
    return Cost(cycles, cycles, causes={"self_conflict": rows * (each - 1), "fill": chip.xlu.latency})


def _side_cycles(pattern: Pattern, chip: Chip) -> int:
    n, run = runs(pattern)
    return -(-n * -(-run // chip.hbm.chunk) // chip.dma.segments)


def dma_cost(src: Pattern, src_space: Space, dst: Pattern, dst_space: Space, chip: Chip) -> Cost:
    """`dma.load`, `dma.store`: chunks of HBM, or one chunk a cycle between other memories; the host's link in between.

    The host: `host.setup`, then the longer of the cycles of the other side and bytes x q / p.
    """
    h = chip.hbm
    useful = -(-src.elements * src.dtype.size // h.chunk)
    sides = ((src, src_space), (dst, dst_space))
    local = max((_side_cycles(p, chip) for p, space in sides if space is not Space.HBM), default=0)
    if Space.HBM not in (src_space, dst_space):
        cycles = max(useful, local)
        causes = {"self_conflict": cycles - useful}
        if Space.HOST in (src_space, dst_space):
            size = src.elements * src.dtype.size
            occupancy = chip.host.setup + max(cycles, -(-size * chip.host.q // chip.host.p))
            causes["host_link"] = occupancy - cycles
            return Cost(occupancy, occupancy + chip.host.latency, causes=causes, host_bytes=size)
        return Cost(cycles, cycles + chip.dma.local_latency, causes=causes)
    n, run = runs(src if src_space is Space.HBM else dst)
    moved = n * -(-run // h.granule) * h.granule
    needed = -(-moved // h.chunk)
    chunks = max(needed, local)
    least = -(-chunks * h.chunk * h.q // h.p)
    causes = {"granularity": needed - useful, "self_conflict": chunks - needed}
    return Cost(least, least + h.latency, chunks, moved, causes=causes)


_ONE = Cost(1, 1)


class CostModel:
    """Costs of a program's instructions on a chip.

    Patterns and kernels may be added to the program while it is in use, but not changed.
    """

    def __init__(self, program: Program, chip: Chip) -> None:
        self.program = program
        self.chip = chip
        self._known: dict[Hashable, Cost] = {}

    def of(self, instr: Instruction) -> Cost:
        """The cost of an instruction; one that only waits, signals or latches takes 1 cycle."""
        op = instr.op
        rule = _RULES.get(op)
        if rule is None:
            return _ONE
        key_of, compute = rule
        key = op, key_of(instr.args)
        cost = self._known.get(key)
        if cost is None:
            cost = self._known[key] = compute(self, op, instr.args)
        return cost

    def _pattern(self, stream: Stream) -> Pattern:
        return self.program.patterns[stream.pattern]

    def _mxu(self, op: str, args: Args) -> Cost:
        form = load_cost if op == "mxu.load" else matmul_cost
        return form(self._pattern(args["src"]), args["row_loops"], self.chip)

    def _vpu(self, op: str, args: Args) -> Cost:
        kernel, patterns = self.program.kernels[args["kernel"]], [self._pattern(s) for s in args["streams"]]
        return vpu_cost(kernel, args["counts"], args["inner"], bool(args["serial"]), patterns, self.chip)

    def _copy(self, op: str, args: Args) -> Cost:
        src, dst = args["src"], args["dst"]
        if op == "xlu.shuffle":
            return shuffle_cost(self._pattern(src), self._pattern(dst), self.chip)
        return dma_cost(self._pattern(src), src.space, self._pattern(dst), dst.space, self.chip)

    def _reduce(self, op: str, args: Args) -> Cost:
        return reduce_cost(self._pattern(args["src"]), self.chip)


Args = Mapping[str, Any]


def _mxu_key(args: Args) -> Hashable:
    return args["src"].pattern, args["row_loops"]


def _vpu_key(args: Args) -> Hashable:
    streams = tuple([s.pattern for s in args["streams"]])
    return args["kernel"], args["counts"], args["inner"], args["serial"], streams


def _copy_key(args: Args) -> Hashable:
    src, dst = args["src"], args["dst"]
    return src.pattern, src.space, dst.pattern, dst.space


_MXU, _COPY = (_mxu_key, CostModel._mxu), (_copy_key, CostModel._copy)
_RULES: dict[str, tuple[Callable[[Args], Hashable], Callable[[CostModel, str, Args], Cost]]] = {
    "mxu.load": _MXU,
    "mxu.matmul": _MXU,
    "vpu.run": (_vpu_key, CostModel._vpu),
    "dma.load": _COPY,
    "dma.store": _COPY,
    "xlu.shuffle": _COPY,
    "xlu.reduce": (lambda args: args["src"].pattern, CostModel._reduce),
}
"""The arguments that the cost of an instruction depends on, and its cost by them; all others take one cycle."""


class _Latest:
    """The cost model of the program asked for last."""

    model: CostModel | None = None


def cost(instr: Instruction, program: Program, chip: Chip) -> Cost:
    """The cost of one instruction (a `CostModel` kept for the program asked for last)."""
    model = _Latest.model
    if model is None or model.program is not program or model.chip is not chip:
        model = _Latest.model = CostModel(program, chip)
    return model.of(instr)
