"""Groups on the matrix units: a dot or a convolution, its epilogue on the vector unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from systolith.compiler.cost.prices import product_cycles
from systolith.compiler.errors import LimitError, compile_error
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.contraction import Contraction, convolution_contraction, dot_contraction
from systolith.compiler.mxu.epilogue import Epilogue, Made, made_of
from systolith.compiler.mxu.fused_operand import Computed, computed
from systolith.compiler.mxu.gemm import INTEGER_OPERANDS, Gemm
from systolith.compiler.mxu.gemm_plan import GemmPlan
from systolith.compiler.mxu.precision import ONE, passes_of
from systolith.compiler.mxu.turned_operand import minor_dims
from systolith.compiler.ops.expression_builder import analyze
from systolith.compiler.ops.group import Group
from systolith.compiler.ops.table import Family, of_family
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.compiler.tile.strided import compact
from systolith.compiler.tile.views import as_view, view_base
from systolith.compiler.vpu.elementwise import lower_plan
from systolith.isa.chip import Chip
from systolith.isa.dtypes import S32

CLOSE = 0.75
"""Cycles of the cross-lane unit over those of the matrix units from which on it may be the one that others wait for."""

_CONTRACTIONS = of_family(Family.CONTRACTION, {"dot": dot_contraction, "convolution": convolution_contraction})


def contraction_cycles(c: Contraction, chip: Chip) -> int:
    """Cycles of all matrix units together for a product, or a batch of them, in one pass."""
    each = product_cycles(c.count(c.m), c.count(c.n), c.count(c.k), chip)
    return c.count(c.batch) * each // chip.mxu.count


def contraction_of(instruction: Instruction) -> Contraction:
    """The contraction that a `dot` or `convolution` computes."""
    lhs, rhs = instruction.operands[:2]
    return _CONTRACTIONS[instruction.opcode](instruction, lhs.dims, rhs.dims)


def is_integer(instruction: Instruction) -> bool:
    """Whether the matrix units sum it in s32.

    Raises:
        CompileError: the matrix units cannot do the element types.
    """
    types = [o.shape.dtype for o in instruction.operands]
    if all(t.is_float and t.bits <= 32 for t in types):
        return False
    if all(t.name in INTEGER_OPERANDS for t in types):
        return True
    names = " x ".join(t.name for t in types)
    raise compile_error(
        instruction, f"{names} is not an operation of the matrix units; convert to f32, bf16, s8 or u8 first"
    )


def sums_integers(product: Instruction) -> bool:
    """Whether the matrix units sum a product in s32; errors as for `is_integer`, and of another integer result."""
    integer = is_integer(product)
    if integer and product.shape.dtype is not S32:
        raise compile_error(product, "integer products are summed in s32; ask for an s32 result")
    return integer


def lower_output(ctx: TileBuilder, group: Group, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower a group on the matrix units; arguments and errors as for `elementwise.lower_loop`."""
    arrays = dict(zip(group.body.parameters, operands, strict=True))
    product = group.root
    sides = _sides(product, arrays)
    made = made_of(group, results)
    if made.in_place:
        _gemm(ctx, product, sides, Epilogue(ctx, made, arrays)).emit()
        return
    value = ctx.value(product.name, product.shape.dtype, product.dims)
    alone = Made(product, analyze([product], frontier={product}), [value])
    _gemm(ctx, product, sides, Epilogue(ctx, alone, {})).emit()
    lower_plan(ctx, made.plan, {**arrays, product: value}, made.results)


def planned(ctx: TileBuilder, group: Group, operands: Sequence[Array], results: Sequence[Array]) -> GemmPlan | None:
    """The tiles that a group would have; None: none fit.  Arguments and errors as for `lower_output`.

    Raises:
        LimitError: lanes of the accumulators hold what the group sums.
    """
    arrays = dict(zip(group.body.parameters, operands, strict=True))
    made = made_of(group, results)
    gemm = _gemm(ctx, group.root, _sides(group.root, arrays), Epilogue(ctx, made, arrays))
    if made.sums is not None and not made.sums_rows(gemm.c):
        raise LimitError("it sums along the columns of the product", group.root)
    return next(iter(gemm.plans()), None)


def _sides(product: Instruction, arrays: Mapping[Instruction, Array]) -> tuple[Array | Computed, Array | Computed]:
    """Where the operands lie (parameters of the group, or views of them), or what computes them.

    Raises:
        CompileError: as for `computed`.
    """
    left, right = (_side(side, arrays) for side in product.operands[:2])
    return left, right


