"""Shapes: element type, sizes and layout of an array; tuples, tokens and opaque values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from systolith.compiler.hlo.errors import HloError
from systolith.isa.checked import checked
from systolith.isa.dtypes import DType

MAX_RANK = 64
"""Most dimensions of an array: as many as numpy has."""

MAX_ELEMENTS = 65_536
"""Most elements of a tuple."""

UNBOUNDED = -1
"""Size of a dimension that has no bound (`?`)."""


class ShapeKind(StrEnum):
    """What sort of value a shape describes."""

    ARRAY = "array"
    TUPLE = "tuple"
    BUFFER = "buffer"
    TOKEN = "token"
    OPAQUE = "opaque"


@dataclass(frozen=True)
class Layout:
    """Order of an array's dimensions in memory.

    Attributes:
        minor_to_major: dimension numbers, the fastest varying first.
        suffix: tiles, memory space and the like, as printed: `:T(8,128)S(1)`.
        padded_dimensions: size to which memory pads each dimension, by its number; empty for none.  HLO text has no
            word for it.
        padding_value: what fills that padding.
    """

    minor_to_major: tuple[int, ...]
    suffix: str = ""
    padded_dimensions: tuple[int, ...] = ()
    padding_value: float = 0

    def __str__(self) -> str:
        return "{" + ",".join(map(str, self.minor_to_major)) + self.suffix + "}"


@dataclass(frozen=True)
class Shape:
    """A shape.

    Attributes:
        kind: array, tuple, buffer, token or opaque.
        element: element type of an array, else None.
        dims: sizes of an array; upper bounds where `dynamic` says so, `UNBOUNDED` where there is none.
        layout: as printed, None where the text has none.
        dynamic: per dimension, whether the size is a bound (`<=N`) or there is none (`?`); empty for all static.
        elements: shapes of a tuple's elements; the array of a buffer.
    """

    kind: ShapeKind
    element: DType | None = None
    dims: tuple[int, ...] = ()
    layout: Layout | None = None
    dynamic: tuple[bool, ...] = ()
    elements: tuple[Shape, ...] = ()

    @property
    def dtype(self) -> DType:
        """Element type of an array.

        Raises:
            HloError: the shape is no array.
        """
        if self.element is None:
            raise HloError(f"expected an array, got {self}")
        return self.element

    @property
    def is_array(self) -> bool:
        return self.kind is ShapeKind.ARRAY

    @property
    def is_tuple(self) -> bool:
        return self.kind is ShapeKind.TUPLE

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def true_rank(self) -> int:
        """Number of dimensions whose size is greater than 1."""
        return sum(n > 1 for n in self.dims)

    @property
    def size(self) -> int:
        """Number of elements of an array."""
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes in memory: dense, summed over a tuple; tokens take none."""
        if self.element is not None:
            return self.size * self.element.size
        return sum(e.bytes for e in self.elements)

    @property
    def is_dynamic(self) -> bool:
        """Whether any dimension, here or in a tuple's elements, has a size that is only bounded."""
        return any(self.dynamic) or any(e.is_dynamic for e in self.elements)

    @property
    def minor_to_major(self) -> tuple[int, ...]:
        """The layout's order; row-major where none is given."""
        if self.layout is not None and len(self.layout.minor_to_major) == self.rank:
            return self.layout.minor_to_major
        return tuple(reversed(range(self.rank)))

    def leaves(self) -> Iterator[Shape]:
        """The arrays (and tokens) in a tuple, depth first; the shape itself if it is no tuple."""
        if self.is_tuple:
            for element in self.elements:
                yield from element.leaves()
        else:
            yield self

    @staticmethod
    @checked
    def parse(text: str) -> Shape:
        """The shape that a text such as `f32[2,3]{1,0}` or `(s32[], token[])` says.

        Raises:
            HloError: it is none.
        """
        from systolith.compiler.hlo.text.lexer import Cursor

        cursor = Cursor(text, "<shape>")
        shape = cursor.shape()
        if cursor.pos < len(text):
            cursor.fail("nothing after the shape")
        return shape

    def with_layout(self, layout: Layout | None) -> Shape:
        """The array shape with another layout."""
        return replace(self, layout=layout)

    def without_layout(self) -> Shape:
        """The shape with every layout removed."""
        return replace(self, layout=None, elements=tuple(e.without_layout() for e in self.elements))

    def same(self, other: object) -> bool:
        """Equal but for layouts and dynamic flags (XLA's `Compatible`)."""
        return (
            isinstance(other, Shape)
            and self.kind is other.kind
            and self.element == other.element
            and self.dims == other.dims
            and len(self.elements) == len(other.elements)
            and all(a.same(b) for a, b in zip(self.elements, other.elements, strict=True))
        )

    def text(self, layout: bool = True) -> str:
        """The shape as HLO text, with or without layouts."""
        if self.is_tuple:
            return "(" + with_index_comments([e.text(layout) for e in self.elements]) + ")"
        if self.kind is ShapeKind.BUFFER:
            return f"b({self.elements[0].text(layout)})"
        if self.element is None:
            return f"{self.kind}[]"
        flags = self.dynamic or (False,) * self.rank
        dims = ",".join(_size_text(n, bounded) for n, bounded in zip(self.dims, flags, strict=True))
        return f"{self.element.name}[{dims}]{self.layout if layout and self.layout else ''}"

    def __str__(self) -> str:
        return self.text(layout=False)


def _size_text(size: int, bounded: bool) -> str:
    if size == UNBOUNDED:
        return "?"
    return f"<={size}" if bounded else str(size)


def with_index_comments(items: list[str]) -> str:
    """Items joined by commas, with XLA's `/*index=5*/` before every fifth."""
    return ", ".join(f"/*index={i}*/{item}" if i and i % 5 == 0 else item for i, item in enumerate(items))


def array(element: DType, dims: tuple[int, ...] | list[int] = (), row_major: bool = True) -> Shape:
    """An array shape, with a row-major layout unless told otherwise or for a scalar."""
    sizes = tuple(dims)
    layout = Layout(tuple(reversed(range(len(sizes))))) if row_major and sizes else None
    return Shape(ShapeKind.ARRAY, element, sizes, layout)


def tuple_of(elements: tuple[Shape, ...] | list[Shape]) -> Shape:
    """The shape of a tuple."""
    return Shape(ShapeKind.TUPLE, elements=tuple(elements))


def buffer_of(array: Shape) -> Shape:
    """The shape of a buffer: an array that operations may write in place (`b(f32[2])`)."""
    return Shape(ShapeKind.BUFFER, elements=(array,))


TOKEN = Shape(ShapeKind.TOKEN)
OPAQUE = Shape(ShapeKind.OPAQUE)
