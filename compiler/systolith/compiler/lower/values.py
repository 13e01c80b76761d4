"""Values of HLO as a lowering knows them: arrays, and tuples of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.isa.instruction import Space
from systolith.isa.program import Role

Value = Array | tuple["Value", ...]


def flatten(value: Value) -> list[Array]:
    """Arrays of a value, depth first."""
    return [value] if isinstance(value, Array) else [a for v in value for a in flatten(v)]


def shaped(arrays: Iterator[Array], shape: Shape) -> Value:
    """Arrays as a value of a shape."""
    if shape.is_tuple:
        return tuple(shaped(arrays, s) for s in shape.elements)
    return next(arrays) if shape.is_array else ()


def element(value: Value, i: Instruction) -> Value:
    """What a `get-tuple-element` of a value names."""
    assert isinstance(value, tuple)
    return value[i.integer("index")]


def carry(ctx: TileBuilder, values: Sequence[Array], places: Sequence[Array]) -> None:
    """Copy values to places all at once: a value may lie in another one's place."""
    moves = [(v, s) for v, s in zip(values, places, strict=True) if v.buf.memory is not s.buf.memory]
    targets = {s.buf.memory for _, s in moves}
    staged: list[tuple[Array, Array]] = []
    for value, place in moves:
        if value.buf.memory in targets:
            # One of these copies overwrites it.
            space = value.buf.space
            make = ctx.array if space == Space.VMEM else lambda n, t, d: ctx.table(n, Role.TEMP, t, d)
            copy = make(f"{value.buf.name}.old", value.dtype, value.dims)
            ctx.move(value, copy, "carry")
            value = copy
        staged.append((value, place))
    for value, place in staged:
        ctx.move(value, place, "carry")
