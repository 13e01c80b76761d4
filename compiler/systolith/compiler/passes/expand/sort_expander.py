"""Sorts as bitonic networks of elementwise operations, slices and concatenations.

An element carries the features that its comparator looks at, its place where equal elements are not the same, and the
operands that no feature gives back.  All sorts are stable, those that need not be too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.comparators import Comparator
from systolith.compiler.passes.expand.sort_blocks import in_batches, in_blocks, power
from systolith.compiler.passes.expand.sort_network import (
    Arrays,
    Columns,
    cut,
    exchanged,
    extreme,
    lexicographic,
    padded,
)
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class ExpandSorts:
    """Expand `sort` of static shapes to bitonic networks."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = False
        while rewrite(module, lambda r, i: _expanded(r, callees, i) if i.opcode == "sort" else None):
            callees.place()  # the bodies of loops, with sorts of parts
            changed = True
        return changed


def _expanded(r: Rewriter, callees: Callees, i: Instruction) -> Instruction | None:
    if any(o.shape.is_dynamic for o in i.operands):
        return None
    (dim,) = i.ints("dimensions")
    n = i.operands[0].dims[dim]
    results: Sequence[Instruction] = i.operands
    if n > 1 and i.operands[0].shape.size:
        parts = in_batches(r, callees, i, dim, partial(_fresh_place, dim))
        results = _Sort(r, callees, i, dim, n).results() if parts is None else parts
    return r.emit("tuple", *results, shape=i.shape) if i.shape.is_tuple else results[0]


class _Sort:
    """One sort: what an element carries, and how the operands come of it."""

    def __init__(self, r: Rewriter, callees: Callees, i: Instruction, dim: int, n: int) -> None:
        self.r, self.callees, self.i, self.n = r, callees, i, n
        self.columns = Columns(r, i.operands[0].dims, dim)
        self.comparator = Comparator(i.computation())
        features = self.comparator.features
        self.given = {f.number: k for k, f in reversed(list(enumerate(features))) if f.number is not None}
        self.places = {k for k, o in enumerate(i.operands) if _is_place(o, dim)}
        self.kept = [k for k in range(len(i.operands)) if k not in self.given and k not in self.places]
        alone = self.comparator.direction and not self.kept and not self.places
        self.placed = not alone

    def results(self) -> list[Instruction]:
        r, features = self.r, self.comparator.features
        operands = self.i.operands
        carried = [f.carried(r, operands) for f in features] + [operands[k] for k in self.kept]
        padded = [self.columns.brought(x) for x in self._padded(carried)]
        if self.placed:
            padded.insert(len(features), r.emit("iota", shape=array(S32, padded[0].dims), iota_dimension=0))
        done = [cut(r, x, self.n) for x in in_blocks(r, self.callees, self, padded)]
        place = done.pop(len(features)) if self.placed else None
        back = [self._result(k, done, place) for k in range(len(operands))]
        return [self.columns.returned(x) for x in back]

    def _result(self, k: int, done: Arrays, place: Instruction | None) -> Instruction:
        features = self.comparator.features
        if k in self.given:
            return features[self.given[k]].restored(self.r, done[self.given[k]])
        if place is not None and k in self.places:
            dtype = self.i.operands[k].shape.dtype
            return place if dtype == S32 else self.r.emit("convert", place, shape=array(dtype, place.dims))
        return done[len(features) + self.kept.index(k)]

    def _padded(self, carried: Arrays) -> list[Instruction]:
        """The arrays with a power of two of elements; of equal ones, those added come last by their places."""
        direction = self.comparator.direction
        more = power(self.n) - self.n
        fills = [np.zeros((), x.shape.dtype.stored) for x in carried]
        if direction:
            fills[0] = np.asarray(extreme(carried[0].shape.dtype, direction))
        return [padded(self.r, x, fill, more, self.columns.dim) for x, fill in zip(carried, fills, strict=True)]

    def exchange(self, r: Rewriter, a: Arrays, b: Arrays) -> tuple[Arrays, Arrays]:
        """Of each pair, the element that comes first, and the other."""
        if len(a) == 1 and self.comparator.direction:
            sides = [[r.emit(opcode, *a, *b)] for opcode in ("minimum", "maximum")]
            return (sides[0], sides[1]) if self.comparator.direction == "LT" else (sides[1], sides[0])
        return exchanged(r, self._before(r, b, a), a, b)

    def _before(self, r: Rewriter, a: Arrays, b: Arrays) -> Instruction:
        """Whether a comes before b."""
        k = len(self.comparator.features)
        earlier = r.emit("compare", a[k], b[k], direction="LT")
        if self.comparator.direction:
            return lexicographic(r, self.comparator.direction, a[0], b[0], earlier)
        first, second = self.comparator.holds(r, a[:k], b[:k]), self.comparator.holds(r, b[:k], a[:k])
        stable = r.emit("or", first, r.emit("and", r.emit("not", second), earlier))
        if self.n & (self.n - 1) == 0:
            return stable
        last = r.emit("maximum", a[k], b[k])
        added = r.emit("compare", last, r.full(self.n, last.shape), direction="GE")
        return r.emit("select", added, earlier, stable)


def _fresh_place(dim: int, r: Rewriter, x: Instruction, shape: Shape) -> Instruction | None:
    """The numbers of the elements, for part of the lines, where an operand is these."""
    return r.emit("iota", shape=shape, iota_dimension=dim) if _is_place(x, dim) else None


def _is_place(x: Instruction, dim: int) -> bool:
    """Whether it numbers the elements along a dimension."""
    if not x.shape.dtype.is_integer or x.shape.dtype.bits < 32:
        return False
    if x.opcode == "broadcast" and x.ints("dimensions", ()) == (dim,):
        return x.operands[0].opcode == "iota"
    return x.opcode == "iota" and x.integer("iota_dimension") == dim