def _side(side: Instruction, arrays: Mapping[Instruction, Array]) -> Array | Computed:
    base = view_base(side)
    array = as_view(arrays[base], side) if base in arrays else None
    return array or computed(side, arrays)


def _gemm(
    ctx: TileBuilder, product: Instruction, sides: tuple[Array | Computed, Array | Computed], epilogue: Epilogue
) -> Gemm:
    """The contraction of a group.

    Raises:
        CompileError: an empty operand, or types that the matrix units do not have.
    """
    if not all(o.shape.size for o in product.operands[:2]):
        raise compile_error(product, "an operand has no elements; replace the operation by a constant")
    integer = sums_integers(product)
    contraction = contraction_of(product)
    left, right = (s.like if isinstance(s, Computed) else s for s in sides)
    swapped = _sums_over_steps(contraction, left)
    if not swapped:
        swapped = _rows_innermost(contraction, epilogue.made.results)
        within = ctx.region is not None
        swapped ^= within and _turns_less(contraction, (left, right), swapped, epilogue.made.results, ctx.chip)
    if swapped:
        contraction, sides = contraction.swapped(), (sides[1], sides[0])
    contraction, sides = _compacted(contraction, sides, ctx.chip)
    lhs, rhs = ((s.like if isinstance(s, Computed) else s).dtype for s in sides)
    passes = ONE if integer else passes_of(product, ctx.options.precision, lhs, rhs)
    return Gemm(ctx, contraction, sides, passes, integer, epilogue, product.name)


def _compacted(
    c: Contraction, sides: tuple[Array | Computed, Array | Computed], chip: Chip
) -> tuple[Contraction, tuple[Array | Computed, Array | Computed]]:
    """A contraction whose operands hold only what it reads, where whole rows of them are not read."""
    maps, read = [], list[Array | Computed]()
    for side, index in zip(sides, (c.lhs, c.rhs), strict=True):
        if isinstance(side, Array):
            side, index = compact(side, index, c.sizes, chip.hbm.chunk)
        read.append(side)
        maps.append(index)
    return replace(c, lhs=maps[0], rhs=maps[1]), (read[0], read[1])


def _sums_over_steps(c: Contraction, streamed: Array) -> bool:
    """Whether the sum takes every second element, say, of dimensions of the left operand that are not its innermost.

    Copied for the sum to run along it, a row would still have each element apart; as the stationary operand it is read
    along its innermost dimension.  Padding has to be streamed.
    """
    if not c.lhs.total:
        return False
    minor = minor_dims(c, streamed)
    return any(abs(step) > 1 for d in minor for axis, step in c.lhs.dims[d].terms if axis in c.k)


def _turns_less(
    c: Contraction, sides: tuple[Array, Array], swapped: bool, results: Sequence[Array], chip: Chip
) -> bool:
    """Whether the cross-lane unit, which has about as much to do as the matrix units, has less than half as much to
    turn if the other operand streams, not the left one (the right one if `swapped`).

    A product of a large transposed matrix with a few columns is such: the gradients of attention's keys and values.
    Within a block others wait for that unit.  Alone, such a product is as fast, and its results come in other tiles.
    """
    if not c.lhs.total or not c.rhs.total:
        return False
    ways = [(c, sides[0]), (c.swapped(), sides[1])]
    if swapped:
        ways.reverse()
    (now, product), (then, other) = (_copied(each, streamed, results, chip) for each, streamed in ways)
    return now >= CLOSE * product and 2 * then <= now and max(then, other) <= max(now, product)


def _copied(c: Contraction, streamed: Array, results: Sequence[Array], chip: Chip) -> tuple[float, float]:
    """Cycles, roughly, in which the cross-lane unit copies the streamed operand and the results, and of the product."""
    turned = [streamed] if minor_dims(c, streamed) else []
    turned += results if _rows_innermost(c, results) else []
    return sum(prod(a.dims) for a in turned) / chip.vpu.lanes, contraction_cycles(c, chip)


def _rows_innermost(c: Contraction, results: Sequence[Array]) -> bool:
    """Whether neighbours in memory of the results (transposed ones) are rows of the product, not columns.

    Then the right operand streams, so that they are columns of the accumulators.  Padding has to be streamed.
    """
    if not c.lhs.total:
        return False
    nearest = {min((d for d, n in enumerate(a.dims) if n > 1), key=a.strides.__getitem__, default=-1) for a in results}
    return bool(nearest) and all(d >= 0 and not c.out.dims[d].depends.isdisjoint(c.m) for d in nearest)
