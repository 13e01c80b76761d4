"""Shape rules of operations that contract or order elements: dot, convolution, reductions, sort."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.hlo.shape_rules import (
    Infer,
    check_call,
    listed,
    operand_shapes,
    reduced,
    require,
    same_dims,
    unique_within,
    windowed,
)
from systolith.isa.dtypes import PRED


def _reduce(i: Instruction) -> Shape:
    shape, dims = i.operands[0].shape, i.ints("dimensions")
    unique_within(dims, shape.rank, "dimensions")
    return reduced(i, i.computation(), [n for d, n in enumerate(shape.dims) if d not in dims])


def _reduce_window(i: Instruction) -> Shape:
    return reduced(i, i.computation(), windowed(i.window, i.operands[0].dims))


def _map(i: Instruction) -> Shape:
    shape = same_dims(i)
    result = check_call(i.computation(), [array(s.dtype) for s in operand_shapes(i)])
    return array(result.dtype, shape.dims)


def _dot(i: Instruction) -> Shape:
    lhs, rhs = operand_shapes(i)
    batch = i.ints("lhs_batch_dims", ()), i.ints("rhs_batch_dims", ())
    contract = i.ints("lhs_contracting_dims", ()), i.ints("rhs_contracting_dims", ())
    for shape, b, c in zip((lhs, rhs), batch, contract, strict=True):
        unique_within((*b, *c), shape.rank, "batch and contracting dimensions")
    for what, pair in (("batch", batch), ("contracting", contract)):
        sizes = [[s.dims[d] for d in ds] for s, ds in zip((lhs, rhs), pair, strict=True)]
        left, right = sizes
        require(left == right, f"{what} dimensions of {lhs} and {rhs} have equal sizes, got {left} and {right}")
    free = [n for d, n in enumerate(lhs.dims) if d not in (*batch[0], *contract[0])]
    free += [n for d, n in enumerate(rhs.dims) if d not in (*batch[1], *contract[1])]
    return array(i.shape.dtype, [*(lhs.dims[d] for d in batch[0]), *free])


def _convolution(i: Instruction) -> Shape:
    lhs, rhs = operand_shapes(i)
    n = i.conv_dims
    groups, batch_groups = i.integer("feature_group_count", 1), i.integer("batch_group_count", 1)
    require(lhs.rank == rhs.rank == len(n.input_spatial) + 2, f"dim_labels fit the ranks of {lhs} and {rhs}")
    require(groups > 0 and batch_groups > 0, "group counts are at least 1")
    require(groups == 1 or batch_groups == 1, "feature_group_count and batch_group_count are not both above 1")
    features, outputs, batch = lhs.dims[n.input_feature], rhs.dims[n.kernel_output], lhs.dims[n.input_batch]
    require(features == rhs.dims[n.kernel_input] * groups,
            f"input features {features} are {groups} group(s) of the kernel's {rhs.dims[n.kernel_input]}")  # fmt: skip
    require(outputs % (groups * batch_groups) == 0, f"output features {outputs} are a multiple of the group count")
    require(batch % batch_groups == 0, f"the batch {batch} is a multiple of batch_group_count {batch_groups}")
    sizes = tuple(d.size for d in i.window.dims)
    kernel = tuple(rhs.dims[d] for d in n.kernel_spatial)
    require(sizes == kernel, f"the window's size {sizes} is the kernel's {kernel}")
    dims = [0] * lhs.rank
    dims[n.output_batch], dims[n.output_feature] = batch // batch_groups, outputs
    positions = [d.positions(lhs.dims[at]) for d, at in zip(i.window.dims, n.input_spatial, strict=True)]
    for at, size in zip(n.output_spatial, positions, strict=True):
        dims[at] = size
    return array(i.shape.dtype, dims)


def _sort(i: Instruction) -> Shape:
    shapes = operand_shapes(i)
    require(all(s.dims == shapes[0].dims for s in shapes), f"operands have equal sizes, got {listed(shapes)}")
    require(len(i.ints("dimensions")) == 1, "dimensions names one dimension")
    unique_within(i.ints("dimensions"), shapes[0].rank, "dimensions")
    scalars = [array(s.dtype) for s in shapes for _ in range(2)]
    result = check_call(i.computation(), scalars, "comparator")
    require(result.same(array(PRED)), f"the comparator gives pred[], got {result}")
    return tuple_of(shapes) if i.shape.is_tuple else shapes[0]


CONTRACTION_RULES: dict[str, Infer] = {
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "map": _map,
    "dot": _dot,
    "convolution": _convolution,
    "sort": _sort,
}
"""Opcode to rule."""
