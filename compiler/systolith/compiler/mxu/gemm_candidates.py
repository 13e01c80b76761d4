"""The candidates for the tiles of a contraction: how it can be cut, and what each piece needs of the operands.

They depend on the shapes and on the sizes of the matrix units, not on how fast anything is: a column of numbers for
each quantity, with a row for each candidate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from systolith.compiler.index.affine import Box
from systolith.compiler.mxu.gemm_plan import Problem
from systolith.compiler.mxu.gemm_tiles import box_tiles, packed_tiles
from systolith.compiler.mxu.turned_operand import turned
from systolith.compiler.tile.arrays import dense_like
from systolith.compiler.vpu.shuffles import shuffle_cycles
from systolith.isa.chip import Chip
from systolith.isa.chip_reads import Known
from systolith.isa.instruction import Space

WAYS = (1, 2, 4)
"""Tiles of rows that a block has."""

Column = npt.NDArray[np.int64]

Spans = tuple[tuple[Box, int], ...]
"""Ranges of the sum's axes that chunks span, one of each size, and how many chunks have this size."""


@dataclass(frozen=True)
class Tiles:
    """A contraction in tiles: of m, n and k, as in `GemmPlan`."""

    m: tuple[Box, ...]
    n: tuple[Box, ...]
    k: tuple[Box, ...]


@dataclass(frozen=True)
class Candidates:
    """All candidates of a problem, in the order in which they are found.

    Attributes:
        tiles: of each.
        many_m, many_n, many_k: tiles.
        block_m, block_n, chunk, m_outer: as in `GemmPlan`.
        m_points, n_points: elements of an m tile, of an n tile.
        block_points: elements of the hull of a block's n tiles.
        lhs, rhs: elements of the operands that an m tile, and a block of n tiles, need of all chunks.
        turned: cycles in which the cross-lane unit copies the left operand of an m tile, of all chunks.
    """

    tiles: tuple[Tiles, ...]
    many_m: Column
    many_n: Column
    many_k: Column
    block_m: Column
    block_n: Column
    chunk: Column
    m_outer: Column
    m_points: Column
    n_points: Column
    block_points: Column
    lhs: Column
    rhs: Column
    turned: Column


_known: Known[Candidates] = Known(1 << 17, lambda c: 1 + len(c.tiles))


def likeness(p: Problem) -> Hashable:
    """What is equal of problems with equal candidates and estimates."""
    arrays = [(a.buf.space, a.dtype.name, a.dims, a.strides) for a in (p.lhs, p.rhs)]
    return (*arrays, *[getattr(p, f.name) for f in fields(p) if f.name not in ("lhs", "rhs")])


def candidates(p: Problem, chip: Chip) -> Candidates:
    """The candidates of a problem."""
    return _known.get(likeness(p), chip, lambda chip: _candidates(p, chip))


def _candidates(p: Problem, chip: Chip) -> Candidates:
    c, mxu = p.contraction, chip.mxu
    half = max(1, mxu.acc_rows // 2)
    rows = c.count(c.m)
    n = tuple(box_tiles(c.dims(c.n), mxu.cols))
    orders = orders_of(packed_tiles(c.dims(c.k), p.depth))
    fewest = -(-rows // half)
    jobs_wanted = -(-fewest // mxu.count) * mxu.count
    needs = _Needs(p, chip, n)
    tiles, rows_of, seen = list[Tiles](), list[tuple[int, ...]](), set[int]()
    cuts = [_cut(p, half, pieces) for pieces in (fewest, *(jobs_wanted << k for k in range(5)))]
    # Rows of which a block has all columns: the left operand is read once, and the right one as seldom as that allows.
    # If they are no whole vectors, the other units take longer than that saves.
    whole = _cut(p, half, -(-rows * len(n) // (half * mxu.count) // mxu.count) * mxu.count)
    if whole[0].elements % chip.vpu.lanes == 0:
        cuts.append(whole)
    for m in cuts:
        if len(m) in seen:
            continue
        seen.add(len(m))
        most = max(1, half // m[0].elements) * mxu.count
        wide = sorted({min(w, len(n)) for w in (1, mxu.count, max(1, most // 2), most)})
        shapes = [s for s in product(WAYS, wide) if s[0] <= len(m) and (prod(s) <= most or s[0] == 1)]
        for (k, chunks), (block_m, block_n), m_outer in product(orders, shapes, (True, False)):
            cut, block = Tiles(m, n, k), needs.block(block_n)
            for chunk, spans in chunks.items():
                lhs, turns = needs.left(m[0], spans)
                tiles.append(cut)
                rows_of.append(
                    (
                        len(m), len(n), len(k), block_m, block_n, chunk, m_outer,
                        m[0].elements, n[0].elements, block.elements, lhs, needs.right(block_n, spans), turns,
                    )
                )  # fmt: skip
    return Candidates(tuple(tiles), *np.array(rows_of, np.int64).T)


def _cut(p: Problem, most: int, pieces: int) -> tuple[Box, ...]:
    """The rows in as many tiles, or more where those would have more than `most` elements."""
    c = p.contraction
    return tuple(box_tiles(c.dims(c.m), min(most, -(-c.count(c.m) // pieces))))


class _Needs:
    """The elements that blocks need of the operands: of the left one whatever the columns, of the right one whatever
    the rows.
    """

    def __init__(self, p: Problem, chip: Chip, n: Sequence[Box]) -> None:
        self._p, self._n, self._c = p, n, p.contraction
        self._first = Box.product(self._c.one_batch, Box.whole((1,) * len(self._c.m)))
        self.block = cache(self._block)
        self.left = cache(self._left)
        self.right = cache(self._right)
        self._turns = cache(lambda dims: _turned_cycles(p, chip, dims))

    def _block(self, block_n: int) -> Box:
        """The hull of the first n tiles."""
        return Box.hull(self._n[:block_n])

    def _left(self, m: Box, spans: Spans) -> tuple[int, int]:
        """Elements of the left operand for an m tile and all chunks, and cycles to copy them in another order."""
        c = self._c
        rows = Box.product(c.one_batch, m, self._n[0])
        boxes = [(c.lhs.reach(Box.product(rows, span), self._p.lhs.dims), count) for span, count in spans]
        turned = sum(count * self._turns(box.dims) for box, count in boxes) if self._p.minor else 0
        return sum(box.elements * count for box, count in boxes), turned

    def _right(self, block_n: int, spans: Spans) -> int:
        """Elements of the right operand for a block of n tiles and all chunks."""
        c, columns = self._c, Box.product(self._first, self.block(block_n))
        return sum(c.rhs.reach(Box.product(columns, span), self._p.rhs.dims).elements * count for span, count in spans)


def orders_of(tiles: Sequence[Box]) -> list[tuple[tuple[Box, ...], dict[int, Spans]]]:
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


def _turned_cycles(p: Problem, chip: Chip, dims: tuple[int, ...]) -> int:
    """Cycles in which the cross-lane unit copies a box of the left operand, of these dims, in another order."""
    there = p.lhs.buf.space == Space.VMEM
    strides = p.lhs.strides if there else dense_like(dims, p.lhs.strides, p.lhs.dtype.size)
    staged = replace(p.lhs, dims=dims, strides=strides)
    return shuffle_cycles(chip, staged, turned(staged, p.minor), across=False)
