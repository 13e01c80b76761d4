"""Choosing the tiles of a contraction: a cost model over a few candidates, minimising max(compute, transfer)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from systolith.compiler.contraction import Contraction
from systolith.compiler.gemm_tiles import Tile, box_tiles, packed_tiles, union
from systolith.compiler.tile.ir import Array
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space

LOAD_OVERHEAD = 16
"""Cycles that a transfer costs besides its bytes."""


EPILOGUE_INTERVAL = 2
"""Cycles that an epilogue takes for each vector, as a rule."""


@dataclass(frozen=True)
class GemmPlan:
    """Tiles of one contraction and the order in which they are made.

    Attributes:
        m, n, k: tiles; every product (batch, m, n) is a job that sums over all k tiles in accumulators.
        block_m, block_n: jobs of so many m and n tiles are made together.
        chunk: k tiles whose operands are staged at a time.
        m_outer: whether blocks run through n before m.
        lhs_cache, rhs_cache: bytes of staged operands kept for reuse.
        compute, transfer: estimated cycles.
        ends: cycles until the first operands are there, and of the last epilogue.
    """

    m: tuple[Tile, ...]
    n: tuple[Tile, ...]
    k: tuple[Tile, ...]
    block_m: int
    block_n: int
    chunk: int
    m_outer: bool
    lhs_cache: int
    rhs_cache: int
    compute: int
    transfer: int
    ends: int

    @property
    def cycles(self) -> int:
        """Estimate: matrix units, DMA and epilogues overlap, but for the first operands and the last results."""
        return max(self.compute, self.transfer) + min(self.compute, self.transfer) // 2 + self.ends

    def describe(self, name: str) -> str:
        """One line for `explain`."""
        rows, cols, depth = (prod(n for _, n in union([t]).values()) for t in (self.m[0], self.n[0], self.k[0]))
        order = "m, n" if self.m_outer else "n, m"
        return (
            f"{name}: {len(self.m)} x {len(self.n)} x {len(self.k)} tiles of m {rows}, n {cols}, k {depth}; blocks of"
            f" {self.block_m} x {self.block_n} in order {order}; {self.chunk} k tiles staged at a time;"
            f" compute {self.compute}, transfer {self.transfer} cycles"
        )


@dataclass(frozen=True)
class Problem:
    """What the plan depends on.

    Attributes:
        contraction: axes and indices.
        k_order: axes of the sum, outermost first.
        lhs, rhs: where the operands lie.
        row_cost: cycles of one streamed row.
        load_cost: cycles of one weight row (or column).
        lhs_passes, rhs_passes: matmuls, and weight loads, of one tile.
        out_bytes: bytes of the output that go to HBM (0: it stays in VMEM).
    transposed: whether the left operand is copied into another order in VMEM.
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


def choose(problem: Problem, chip: Chip, budget: int) -> GemmPlan | None:
    """The cheapest candidate whose staged operands fit in `budget` bytes of VMEM; None if none does."""
    best: GemmPlan | None = None
    for plan in _candidates(problem, chip, budget):
        key = (plan.cycles, plan.transfer, len(plan.m) * len(plan.n))
        if best is None or key < (best.cycles, best.transfer, len(best.m) * len(best.n)):
            best = plan
    return best


