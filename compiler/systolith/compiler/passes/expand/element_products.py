"""A dot as products of elements and their sums: dot(a, b) = reduce-add over the contracted dimensions of a * b.

The broadcasts fold into index maps and the product into the reduction, so that nothing of the space of products is
stored.  Contracted dimensions come first there and the longest of the others last: lanes hold results, each with its
own sum, and operands are transposed for that.
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


def summed_products(callees: Callees, r: Rewriter, dot: Instruction, dtype: DType) -> Instruction:
    """What a dot gives, in a type in which products and sums are.

    Args:
        callees: has the computation of the sums placed.
        r: makes instructions.
        dot: the dot.
        dtype: the type.
    """
    dims = DotDims(dot)
    order = [TERMS, *dims.by_size]
    kinds = [kind for kind in order for _ in dims.sizes[kind]]
    space = array(dtype, [n for kind in order for n in dims.sizes[kind]])
    sides = []
    for x, own in zip(dot.operands, dims.sides, strict=False):
        turned = r.converted(r.transposed(x, [d for kind in order for d in own.get(kind, ())]), dtype)
        places = tuple(d for d, kind in enumerate(kinds) if kind in own)
        sides.append(r.emit("broadcast", turned, shape=space, dimensions=places))
    products = r.emit("multiply", *sides, shape=space)
    summed = tuple(d for d, kind in enumerate(kinds) if kind == TERMS)
    kept = [d for d in range(len(kinds)) if d not in summed]
    made = r.emit(
        "reduce",
        products,
        r.constant(0, dtype),
        shape=array(dtype, [space.dims[d] for d in kept]),
        name=dot.name,
        dimensions=summed,
        to_apply=callees.reducer("add", dtype),
    )
    given = [kinds[d] for d in kept]
    return r.transposed(made, sorted(range(len(given)), key=lambda d: (KINDS.index(given[d]), d)))
