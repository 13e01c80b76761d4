"""The flow of a contraction's blocks through HBM, matrix units and vector unit, in cycles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from systolith.compiler.cost.prices import UnitCycles

Cycles = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Flow:
    """Blocks of jobs; in each, k tiles, staged a chunk at a time (the weights of the first n block, a piece at a time).

    Attributes:
        blocks: along m and along n.
        m_outer: whether n runs before m.
        repeats: batches; each has all blocks.
        tiles, chunk, piece: k tiles of a block, of a chunk, and of a piece.
        apart: the last k tiles, all of which a block has to have before the first of them counts.
        lhs, rhs: cycles in which HBM moves the operands of a chunk (0: they lie in VMEM).
        lhs_again, rhs_again: operands of a chunk are moved for every block; else only when they are first met.
        first: cycles to move what the first matmul needs.
        compute: cycles of the matrix units for a k tile of a block.
        vector, store: cycles of the vector unit, and to move the results and what else they are made of, for a block.
        last: cycles of both for the jobs that end last.
        latency: of HBM.
        fill: cycles from the end of a stream until its results are there.
        lhs_made, rhs_made: cycles in which the vector unit computes the operands of a chunk, as often as they are moved
            (0: they are not computed).
        first_made: of these, for what the first matmul needs.
        turned: cycles in which the cross-lane unit copies the left operand of a chunk, as often as it is moved.
    """

    blocks: tuple[int, int]
    m_outer: bool
    repeats: int
    tiles: int
    chunk: int
    piece: int
    apart: int
    lhs: int
    rhs: int
    lhs_again: bool
    rhs_again: bool
    first: int
    compute: int
    vector: int
    store: int
    last: int
    latency: int
    fill: int
    lhs_made: int = 0
    rhs_made: int = 0
    first_made: int = 0
    turned: int = 0

    @property
    def totals(self) -> UnitCycles:
        """Cycles of each unit, and of what does not overlap at either end."""
        m, n = self.blocks
        blocks = m * n * self.repeats
        chunks = -(-self.tiles // self.chunk) * self.repeats
        left, right = m * (n if self.lhs_again else 1) * chunks, n * (m if self.rhs_again else 1) * chunks
        return UnitCycles(
            compute=blocks * self.tiles * self.compute,
            transfer=self.lhs * left + self.rhs * right + blocks * self.store,
            cross_lane=self.turned * left,
            vector=self.lhs_made * left + self.rhs_made * right + blocks * self.vector,
            ends=self._first() + self.last + self.fill + self.latency * bool(self.store),
        )

    def cycles(self) -> int:
        """Estimate: loads run ahead in the order of the blocks, and each block computes when it has its operands."""
        once = self._followed(1)
        if self.repeats == 1:
            return once
        # The first two batches may hide work that piles up over all of them.
        t = self.totals
        return max(once + (self.repeats - 1) * (self._followed(2) - once), t.transfer, t.vector, t.cross_lane)

    def together(self) -> Flow:
        """The same, but all jobs of a block end together."""
        return replace(self, apart=0, last=self.vector + self.store)

    def _first(self) -> int:
        """Cycles until the first matmul has what it needs."""
        return self.first + self.latency * bool(self.first) + self.first_made + self.turned

    def _followed(self, repeats: int) -> int:
        m_blocks, n_blocks = self.blocks
        block = np.arange(m_blocks * n_blocks * repeats)
        within = block % (m_blocks * n_blocks)
        m, n = (within // n_blocks, within % n_blocks) if self.m_outer else (within % m_blocks, within // m_blocks)
        moved = np.cumsum(self._staged(m, n, self.lhs, self.rhs))
        # Results go out between the loads of the next block.
        stored = np.maximum(np.arange(1 - self.tiles, len(moved) - self.tiles + 1), 0) * self.store // self.tiles
        made = self._at_ends(self._made(m, n, moved))
        turned = _after(moved, self._staged(m, n, self.turned, 0)) if self.turned else moved
        ready = np.maximum(self._at_ends(turned) + stored, made) + self.latency * bool(self.first)
        ready[0] = self._first()
        before = np.arange(len(moved)) * self.compute
        start = before + np.maximum.accumulate(ready - before)
        computed = int(start[-1]) + self.compute + self.fill
        results = int(start[self.tiles - 1]) + self.compute + self.fill + len(block) * self.vector
        end = max(computed + self.last, results) + self.latency * bool(self.store)
        return max(end, int(moved[-1]) + len(block) * self.store + self.latency)

    def _staged(self, m: Cycles, n: Cycles, lhs: int, rhs: int) -> Cycles:
        """Cycles of staging before each k tile of the blocks at m, n, if operands of a chunk cost `lhs` and `rhs`."""
        within_chunk = np.arange(self.tiles) % self.chunk
        heads = within_chunk == 0
        left = np.outer(((n == 0) | self.lhs_again) * lhs, heads)
        coarse, fine = heads * rhs, (within_chunk % self.piece == 0) * (rhs * self.piece // self.chunk)
        right = ((m == 0) | self.rhs_again)[:, None] * np.where((n == 0)[:, None], fine, coarse)
        return np.ravel(left + right)

    def _at_ends(self, ready: Cycles) -> Cycles:
        """The first of the last k tiles of a block needs what all of them need."""
        if not self.apart:
            return ready
        each = ready.reshape(-1, self.tiles).copy()
        each[:, -self.apart :] = each[:, -1:]
        return each.ravel()

    def _made(self, m: Cycles, n: Cycles, moved: Cycles) -> Cycles:
        """When the vector unit has computed what each k tile needs, from what has moved by then; 0: it computes none.

        In its queue the next block's operands come before the results of a block.
        """
        if not (self.lhs_made or self.rhs_made):
            return np.zeros_like(moved)
        results = np.maximum(np.arange(len(m)) - 1, 0) * self.vector
        return _after(moved, self._staged(m, n, self.lhs_made, self.rhs_made), np.repeat(results, self.tiles))


@lru_cache(maxsize=1 << 15)
def cycles_of(flow: Flow) -> int:
    """`flow.cycles()`: searches for tiles come to the same flows for other chips, and within other room."""
    return flow.cycles()


def _after(moved: Cycles, each: Cycles, besides: Cycles | int = 0) -> Cycles:
    """When a unit is done with each piece of work, which needs what has moved by then; `besides`: its other work."""
    work = np.cumsum(each) + besides
    return np.asarray(np.maximum.accumulate(moved - (work - each)) + work)