def _candidates(p: Problem, chip: Chip, budget: int) -> Iterator[GemmPlan]:
    c, mxu = p.contraction, chip.mxu
    half = max(1, mxu.acc_rows // 2)
    rows = c.count(c.m)
    n = tuple(box_tiles(c.n, c.sizes, mxu.cols))
    k = tuple(packed_tiles(p.k_order, c.sizes, mxu.rows))
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
        wide = sorted({1, min(mxu.count, len(n)), min(most, len(n)), min(max(1, most // 2), len(n))})
        shapes = [(1, block_n) for block_n in wide] + [(min(mxu.count, len(m)), 1)] * (mxu.count > 1)
        for shape, chunk, m_outer in product(shapes, _chunks(len(k)), (True, False)):
            plan = _evaluate(p, chip, budget, (m, n, k), (*shape, chunk, m_outer))
            if plan is not None:
                yield plan


def _chunks(count: int) -> list[int]:
    sizes = {count}
    while count > 1:
        count = -(-count // 2)
        sizes.add(count)
    return sorted(sizes, reverse=True)


def _evaluate(
    p: Problem,
    chip: Chip,
    budget: int,
    tiles: tuple[tuple[Tile, ...], tuple[Tile, ...], tuple[Tile, ...]],
    blocks: tuple[int, int, int, bool],
) -> GemmPlan | None:
    c = p.contraction
    m, n, k = tiles
    block_m, block_n, chunk, m_outer = blocks
    batch = dict.fromkeys(c.batch, (0, 1))
    first_k = union(k[:chunk])
    lhs_part = c.box(c.lhs, {**batch, **m[0], **first_k}).elements * p.lhs.dtype.size * block_m
    rhs_part = c.box(c.rhs, {**batch, **union(n[:block_n]), **first_k}).elements * p.rhs.dtype.size
    m_blocks, n_blocks, chunks = -(-len(m) // block_m), -(-len(n) // block_n), -(-len(k) // chunk)
    repeats = c.count(c.batch)
    out_tile = prod(s for _, s in m[0].values()) * prod(s for _, s in union(n[:block_n]).values()) * 4 * block_m
    lhs_hbm, rhs_hbm = p.lhs.buf.space == Space.HBM, p.rhs.buf.space == Space.HBM
    lhs_need, lhs_times = _reuse(lhs_part * chunks, lhs_part, m_blocks, n_blocks if not m_outer else 1, n_blocks)
    rhs_need, rhs_times = _reuse(rhs_part * chunks, rhs_part, n_blocks, m_blocks if m_outer else 1, m_blocks)
    room = budget - 2 * out_tile if p.out_bytes else budget
    lhs_staged = (2 if p.transposed and lhs_hbm else 1) * (lhs_hbm or p.transposed)
    lhs_cache, rhs_cache = lhs_need * lhs_staged, rhs_need * rhs_hbm
    if lhs_cache + rhs_cache > room:
        # What the outer loop revisits is the first to be dropped.
        if m_outer:
            rhs_cache, rhs_times = 2 * rhs_part * rhs_hbm, m_blocks
        else:
            lhs_cache, lhs_times = 2 * lhs_part * lhs_staged, n_blocks
    if lhs_cache + rhs_cache > room:
        lhs_cache, lhs_times = 2 * lhs_part * lhs_staged, n_blocks
        rhs_cache, rhs_times = 2 * rhs_part * rhs_hbm, m_blocks
    if lhs_cache + rhs_cache > room:
        return None
    moved = 0
    if lhs_hbm:
        moved += lhs_part * chunks * m_blocks * repeats * lhs_times
    if rhs_hbm:
        moved += rhs_part * chunks * n_blocks * repeats * rhs_times
    transfer = (moved + p.out_bytes) * chip.hbm.q // chip.hbm.p
    loads = repeats * chunks * (m_blocks * block_m * lhs_times * lhs_hbm + n_blocks * rhs_times * rhs_hbm)
    transfer += loads * LOAD_OVERHEAD
    first = (lhs_part * lhs_hbm + rhs_part * rhs_hbm) * chip.hbm.q // chip.hbm.p
    compute = _compute(p, chip, tiles, (block_m, block_n), repeats)
    ends = first + _epilogue(chip, tiles, (block_m, block_n))
    return GemmPlan(m, n, k, block_m, block_n, chunk, m_outer, lhs_cache, rhs_cache, compute, transfer, ends)


def _epilogue(
    chip: Chip, tiles: tuple[tuple[Tile, ...], tuple[Tile, ...], tuple[Tile, ...]], block: tuple[int, int]
) -> int:
    """Cycles that the vector unit takes for one block of jobs."""
    rows, columns = (prod(size for _, size in side[0].values()) for side in tiles[:2])
    vectors = -(-rows // chip.vpu.sublanes) * -(-columns // chip.vpu.lanes)
    return block[0] * block[1] * vectors * EPILOGUE_INTERVAL


def _reuse(all_k: int, part: int, own: int, outer: int, other: int) -> tuple[int, int]:
    """Bytes to keep so that nothing is loaded twice, and how often each part is loaded then.

    `own` blocks of the operand; `outer`: how often the outer loop comes back to all of them; `other`: blocks of the
    other operand that pass while one of its own stays.
    """
    if outer > 1:
        return all_k * own, 1
    if other > 1:
        return 2 * all_k, 1
    return 2 * part, 1


def _compute(
    p: Problem,
    chip: Chip,
    tiles: tuple[tuple[Tile, ...], tuple[Tile, ...], tuple[Tile, ...]],
    block: tuple[int, int],
    repeats: int,
) -> int:
    m, n, k = tiles
    rows = prod(size for _, size in m[0].values())
    stream = rows * p.row_cost * p.lhs_passes
    # A tile's load starts after the latch of the one before, which waits for that one's load.
    one = min(chip.mxu.rows, prod(s for _, s in k[0].values())) * p.load_cost + chip.mxu.load_latency + 2
    load = one * p.rhs_passes
    step = max(stream, load) + 1
    fill = chip.mxu.rows + chip.mxu.cols + chip.mxu.pipeline
    blocks = -(-len(m) // block[0]) * -(-len(n) // block[1]) * repeats
    rounds = blocks * -(-block[0] * block[1] // chip.mxu.count)
    return rounds * len(k) * step + fill + blocks * 8
