"""Dots of small matrices, of which there are many, or of which one has many rows, on the vector unit.

A matrix unit takes a row of operands a cycle, however short it is, and some 20 cycles for the weights of each product.
On the vector unit the long dimension fills the lanes: operands are transposed so that it comes last.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.element_products import (
    BATCH,
    COLUMNS,
    ROWS,
    TERMS,
    DotDims,
    summed_products,
)
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


def _reduced(callees: Callees, r: Rewriter, i: Instruction) -> Instruction | None:
    shapes = [x.shape for x in (i, *i.operands)]
    if any(not s.dtype.is_float or s.dtype.bits > F32.bits or s.is_dynamic for s in shapes):
        return None
    small = _is_small(DotDims(i))
    return r.converted(summed_products(callees, r, i, F32), i.shape.dtype) if small else None


def _is_small(dims: DotDims) -> bool:
    """Whether a dot takes the vector unit far fewer cycles than the matrix units."""
    longest = dims.by_size[-1]
    batch, rows, columns, terms = map(dims.size, (BATCH, ROWS, COLUMNS, TERMS))
    if dims.size(longest) < LONG or sorted((rows, terms, columns))[1] > SHORT:
        return False
    matrix_unit = batch * -(-columns // LANES) * (SETUP + terms + rows / 2)
    products = batch * rows * terms * columns / REGISTER
    # What has the long dimension innermost anyway is not turned.
    turned = batch * (rows * terms + rows * columns) * (longest != COLUMNS) + batch * terms * columns * (
        longest == BATCH
    )
    return GAIN * (products + turned / LANES) <= matrix_unit
