"""Keys of costs, and the bytes of shapes, as XLA's cost analysis has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from systolith.compiler.hlo.shape import Shape, ShapeKind

FLOPS, TRANSCENDENTALS, BYTES, SECONDS = "flops", "transcendentals", "bytes accessed", "optimal_seconds"

Properties: TypeAlias = dict[str, np.float32]
"""Key to cost; a key that is not there costs nothing."""

_POINTER = 8


def output_key(index: tuple[int, ...] = ()) -> str:
    """Key of the bytes written of the part `index` of the result."""
    return f"{BYTES}out{_index(index)}"


def operand_key(number: int, index: tuple[int, ...] = ()) -> str:
    """Key of the bytes read of the part `index` of an operand."""
    return f"{BYTES}{number}{_index(index)}"


def utilization_key(number: int) -> str:
    """Key of the share of an operand's elements that is read; above 1 for several times."""
    return f"utilization{number}{{}}"


def _index(index: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, index)) + "}"


_SUBBYTE = re.compile(r"E\((\d+)\)")


def shape_bytes(shape: Shape) -> int:
    """Bytes of a buffer of a shape: of a tuple, its table of pointers."""
    if shape.is_tuple:
        return _POINTER * len(shape.elements)
    if not shape.is_array:
        return 0 if shape.kind is ShapeKind.TOKEN else _POINTER
    packed = _SUBBYTE.search(shape.layout.suffix) if shape.layout else None
    size = -(-shape.size * int(packed[1]) // 8) if packed else shape.size * shape.dtype.size
    return size + 4 * shape.rank if any(shape.dynamic) else size


def leaves(shape: Shape, index: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Shape]]:
    """The leaves of a shape, each with its index in the tuples."""
    if not shape.is_tuple:
        yield index, shape
    for k, element in enumerate(shape.elements):
        yield from leaves(element, (*index, k))
