"""A dot as products of elements and their sums: dot(a, b) = reduce-add over the contracted dimensions of a * b.

The broadcasts fold into index maps and the product into the reduction, so that nothing of the space of products is
stored.  Contracted dimensions come first there and the longest of the others last, so that lanes hold results, each
with its own sum, and operands are transposed for that; or the space lies as one operand does, which is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import DType

BATCH, ROWS, COLUMNS, TERMS = KINDS = "batch", "rows", "columns", "terms"
"""Kinds of dimensions: those of both operands and the result, of one operand and the result, and the contracted ones.
The result has the first three, in this order."""

Label = tuple[str, int]
"""A dimension: its kind, and its number among those."""


@dataclass(frozen=True)
class DotDims:
    """The dimensions of a dot's operands by their kinds."""

    dot: Instruction

    @cached_property
    def sides(self) -> tuple[Mapping[str, Sequence[int]], Mapping[str, Sequence[int]]]:
        """For each operand, the dimensions of each kind that it has."""
        left, right = (
            {BATCH: batch, free: [d for d in range(x.shape.rank) if d not in (*batch, *terms)], TERMS: terms}
            for x, free, batch, terms in (
                (x, free, self.dot.ints(f"{side}_batch_dims", ()), self.dot.ints(f"{side}_contracting_dims", ()))
                for x, side, free in zip(self.dot.operands, ("lhs", "rhs"), (ROWS, COLUMNS), strict=False)
            )
        )
        return left, right

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
        """The sizes of the dimensions of each kind."""
        pairs = [*zip(self.dot.operands, self.sides, strict=False)]
        return {kind: [x.dims[d] for d in dims] for x, side in pairs[::-1] for kind, dims in side.items()}

    def size(self, kind: str) -> int:
        """Of all dimensions of a kind together."""
        return prod(self.sizes[kind])

    @property
    def by_size(self) -> list[str]:
        """The kinds of the result's dimensions, the longest last."""
        return sorted((BATCH, ROWS, COLUMNS), key=self.size)

    @property
    def matrix(self) -> int:
        """The number of the operand that is a matrix, or several, where the other one is a vector for each."""
        return int(self.size(ROWS) == 1)

    def labels(self, operand: int) -> list[Label]:
        """What each dimension of an operand is."""
        found = {d: (kind, n) for kind, dims in self.sides[operand].items() for n, d in enumerate(dims)}
        return [found[d] for d in range(len(found))]

    def space(self, like: int | None) -> list[Label]:
        """The dimensions of the products in order; `like`: the operand as which they lie, behind those it lacks."""
        whole = [(kind, n) for kind in (TERMS, *self.by_size) for n in range(len(self.sizes[kind]))]
        if like is None:
            return whole
        own = self.labels(like)
        return [*(label for label in whole if label not in own), *own]


def summed_products(
    callees: Callees, r: Rewriter, dot: Instruction, dtype: DType, like: int | None = None
) -> Instruction:
    """What a dot gives, in a type in which products and sums are.

    Args:
        callees: has the computation of the sums placed.
        r: makes instructions.
        dot: the dot.
        dtype: the type.
        like: the operand as which the products lie; None: contracted dimensions first, the longest of the others last.
    """
    dims = DotDims(dot)
    order = dims.space(like)
    space = array(dtype, [dims.sizes[kind][n] for kind, n in order])
    sides = []
    for number, x in enumerate(dot.operands[:2]):
        own = dims.labels(number)
        turned = r.converted(r.transposed(x, [own.index(label) for label in order if label in own]), dtype)
        places = tuple(d for d, label in enumerate(order) if label in own)
        sides.append(r.emit("broadcast", turned, shape=space, dimensions=places))
    products = r.emit("multiply", *sides, shape=space)
    kept = [label for label in order if label[0] != TERMS]
    made = r.emit(
        "reduce",
        products,
        r.constant(0, dtype),
        shape=array(dtype, [dims.sizes[kind][n] for kind, n in kept]),
        name=dot.name,
        dimensions=tuple(d for d, (kind, _) in enumerate(order) if kind == TERMS),
        to_apply=callees.reducer("add", dtype),
    )
    return r.transposed(made, sorted(range(len(kept)), key=lambda d: (KINDS.index(kept[d][0]), kept[d][1])))
