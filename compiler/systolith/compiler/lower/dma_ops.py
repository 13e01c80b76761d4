"""Groups of DMA: data movement, with offsets that only a run knows; what installed packages lower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box
from systolith.compiler.lower.indexed.gather import lower_gather
from systolith.compiler.lower.indexed.scatter import lower_scatter
from systolith.compiler.lower.installed import lower_installed
from systolith.compiler.lower.routines import arrays_of, is_routine, lower_routine
from systolith.compiler.lower.scalars import alu, load_scalar, number_of
from systolith.compiler.ops.group import Group
from systolith.compiler.ops.table import Family, family, of_family
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.induction import progression
from systolith.compiler.tile.ir import Array, Entry, VReg
from systolith.isa.dtypes import S32


def lower_custom(ctx: TileBuilder, group: Group, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower a group of DMA: one operation on the group's parameters.

    Raises:
        CompileError: there is no rule for it.
    """
    root = group.root
    arrays = dict(zip(group.body.parameters, operands, strict=True))
    if is_routine(root):
        lower_routine(ctx, root, [*arrays_of(ctx, root, arrays)], results)
        return
    given = [_operand(ctx, root, o, arrays) for o in root.operands]
    if family(root) is Family.REGISTERED:
        lower_installed(ctx, root, given, results)
    elif root.opcode in _RULES:
        _RULES[root.opcode](ctx, root, given, results)
    else:
        raise compile_error(root, "not an operation that DMA does")


def _operand(
    ctx: TileBuilder, root: Instruction, operand: Instruction, arrays: Mapping[Instruction, Array]
) -> Array | int:
    """Where an operand lies; the value of a scalar constant."""
    if operand in arrays:
        return arrays[operand]
    if operand.opcode == "constant" and not operand.dims and operand.shape.dtype.is_integer:
        return int(np.asarray(operand.literal))
    if operand.opcode == "constant":
        return ctx.constant(operand)
    raise compile_error(root, f"its operand {operand.name!r} ({operand.opcode}) is computed inside its group")


Operand = Array | int


def window(
    ctx: TileBuilder, root: Instruction, array: Array, dims: Sequence[int], starts: Sequence[Operand | VReg]
) -> Array:
    """The window of an array at run-time start indices, clamped so that it is inside; in registers are signed ones."""
    dynamic: VReg | None = None
    number: VReg | None = None
    fixed = list(array.origin)
    for d, (size, width, stride, start) in enumerate(zip(array.dims, dims, array.strides, starts, strict=True)):
        if width == size:
            continue
        if isinstance(start, int):
            fixed[d] += min(max(start, 0), size - width)
            continue
        in_stack = d == 0 and width == 1 and array.buf.is_large and stride * size == array.buf.bytes
        moved = progression(ctx.inductions, start)
        if moved is not None and moved.is_within(0, size - width) and not in_stack:
            offset = number_of(ctx, moved.times(stride), "offset")
            dynamic = offset if dynamic is None else alu(ctx, "add", dynamic, offset, "offset")
            continue
        index = start if isinstance(start, VReg) else load_scalar(ctx, start, "start index")
        kind = start.dtype if isinstance(start, Array) else S32
        if not kind.is_integer or kind.bits > 32:
            raise compile_error(root, f"start indices of type {kind}; convert them to s32")
        if kind.kind == "unsigned" and kind.bits == 32:
            index = _least(ctx, index, size - width)
        else:
            index = alu(ctx, "min", alu(ctx, "max", index, 0, "clamp"), size - width, "clamp")
        if in_stack:
            number = index
            continue
        offset = alu(ctx, "mul", index, stride, "offset")
        dynamic = offset if dynamic is None else alu(ctx, "add", dynamic, offset, "offset")
    part = replace(view(array, Box(tuple(fixed), tuple(dims))), origin=(0,) * len(dims))
    if dynamic is not None and isinstance(part.dynamic, VReg):
        dynamic = alu(ctx, "add", dynamic, part.dynamic, "offset")
    if number is not None:
        return replace(part, dynamic=Entry(number, array.strides[0], dynamic))
    return part if dynamic is None else replace(part, dynamic=dynamic)


def _least(ctx: TileBuilder, index: VReg, limit: int) -> VReg:
    """The lesser, unsigned: index - limit where that borrows, else 0, plus limit."""
    less = alu(ctx, "sltu", index, limit, "clamp")
    difference = alu(ctx, "sub", index, limit, "clamp")
    return alu(ctx, "add", alu(ctx, "mul", difference, less, "clamp"), limit, "clamp")


def slice_view(ctx: TileBuilder, group: Group, operands: Sequence[Array]) -> Array:
    """A dynamic slice of an operand where it lies; arguments as for `lower_custom`."""
    arrays = dict(zip(group.body.parameters, operands, strict=True))
    source, *starts = (_operand(ctx, group.root, o, arrays) for o in group.root.operands)
    assert isinstance(source, Array)
    return window(ctx, group.root, source, group.root.ints("dynamic_slice_sizes"), _indices(starts))


def update_window(ctx: TileBuilder, group: Group, base: Array, starts: Mapping[Instruction, VReg]) -> Array:
    """The part of an array that an update changes; `starts`: the indices that are parameters of its body."""
    root = group.root
    given = [starts[o] if o in starts else int(np.asarray(o.literal)) for o in root.operands[2:]]
    return window(ctx, root, base, root.operands[1].dims, given)


def _dynamic_slice(ctx: TileBuilder, root: Instruction, operands: list[Operand], results: Sequence[Array]) -> None:
    source, *starts = operands
    assert isinstance(source, Array)
    part = window(ctx, root, source, root.ints("dynamic_slice_sizes"), _indices(starts))
    ctx.move(part, results[0], "dynamic slice")


def _dynamic_update_slice(
    ctx: TileBuilder, root: Instruction, operands: list[Operand], results: Sequence[Array]
) -> None:
    base, update, *starts = operands
    assert isinstance(base, Array)
    assert isinstance(update, Array)
    (result,) = results
    if result.buf.memory is not base.buf.memory:
        ctx.move(base, result, "copy")
    target = window(ctx, root, result, update.dims, _indices(starts))
    ctx.move(replace(update, origin=target.origin), target, "update slice")


def _indices(starts: list[Operand]) -> list[Operand]:
    """Start indices one by one: given so, or as one vector."""
    vector = starts[0] if len(starts) == 1 else None
    if isinstance(vector, Array) and vector.dims:
        return [view(vector, Box((k,), (1,))) for k in range(vector.dims[0])]
    return starts


def _gather(ctx: TileBuilder, root: Instruction, operands: list[Operand], results: Sequence[Array]) -> None:
    source, starts = _arrays(operands)
    lower_gather(ctx, source, starts, results[0])


def _scatter(ctx: TileBuilder, root: Instruction, operands: list[Operand], results: Sequence[Array]) -> None:
    lower_scatter(ctx, root, _arrays(operands), results)


def _arrays(operands: list[Operand]) -> list[Array]:
    assert all(isinstance(o, Array) for o in operands), "only scalars are numbers"
    return cast("list[Array]", operands)


_RULES = of_family(
    Family.DMA,
    {
        "dynamic-slice": _dynamic_slice,
        "dynamic-update-slice": _dynamic_update_slice,
        "gather": _gather,
        "scatter": _scatter,
    },
)
