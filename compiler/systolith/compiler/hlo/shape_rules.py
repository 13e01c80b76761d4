"""What shape rules share: broken rules as errors, and the checks that several operations have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from systolith.compiler.hlo.attributes import Window
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import Shape, array, tuple_of

Infer: TypeAlias = Callable[[Instruction], Shape]
"""The shape of an instruction's result, from its operands and attributes; `HloError` if a rule is broken."""


def require(condition: bool, rule: str) -> None:
    """Raise `HloError(rule)` unless the condition holds."""
    if not condition:
        raise HloError(rule)


def operand_shapes(i: Instruction) -> list[Shape]:
    """Shapes of the operands."""
    return [o.shape for o in i.operands]


def listed(shapes: Sequence[Shape]) -> str:
    """Shapes for a message."""
    return ", ".join(map(str, shapes))


def same_dims(i: Instruction) -> Shape:
    """All operands are arrays of one shape; returns it."""
    shapes = operand_shapes(i)
    for shape in shapes:
        require(shape.is_array, f"operands are arrays, got {listed(shapes)}")
        require(shape.dims == shapes[0].dims, f"operands have equal sizes, got {listed(shapes)}")
    return shapes[0]


def unique_within(dims: Sequence[int], rank: int, what: str) -> None:
    """Dimension numbers are unique and within the rank."""
    text = ",".join(map(str, dims))
    require(len(set(dims)) == len(dims) and all(0 <= d < rank for d in dims),
            f"{what} {{{text}}} are unique numbers from 0 to {rank - 1}")  # fmt: skip


def check_call(computation: Computation, arguments: Sequence[Shape], role: str = "") -> Shape:
    """The result's shape of a computation that is called with arguments of these shapes.

    Raises:
        HloError: number or shapes of the arguments do not agree.
    """
    parameters = [p.shape for p in computation.parameters]
    agree = len(parameters) == len(arguments) and all(p.same(a) for p, a in zip(parameters, arguments, strict=True))
    rule = f"{role or 'computation'} {computation.name!r} takes ({listed(parameters)}), is given ({listed(arguments)})"
    require(agree, rule)
    return computation.result.shape


def reduced(i: Instruction, computation: Computation, dims: Sequence[int]) -> Shape:
    """Result of a (variadic) reduction: element types of its computation, sizes `dims`."""
    count = len(i.operands) // 2
    shapes = operand_shapes(i)
    inputs, inits = shapes[:count], shapes[count:]
    require(len(shapes) == 2 * count, f"takes as many initial values as arrays, got {len(shapes)} operands")
    require(all(s.dims == inputs[0].dims for s in inputs), f"arrays have equal sizes, got {listed(inputs)}")
    require(all(s.is_array and s.rank == 0 for s in inits), f"initial values are scalars, got {listed(inits)}")
    scalars = [array(s.dtype) for s in inits]
    result = check_call(computation, [*scalars, *(array(s.dtype) for s in inputs)])
    parts = list(result.elements) if result.is_tuple else [result]
    require(len(parts) == count and all(p.same(s) for p, s in zip(parts, scalars, strict=True)),
            f"computation {computation.name!r} gives ({listed(scalars)}), got ({listed(parts)})")  # fmt: skip
    arrays = [array(p.dtype, tuple(dims)) for p in parts]
    return tuple_of(arrays) if result.is_tuple else arrays[0]


def windowed(window: Window, sizes: Sequence[int]) -> list[int]:
    """Positions of a window in each dimension."""
    require(len(window.dims) == len(sizes), f"the window has {len(sizes)} dimensions, got {len(window.dims)}")
    require(all(d.size > 0 for d in window.dims), "a window has at least one element in each dimension")
    return [d.positions(n) for d, n in zip(window.dims, sizes, strict=True)]
