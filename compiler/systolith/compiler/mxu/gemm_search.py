"""Choosing the tiles of a contraction: an estimate of the cycles of many candidates, the best ones closely.

The estimate of all candidates is made at once, a column for each quantity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.mxu.gemm_candidates import Candidates, Column, candidates, likeness
from systolith.compiler.mxu.gemm_pipeline import Flow, cycles_of
from systolith.compiler.mxu.gemm_plan import INPUTS_SHARE, GemmPlan, Problem, Source, bytes_of
from systolith.isa.chip import Chip
from systolith.isa.chip_reads import Known
from systolith.isa.instruction import Space
from systolith.isa.timing import array_latency

LOAD_OVERHEAD = 2
"""Cycles that a transfer costs besides its bytes."""

CLOSELY = 32
"""Candidates, the best by their bound, whose blocks are followed one by one."""

ALIKE = 0.01
"""Candidates whose estimates differ by less than this are alike; then the one of the fewest operations is chosen."""

ALIKE_ON_CHIP = 0.02
"""The same where the result stays in VMEM, for a candidate with far fewer operations (`FAR_FEWER`): there candidates
differ in how long they take to begin and to end, much of which overlaps with the groups around.  Measured by models:
BERT-base of 1 x 512 takes as many cycles as at 0.01 in 0.74 of the instructions, ResNet-50 of one image 1.4 % fewer, of
eight 0.8 % more; at 0.03 none is better, and some are worse.
"""

FAR_FEWER = 0.75
"""Part of the operations that a candidate may have for which a little more is taken into account."""

MOST_AHEAD = 8
"""Blocks whose operands are computed ahead, at most."""

PIECES = 4
"""Loads of the weights of a chunk, where the first blocks wait for them; each is one less that runs ahead."""

EXACT = 1 << 62
"""Where a product of numbers of a problem might be larger, columns have Python's integers."""


@dataclass(frozen=True, slots=True)
class _Followed:
    """A candidate whose blocks were followed: its number and flow, and what it is compared by."""

    number: int
    flow: Flow
    cycles: int
    moved: int
    tiles: int
    operations: int


class Ranked(Sequence[GemmPlan]):
    """Plans, the cheapest first, each made when it is asked for.

    Args:
        close: the first ones, whose blocks were followed.
        estimate: of all candidates.
        rest: numbers of the candidates that come then.
    """

    def __init__(self, close: Sequence[_Followed], estimate: Estimate, rest: Sequence[int]) -> None:
        self._close, self._estimate, self._rest = close, estimate, rest

    def __len__(self) -> int:
        return len(self._close) + len(self._rest)

    @overload
    def __getitem__(self, n: int) -> GemmPlan: ...

    @overload
    def __getitem__(self, n: slice) -> list[GemmPlan]: ...

    def __getitem__(self, n: int | slice) -> GemmPlan | list[GemmPlan]:
        if isinstance(n, slice):
            return [self[k] for k in range(*n.indices(len(self)))]
        many = len(self._close)
        n = range(len(self))[n]
        if n < many:
            return self._estimate.plan(self._close[n].number, self._close[n].flow, self._close[n].cycles)
        number = self._rest[n - many]
        return self._estimate.plan(number, self._estimate.flow(number), int(self._estimate.bound[number]))

    def others(self, cycles: int, most: int) -> list[GemmPlan]:
        """The first plan of each of the next numbers of cycles besides `cycles`, the fewest first."""
        first: dict[int, int] = {}
        for n, each in enumerate((*(p.cycles for p in self._close), *self._estimate.bound[list(self._rest)].tolist())):
            if each != cycles:
                first.setdefault(int(each), n)
        return [self[first[each]] for each in sorted(first)[:most]]


_known: Known[Ranked] = Known(1024)


def ranked(problem: Problem, chip: Chip, budget: int) -> Ranked:
    """The candidates whose staged operands fit in `budget` bytes of VMEM, the cheapest first.

    All are compared by what their slowest unit takes; the best then by the order in which their blocks come.
    """
    return _known.get((likeness(problem), budget), chip, lambda chip: _ranked(problem, chip, budget))


