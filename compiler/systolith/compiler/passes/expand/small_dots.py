"""Dots of small matrices, of which there are many, or of which one has many rows, on the vector unit.

A matrix unit takes a row of operands a cycle, however short it is, and some 20 cycles for the weights of each product.
On the vector unit the long dimension fills the lanes: dot(a, b) = reduce-add over the contracted dimension of a * b,
both transposed so that it comes last.  The product folds into the reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import F32

LONG = 512
"""Elements of a dimension that is worth filling lanes with."""

SHORT = 16
"""Of rows, terms and columns, two are at most so many."""

SETUP, LANES, REGISTER = 20, 128, 1024
"""Cycles for the weights of a product besides their rows; elements that the cross-lane unit turns, and products that
the vector unit makes and adds, in a cycle: those of `tpu_v3`, whatever the chip, as a pass does not know it."""

GAIN = 2
"""How many times fewer cycles the vector unit has to need."""


@dataclass(frozen=True)
class ReduceSmallDots:
    """Write dots of many small matrices, or of short rows, as products of elements and their sums."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _reduced(callees, r, i) if i.opcode == "dot" else None)
        callees.place()
        return changed


@dataclass(frozen=True)
class _Sizes:
    """A dot's batch, rows, terms of a sum, and columns."""

    batch: int
    rows: int
    terms: int
    columns: int

    @property
    def long(self) -> int:
        """Which of batch (0), rows (1) and columns (2) fills the lanes."""
        sizes = (self.batch, self.rows, self.columns)
        return sizes.index(max(sizes))

    @property
    def is_small(self) -> bool:
        """Whether it takes the vector unit far fewer cycles than the matrix units."""
        short = sorted((self.rows, self.terms, self.columns))
        if max(self.batch, self.rows, self.columns) < LONG or short[1] > SHORT:
            return False
        tiles = -(-self.columns // LANES)
        matrix_unit = self.batch * tiles * (SETUP + self.terms + self.rows / 2)
        products = self.batch * self.rows * self.terms * self.columns / REGISTER
        turned = (  # what lies in lanes anyway is not
            (self.long != 2) * self.batch * self.rows * self.terms
            + (self.long == 0) * self.batch * self.terms * self.columns
            + (self.long != 2) * self.batch * self.rows * self.columns
        )
        return GAIN * (products + turned / LANES) <= matrix_unit


def _reduced(callees: Callees, r: Rewriter, i: Instruction) -> Instruction | None:
    types = [x.shape.dtype for x in (i, *i.operands)]
    if any(not t.is_float or t.bits > F32.bits for t in types) or any(x.shape.is_dynamic for x in (i, *i.operands)):
        return None
    lhs, rhs = i.operands
    (lb, lc), (rb, rc) = ((i.ints(f"{side}_batch_dims", ()), i.ints(f"{side}_contracting_dims", ())) for side in SIDES)
    lf, rf = ([d for d in range(x.shape.rank) if d not in (*b, *c)] for x, b, c in ((lhs, lb, lc), (rhs, rb, rc)))
    sizes = _Sizes(*(prod(x.dims[d] for d in dims) for x, dims in ((lhs, lb), (lhs, lf), (lhs, lc), (rhs, rf))))
    if not sizes.is_small:
        return None
    # The space of products: terms, then batch, rows and columns, of which the long one is last.
    order = [k for k in range(3) if k != sizes.long] + [sizes.long]
    dims = (sizes.batch, sizes.rows, sizes.columns)
    space = array(F32, (sizes.terms, *(dims[k] for k in order)))
    sides = [
        _spread(r, lhs, {0: lb, 1: lf}, lc, order, space.dims),
        _spread(r, rhs, {0: rb, 2: rf}, rc, order, space.dims),
    ]
    products = r.emit("multiply", *sides, shape=space)
    total = array(F32, space.dims[1:])
    made = r.emit(
        "reduce", products, r.constant(0, F32), shape=total, dimensions=(0,), to_apply=callees.reducer("add", F32)
    )
    back = r.transposed(r.converted(made, i.shape.dtype), [order.index(k) for k in range(3)])
    return r.reshaped(back, i.dims)


SIDES = ("lhs", "rhs")


def _spread(
    r: Rewriter,
    x: Instruction,
    own: dict[int, Sequence[int]],
    terms: Sequence[int],
    order: Sequence[int],
    space: tuple[int, ...],
) -> Instruction:
    """An operand over the space of products.

    Args:
        r: makes instructions.
        x: the operand.
        own: of batch (0), rows (1) and columns (2) the dimensions that it has.
        terms: its contracted dimensions.
        order: batch, rows and columns as the space has them behind the terms.
        space: sizes of the space.
    """
    places = [k for k in order if k in own]
    turned = r.transposed(x, [*terms, *(d for k in places for d in own[k])])
    line = r.reshaped(turned, [space[0], *(space[1 + order.index(k)] for k in places)])
    at = (0, *(1 + order.index(k) for k in places))
    return r.emit("broadcast", r.converted(line, F32), shape=array(F32, space), dimensions=at)
