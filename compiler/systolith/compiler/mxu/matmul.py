"""Groups on the matrix units: a dot or a convolution, its epilogue on the vector unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from systolith.compiler.cost.prices import product_cycles
from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.index.contraction import Contraction, convolution_contraction, dot_contraction
from systolith.compiler.mxu.fused_operand import Computed, computed
from systolith.compiler.mxu.gemm import INTEGER_OPERANDS, Gemm
from systolith.compiler.mxu.gemm_plan import GemmPlan, bytes_of
from systolith.compiler.mxu.precision import ONE, passes_of
from systolith.compiler.mxu.turned_operand import minor_dims
from systolith.compiler.ops.expression import Load, Micro, topological
from systolith.compiler.ops.expression_builder import GroupPlan, analyze, group_roots
from systolith.compiler.ops.group import Group
from systolith.compiler.ops.table import Family, of_family
from systolith.compiler.tile.arrays import nesting
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.compiler.tile.strided import compact
from systolith.compiler.tile.views import as_view, untransposed, view_base
from systolith.compiler.vpu.elementwise import lower_plan
from systolith.compiler.vpu.emit import emit
from systolith.compiler.vpu.shuffles import shuffle, shuffle_cycles
from systolith.isa.chip import Chip
from systolith.isa.dependence import slot_interval
from systolith.isa.dtypes import S32
from systolith.isa.instruction import Space

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
    """Lower a group on the matrix units; arguments as for `elementwise.lower_loop`."""
    arrays = dict(zip(group.body.parameters, operands, strict=True))
    product = group.root
    roots, results = untransposed(group_roots(group.body), results)
    plan = analyze(roots, frontier={product}) if roots != [product] else None
    sides = _sides(product, arrays)
    if plan is None or in_place(plan, product):
        epilogue = _Epilogue(ctx, plan or analyze(roots, frontier={product}), product, arrays, results)
        _gemm(ctx, product, sides, epilogue).emit()
        return
    value = ctx.value(product.name, product.shape.dtype, product.dims)
    alone = analyze([product], frontier={product})
    _gemm(ctx, product, sides, _Epilogue(ctx, alone, product, {}, [value])).emit()
    lower_plan(ctx, plan, {**arrays, product: value}, results)


def planned(ctx: TileBuilder, group: Group, operands: Sequence[Array], results: Sequence[Array]) -> GemmPlan | None:
    """The tiles that a group would have; None: none fit.  Arguments and errors as for `lower_output`."""
    arrays = dict(zip(group.body.parameters, operands, strict=True))
    product = group.root
    roots, results = untransposed(group_roots(group.body), results)
    epilogue = _Epilogue(ctx, analyze(roots, frontier={product}), product, arrays, results)
    return next(iter(_gemm(ctx, product, _sides(product, arrays), epilogue).plans()), None)


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


def in_place(plan: GroupPlan, product: Instruction) -> bool:
    """Whether the epilogue reads the product at its own point of the iteration space, nowhere else."""
    same = IndexMap.identity(len(plan.dims)).dims
    return plan.dims == product.dims and all(
        load.map.dims == same and not load.map.bounds for load in plan.loads if load.leaf is product
    )


class _Epilogue:
    """Makes results of accumulators."""

    def __init__(
        self,
        ctx: TileBuilder,
        plan: GroupPlan,
        product: Instruction,
        arrays: Mapping[Instruction, Array],
        results: Sequence[Array],
    ) -> None:
        self.ctx, self.plan, self.product, self.arrays, self.results = ctx, plan, product, arrays, results
        self.stored = sum(Box.whole(a.dims).elements * a.dtype.size for a in results if a.buf.space == Space.HBM)
        read = [arrays[leaf] for leaf in plan.leaves if leaf is not product]
        self.read = sum(bytes_of(a) for a in read if a.buf.space == Space.HBM)
        self.vector_cycles = _vector_cycles(plan, product, ctx.chip)
        self._tiles: dict[tuple[Instruction, Box], Array] = {}

    def __call__(self, acc: Array, box: Box) -> None:
        leaves = {self.product: acc}
        for leaf in self.plan.leaves:
            if leaf is not self.product:
                leaves[leaf] = self._leaf(leaf, box)
        outs = [self.ctx.out_tile(a, box) for a in self.results]
        made = [self._made(acc, out) for out in outs]
        emit(self.ctx, self.plan, box, leaves, made, self.ctx.origin("epilogue"))
        for one, out, array in zip(made, outs, self.results, strict=True):
            if one is not out:
                shuffle(self.ctx, one, out, self.ctx.origin("transpose"), across=False)
            self.ctx.stage_out(out, array, box)

    def _made(self, acc: Array, out: Array) -> Array:
        """Where the vector unit stores: `out`, or an array nested as the accumulators, to be turned into it."""
        near = [[d for d in nesting(a.strides) if a.dims[d] > 1][-1:] for a in (acc, out)]
        if near[0] == near[1]:
            return out
        made = self.ctx.tile(f"{out.buf.name}.t", replace(out, strides=acc.strides), Box(out.origin, out.dims))
        strided = prod(out.dims) // self.ctx.chip.vpu.sublanes
        return made if shuffle_cycles(self.ctx.chip, made, out, across=False) < strided else out

    def _leaf(self, leaf: Instruction, box: Box) -> Array:
        need = self.plan.footprint(leaf, box)
        if not need.elements:
            need = Box(need.origin, tuple(min(1, n) for n in leaf.dims))
        key = (leaf, need)
        if key not in self._tiles:
            self._tiles = {k: v for k, v in self._tiles.items() if k[0] is not leaf}
            self._tiles[key] = self.ctx.stage_in(self.arrays[leaf], need)
        return self._tiles[key]


def _vector_cycles(plan: GroupPlan, product: Instruction, chip: Chip) -> int:
    """Cycles that the epilogue takes for each vector; what is loaded once for many rows does not count."""
    nodes = topological(plan.nodes)
    whole = [n for n in nodes if isinstance(n, Load) and (n.leaf is product or n.leaf.dims == plan.dims)]
    micro = [n.op for n in nodes if isinstance(n, Micro)]
    return slot_interval([*micro, *["ld"] * len(whole), *["st"] * len(plan.nodes)], chip)


def _gemm(
    ctx: TileBuilder, product: Instruction, sides: tuple[Array | Computed, Array | Computed], epilogue: _Epilogue
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
        swapped = _rows_innermost(contraction, epilogue.results)
        within = ctx.region is not None
        swapped ^= within and _turns_less(contraction, (left, right), swapped, epilogue.results, ctx.chip)
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
    return all(d >= 0 and not c.out.dims[d].depends.isdisjoint(c.m) for d in nearest)
