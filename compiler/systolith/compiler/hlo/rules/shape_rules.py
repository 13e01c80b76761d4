"""Helpers of shape rules: broken rules as errors, and the checks that several operations have in common.

Sources: XLA's `shape_inference.cc`, `shape_util.cc` and `hlo_verifier.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import TypeAlias

from systolith.compiler.hlo.attributes import Alias, Window
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import UNBOUNDED, Layout, Shape, ShapeKind, array, tuple_of
from systolith.isa.dtypes import PRED, S32, U32, DType, Kind

Infer: TypeAlias = Callable[[Instruction], Shape]
"""The shape of an instruction's result, from its operands and attributes; `HloError` if a rule is broken."""

SCALAR_PRED, SCALAR_S32, SCALAR_U32 = array(PRED), array(S32), array(U32)

INT64_MAX = (1 << 63) - 1


def require(condition: bool, rule: str) -> None:
    """Raise `HloError(rule)` unless the condition holds."""
    if not condition:
        raise HloError(rule)


def operand_shapes(i: Instruction) -> list[Shape]:
    """Shapes of the operands."""
    return [o.shape for o in i.operands]


def listed(shapes: Iterable[Shape]) -> str:
    """Shapes for a message, of many the first."""
    found = [str(shape) for shape in islice(shapes, 9)]
    return ", ".join([*found[:8], "..."] if len(found) > 8 else found)


def sized(element: DType, dims: Iterable[int], dynamic: Iterable[bool] = ()) -> Shape:
    """An array shape, row-major; a size `UNBOUNDED` is dynamic whatever `dynamic` says."""
    sizes = tuple(dims)
    flags = tuple(dynamic)
    if UNBOUNDED in sizes:
        flags = tuple(n == UNBOUNDED or (bool(flags) and flags[d]) for d, n in enumerate(sizes))
    layout = Layout(tuple(range(len(sizes) - 1, -1, -1))) if sizes else None
    return Shape(ShapeKind.ARRAY, element, sizes, layout, flags if True in flags else ())


def resized(shape: Shape, dim: int, size: int, dynamic: bool = False) -> Shape:
    """The shape with another size in one dimension."""
    flags = list(flags_of(shape))
    dims = list(shape.dims)
    dims[dim], flags[dim] = size, dynamic
    return sized(shape.dtype, dims, flags)


def retyped(shape: Shape, element: DType) -> Shape:
    """The shape with another element type."""
    return Shape(ShapeKind.ARRAY, element, shape.dims, shape.layout, shape.dynamic)


def flags_of(shape: Shape) -> tuple[bool, ...]:
    """Per dimension, whether its size is a bound or has none."""
    return shape.dynamic or (False,) * len(shape.dims)


def sizes_agree(a: int, b: int) -> bool:
    """Sizes are equal, or one has no bound."""
    return a == b or UNBOUNDED in (a, b)


def dims_agree(a: Sequence[int], b: Sequence[int]) -> bool:
    """Sizes are equal but where one has no bound."""
    return a == b or (len(a) == len(b) and all(map(sizes_agree, a, b)))


def types_agree(a: DType, b: DType, any_float: bool = True) -> bool:
    """One element type; with `any_float`, two of floats agree too (XLA's mixed precision)."""
    return a is b or a == b or (any_float and a.kind is Kind.FLOAT and b.kind is Kind.FLOAT)


def agree(a: Shape, b: Shape, any_float: bool = False) -> bool:
    """XLA's `Compatible`: equal but for layouts and dynamic flags, a size without bound being equal to any.

    With `any_float` it is `CompatibleIgnoringFpPrecision`.
    """
    if a is b:
        return True
    if a.element is None or b.element is None:
        same = a.kind is b.kind and len(a.elements) == len(b.elements)
        return same and all(agree(x, y, any_float) for x, y in zip(a.elements, b.elements, strict=True))
    return types_agree(a.element, b.element, any_float) and dims_agree(a.dims, b.dims)


def higher_precision(a: DType, b: DType) -> DType:
    """Of two element types the one that holds more: complex, a wider range, a longer significand, more bits."""
    return a if a is b else max(a, b, key=_precision)


def _precision(dtype: DType) -> tuple[bool, int, int, int, bool]:
    inexact = dtype.kind in (Kind.FLOAT, Kind.COMPLEX)
    range_, significand = (dtype.finfo.maxexp, dtype.finfo.nmant) if inexact else (-1, -1)
    return dtype.kind is Kind.COMPLEX, range_, significand, dtype.bits, dtype.kind is Kind.SIGNED


def arrays(i: Instruction) -> list[Shape]:
    """Shapes of the operands, which are arrays."""
    shapes = operand_shapes(i)
    if any(s.element is None for s in shapes):
        raise HloError(f"operands are arrays, got {listed(shapes)}")
    return shapes


def require_array(shape: Shape, what: str) -> Shape:
    """The shape, which is an array's."""
    if shape.element is None:
        raise HloError(f"{what} is an array, got {shape}")
    return shape


def require_scalar(shape: Shape, what: str) -> Shape:
    """The shape, which is a scalar's."""
    if shape.element is None or shape.dims:
        raise HloError(f"{what} is a scalar, got {shape}")
    return shape


def require_token(shape: Shape, what: str) -> None:
    """The shape is a token's."""
    if shape.kind is not ShapeKind.TOKEN:
        raise HloError(f"{what} is a token, got {shape}")


