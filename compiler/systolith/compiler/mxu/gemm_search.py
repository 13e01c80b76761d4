"""Choosing the tiles of a contraction: an estimate of the cycles of many candidates, the best ones closely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import product
from math import prod

from systolith.compiler.cost.prices import transfer_cycles, vectors
from systolith.compiler.index.affine import Box
from systolith.compiler.mxu.gemm_pipeline import Flow
from systolith.compiler.mxu.gemm_plan import INPUTS_SHARE, GemmPlan, Problem, Source, bytes_of
from systolith.compiler.mxu.gemm_tiles import box_tiles, packed_tiles
from systolith.compiler.mxu.turned_operand import turned
from systolith.compiler.tile.arrays import dense_like
from systolith.compiler.vpu.shuffles import shuffle_cycles
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.timing import array_latency

LOAD_OVERHEAD = 2
"""Cycles that a transfer costs besides its bytes."""

CLOSELY = 32
"""Candidates, the best by their bound, whose blocks are followed one by one."""

ALIKE = 0.01
"""Candidates whose estimates differ by less than this are alike; then the one of the fewest operations is chosen."""

MOST_AHEAD = 8
"""Blocks whose operands are computed ahead, at most."""

PIECES = 4
"""Loads of the weights of a chunk, where the first blocks wait for them; each is one less that runs ahead."""

WAYS = (1, 2, 4)
"""Tiles of rows that a block has."""

Operand = tuple[int, int]
"""Bytes of an operand that are kept, and how often each part is loaded then."""


@dataclass(frozen=True)
class _Asked:
    """A request for plans; equal for layers whose plans are equal."""

    likeness: Hashable
    budget: int
    problem: Problem = field(compare=False)
    chip: Chip = field(compare=False)


def ranked(problem: Problem, chip: Chip, budget: int) -> Sequence[GemmPlan]:
    """The candidates whose staged operands fit in `budget` bytes of VMEM, the cheapest first."""
    arrays = [(a.buf.space, a.dtype.name, a.dims, a.strides) for a in (problem.lhs, problem.rhs)]
    others = [getattr(problem, f.name) for f in fields(problem) if f.name not in ("lhs", "rhs")]
    return _ranked(_Asked((chip.digest(), *arrays, *others), budget, problem, chip))


@lru_cache(maxsize=256)
def _ranked(asked: _Asked) -> tuple[GemmPlan, ...]:
    """`ranked`, once for problems alike.

    All are compared by what their slowest unit takes; the best then by the order in which their blocks come.
    """
    problem, chip, budget = asked.problem, asked.chip, asked.budget

    def key(p: GemmPlan) -> tuple[int, int, int]:
        return p.cycles, p.moved, len(p.m) * len(p.n)

    plans = sorted(_candidates(problem, chip, budget), key=key)
    close = [
        replace(q, cycles=q.flow.cycles()) for p in plans[:CLOSELY] for q in ([p, p.not_apart()] if p.apart else [p])
    ]
    found = sorted(close, key=key) + plans[CLOSELY:]
    # A shorter program is worth more than what the estimate does not know anyway.
    alike = [p for p in close if p.cycles <= found[0].cycles * (1 + ALIKE)]
    first = min(alike, key=lambda p: p.operations, default=None)
    return tuple(sorted(found, key=lambda p: p is not first))


def _candidates(p: Problem, chip: Chip, budget: int) -> Iterator[GemmPlan]:
    c, mxu = p.contraction, chip.mxu
    half = max(1, mxu.acc_rows // 2)
    rows = c.count(c.m)
    n = tuple(box_tiles(c.dims(c.n), mxu.cols))
    orders = _orders(packed_tiles(c.dims(c.k), p.depth))
    fewest = -(-rows // half)
    jobs_wanted = -(-fewest // mxu.count) * mxu.count
    turns = cache(partial(_turned_cycles, p, chip))
    seen = set()
    for pieces in (fewest, jobs_wanted, 2 * jobs_wanted, 4 * jobs_wanted, 8 * jobs_wanted, 16 * jobs_wanted):
        m = tuple(box_tiles(c.dims(c.m), min(half, -(-rows // pieces))))
        if len(m) in seen:
            continue
        seen.add(len(m))
        most = max(1, half // m[0].elements) * mxu.count
        wide = sorted({min(w, len(n)) for w in (1, mxu.count, max(1, most // 2), most)})
        shapes = [s for s in product(WAYS, wide) if s[0] <= len(m) and (prod(s) <= most or s[0] == 1)]
        for (k, chunks), shape, m_outer in product(orders, shapes, (True, False)):
            for chunk, spans in chunks.items():
                plan = _Candidate(p, chip, m, n, k, *shape, chunk, spans, m_outer, turns).plan(budget)
                if plan is not None:
                    yield plan


Spans = tuple[tuple[Box, int], ...]
"""Ranges of the sum's axes that chunks span, one of each size, and how many chunks have this size."""


