"""`ragged-dot` as `dot`: the left array once for each group, zeros where it is of others.

Source: XLA's `ragged_dot_rewriter`; the values are those of `hlo/values/ragged.py`, which names the three kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.scans import cumulative
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import S32

Dims = tuple[int, ...]
DOT = ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims")
"""Attributes of a dot that name dimensions."""


@dataclass(frozen=True)
class RewriteRaggedDots:
    """Write `ragged-dot` as a `dot` with the groups as a dimension more: one to sum over, or one of the result."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _expanded(r, i, callees) if i.opcode == "ragged-dot" else None)
        callees.place()
        return changed


def _expanded(r: Rewriter, i: Instruction, callees: Callees) -> Instruction | None:
    lhs, rhs, sizes = i.operands
    if any(o.shape.is_dynamic for o in i.operands):
        return None
    (dim,) = i.ints("lhs_ragged_dims")
    lb, rb, lc, rc = (i.ints(name, ()) for name in DOT)
    if dim in lb:
        return product(r, i, (lhs, rhs), i.shape, (lb, rb, lc, rc))
    if not sizes.dims[-1]:
        return r.full(0, i.shape)
    own = lc if dim in lc else tuple(d for d in range(lhs.shape.rank) if d not in (*lb, *lc))
    before = (*lb, *own[: own.index(dim)]) if sizes.shape.rank > 1 else ()
    grouped = _grouped(r, lhs, _bounds(r, callees, sizes, before), before, dim)
    lb, lc = (tuple(d + 1 for d in dims) for dims in (lb, lc))
    if dim not in i.ints("lhs_contracting_dims", ()):
        lc, rc = (0, *lc), (*i.ints("rhs_group_dims"), *rc)
        return product(r, i, (grouped, rhs), i.shape, (lb, rb, lc, rc))
    groups, *others = i.dims
    moved = array(i.shape.dtype, (*others[: len(lb)], groups, *others[len(lb) :]))
    made = product(r, i, (grouped, rhs), moved, (lb, rb, lc, rc))
    return r.transposed(made, (len(lb), *(d for d in range(len(moved.dims)) if d != len(lb))))


def product(
    r: Rewriter, i: Instruction, sides: tuple[Instruction, Instruction], shape: Shape, dims: Sequence[Dims]
) -> Instruction:
    """A `dot` as precise as an instruction is; `dims`: the dimensions that `DOT` names."""
    made = r.emit("dot", *sides, shape=shape)
    made.attributes |= dict(zip(DOT, dims, strict=True))
    made.attributes |= {k: i.attributes[k] for k in ("operand_precision", "algorithm") if k in i.attributes}
    return made


def _bounds(
    r: Rewriter, callees: Callees, sizes: Instruction, before: Sequence[int]
) -> tuple[Instruction, Instruction]:
    """The first place of each group and the one after its last: groups, then the dimensions before in their order."""
    rank = sizes.shape.rank
    numbers = r.converted(sizes, S32)
    ends = cumulative(r, callees, "add", numbers, r.constant(0, S32), rank - 1)
    starts = r.emit("subtract", ends, numbers)
    order = (rank - 1, *sorted(range(len(before)), key=lambda n: before[n]))
    return r.transposed(starts, order), r.transposed(ends, order)


def _grouped(
    r: Rewriter, lhs: Instruction, bounds: tuple[Instruction, Instruction], before: Sequence[int], dim: int
) -> Instruction:
    """The array once for each group, along a first dimension, with zeros where the place is of other groups."""
    dims = (bounds[0].dims[0], *lhs.dims)
    wide, numbers = array(lhs.shape.dtype, dims), array(S32, dims)
    places = (0, *(d + 1 for d in sorted(before)))
    start, end = (Real(r, r.emit("broadcast", b, shape=numbers, dimensions=places)) for b in bounds)
    place = Real(r, r.emit("iota", shape=numbers, iota_dimension=dim + 1))
    member = r.emit("and", place.test("GE", start), place.test("LT", end))
    repeated = r.emit("broadcast", lhs, shape=wide, dimensions=tuple(range(1, len(dims))))
    return r.emit("select", member, repeated, r.full(0, wide))
