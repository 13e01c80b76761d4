"""Choosing the tiles of a contraction: an estimate of the cycles of many candidates, the best ones closely."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import product
from math import prod

from systolith.compiler.contraction import Contraction
from systolith.compiler.gemm_flow import Flow
from systolith.compiler.gemm_tiles import Tile, box_tiles, packed_tiles, union
from systolith.compiler.tile.ir import Array
from systolith.compiler.tokens import HBM_LINE
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space

LOAD_OVERHEAD = 2
"""Cycles that a transfer costs besides its bytes."""

CLOSELY = 32
"""Candidates, the best by their bound, whose blocks are followed one by one."""

ALIKE = 0.01
"""Candidates whose estimates differ by less than this are alike; then the one of the fewest operations is chosen."""

INPUTS_SHARE = 4
"""Part of a group's room in VMEM through which what an operand is computed from passes."""

MOST_AHEAD = 8
"""Blocks whose operands are computed ahead, at most."""

PIECES = 4
"""Loads of the weights of a chunk, where the first blocks wait for them; each is one less that runs ahead."""

WAYS = (1, 2, 4)
"""Tiles of rows that a block has."""

Tiles = tuple[tuple[Tile, ...], tuple[Tile, ...], tuple[Tile, ...]]


@dataclass(frozen=True)
class GemmPlan:
    """Tiles of one contraction and the order in which they are made.

    Attributes:
        m, n, k: tiles; every product (batch, m, n) is a job that sums over all k tiles in accumulators.
        block_m, block_n: jobs of so many m and n tiles are made together.
        chunk: k tiles whose operands are staged at a time.
        apart: how many of the last k tiles a block's jobs go through one after another (as many at a time as there are
            units), so that results go out while others are made; before them all jobs take a tile in turn.
        m_outer: whether blocks run through n before m.
        lhs_cache, rhs_cache: bytes of staged operands kept for reuse.
        operations: loads, and what each tile takes.
        piece: k tiles of weights that one load brings for the first n tiles; for others it brings a chunk.
        moved: bytes to and from HBM.
        flow: work of each unit.
        cycles: estimated.
        ahead: computed operands are computed so many blocks ahead.
    """

    m: tuple[Tile, ...]
    n: tuple[Tile, ...]
    k: tuple[Tile, ...]
    block_m: int
    block_n: int
    chunk: int
    apart: int
    m_outer: bool
    lhs_cache: int
    rhs_cache: int
    operations: int
    piece: int
    moved: int
    flow: Flow
    cycles: int = 0
    ahead: int = 0

    def __str__(self) -> str:
        rows, cols, depth = (prod(n for _, n in t[0].values()) for t in (self.m, self.n, self.k))
        order = "m, n" if self.m_outer else "n, m"
        return (
            f"{len(self.m)} x {len(self.n)} x {len(self.k)} tiles of m {rows}, n {cols}, k {depth}, blocks of"
            f" {self.block_m} x {self.block_n} in order {order}, {self.chunk} k tiles staged at a time, the last"
            f" {self.apart} job by job"
        )

    @property
    def signature(self) -> str:
        """What tells it from the other candidates of its problem."""
        return f"{self}; {sorted(self.k[min(1, len(self.k) - 1)].items())}"

    @property
    def numbers(self) -> dict[str, int]:
        """Estimates, for `explain`: cycles and bytes."""
        return {
            "cycles": self.cycles,
            **self.flow.totals,
            "moved bytes": self.moved,
            "staged bytes": self.lhs_cache + self.rhs_cache,
        }

    def not_apart(self) -> GemmPlan:
        """The same, but all jobs of a block end together."""
        flow = replace(self.flow, apart=0, last=self.flow.vector + self.flow.store)
        return replace(self, apart=0, flow=flow)

    def loses_to(self, best: GemmPlan) -> str:
        """Why this is not chosen: the unit that has more to do by most, or that they overlap less."""
        more = {what: n - best.flow.totals[what] for what, n in self.flow.totals.items()}
        worst = max(more, key=lambda what: more[what])
        return f"{more[worst]:,} cycles more {worst}" if more[worst] > 0 else "overlaps less"