def _orders(tiles: Sequence[Box]) -> list[tuple[tuple[Box, ...], dict[int, Spans]]]:
    """Orders of the tiles of the sum, and for each how many to stage at a time, with the spans of these chunks.

    As they come, and by the innermost axis first: all taps of a window over some channels read one box of the input.
    """
    orders = [(tuple(tiles), _spans(tiles, _chunks(len(tiles))))]
    sideways = sorted(tiles, key=lambda t: t.origin[-1:])
    if sideways != list(tiles):
        first = sideways[0]
        together = sum((t.origin[-1], t.dims[-1]) == (first.origin[-1], first.dims[-1]) for t in sideways)
        chunks = [n * together for n in _chunks(-(-len(tiles) // together))]
        orders.append((tuple(sideways), _spans(sideways, chunks)))
    return orders


def _spans(tiles: Sequence[Box], chunks: Sequence[int]) -> dict[int, Spans]:
    """For each size of chunks, what they span: one that goes on in the next image spans both, whole."""
    found = {}
    for chunk in chunks:
        spans = [Box.hull(tiles[start : start + chunk]) for start in range(0, len(tiles), chunk)]
        sizes = [span.dims for span in spans]
        counts = Counter(sizes)
        found[chunk] = tuple((spans[sizes.index(size)], count) for size, count in counts.items())
    return found


def _chunks(count: int) -> list[int]:
    """A count, and halves of it down to 1."""
    sizes = {count}
    while count > 1:
        count = -(-count // 2)
        sizes.add(count)
    return sorted(sizes, reverse=True)


@dataclass(frozen=True)
class _Staging:
    """How the operands of a candidate are staged.

    Attributes:
        lhs, rhs: bytes that are kept, and how often each part is loaded then.
        left, right: what a block's part of each, of one chunk, takes.
        apart, piece: as in `GemmPlan`.
        ahead: blocks whose first parts are computed before they are needed.
    """

    lhs: Operand
    rhs: Operand
    left: Source
    right: Source
    apart: int
    piece: int
    ahead: int


@dataclass(frozen=True)
class _Candidate:
    """Tiles and blocks to be evaluated; see `GemmPlan`."""

    p: Problem
    chip: Chip
    m: tuple[Box, ...]
    n: tuple[Box, ...]
    k: tuple[Box, ...]
    block_m: int
    block_n: int
    chunk: int
    spans: Spans
    m_outer: bool
    turns: Callable[[tuple[int, ...]], int]

    @cached_property
    def counts(self) -> tuple[int, int, int, int]:
        """Blocks along m and n, chunks of the sum, batches."""
        c = self.p.contraction
        m, n, k = -(-len(self.m) // self.block_m), -(-len(self.n) // self.block_n), -(-len(self.k) // self.chunk)
        return m, n, k, c.count(c.batch)

    @cached_property
    def blocks(self) -> int:
        """Blocks of all batches."""
        m, n, _, repeats = self.counts
        return m * n * repeats

    @property
    def jobs(self) -> int:
        return self.block_m * self.block_n

    @cached_property
    def compute(self) -> int:
        """Cycles of the matrix units for a k tile of a block."""
        return -(-self.jobs // self.chip.mxu.count) * _step(self.p, self.chip, self.m[0])

    @property
    def in_hbm(self) -> tuple[bool, bool]:
        """Whether the operands lie in HBM."""
        return self.p.lhs.buf.space == Space.HBM, self.p.rhs.buf.space == Space.HBM

    @cached_property
    def boxes(self) -> list[tuple[Box, Box, int]]:
        """Boxes of the operands that an m tile, and a block of n tiles, need of a chunk, and for how many chunks."""
        p, c = self.p, self.p.contraction
        block = Box.product(c.one_batch, self.m[0], Box.hull(self.n[: self.block_n]))
        spans = [(Box.product(block, span), count) for span, count in self.spans]
        return [(c.lhs.reach(s, p.lhs.dims), c.rhs.reach(s, p.rhs.dims), count) for s, count in spans]

    @cached_property
    def parts(self) -> tuple[int, int]:
        """Bytes of each operand for a block and a chunk, of all chunks in the mean."""
        p, chunks = self.p, self.counts[2]
        lhs = sum(box.elements * count for box, _, count in self.boxes) * p.lhs.dtype.size * self.block_m
        rhs = sum(box.elements * count for _, box, count in self.boxes) * p.rhs.dtype.size
        return -(-lhs // chunks), -(-rhs // chunks)

    @cached_property
    def turned(self) -> int:
        """Cycles in which the cross-lane unit copies the left operand of a block and a chunk in another order."""
        if not self.p.minor:
            return 0
        cycles = sum(count * self.turns(box.dims) for box, _, count in self.boxes)
        return self.block_m * -(-cycles // self.counts[2])

    def ahead(self) -> int:
        """Blocks whose operands are computed ahead: the vector unit waits for each block's results, and what the matrix
        units do meanwhile has to be there.
        """
        chunks = self.counts[2]
        waits = array_latency(self.chip) + self.compute * len(self.k)
        every = max(1, self.jobs * _step(self.p, self.chip, self.m[0]) * len(self.k) // self.chip.mxu.count)
        return min(MOST_AHEAD if chunks == 1 else 1, self.blocks - 1, waits // every)

    def staging(self, budget: int) -> _Staging | None:
        """The parts of the operands kept in so many bytes of VMEM; None: not even those of one block fit."""
        p, (m_blocks, n_blocks, chunks, repeats), (lhs_part, rhs_part) = self.p, self.counts, self.parts
        lhs_hbm, rhs_hbm = self.in_hbm
        ahead = self.ahead()
        later = [ahead if source else 0 for source in p.computed]
        again = (1, m_blocks) if self.m_outer else (n_blocks, 1)
        lhs_need, lhs_times = _reuse(lhs_part * chunks, lhs_part, m_blocks, (again[0], n_blocks, repeats), later[0])
        rhs_need, rhs_times = _reuse(rhs_part * chunks, rhs_part, n_blocks, (again[1], m_blocks, repeats), later[1])
        left, right = p.sources()
        left = left.part(lhs_part, bytes_of(p.lhs), self.block_m)
        right = right.part(rhs_part, bytes_of(p.rhs), 1)
        apart = (
            min(_apart(self.chip), len(self.k) - (chunks - 1) * self.chunk) if self.jobs > self.chip.mxu.count else 0
        )
        piece = -(-self.chunk // PIECES)
        if n_blocks == m_blocks == 1 and p.computed[1] is None:  # weights come in pieces, and go
            rhs_need = min(rhs_need, rhs_part * (apart + 2 * piece) // self.chunk)
        out_tile = self.m[0].elements * Box.hull(self.n[: self.block_n]).elements * 4 * self.block_m
        room = budget - 2 * out_tile if p.out_bytes else budget
        room -= sum(min(s.read, budget // INPUTS_SHARE) for s, c in zip((left, right), p.computed, strict=True) if c)
        lhs_staged = (2 if p.minor and lhs_hbm else 1) * (lhs_hbm or bool(p.minor))
        kept = ((lhs_need * lhs_staged, lhs_times), (rhs_need * rhs_hbm, rhs_times))
        few = [1 + max(1, n) for n in later]
        dropped = ((few[0] * lhs_part * lhs_staged, n_blocks), (few[1] * rhs_part * rhs_hbm, m_blocks))
        choice = _fitting(kept, dropped, room, self.m_outer)
        return choice and _Staging(*choice, left, right, apart, piece, max(later))

    def flow(self, s: _Staging) -> Flow:
        """Work of each unit."""
        p, chip, (m_blocks, n_blocks, _, repeats) = self.p, self.chip, self.counts
        lhs_hbm, rhs_hbm = self.in_hbm
        vector = vectors(self.m[0].elements, self.n[0].elements, chip) * p.vector_cost
        store = -(-transfer_cycles(p.out_bytes, chip) // self.blocks)
        return Flow(
            blocks=(m_blocks, n_blocks),
            m_outer=self.m_outer,
            repeats=repeats,
            tiles=len(self.k),
            chunk=self.chunk,
            piece=s.piece,
            apart=s.apart,
            lhs=transfer_cycles(s.left.read, chip) + LOAD_OVERHEAD * self.block_m * lhs_hbm,
            rhs=transfer_cycles(s.right.read, chip) + LOAD_OVERHEAD * rhs_hbm,
            lhs_again=s.lhs[1] > 1,
            rhs_again=s.rhs[1] > 1,
            first=transfer_cycles(s.left.read // self.block_m + s.right.read * s.piece // self.chunk, chip),
            compute=self.compute,
            vector=self.jobs * vector,
            store=store,
            last=min(self.jobs, chip.mxu.count) * (vector + store // self.jobs),
            latency=chip.hbm.latency,
            fill=array_latency(self.chip),
            lhs_made=s.left.vector,
            rhs_made=s.right.vector,
            first_made=s.left.vector // self.block_m + s.right.vector * s.piece // self.chunk,
            turned=self.turned,
        )

    def plan(self, budget: int) -> GemmPlan | None:
        """The plan, if its operands fit in so many bytes of VMEM."""
        s = self.staging(budget)
        if s is None:
            return None
        m_blocks, n_blocks, chunks, repeats = self.counts
        lhs_hbm, rhs_hbm = self.in_hbm
        (lhs_cache, lhs_times), (rhs_cache, rhs_times) = s.lhs, s.rhs
        loads = repeats * chunks * (m_blocks * self.block_m * lhs_times * lhs_hbm + n_blocks * rhs_times * rhs_hbm)
        staged = s.left.read * m_blocks * lhs_times + s.right.read * n_blocks * rhs_times
        flow = self.flow(s)
        return GemmPlan(
            m=self.m,
            n=self.n,
            k=self.k,
            block_m=self.block_m,
            block_n=self.block_n,
            chunk=self.chunk,
            apart=s.apart,
            m_outer=self.m_outer,
            lhs_cache=lhs_cache,
            rhs_cache=rhs_cache,
            operations=3 * len(self.m) * len(self.n) * len(self.k) * repeats + loads,
            piece=s.piece,
            moved=self.p.out_bytes + repeats * chunks * staged,
            flow=flow,
            summed=tuple(self.p.contraction.names[a] for a in self.p.contraction.k),
            cycles=flow.bound,
            ahead=s.ahead,
        )


def _turned_cycles(p: Problem, chip: Chip, dims: tuple[int, ...]) -> int:
    """Cycles in which the cross-lane unit copies a box of the left operand, of these dims, in another order."""
    there = p.lhs.buf.space == Space.VMEM
    strides = p.lhs.strides if there else dense_like(dims, p.lhs.strides, p.lhs.dtype.size)
    staged = replace(p.lhs, dims=dims, strides=strides)
    return shuffle_cycles(chip, staged, turned(staged, p.minor))


def _apart(chip: Chip) -> int:
    """Count of k tiles that take longer than to store their results, whatever their rows."""
    return 1 + transfer_cycles(chip.mxu.count * chip.mxu.cols * 4, chip)


def _step(p: Problem, chip: Chip, m: Box) -> int:
    """Cycles of one matrix unit for one k tile of a job: rows that stream, or the next weights, whichever is longer."""
    stream = m.elements * p.row_cost * p.lhs_passes + p.rhs_passes
    # A tile's load starts after the latch of the one before, which waits for that one's load.
    load = p.load_cost + chip.mxu.load_latency + 1
    return max(stream, load * p.rhs_passes)


def _fitting(
    kept: tuple[Operand, Operand], dropped: tuple[Operand, Operand], room: int, m_outer: bool
) -> tuple[Operand, Operand] | None:
    """The parts of both operands to keep in so many bytes; the operand of the outer loop is dropped first."""
    one = (kept[0], dropped[1]) if m_outer else (dropped[0], kept[1])
    return next((c for c in (kept, one, dropped) if c[0][0] + c[1][0] <= room), None)


def _reuse(all_k: int, part: int, own: int, others: tuple[int, int, int], ahead: int) -> Operand:
    """Bytes to keep so that nothing is staged twice, and how often each part is staged then.

    Args:
        all_k: bytes of one block's part of the operand, for all chunks.
        part: for one chunk.
        own: blocks of the operand.
        others: how often the outer loop comes back to all of them; blocks of the other operand that pass while one of
            its own stays; batches.
        ahead: blocks whose first parts are there before they are needed; 0: loads run ahead in room of their own.
    """
    outer, other, repeats = others
    if outer > 1:
        return all_k * own + (ahead * part if repeats > 1 else 0), 1
    if other > 1:
        return all_k + max(all_k, ahead * part), 1
    return part + max(part, ahead * part), 1