def _ranked(problem: Problem, chip: Chip, budget: int) -> Ranked:
    estimate = Estimate(problem, chip, budget, candidates(problem, chip))
    order = estimate.order()
    close = [each for n in order[:CLOSELY] for each in estimate.followed(n)]
    found = sorted(close, key=lambda p: (p.cycles, p.moved, p.tiles))
    first = _shortest(close, ALIKE)
    if first is not None and not problem.out_bytes:
        shorter = _shortest(close, ALIKE_ON_CHIP)
        first = shorter if shorter and shorter.operations <= first.operations * FAR_FEWER else first
    return Ranked(sorted(found, key=lambda p: p is not first), estimate, order[CLOSELY:])


def _shortest(close: Sequence[_Followed], near: float) -> _Followed | None:
    """Of the candidates whose cycles are so near the fewest the one of the fewest operations.

    A shorter program is worth more than what the estimate does not know anyway.
    """
    most = min((p.cycles for p in close), default=0) * (1 + near)
    return min((p for p in close if p.cycles <= most), key=lambda p: p.operations, default=None)


@dataclass(frozen=True)
class _Part:
    """What a block's part of an operand, of one chunk, takes: as in `Source`."""

    read: Column
    vector: Column


class Estimate:
    """Costs of all candidates of a problem, as columns.

    Args:
        p: the problem.
        chip: the target.
        budget: bytes of VMEM.
        c: its candidates.
    """

    def __init__(self, p: Problem, chip: Chip, budget: int, c: Candidates) -> None:
        self._p, self._chip, self._c = p, chip, c
        # How the operands lie.
        self._hbm = p.lhs.buf.space == Space.HBM, p.rhs.buf.space == Space.HBM
        self._count_blocks()
        self._compute_tiles()
        self._stage(budget)
        self._move()
        self._overlap()

    def order(self) -> list[int]:
        """The numbers of the candidates that fit, the cheapest first."""
        tiles = self._c.many_m * self._c.many_n
        keys = list(zip(self.bound.tolist(), self._moved.tolist(), tiles.tolist(), strict=True))
        return sorted(np.flatnonzero(self._fits).tolist(), key=keys.__getitem__)

    def _count_blocks(self) -> None:
        c, contraction = self._c, self._p.contraction
        self._m_blocks, self._n_blocks = _ceil(c.many_m, c.block_m), _ceil(c.many_n, c.block_n)
        self._chunks = _ceil(c.many_k, c.chunk)
        self._repeats = contraction.count(contraction.batch)
        self._blocks = self._m_blocks * self._n_blocks * self._repeats
        self._jobs = c.block_m * c.block_n

    def _compute_tiles(self) -> None:
        """Cycles of the matrix units, and how far ahead operands are computed."""
        p, c, chip, many = self._p, self._c, self._chip, self._chip.mxu.count
        stream = c.m_points * p.row_cost * p.lhs_passes + p.rhs_passes
        # A tile's load starts after the latch of the one before, which waits for that one's load.
        load = p.load_cost + chip.mxu.load_latency + 1
        step = np.maximum(stream, load * p.rhs_passes)
        self._compute = _ceil(self._jobs, many) * step
        # The vector unit waits for each block's results, and what the matrix units do meanwhile has to be there.
        waits = array_latency(chip) + self._compute * c.many_k
        every = np.maximum(1, self._jobs * step * c.many_k // many)
        most = np.minimum(np.where(self._chunks == 1, MOST_AHEAD, 1), self._blocks - 1)
        self._ahead = np.minimum(most, waits // every)

    def _stage(self, budget: int) -> None:
        """The parts of the operands that are kept in so many bytes of VMEM, and which candidates fit."""
        p, c, chip = self._p, self._c, self._chip
        lhs_hbm, rhs_hbm = self._hbm
        sources = p.sources()
        lhs_part = _ceil(self._exact(c.lhs) * p.lhs.dtype.size * c.block_m, self._chunks)
        rhs_part = _ceil(self._exact(c.rhs) * p.rhs.dtype.size, self._chunks)
        self._left = _part(sources[0], lhs_part, bytes_of(p.lhs), c.block_m)
        self._right = _part(sources[1], rhs_part, bytes_of(p.rhs), 1)
        later = [self._ahead if source else self._ahead * 0 for source in p.computed]
        many = chip.mxu.count
        # So many k tiles take longer than to store their results, whatever their rows.
        apart = 1 + transfer_cycles(many * chip.mxu.cols * 4, chip)
        last = c.many_k - (self._chunks - 1) * c.chunk
        self._apart = np.where(self._jobs > many, np.minimum(apart, last), 0)
        self._piece = _ceil(c.chunk, PIECES)
        lhs_again = np.where(c.m_outer, 1, self._n_blocks)
        rhs_again = np.where(c.m_outer, self._m_blocks, 1)
        lhs_need = self._need(lhs_part, self._m_blocks, lhs_again, self._n_blocks, later[0])
        rhs_need = self._need(rhs_part, self._n_blocks, rhs_again, self._m_blocks, later[1])
        if p.computed[1] is None:  # weights come in pieces, and go
            pieces = rhs_part * (self._apart + 2 * self._piece) // c.chunk
            one = (self._n_blocks == 1) & (self._m_blocks == 1)
            rhs_need = np.where(one, np.minimum(rhs_need, pieces), rhs_need)
        room = budget - (2 * c.m_points * c.block_points * 4 * c.block_m if p.out_bytes else 0)
        for part, source in zip((self._left, self._right), p.computed, strict=True):
            if source is not None:
                room = room - np.minimum(part.read, budget // INPUTS_SHARE)
        staged = (2 if p.minor and lhs_hbm else 1) * (lhs_hbm or bool(p.minor))
        kept = lhs_need * staged, rhs_need * rhs_hbm
        dropped = (
            (1 + np.maximum(1, later[0])) * lhs_part * staged,
            (1 + np.maximum(1, later[1])) * rhs_part * rhs_hbm,
        )
        # The operand of the outer loop is dropped first.
        one_lhs, one_rhs = np.where(c.m_outer, kept[0], dropped[0]), np.where(c.m_outer, dropped[1], kept[1])
        all_fit, one_fits = kept[0] + kept[1] <= room, one_lhs + one_rhs <= room
        lhs_kept, rhs_kept = all_fit | (one_fits & (c.m_outer == 1)), all_fit | (one_fits & (c.m_outer == 0))
        self._lhs_cache, self._lhs_times = (
            np.where(lhs_kept, kept[0], dropped[0]),
            np.where(lhs_kept, 1, self._n_blocks),
        )
        self._rhs_cache, self._rhs_times = (
            np.where(rhs_kept, kept[1], dropped[1]),
            np.where(rhs_kept, 1, self._m_blocks),
        )
        self._fits = np.asarray(all_fit | one_fits | (dropped[0] + dropped[1] <= room), bool)

    def _need(self, part: Column, own: Column, outer: Column, other: Column, ahead: Column) -> Column:
        """Bytes to keep so that nothing is staged twice.

        Args:
            part: bytes of one block's part of the operand, for a chunk.
            own: blocks of the operand.
            outer: how often the outer loop comes back to all of them.
            other: blocks of the other operand that pass while one of its own stays.
            ahead: blocks whose first parts are there before they are needed; 0: loads run ahead in room of their own.
        """
        every, early = part * self._chunks, ahead * part
        comes_back = every * own + (early if self._repeats > 1 else 0)
        stays = every + np.maximum(every, early)
        return np.where(outer > 1, comes_back, np.where(other > 1, stays, part + np.maximum(part, early)))

    def _move(self) -> None:
        """What goes to and from HBM."""
        p, c, repeats = self._p, self._c, self._repeats
        lhs_hbm, rhs_hbm = self._hbm
        lhs_moves, rhs_moves = self._m_blocks * self._lhs_times, self._n_blocks * self._rhs_times
        staged = self._left.read * lhs_moves + self._right.read * rhs_moves
        self._moved = p.out_bytes + p.epilogue_bytes + repeats * self._chunks * staged
        loads = repeats * self._chunks * (lhs_moves * c.block_m * lhs_hbm + rhs_moves * rhs_hbm)
        self._operations = 3 * c.many_m * c.many_n * c.many_k * repeats + loads

    def _overlap(self) -> None:
        """The columns of `Flow`, and the bounds that follow from them."""
        p, c, chip = self._p, self._c, self._chip
        lhs_hbm, rhs_hbm = self._hbm
        left, right, first = self._left, self._right, self._piece
        vpu = chip.vpu
        vector = _ceil(c.m_points, vpu.sublanes) * _ceil(c.n_points, vpu.lanes) * p.vector_cost
        store, read = (_ceil(transfer_cycles(n, chip), self._blocks) for n in (p.out_bytes, p.epilogue_bytes))
        self._flow = {
            "lhs": _transfer(left.read, chip) + LOAD_OVERHEAD * c.block_m * lhs_hbm,
            "rhs": _transfer(right.read, chip) + LOAD_OVERHEAD * rhs_hbm,
            "first": _transfer(left.read // c.block_m + right.read * first // c.chunk, chip),
            "vector": self._jobs * vector,
            "store": store + read,
            "last": np.minimum(self._jobs, chip.mxu.count) * (vector + store // self._jobs),
            "lhs_made": left.vector,
            "rhs_made": right.vector,
            "first_made": left.vector // c.block_m + right.vector * first // c.chunk,
            "turned": c.block_m * _ceil(c.turned, self._chunks),
        }
        self._ends = {"latency": chip.hbm.latency, "fill": array_latency(chip)}
        flow, times = self._flow, self._chunks * self._repeats
        lefts, rights = self._m_blocks * self._lhs_times * times, self._n_blocks * self._rhs_times * times
        transfer = flow["lhs"] * lefts + flow["rhs"] * rights + self._blocks * flow["store"]
        made = flow["lhs_made"] * lefts + flow["rhs_made"] * rights + self._blocks * flow["vector"]
        computed = self._blocks * c.many_k * self._compute
        latency = chip.hbm.latency
        begin = flow["first"] + latency * (flow["first"] > 0) + flow["first_made"] + flow["turned"]
        ends = begin + flow["last"] + self._ends["fill"] + latency * (store > 0)
        on_chip = np.maximum(np.maximum(computed, flow["turned"] * lefts), made) + ends
        self.bound = np.maximum(transfer + latency, on_chip)

    def _exact(self, column: Column) -> Column:
        """Elements of an operand as numbers that no product of this module overflows."""
        p, most = self._p, int(self._c.block_m.max())
        sources, whole = p.sources(), max(bytes_of(p.lhs), bytes_of(p.rhs))
        size = most * max(whole, *(max(s.read, s.vector) for s in sources))
        rounds = 2 * most * int((self._blocks * self._chunks).max())
        return column.astype(object) if size * max(size, rounds * self._chip.hbm.q) >= EXACT else column

    def followed(self, n: int) -> list[_Followed]:
        """A candidate with its blocks followed; and, where its jobs end one after another, with all ending together."""
        c = self._c
        compared = int(self._moved[n]), int(c.many_m[n] * c.many_n[n]), int(self._operations[n])
        flow = self.flow(n)
        flows = [flow, flow.together()] if flow.apart else [flow]
        return [_Followed(n, flow, cycles_of(flow), *compared) for flow in flows]

    def flow(self, n: int) -> Flow:
        """The flow of the blocks of a candidate."""
        return Flow(
            blocks=(int(self._m_blocks[n]), int(self._n_blocks[n])),
            m_outer=bool(self._c.m_outer[n]),
            repeats=self._repeats,
            tiles=len(self._c.tiles[n].k),
            chunk=int(self._c.chunk[n]),
            piece=int(self._piece[n]),
            apart=int(self._apart[n]),
            lhs_again=bool(self._lhs_times[n] > 1),
            rhs_again=bool(self._rhs_times[n] > 1),
            compute=int(self._compute[n]),
            **{name: int(column[n]) for name, column in self._flow.items()},
            **self._ends,
        )

    def plan(self, n: int, flow: Flow, cycles: int) -> GemmPlan:
        """The plan of a candidate, with its flow and the cycles that are estimated."""
        c, tiles = self._c, self._c.tiles[n]
        return GemmPlan(
            m=tiles.m,
            n=tiles.n,
            k=tiles.k,
            block_m=int(c.block_m[n]),
            block_n=int(c.block_n[n]),
            chunk=flow.chunk,
            apart=flow.apart,
            m_outer=flow.m_outer,
            lhs_cache=int(self._lhs_cache[n]),
            rhs_cache=int(self._rhs_cache[n]),
            operations=int(self._operations[n]),
            piece=flow.piece,
            moved=int(self._moved[n]),
            flow=flow,
            summed=tuple(self._p.contraction.names[a] for a in self._p.contraction.k),
            cycles=cycles,
            ahead=int(max(self._ahead[n] if source else 0 for source in self._p.computed)),
        )


def _part(source: Source, size: Column, whole: int, tiles: Column | int) -> _Part:
    """For `size` of the `whole` bytes of an operand, in so many tiles."""
    vector = (source.vector - source.each) * size // whole + source.each * tiles
    return _Part(source.read * size // whole, vector)


def _transfer(size: Column, chip: Chip) -> Column:
    """Cycles in which HBM moves so many bytes."""
    return size * chip.hbm.q // chip.hbm.p


def _ceil(a: Column | int, b: Column | int) -> Column:
    return np.asarray(-(-a // b))
