"""Shape rules of operations that call a computation for elements: reductions, windows, map, sort, top-k, scan."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.rules.shape_rules import (
    SCALAR_PRED,
    Infer,
    agree,
    arrays,
    check_call,
    check_reducer,
    dims_agree,
    flags_of,
    listed,
    one_dimension,
    one_or_tuple,
    require,
    require_array,
    require_scalar,
    resized,
    retyped,
    sized,
    sizes_agree,
    types_agree,
    unique_within,
    variadic,
    windowed,
)
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.isa.dtypes import S32


def _reduce(i: Instruction) -> Shape:
    inputs, inits = variadic(i)
    first, dims = inputs[0], i.ints("dimensions")
    unique_within(dims, first.rank, "dimensions")
    parts = check_reducer(i.computation(), inits, [s.dtype for s in inputs])
    kept = [d for d in range(first.rank) if d not in dims]
    sizes, flags = [first.dims[d] for d in kept], [first.dynamic[d] for d in kept if first.dynamic]
    results = [sized(p.dtype, sizes, flags) for p in parts]
    return tuple_of(results) if i.computation().result.shape.is_tuple else results[0]


def _reduce_window(i: Instruction) -> Shape:
    inputs, inits = variadic(i)
    check_reducer(i.computation(), inits, [s.dtype for s in inputs])
    results = [windowed(i.window, s, init.dtype) for s, init in zip(inputs, inits, strict=True)]
    return tuple_of(results) if i.computation().result.shape.is_tuple else results[0]


def _select_and_scatter(i: Instruction) -> Shape:
    shape, source, init = arrays(i)
    require_scalar(init, "the initial value")
    scalar = array(shape.dtype)
    chosen = check_call(i.computation("select"), [scalar, scalar], "select", any_float=True)
    require(agree(chosen, SCALAR_PRED), f"select gives pred[], got {chosen}")
    check_reducer(i.computation("scatter"), [init], [source.dtype])
    positions = windowed(i.window, shape, shape.dtype)
    require(
        agree(source, positions, any_float=True), f"the source has an element for each of {positions}, got {source}"
    )
    return shape


def _map(i: Instruction) -> Shape:
    shapes = arrays(i)
    first = next((s for s in shapes if s.dims), shapes[0])
    fits = all(not s.dims or dims_agree(s.dims, first.dims) for s in shapes)
    require(fits, f"operands have equal sizes, got {listed(shapes)}")
    require(all(s.dims == first.dims or types_agree(s.dtype, first.dtype) for s in shapes),
            f"a scalar has the element type of the arrays, got {listed(shapes)}")  # fmt: skip
    result = check_call(i.computation(), [array(s.dtype) for s in shapes], any_float=True)
    return retyped(first, require_scalar(result, "what the computation gives").dtype)


def _sort(i: Instruction) -> Shape:
    shapes = arrays(i)
    require(all(dims_agree(s.dims, shapes[0].dims) for s in shapes),
            f"operands have equal sizes, got {listed(shapes)}")  # fmt: skip
    one_dimension(i, shapes[0].rank)
    scalars = [array(s.dtype) for s in shapes for _ in range(2)]
    result = check_call(i.computation(), scalars, "comparator", any_float=True)
    require(agree(result, SCALAR_PRED), f"the comparator gives pred[], got {result}")
    return tuple_of(shapes) if i.shape.is_tuple else one_or_tuple(shapes)


def _topk(i: Instruction) -> Shape:
    (shape,) = arrays(i)
    k = i.integer("k")
    require(shape.rank > 0, f"the operand has at least one dimension, got {shape}")
    require(0 <= k <= shape.dims[-1], f"k is at most the last dimension of {shape}, got {k}")
    values = resized(shape, shape.rank - 1, k)
    return tuple_of([values, retyped(values, S32)])


def _scan(i: Instruction) -> Shape:
    """Inputs then carries -> outputs then carries; the computation has both without the scanned dimension."""
    inputs, carries = _scan_operands(i)
    dim = one_dimension(i, max((s.rank for s in inputs), default=1))
    computation = i.computation()
    result = computation.result.shape
    parts = list(result.elements) if result.is_tuple else [result]
    require(len(parts) >= len(carries), f"computation {computation.name!r} gives the {len(carries)} carries")
    outputs = parts[: len(parts) - len(carries)]
    require(bool(inputs or outputs), "there is an input or an output to scan")
    for shape in inputs:
        fits = dim < require_array(shape, "an input").rank and sizes_agree(shape.dims[dim], inputs[0].dims[dim])
        require(fits, f"inputs have one size in dimension {dim}, got {listed(inputs)}")
    check_call(computation, [*(_without(s, dim) for s in inputs), *carries], any_float=True)
    kept = all(agree(p, c, any_float=True) for p, c in zip(parts[len(outputs) :], carries, strict=True))
    require(kept, f"computation {computation.name!r} ends with the carries ({listed(carries)}), got ({listed(parts)})")
    size = _scanned_size(i, inputs, dim)
    scanned = [_with(require_array(s, "an output"), dim, size) for s in outputs]
    results = [*scanned, *carries]
    return tuple_of(results) if result.is_tuple else results[0]


def _scan_operands(i: Instruction) -> tuple[list[Shape], list[Shape]]:
    shapes = [o.shape for o in i.operands]
    count = i.integer("num_carries")
    require(0 <= count <= len(shapes), f"num_carries is 0 to {len(shapes)}, got {count}")
    return shapes[: len(shapes) - count], shapes[len(shapes) - count :]


def _scanned_size(i: Instruction, inputs: list[Shape], dim: int) -> int:
    """Size of the scanned dimension: the inputs', else that of the first declared output."""
    source = inputs[0] if inputs else i.shape.elements[0] if i.shape.is_tuple else i.shape
    require(source.is_array and dim < source.rank, f"the scanned dimension {dim} is one of {source}")
    return source.dims[dim]


def _without(shape: Shape, dim: int) -> Shape:
    flags = flags_of(shape)
    return sized(shape.dtype, shape.dims[:dim] + shape.dims[dim + 1 :], flags[:dim] + flags[dim + 1 :])


def _with(shape: Shape, dim: int, size: int) -> Shape:
    flags = flags_of(shape)
    return sized(shape.dtype, (*shape.dims[:dim], size, *shape.dims[dim:]), (*flags[:dim], False, *flags[dim:]))


REDUCTION_RULES: dict[str, Infer] = {
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
    "map": _map,
    "sort": _sort,
    "topk": _topk,
    "scan": _scan,
}
"""Opcode to rule."""
