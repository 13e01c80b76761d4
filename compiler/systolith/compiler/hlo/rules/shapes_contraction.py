"""Shape rules of operations that contract dimensions: dot, ragged-dot, scaled-dot, convolution.

The element type of the result is the declared one (XLA's `preferred_element_type`), or the operands' more precise one.
"""

from __future__ import annotations

from collections.abc import Sequence

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.rules.shape_rules import (
    Infer,
    arrays,
    dims_agree,
    flags_of,
    higher_precision,
    require,
    require_scalar,
    sized,
    sizes_agree,
    types_agree,
    unique_within,
)
from systolith.compiler.hlo.shape import UNBOUNDED, Shape


def _batch(i: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return i.ints("lhs_batch_dims", ()), i.ints("rhs_batch_dims", ())


def _contracting(i: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return i.ints("lhs_contracting_dims", ()), i.ints("rhs_contracting_dims", ())


def _check_pairs(i: Instruction, lhs: Shape, rhs: Shape) -> None:
    """Batch and contracting dimensions are unique, and pair dimensions of equal sizes."""
    batch, contract = _batch(i), _contracting(i)
    for shape, b, c in zip((lhs, rhs), batch, contract, strict=True):
        unique_within((*b, *c), shape.rank, "batch and contracting dimensions")
    for what, (left, right) in (("batch", batch), ("contracting", contract)):
        sizes, others = [lhs.dims[d] for d in left], [rhs.dims[d] for d in right]
        if not dims_agree(sizes, others):
            raise HloError(f"{what} dimensions of {lhs} and {rhs} have equal sizes, got {sizes} and {others}")


def _free(shape: Shape, used: Sequence[int]) -> list[tuple[int, bool]]:
    """Sizes and flags of the dimensions that are not used."""
    flags = flags_of(shape)
    return [(n, flags[d]) for d, n in enumerate(shape.dims) if d not in used]


def _product(i: Instruction, lhs: Shape, rhs: Shape, groups: Sequence[int] = ()) -> list[tuple[int, bool]]:
    """Sizes and flags of a product: batch, free dimensions of the left side, of the right side."""
    batch, contract = _batch(i), _contracting(i)
    shared = [(lhs.dims[d], flags_of(lhs)[d]) for d in batch[0]]
    return [*shared, *_free(lhs, batch[0] + contract[0]), *_free(rhs, (*batch[1], *contract[1], *groups))]


def _result(i: Instruction, sizes: list[tuple[int, bool]]) -> Shape:
    element = i.shape.element or higher_precision(*(o.shape.dtype for o in i.operands[:2]))
    return sized(element, [n for n, _ in sizes], [flag for _, flag in sizes])


def _dot(i: Instruction) -> Shape:
    lhs, rhs = arrays(i)[:2]
    require(
        len(i.operands) == 2, f"takes 2 operands, got {len(i.operands)}; sparse operands have been removed from HLO"
    )
    _check_pairs(i, lhs, rhs)
    return _result(i, _product(i, lhs, rhs))


def _ragged_dot(i: Instruction) -> Shape:
    """The ragged dimension is one of the left side: free, contracting or batch."""
    lhs, rhs, sizes = arrays(i)
    _check_pairs(i, lhs, rhs)
    ragged, groups = i.ints("lhs_ragged_dims"), i.ints("rhs_group_dims", ())
    require(len(ragged) == 1, f"lhs_ragged_dims names one dimension, got {len(ragged)}")
    unique_within(ragged, lhs.rank, "lhs_ragged_dims")
    batch, contract = _batch(i)[0], _contracting(i)[0]
    free = [d for d in range(lhs.rank) if d not in batch and d not in contract]
    unique_within((*groups, *_batch(i)[1], *_contracting(i)[1]), rhs.rank, "group, batch and contracting dimensions")
    (dim,) = ragged
    outer = () if dim in batch else batch
    kind = batch if dim in batch else contract if dim in contract else free
    prefix = [lhs.dims[d] for d in (*outer, *kind[: kind.index(dim)])]
    require(sizes.rank == 1 or (sizes.rank > 0 and list(sizes.dims[:-1]) == prefix),
            f"group sizes have dimensions [groups] or {[*prefix, 'groups']}, got {sizes}")  # fmt: skip
    wanted = 1 if dim in free else 0
    require(len(groups) == wanted, f"rhs_group_dims names {wanted} dimension(s) for this ragged dimension")
    count = sizes.dims[-1]
    if groups:
        fits = sizes_agree(rhs.dims[groups[0]], count)
        require(fits, f"dimension {groups[0]} of {rhs} is the number of groups, {count}")
    first = [(count, flags_of(sizes)[-1])] if dim in contract else []
    return _result(i, first + _product(i, lhs, rhs, groups))


def _scaled_dot(i: Instruction) -> Shape:
    """Left, right, a scale of each, and no or two global scales."""
    lhs, rhs, lhs_scale, rhs_scale, *scales = arrays(i)
    require(len(scales) in (0, 2), f"takes 4 or 6 operands, got {len(i.operands)}")
    for shape, scale, contract in zip((lhs, rhs), (lhs_scale, rhs_scale), _contracting(i), strict=True):
        none = types_agree(shape.dtype, scale.dtype, any_float=False) and shape.dtype.name == "bf16"
        if none and all(n == 1 for n in scale.dims) and any(n != 1 for n in shape.dims):
            continue
        fits = scale.rank == shape.rank and all(m and n % m == 0 for n, m in zip(shape.dims, scale.dims, strict=True))
        require(fits, f"the sizes of scale {scale} divide those of {shape}")
        require(len(contract) == 1, f"a scaled operand has one contracting dimension, got {len(contract)}")
    require(bool(lhs_scale.dims or rhs_scale.dims), "one of the scales is no scalar")
    for scale in scales:
        require_scalar(scale, "a global scale")
    _check_pairs(i, lhs, rhs)
    return _result(i, _product(i, lhs, rhs))


def _convolution(i: Instruction) -> Shape:
    lhs, rhs = arrays(i)
    n, window = i.conv_dims, i.window.dims
    spatial = len(n.input_spatial)
    require(lhs.rank == rhs.rank == spatial + 2, f"dim_labels fit the ranks of {lhs} and {rhs}")
    labelled = (
        (n.input_batch, n.input_feature, *n.input_spatial),
        (n.kernel_input, n.kernel_output, *n.kernel_spatial),
        (n.output_batch, n.output_feature, *n.output_spatial),
    )
    require(all(sorted(d) == list(range(lhs.rank)) for d in labelled), "dim_labels label each dimension once")
    require(len(window) == spatial, f"the window has {spatial} dimensions, got {len(window)}")
    _check_features(i, lhs, rhs)
    sizes, kernel = tuple(d.size for d in window), tuple(rhs.dims[d] for d in n.kernel_spatial)
    require(sizes == kernel, f"the window's size {sizes} is the kernel's {kernel}")
    require(all(size > 0 for size in sizes), "a window has at least one element in each dimension")
    dims, dynamic = [0] * lhs.rank, [False] * lhs.rank
    batch = lhs.dims[n.input_batch]
    dims[n.output_batch] = batch if batch == UNBOUNDED else batch // i.integer("batch_group_count", 1)
    dims[n.output_feature] = rhs.dims[n.kernel_output]
    dynamic[n.output_batch] = flags_of(lhs)[n.input_batch]
    for d, source, kernel_dim, target in zip(window, n.input_spatial, n.kernel_spatial, n.output_spatial, strict=True):
        size = lhs.dims[source]
        dims[target] = size if size == UNBOUNDED else d.positions(size)
        dynamic[target] = flags_of(lhs)[source] or flags_of(rhs)[kernel_dim]
    return _result(i, list(zip(dims, dynamic, strict=True)))


def _check_features(i: Instruction, lhs: Shape, rhs: Shape) -> None:
    n = i.conv_dims
    groups, batch_groups = i.integer("feature_group_count", 1), i.integer("batch_group_count", 1)
    require(groups > 0 and batch_groups > 0, "group counts are at least 1")
    require(groups == 1 or batch_groups == 1, "feature_group_count and batch_group_count are not both above 1")
    features, outputs, batch = lhs.dims[n.input_feature], rhs.dims[n.kernel_output], lhs.dims[n.input_batch]
    kernel = rhs.dims[n.kernel_input]
    require(features == kernel * groups, f"input features {features} are {groups} group(s) of the kernel's {kernel}")
    require(outputs % (groups * batch_groups) == 0, f"output features {outputs} are a multiple of the group count")
    require(batch % batch_groups == 0, f"the batch {batch} is a multiple of batch_group_count {batch_groups}")
    require(not flags_of(rhs)[n.kernel_output], f"output features have a static size, got {rhs}")


CONTRACTION_RULES: dict[str, Infer] = {
    "dot": _dot,
    "ragged-dot": _ragged_dot,
    "scaled-dot": _scaled_dot,
    "convolution": _convolution,
}
"""Opcode to rule."""
