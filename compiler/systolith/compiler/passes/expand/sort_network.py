"""Bitonic networks in HLO: arrays of n x columns, n a power of two, whose columns are put in order along n.

A merge of two runs compares the first with the second turned around, then what is 1/2, 1/4, ... of a run apart, always
with the smaller one in front.  So all that differs between stages is a distance, and no comparison asks for a
direction.  Distances are between rows: reshapes, slices and concatenations of these fold into addresses.  Where there
are few columns, the rows are several runs beside each other, in lanes; merges across lanes first turn the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import PRED, S32, DType

Arrays = Sequence[Instruction]
"""The parts of an element, each an array of the same sizes."""


class Order(Protocol):
    """A strict order of elements."""

    def exchange(self, r: Rewriter, a: Arrays, b: Arrays) -> tuple[Arrays, Arrays]:
        """Of each pair, the element that comes first, and the other."""


@dataclass(frozen=True)
class Network:
    """Makes networks of one order.

    Attributes:
        lanes: columns that the vector unit has use for.
    """

    r: Rewriter
    order: Order
    lanes: int = 128

    def sorted(self, xs: Arrays, backwards: Instruction | None = None) -> Arrays:
        """Columns in order; where the scalar `backwards` is true, with the last element in front."""
        n, columns = xs[0].dims
        beside = self._beside(n, columns)
        rows = n // beside
        xs = self._shaped(xs, rows, beside * columns)
        for k in _doubling(2, rows):
            xs = self._merged(xs, k)
        for k in _doubling(2, beside):
            xs = self._across(xs, columns, k)
        return self._columns(xs, columns, backwards)

    def merged(self, xs: Arrays, backwards: Instruction | None = None) -> Arrays:
        """The same of columns that first rise, then fall, or the other way round."""
        n, columns = xs[0].dims
        beside = self._beside(n, columns)
        rows = n // beside
        xs = self._cleaned(self._shaped(xs, beside, rows * columns), beside)
        xs = self._turned(self._shaped(xs, beside, rows, columns))
        xs = self._cleaned(self._shaped(xs, rows, beside * columns), rows)
        return self._columns(xs, columns, backwards)

    def apart(self, xs: Arrays, distance: int) -> Arrays:
        """Exchange rows at a distance."""
        return self._stage(xs, distance)

    def _beside(self, n: int, columns: int) -> int:
        """Runs that lie beside each other in lanes, of each column."""
        beside = 1
        while beside * columns < self.lanes and beside * beside * 4 <= n:
            beside *= 2
        return beside

    def _columns(self, xs: Arrays, columns: int, backwards: Instruction | None) -> Arrays:
        """The columns that lie beside each other in lanes, one behind the other."""
        rows, lanes = xs[0].dims
        beside = lanes // columns
        xs = self._turned(self._shaped(self._reversed(xs, backwards), rows, beside, columns))
        xs = self._reversed(self._shaped(xs, beside, rows * columns), backwards)
        return self._shaped(xs, rows * beside, columns)

    def _reversed(self, xs: Arrays, backwards: Instruction | None) -> Arrays:
        """The rows from last to first where `backwards` is true."""
        if backwards is None or xs[0].dims[0] == 1:
            return xs
        where = self.r.spread(backwards, array(PRED, xs[0].dims))
        return [self.r.emit("select", where, self.r.emit("reverse", x, dimensions=(0,)), x) for x in xs]

    def first(self, xs: Arrays, k: int) -> Arrays:
        """The first k (a power of two) of each column, in order.  Which elements make a run is left open."""
        n, columns = xs[0].dims
        runs = n // k
        xs = self._shaped(xs, k, runs * columns)
        for size in _doubling(2, k):
            xs = self._merged(xs, size)
        while runs > 1:
            runs //= 2
            a, b = self._halves(self._shaped(xs, 1, k, 2, runs * columns), 2, flipped=(1,))
            low, _ = self.order.exchange(self.r, a, b)
            xs = self._cleaned(self._shaped(low, k, runs * columns), k)
        return xs

    def _merged(self, xs: Arrays, k: int) -> Arrays:
        """Runs of k rows, of runs of half as many."""
        return self._cleaned(self._stage(xs, k // 2, flipped=True), k // 2)

    def _across(self, xs: Arrays, columns: int, k: int) -> Arrays:
        """Runs of k lanes, of runs of half as many, over all rows."""
        rows, lanes = xs[0].dims
        beside = lanes // columns
        xs = self._turned(self._shaped(self._flipped(xs, columns, k // 2), rows, beside, columns))
        xs = self._merged(self._shaped(xs, beside, rows * columns), k)
        xs = self._turned(self._shaped(xs, beside, rows, columns))
        return self._cleaned(self._shaped(xs, rows, lanes), rows)

    def _flipped(self, xs: Arrays, columns: int, half: int) -> Arrays:
        """The rows turned around in the second half of every merge of lanes."""
        r, shape = self.r, array(S32, xs[0].dims)
        place = r.emit("divide", r.emit("iota", shape=shape, iota_dimension=1), r.full(columns, shape))
        second = r.emit("compare", r.emit("and", place, r.full(half, shape)), r.full(0, shape), direction="NE")
        return [r.emit("select", second, r.emit("reverse", x, dimensions=(0,)), x) for x in xs]

    def _cleaned(self, xs: Arrays, k: int) -> Arrays:
        """Runs of k rows, each of which first rises, then falls (or the other way round), in order."""
        while k > 1:
            k //= 2
            xs = self._stage(xs, k)
        return xs

    def _stage(self, xs: Arrays, distance: int, flipped: bool = False) -> Arrays:
        n, columns = xs[0].dims
        blocks = self._shaped(xs, n // (2 * distance), 2, distance, columns)
        low, high = self.order.exchange(self.r, *self._halves(blocks, 1, flipped=(2,) if flipped else ()))
        return self._shaped(self._joined(low, high), n, columns)

    def _halves(self, xs: Arrays, dim: int, flipped: tuple[int, ...]) -> tuple[Arrays, Arrays]:
        """The first and the second part along a dimension of 2; of the second, some dimensions turned around."""
        a, b = ([self.r.narrowed(x, dim, k, k + 1) for x in xs] for k in (0, 1))
        flipped = tuple(d for d in flipped if b[0].dims[d] > 1)
        return a, [self.r.emit("reverse", x, dimensions=flipped) for x in b] if flipped else b

    def _joined(self, low: Arrays, high: Arrays) -> Arrays:
        return [self.r.emit("concatenate", a, b, dimensions=(1,)) for a, b in zip(low, high, strict=True)]

    def _shaped(self, xs: Arrays, *dims: int) -> Arrays:
        return [self.r.reshaped(x, dims) for x in xs]

    def _turned(self, xs: Arrays) -> Arrays:
        """The first two of three dimensions exchanged."""
        if 1 in xs[0].dims[:2]:
            return self._shaped(xs, xs[0].dims[1], xs[0].dims[0], xs[0].dims[2])
        return [self.r.emit("transpose", x, dimensions=(1, 0, 2)) for x in xs]


def _doubling(k: int, most: int) -> Iterator[int]:
    while k <= most:
        yield k
        k *= 2


def lexicographic(r: Rewriter, direction: str, a: Instruction, b: Instruction, then: Instruction) -> Instruction:
    """Whether a comes before b; `then`: of those that are equal."""
    same = r.emit("compare", a, b, direction="EQ")
    return r.emit("select", same, then, r.emit("compare", a, b, direction=direction))


def exchanged(r: Rewriter, swap: Instruction, a: Arrays, b: Arrays) -> tuple[Arrays, Arrays]:
    """Pairs of elements, of which some change places."""
    pairs = list(zip(a, b, strict=True))
    return [r.emit("select", swap, y, x) for x, y in pairs], [r.emit("select", swap, x, y) for x, y in pairs]


class Columns:
    """Arrays as matrices whose columns run along one of their dimensions."""

    def __init__(self, r: Rewriter, dims: tuple[int, ...], dim: int) -> None:
        self.r, self.dims = r, dims
        self.outer, self.inner = prod(dims[:dim]), prod(dims[dim + 1 :])
        self.dim = dim

    def brought(self, x: Instruction) -> Instruction:
        """The matrix of an array; it may have another number of elements along the dimension."""
        n = x.dims[self.dim]
        x = self._swapped(self.r.reshaped(x, (self.outer, n, self.inner)))
        return self.r.reshaped(x, (n, self.outer * self.inner))

    def returned(self, x: Instruction) -> Instruction:
        """The array of a matrix; it may have another number of rows."""
        n = x.dims[0]
        x = self._swapped(self.r.reshaped(x, (n, self.outer, self.inner)))
        return self.r.reshaped(x, (*self.dims[: self.dim], n, *self.dims[self.dim + 1 :]))

    def _swapped(self, x: Instruction) -> Instruction:
        if 1 in x.dims[:2]:
            return self.r.reshaped(x, (x.dims[1], x.dims[0], x.dims[2]))
        return self.r.emit("transpose", x, dimensions=(1, 0, 2))


def padded(r: Rewriter, x: Instruction, fill: object, more: int, dim: int) -> Instruction:
    """An array with more elements of a value behind its others along a dimension."""
    if not more:
        return x
    padding = tuple(PadDim(0, more if d == dim else 0) for d in range(x.shape.rank))
    return r.emit("pad", x, r.constant(fill, x.shape.dtype), padding=padding)


def cut(r: Rewriter, x: Instruction, n: int) -> Instruction:
    """The first rows of a matrix."""
    return r.sliced(x, [(0, n), (0, x.dims[1])])


def extreme(dtype: DType, direction: str) -> int:
    """The integer that comes last: the greatest where less comes first (LT), else the least."""
    return dtype.greatest if direction == "LT" else dtype.least
