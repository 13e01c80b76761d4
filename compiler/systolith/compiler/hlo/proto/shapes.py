"""Shapes and layouts of a serialized module: `ShapeProto`, `LayoutProto`.

Source: `xla/shape.cc`, `xla/layout.cc` (how a layout prints).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.lexer import MAX_NESTING
from systolith.compiler.hlo.proto.schema import ELEMENT_NAMES, message_class
from systolith.compiler.hlo.shape import OPAQUE, TOKEN, UNBOUNDED, Layout, Shape, ShapeKind, buffer_of, tuple_of

_UNBOUNDED_WIRE = -(1 << 63)
_COMBINED = -(1 << 63)  # a tile's dimension that is merged with the next, printed `*`


def element_name(number: int) -> str:
    """The name of a `PrimitiveType`.

    Raises:
        HloError: no element type has that number.
    """
    name = ELEMENT_NAMES.get(number)
    if name is None:
        raise HloError(f"element type {number} is not known")
    return name


def shape_of(proto: Any) -> Shape:
    """The shape that a `ShapeProto` describes.

    Raises:
        HloError: its element type is not known, a size is negative, or its parts do not agree.
    """
    return _known_shape(proto.SerializeToString())


@lru_cache(maxsize=1024)
def _known_shape(data: bytes) -> Shape:
    """The shape in the bytes of a `ShapeProto`; a module repeats few shapes many times."""
    return _shape(message_class("ShapeProto").FromString(data), 0)


def _shape(proto: Any, depth: int) -> Shape:
    name = element_name(proto.element_type)
    if name == "tuple":
        if depth >= MAX_NESTING:
            raise HloError(f"tuples nest deeper than {MAX_NESTING}")
        return tuple_of([_shape(element, depth + 1) for element in proto.tuple_shapes])
    if name == "buffer":
        return _buffer(proto)
    if name in ("token", "opaque"):
        return TOKEN if name == "token" else OPAQUE
    if name not in ELEMENT_TYPES:
        raise HloError(f"element type {name} is not supported; supported: {', '.join(ELEMENT_TYPES)}")
    sizes = tuple(proto.dimensions)
    flags = tuple(proto.is_dynamic_dimension)
    if len(flags) not in (0, len(sizes)):
        raise HloError(f"a shape of {len(sizes)} dimensions has {len(flags)} flags is_dynamic_dimension")
    dims = tuple(UNBOUNDED if n == _UNBOUNDED_WIRE else n for n in sizes)
    if any(n < 0 and n != _UNBOUNDED_WIRE for n in sizes):
        raise HloError(f"a shape has a negative size: {list(sizes)}")
    if UNBOUNDED in dims and not flags:
        raise HloError("a dimension without a bound is not marked is_dynamic_dimension")
    layout = layout_of(proto.layout, len(dims)) if proto.HasField("layout") else None
    return Shape(ShapeKind.ARRAY, ELEMENT_TYPES[name], dims, layout, flags if any(flags) else ())


def _buffer(proto: Any) -> Shape:
    inside = [element_name(p.element_type) for p in proto.tuple_shapes]
    if len(inside) != 1 or inside[0] not in ELEMENT_TYPES:
        raise HloError(f"a buffer holds one array, not ({', '.join(inside)})")
    return buffer_of(shape_of(proto.tuple_shapes[0]))


def layout_of(proto: Any, rank: int) -> Layout | None:
    """The layout of an array of `rank` dimensions; None for a scalar's, which text leaves out.

    Raises:
        HloError: `minor_to_major` is no order of the dimensions.
    """
    order = tuple(proto.minor_to_major)
    if sorted(order) != list(range(rank)):
        raise HloError(f"a layout's minor_to_major {list(order)[:20]} is no order of {rank} dimensions")
    suffix = "".join(_suffix(proto))
    return Layout(order, f":{suffix}" if suffix else "") if rank or suffix else None


def _suffix(proto: Any) -> list[str]:
    """The parts of a printed layout behind the order of dimensions, in XLA's order."""
    alignment = proto.tail_padding_alignment_in_elements
    parts = ["T" * bool(proto.tiles), *(_tile(tile) for tile in proto.tiles)]
    parts.append(f"L({alignment})" if alignment not in (0, 1) else "")
    for mark, number in (("#", proto.index_primitive_type), ("*", proto.pointer_primitive_type)):
        parts.append(f"{mark}({element_name(number)})" if number else "")
    for mark, value in (("E", proto.element_size_in_bits), ("S", proto.memory_space)):
        parts.append(f"{mark}({value})" if value else "")
    splits = (f"({s.dimension}:{','.join(map(str, s.split_indices))})" for s in proto.split_configs)
    parts.append("SC" * bool(proto.split_configs) + "".join(splits))
    parts.append(f"P({shape_of(proto.physical_shape).text()})" if proto.HasField("physical_shape") else "")
    prefix = proto.dynamic_shape_metadata_prefix_bytes
    parts.append(f"M({prefix})" if prefix else "")
    return parts


def _tile(proto: Any) -> str:
    return "(" + ",".join("*" if n == _COMBINED else str(n) for n in proto.dimensions) + ")"
