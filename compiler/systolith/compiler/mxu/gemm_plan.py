"""Tile plans of a contraction, and the problem that they solve."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import prod

from systolith.compiler.index.affine import Box
from systolith.compiler.index.contraction import Contraction
from systolith.compiler.mxu.gemm_pipeline import Flow
from systolith.compiler.tile.ir import Array
from systolith.isa.instruction import Space

INPUTS_SHARE = 4
"""Part of a group's room in VMEM through which what an operand is computed from passes."""


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
        summed: names of the axes of the sum.
        cycles: estimated.
        ahead: computed operands are computed so many blocks ahead.
    """

    m: tuple[Box, ...]
    n: tuple[Box, ...]
    k: tuple[Box, ...]
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
    summed: tuple[str, ...]
    cycles: int = 0
    ahead: int = 0

    def __str__(self) -> str:
        rows, cols, depth = (tiles[0].elements for tiles in (self.m, self.n, self.k))
        order = "m, n" if self.m_outer else "n, m"
        return (
            f"{len(self.m)} x {len(self.n)} x {len(self.k)} tiles of m {rows}, n {cols}, k {depth}, blocks of"
            f" {self.block_m} x {self.block_n} in order {order}, {self.chunk} k tiles staged at a time, the last"
            f" {self.apart} job by job"
        )

    @property
    def emitted(self) -> Hashable:
        """All that its operations depend on."""
        sizes = self.block_m, self.block_n, self.chunk, self.piece, self.apart, self.ahead, self.m_outer
        return self.m, self.n, self.k, *sizes, self.lhs_cache, self.rhs_cache

    @property
    def signature(self) -> str:
        """A text unique among the candidates of its problem."""
        tile = self.k[min(1, len(self.k) - 1)]
        return f"{self}; {sorted(zip(self.summed, zip(tile.origin, tile.dims, strict=True), strict=True))}"

    @property
    def waits_for_hbm(self) -> bool:
        """Whether HBM has more to do than the matrix units."""
        totals = self.flow.totals
        return totals.transfer > totals.compute

    @property
    def numbers(self) -> dict[str, int]:
        """Estimates, for `explain`: cycles and bytes."""
        return {
            "cycles": self.cycles,
            **self.flow.totals.numbers,
            "moved bytes": self.moved,
            "staged bytes": self.lhs_cache + self.rhs_cache,
        }

    def loses_to(self, best: GemmPlan) -> str:
        """Why this is not chosen: the unit that has more to do by most, or that they overlap less."""
        least = best.flow.totals.numbers
        more = {what: n - least[what] for what, n in self.flow.totals.numbers.items()}
        worst = max(more, key=lambda what: more[what])
        return f"{more[worst]:,} cycles more {worst}" if more[worst] > 0 else "overlaps less"


@dataclass(frozen=True)
class Source:
    """The cost of staging all of an operand once.

    Attributes:
        read: bytes from HBM.
        vector: cycles of the vector unit.
        each: of these, what any tile takes, however small.
    """

    read: int
    vector: int = 0
    each: int = 0


@dataclass(frozen=True)
class Problem:
    """Everything that the plan depends on.

    Attributes:
        contraction: axes and indices; the axes of the sum as they are taken, the outermost first.
        depth: terms of a k tile, at most.
        lhs, rhs: where the operands lie, or would if they were not computed.
        row_cost: cycles of one streamed row.
        load_cost: cycles in which the weights of one tile enter.
        lhs_passes, rhs_passes: matmuls, and weight loads, of one tile.
        out_bytes: bytes of the output that go to HBM (0: it stays in VMEM).
        minor: dimensions of the left operand that a copy in VMEM lays out innermost; empty: there is none.
        vector_cost: cycles of the epilogue for each vector.
        computed: what it takes to compute the operands; None: they lie in memory.
        epilogue_bytes: that the epilogue reads from HBM.
    """

    contraction: Contraction
    depth: int
    lhs: Array
    rhs: Array
    row_cost: int
    load_cost: int
    lhs_passes: int
    rhs_passes: int
    out_bytes: int
    minor: tuple[int, ...]
    vector_cost: int = 1
    computed: tuple[Source | None, Source | None] = (None, None)
    epilogue_bytes: int = 0

    def sources(self) -> tuple[Source, Source]:
        """The cost of staging the operands: those in HBM are loaded, those in VMEM are there."""
        left, right = self.computed
        return left or _in_memory(self.lhs), right or _in_memory(self.rhs)


def _in_memory(array: Array) -> Source:
    return Source(bytes_of(array) if array.buf.space == Space.HBM else 0)


def bytes_of(array: Array) -> int:
    """Bytes of a dense array."""
    return prod(array.dims) * array.dtype.size