def require_kind(dtype: DType, allowed: frozenset[Kind], what: str = "takes") -> None:
    """The element type is of an allowed sort."""
    if dtype.kind not in allowed:
        raise HloError(f"{what} {' or '.join(sorted(allowed))} elements, got {dtype}")


def unique_within(dims: Sequence[int], rank: int, what: str) -> None:
    """Dimension numbers are unique and within the rank."""
    if len(set(dims)) != len(dims) or not all(0 <= d < rank for d in dims):
        text = ",".join(map(str, dims))
        raise HloError(f"{what} {{{text}}} are unique numbers from 0 to {rank - 1}")


def one_dimension(i: Instruction, rank: int) -> int:
    """The one number that `dimensions` holds."""
    dims = i.ints("dimensions")
    require(len(dims) == 1, f"dimensions names one dimension, got {len(dims)}")
    unique_within(dims, rank, "dimensions")
    return dims[0]


_SIGNATURES: ContextVar[dict[Computation, list[Shape]] | None] = ContextVar("signatures", default=None)


@contextmanager
def signatures_kept() -> Iterator[None]:
    """While this lasts computations do not change, so that the parameters of one called often are found once."""
    token = _SIGNATURES.set({})
    try:
        yield
    finally:
        _SIGNATURES.reset(token)


def parameter_shapes(computation: Computation) -> list[Shape]:
    """Shapes of a computation's parameters, in the order of their numbers."""
    kept = _SIGNATURES.get()
    if kept is None:
        return [p.shape for p in computation.parameters]
    if computation not in kept:
        kept[computation] = [p.shape for p in computation.parameters]
    return kept[computation]


def check_call(computation: Computation, arguments: Sequence[Shape], role: str = "", any_float: bool = False) -> Shape:
    """The result's shape of a computation that is called with arguments of these shapes.

    Raises:
        HloError: number or shapes of the arguments do not agree.
    """
    parameters = parameter_shapes(computation)
    fits = len(parameters) == len(arguments) and all(
        agree(p, a, any_float) for p, a in zip(parameters, arguments, strict=True)
    )
    if not fits:
        name = f"{role or 'computation'} {computation.name!r}"
        raise HloError(f"{name} takes ({listed(parameters)}), is given ({listed(arguments)})")
    return computation.result.shape


def check_reducer(computation: Computation, inits: Sequence[Shape], elements: Sequence[DType]) -> list[Shape]:
    """A reduction's computation: n accumulators, n elements -> n accumulators, all scalars; returns those.

    The types of accumulators, initial values and elements agree but for the precision of floats.

    Raises:
        HloError: number, rank or types do not agree.
    """
    count = len(inits)
    result = computation.result.shape
    parts = list(result.elements) if result.is_tuple else [result]
    accumulators = [array(s.dtype) for s in inits]
    check_call(computation, [*accumulators, *map(array, elements)], any_float=True)
    fits = len(parts) == count and all(
        p.element is not None and agree(p, a, any_float=True) for p, a in zip(parts, accumulators, strict=True)
    )
    kept = fits and all(agree(p, q) for p, q in zip(parts, parameter_shapes(computation), strict=False))
    if not kept or not all(types_agree(p.dtype, e) for p, e in zip(parts, elements, strict=True)):
        raise HloError(f"computation {computation.name!r} gives ({listed(accumulators)}), got ({listed(parts)})")
    return parts


def variadic(i: Instruction) -> tuple[list[Shape], list[Shape]]:
    """Arrays of equal sizes and as many scalars, the operands of a reduction."""
    shapes = arrays(i)
    count = len(shapes) // 2
    inputs, inits = shapes[:count], shapes[count:]
    require(count > 0 and len(shapes) == 2 * count, "takes as many initial values as arrays")
    if any(s.dims for s in inits):
        raise HloError(f"initial values are scalars, got {listed(inits)}")
    if count > 1 and not all(dims_agree(s.dims, inputs[0].dims) for s in inputs):
        raise HloError(f"arrays have equal sizes, got {listed(inputs)}")
    return inputs, inits


def windowed(window: Window, shape: Shape, element: DType) -> Shape:
    """An array of a window's positions over an array."""
    require(
        len(window.dims) == shape.rank, f"the window has {shape.rank} dimensions as {shape}, got {len(window.dims)}"
    )
    require(all(d.size > 0 for d in window.dims), "a window has at least one element in each dimension")
    steps = [n for d in window.dims for n in (d.stride, d.base_dilation, d.window_dilation)]
    require(all(n > 0 for n in steps), "strides and dilations of a window are at least 1")
    sizes = [n if n == UNBOUNDED else d.positions(n) for d, n in zip(window.dims, shape.dims, strict=True)]
    return sized(element, sizes, shape.dynamic)


def part_of(shape: Shape, index: Iterable[int]) -> Shape:
    """The part of a tuple that indices lead to; the shape itself for none."""
    part = shape
    for k in index:
        if not part.is_tuple or not 0 <= k < len(part.elements):
            raise HloError(f"{shape} has no part {{{','.join(map(str, index))}}}")
        part = part.elements[k]
    return part


def show_alias(alias: Alias) -> str:
    """An alias for a message, as text has it."""
    output, index = (",".join(map(str, part)) for part in (alias.output, alias.index))
    return f"{{{output}}}: ({alias.number}, {{{index}}})"


def one_or_tuple(shapes: list[Shape]) -> Shape:
    """The shape itself if there is one, else a tuple of them."""
    return shapes[0] if len(shapes) == 1 else tuple_of(shapes)