@dataclass(frozen=True)
class Source:
    """What it takes to stage all of an operand once.

    Attributes:
        read: bytes from HBM.
        vector: cycles of the vector unit.
        each: of these, what any tile takes, however small.
    """

    read: int
    vector: int = 0
    each: int = 0

    def part(self, size: int, whole: int, tiles: int) -> Source:
        """For `size` of its `whole` bytes, in so many tiles."""
        return Source(self.read * size // whole, (self.vector - self.each) * size // whole + self.each * tiles)


@dataclass(frozen=True)
class Problem:
    """What the plan depends on.

    Attributes:
        contraction: axes and indices.
        k_order: axes of the sum, outermost first.
        lhs, rhs: where the operands lie, or would if they were not computed.
        row_cost: cycles of one streamed row.
        load_cost: cycles in which the weights of one tile enter.
        lhs_passes, rhs_passes: matmuls, and weight loads, of one tile.
        out_bytes: bytes of the output that go to HBM (0: it stays in VMEM).
        transposed: whether the left operand is copied into another order in VMEM.
        vector_cost: cycles of the epilogue for each vector.
        computed: what it takes to compute the operands; None: they lie in memory.
    """

    contraction: Contraction
    k_order: tuple[str, ...]
    lhs: Array
    rhs: Array
    row_cost: int
    load_cost: int
    lhs_passes: int
    rhs_passes: int
    out_bytes: int
    transposed: bool
    vector_cost: int = 1
    computed: tuple[Source | None, Source | None] = (None, None)

    def sources(self) -> tuple[Source, Source]:
        """What it takes to stage the operands: those in HBM are loaded, those in VMEM are there."""
        left, right = self.computed
        return left or _in_memory(self.lhs), right or _in_memory(self.rhs)


def _in_memory(array: Array) -> Source:
    return Source(_bytes(array) if array.buf.space == Space.HBM else 0)


def _bytes(array: Array) -> int:
    return prod(array.dims) * array.dtype.size


@dataclass(frozen=True)
class _Asked:
    """What is planned, compared by what the plans depend on: layers alike have the same."""

    likeness: Hashable
    budget: int
    problem: Problem = field(compare=False)
    chip: Chip = field(compare=False)


def ranked(problem: Problem, chip: Chip, budget: int) -> Sequence[GemmPlan]:
    """The candidates whose staged operands fit in `budget` bytes of VMEM, the cheapest first."""
    c = problem.contraction
    indices = [(tuple(i.coefs.items()), i.size, i.offset, i.div) for i in (*c.lhs, *c.rhs, *c.out)]
    axes = (tuple(c.sizes.items()), c.batch, c.m, c.n, c.k, len(c.lhs), len(c.rhs), *indices)
    arrays = [(a.buf.space, a.dtype.name, a.dims, a.strides) for a in (problem.lhs, problem.rhs)]
    others = [getattr(problem, f.name) for f in fields(problem) if f.name not in ("contraction", "lhs", "rhs")]
    return _ranked(_Asked((chip.digest(), axes, *arrays, *others), budget, problem, chip))


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
    n = tuple(box_tiles(c.n, c.sizes, mxu.cols))
    orders = _orders(packed_tiles(p.k_order, c.sizes, mxu.rows), p.k_order)
    fewest = -(-rows // half)
    jobs_wanted = -(-fewest // mxu.count) * mxu.count
    seen = set()
    for pieces in (fewest, jobs_wanted, 2 * jobs_wanted, 4 * jobs_wanted, 8 * jobs_wanted, 16 * jobs_wanted):
        m = tuple(box_tiles(c.m, c.sizes, min(half, -(-rows // pieces))))
        if len(m) in seen:
            continue
        seen.add(len(m))
        tile_rows = prod(size for _, size in m[0].values())
        most = max(1, half // tile_rows) * mxu.count
        wide = sorted({min(w, len(n)) for w in (1, mxu.count, max(1, most // 2), most)})
        shapes = [s for s in product(WAYS, wide) if s[0] <= len(m) and (prod(s) <= most or s[0] == 1)]
        for (k, chunks), shape, m_outer in product(orders, shapes, (True, False)):
            for chunk in chunks:
                plan = _evaluate(p, chip, budget, (m, n, k), (*shape, chunk, m_outer))
                if plan is not None:
                    yield plan


def _orders(tiles: Sequence[Tile], axes: Sequence[str]) -> list[tuple[tuple[Tile, ...], list[int]]]:
    """Orders of the tiles of the sum, and for each how many to stage at a time.

    As they come, and by the innermost axis first: all taps of a window over some channels read one box of the input.
    """
    orders = [(tuple(tiles), _chunks(len(tiles)))]
    sideways = sorted(tiles, key=lambda t: t[axes[-1]][0]) if axes else list(tiles)
    if sideways != list(tiles):
        together = sum(t[axes[-1]] == sideways[0][axes[-1]] for t in sideways)
        orders.append((tuple(sideways), [n * together for n in _chunks(-(-len(tiles) // together))]))
    return orders


def _chunks(count: int) -> list[int]:
    """A count, and halves of it down to 1."""
    sizes = {count}
    while count > 1:
        count = -(-count // 2)
        sizes.add(count)
    return sorted(sizes, reverse=True)


def _evaluate(p: Problem, chip: Chip, budget: int, tiles: Tiles, blocks: tuple[int, int, int, bool]) -> GemmPlan | None:
    c = p.contraction
    m, n, k = tiles
    block_m, block_n, chunk, m_outer = blocks
    batch = dict.fromkeys(c.batch, (0, 1))
    first_k, first_n = union(k[:chunk]), union(n[:block_n])
    lhs_part = c.box(c.lhs, {**batch, **m[0], **first_k}).elements * p.lhs.dtype.size * block_m
    rhs_part = c.box(c.rhs, {**batch, **first_n, **first_k}).elements * p.rhs.dtype.size
    m_blocks, n_blocks, chunks = -(-len(m) // block_m), -(-len(n) // block_n), -(-len(k) // chunk)
    repeats = c.count(c.batch)
    out_tile = _points(m[0]) * _points(first_n) * 4 * block_m
    lhs_hbm, rhs_hbm = p.lhs.buf.space == Space.HBM, p.rhs.buf.space == Space.HBM
    jobs = block_m * block_n
    step = _step(p, chip, m[0])
    compute = -(-jobs // chip.mxu.count) * step
    all_blocks = m_blocks * n_blocks * repeats
    fill = chip.mxu.rows + chip.mxu.cols + chip.mxu.pipeline
    # The vector unit waits for each block's results; what the matrix units do meanwhile has to be there.
    waits, every = fill + compute * len(k), max(1, jobs * step * len(k) // chip.mxu.count)
    ahead = min(MOST_AHEAD if chunks == 1 else 1, all_blocks - 1, waits // every)
    later = [ahead if source else 0 for source in p.computed]
    again = (1, m_blocks) if m_outer else (n_blocks, 1)
    lhs_need, lhs_times = _reuse(lhs_part * chunks, lhs_part, m_blocks, (again[0], n_blocks, repeats), later[0])
    rhs_need, rhs_times = _reuse(rhs_part * chunks, rhs_part, n_blocks, (again[1], m_blocks, repeats), later[1])
    left, right = (
        source.part(part, _bytes(array), tiles)
        for source, part, array, tiles in zip(
            p.sources(), (lhs_part, rhs_part), (p.lhs, p.rhs), (block_m, 1), strict=True
        )
    )
    apart = min(_apart(chip), len(k) - (chunks - 1) * chunk) if jobs > chip.mxu.count else 0
    piece = -(-chunk // PIECES)
    if n_blocks == m_blocks == 1 and p.computed[1] is None:  # weights come in pieces, and go
        rhs_need = min(rhs_need, rhs_part * (apart + 2 * piece) // chunk)
    room = budget - 2 * out_tile if p.out_bytes else budget
    room -= sum(min(s.read, budget // INPUTS_SHARE) for s, c in zip((left, right), p.computed, strict=True) if c)
    lhs_staged = (2 if p.transposed and lhs_hbm else 1) * (lhs_hbm or p.transposed)
    kept = ((lhs_need * lhs_staged, lhs_times), (rhs_need * rhs_hbm, rhs_times))
    few = [1 + max(1, n) for n in later]
    dropped = ((few[0] * lhs_part * lhs_staged, n_blocks), (few[1] * rhs_part * rhs_hbm, m_blocks))
    choice = _fitting(kept, dropped, room, m_outer)
    if choice is None:
        return None
    (lhs_cache, lhs_times), (rhs_cache, rhs_times) = choice
    moved = p.out_bytes + repeats * chunks * (left.read * m_blocks * lhs_times + right.read * n_blocks * rhs_times)
    together = min(jobs, chip.mxu.count)
    vectors = -(-_points(m[0]) // chip.vpu.sublanes) * -(-_points(n[0]) // chip.vpu.lanes)
    store = -(-_transfer(chip, p.out_bytes) // all_blocks)
    row = p.out_bytes // (c.count(c.batch) * c.count(c.m) * c.count(c.n)) * _points(n[0])
    apiece = (row * _points(m[0]) if len(n) == 1 else row) % HBM_LINE
    loads = repeats * chunks * (m_blocks * block_m * lhs_times * lhs_hbm + n_blocks * rhs_times * rhs_hbm)
    operations = 3 * len(m) * len(n) * len(k) * repeats + loads
    flow = Flow(
        blocks=(m_blocks, n_blocks),
        m_outer=m_outer,
        repeats=repeats,
        tiles=len(k),
        chunk=chunk,
        piece=piece,
        apart=apart,
        lhs=_transfer(chip, left.read) + LOAD_OVERHEAD * block_m * lhs_hbm,
        rhs=_transfer(chip, right.read) + LOAD_OVERHEAD * rhs_hbm,
        lhs_again=lhs_times > 1,
        rhs_again=rhs_times > 1,
        first=_transfer(chip, left.read // block_m + right.read * piece // chunk),
        compute=compute,
        vector=jobs * vectors * p.vector_cost,
        store=store,
        wait=jobs * chip.hbm.latency if apiece and jobs * all_blocks > 1 else 0,
        last=together * (vectors * p.vector_cost + store // jobs),
        latency=chip.hbm.latency,
        fill=fill,
        lhs_made=left.vector,
        rhs_made=right.vector,
        first_made=left.vector // block_m + right.vector * piece // chunk,
    )
    return GemmPlan(
        m,
        n,
        k,
        block_m,
        block_n,
        chunk,
        apart,
        m_outer,
        lhs_cache,
        rhs_cache,
        operations,
        piece,
        moved,
        flow,
        flow.bound,
        max(later),
    )


def _apart(chip: Chip) -> int:
    """Count of k tiles that take longer than to store their results, whatever their rows."""
    return 1 + _transfer(chip, chip.mxu.count * chip.mxu.cols * 4)


def _points(tile: Tile) -> int:
    return prod(size for _, size in tile.values())


def _transfer(chip: Chip, size: int) -> int:
    """Cycles in which HBM moves so many bytes."""
    return size * chip.hbm.q // chip.hbm.p


def _step(p: Problem, chip: Chip, m: Tile) -> int:
    """Cycles of one matrix unit for one k tile of a job: rows that stream, or the next weights, whichever is longer."""
    stream = _points(m) * p.row_cost * p.lhs_passes + p.rhs_passes
    # A tile's load starts after the latch of the one before, which waits for that one's load.
    load = p.load_cost + chip.mxu.load_latency + 1
    return max(stream, load * p.rhs_passes)


Operand = tuple[int, int]
"""Bytes of an operand that are kept, and how often each part is loaded then."""


def _fitting(
    kept: tuple[Operand, Operand], dropped: tuple[Operand, Operand], room: int, m_outer: bool
) -> tuple[Operand, Operand] | None:
    """What to keep of both operands in so many bytes; what the outer loop revisits is the first to be dropped."""
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
