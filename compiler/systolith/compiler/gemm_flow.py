"""The flow of a contraction's blocks through HBM, matrix units and vector unit, in cycles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
        vector, store: cycles of the vector unit, and to move the results, for a block.
        wait: cycles that the stores of a block wait for one another.
        last: cycles of both for the jobs that end last.
        latency: of HBM.
        fill: cycles from the end of a stream until its results are there.
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
    wait: int
    last: int
    latency: int
    fill: int

    @property
    def totals(self) -> dict[str, int]:
        """Cycles of each unit, and of what does not overlap at either end."""
        m, n = self.blocks
        blocks = m * n * self.repeats
        loads = self.lhs * m * (n if self.lhs_again else 1) + self.rhs * n * (m if self.rhs_again else 1)
        loads *= -(-self.tiles // self.chunk)
        return {
            "compute": blocks * self.tiles * self.compute,
            "transfer": loads * self.repeats + blocks * self.store,
            "vector": blocks * self.vector,
            "ends": self.first + self.last + self.fill + self.latency * (bool(self.first) + bool(self.store)),
        }

    @property
    def bound(self) -> int:
        """At least so many cycles, but for the order of the blocks."""
        t = self.totals
        m, n = self.blocks
        waits = m * n * self.repeats * self.wait
        return max(t["compute"] + t["ends"], t["transfer"] + self.latency, t["vector"] + t["ends"], waits + t["ends"])

    def cycles(self) -> int:
        """Estimate: loads run ahead in the order of the blocks, and each block computes when it has its operands."""
        once = self._followed(1)
        return once + (self.repeats - 1) * (self._followed(2) - once) if self.repeats > 1 else once

    def _followed(self, repeats: int) -> int:
        m_blocks, n_blocks = self.blocks
        block = np.arange(m_blocks * n_blocks * repeats)
        within = block % (m_blocks * n_blocks)
        m, n = (within // n_blocks, within % n_blocks) if self.m_outer else (within % m_blocks, within // m_blocks)
        within_chunk = np.arange(self.tiles) % self.chunk
        heads = within_chunk == 0
        lhs = np.outer(((n == 0) | self.lhs_again) * self.lhs, heads)
        coarse, fine = heads * self.rhs, (within_chunk % self.piece == 0) * (self.rhs * self.piece // self.chunk)
        rhs = ((m == 0) | self.rhs_again)[:, None] * np.where((n == 0)[:, None], fine, coarse)
        each = np.cumsum(lhs + rhs).reshape(len(block), self.tiles)
        if self.apart:
            each[:, -self.apart :] = each[:, -1:]
        moved = each.ravel()
        # Results go out between the loads of the next block.
        stored = np.maximum(np.arange(1 - self.tiles, len(moved) - self.tiles + 1), 0) * self.store // self.tiles
        ready = moved + stored + self.latency * bool(self.first)
        ready[0] = self.first + self.latency * bool(self.first)
        before = np.arange(len(moved)) * self.compute
        start = before + np.maximum.accumulate(ready - before)
        computed = int(start[-1]) + self.compute + self.fill
        results = int(start[self.tiles - 1]) + self.compute + self.fill + len(block) * max(self.vector, self.wait)
        end = max(computed + self.last, results) + self.latency * bool(self.store)
        return max(end, int(moved[-1]) + len(block) * self.store + self.latency)
