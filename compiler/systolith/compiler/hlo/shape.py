"""Shapes: element type, sizes and layout of an array; tuples, tokens and opaque values; how they are written.

Source of a shape's grammar: `ParseShape` and `ParseLayout` of `xla/hlo/parser/hlo_parser.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from math import prod

from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.lexer import MAX_NESTING, Cursor
from systolith.isa.checked import checked
from systolith.isa.dtypes import DType

MAX_RANK = 64
"""Most dimensions of an array: as many as numpy has."""

MAX_ELEMENTS = 65_536
"""Most elements of a tuple."""

UNBOUNDED = -1
"""Size of a dimension that has no bound (`?`)."""

ARRAY = r"[a-z][a-z0-9]*\[[\d,]*\](?:\{\d[\d,]*(?::[\w(),*]+)?\})?"
_ARRAY = re.compile(ARRAY, re.ASCII)
_ARRAY_PARTS = re.compile(r"([a-z][a-z0-9]*)\[([\d,]*)\](?:\{([\d,]*)(.*)\})?", re.ASCII)
_TYPE = re.compile(r"[a-z][a-z0-9]*(?=(?:[ \t\r\n]|/\*.*?\*/|//[^\r\n]*)*\[)", re.ASCII | re.DOTALL)
_BUFFER = re.compile(r"b(?=[ \t\r\n]*\()")
_OPENS_LAYOUT = re.compile(r"\{(?=[ \t\r\n]*[\d:\-])", re.ASCII)
_DIM_LEVEL = r"[DCSH]\+?~?"
_TILE = r"(?:\d+|\*)"
_LAYOUT_PARTS = re.compile(
    rf"""(?:D\({_DIM_LEVEL}(?:,{_DIM_LEVEL})*\))?
    (?:T(?:\((?:{_TILE}(?:,{_TILE})*)?\))+)?
    (?:L\(-?\d+\))?(?:\#\((?P<index>\w+)\))?(?:\*\((?P<pointer>\w+)\))?(?:E\(-?\d+\))?(?:S\(-?\d+\))?
    (?:SC(?:\(\d+:(?:\d+(?:,\d+)*)?\))+)?(?:M\(-?\d+\))?\Z""",
    re.ASCII | re.VERBOSE,
)
_LONGEST_PLAIN = 200
"""Most characters of a plain array: a longer text is read token by token, and not remembered."""


class ShapeKind(StrEnum):
    """The kind of value that a shape describes."""

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
        padding_value: contents of that padding.
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

    @cached_property
    def is_dynamic(self) -> bool:
        """Whether any dimension, here or in a tuple's elements, has a size that is only bounded."""
        return any(self.dynamic) or any(e.is_dynamic for e in self.elements)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether it is an array of known sizes."""
        return self.is_array and not self.is_dynamic

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

    @cached_property
    def arrays(self) -> tuple[Shape, ...]:
        """The arrays among `leaves`; kept, as the state of a loop may have hundreds that are asked for one by one."""
        return tuple(s for s in self.leaves() if s.is_array)

    @staticmethod
    @checked
    def parse(text: str) -> Shape:
        """The shape that a text such as `f32[2,3]{1,0}` or `(s32[], token[])` says.

        Raises:
            HloError: it is none.
        """
        cursor = Cursor(text, "<shape>")
        shape = parse_shape(cursor)
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
        shown = layout and self.layout and (self.rank or self.layout.suffix)  # a scalar has no order to tell
        return f"{self.element.name}[{dims}]{self.layout if shown else ''}"

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        """Kept, as keys of computations are made of it again and again."""
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
    return _array_shape(element, tuple(dims), row_major)


@lru_cache(maxsize=4096)
def _array_shape(element: DType, dims: tuple[int, ...], row_major: bool) -> Shape:
    layout = Layout(tuple(reversed(range(len(dims))))) if row_major and dims else None
    return Shape(ShapeKind.ARRAY, element, dims, layout)


def tuple_of(elements: tuple[Shape, ...] | list[Shape]) -> Shape:
    """The shape of a tuple."""
    return Shape(ShapeKind.TUPLE, elements=tuple(elements))


def buffer_of(array: Shape) -> Shape:
    """The shape of a buffer: an array that operations may write in place (`b(f32[2])`)."""
    return Shape(ShapeKind.BUFFER, elements=(array,))


TOKEN = Shape(ShapeKind.TOKEN)
OPAQUE = Shape(ShapeKind.OPAQUE)


def at_shape(cursor: Cursor) -> bool:
    """Whether a shape is next."""
    if cursor.at("("):
        return True
    found = _TYPE.match(cursor.text, cursor.pos) or _BUFFER.match(cursor.text, cursor.pos)
    return found is not None


def parse_shape(cursor: Cursor, what: str = "a shape", depth: int = 0) -> Shape:
    """A shape: `f32[2,3]{1,0}`, `(s32[], token[])`, `b(f32[2])`, ..."""
    found = _ARRAY.match(cursor.text, cursor.pos)
    if found:
        text = found.group()
        known = _plain_array(text) if len(text) <= _LONGEST_PLAIN else None
        start = cursor.pos
        cursor.pos = found.end()
        cursor.skip()
        if known is not None and (text.endswith("}") or not _OPENS_LAYOUT.match(cursor.text, cursor.pos)):
            return known
        cursor.pos = start
        return _array(cursor, what)
    if cursor.at("("):
        return _tuple(cursor, what, depth)
    if cursor.match(_BUFFER):
        return _buffer(cursor, what, depth)
    return _array(cursor, what)


@lru_cache(maxsize=4096)
def _plain_array(text: str) -> Shape | None:
    """An array of static sizes, its layout without white space; None where `_array` has to look at it."""
    found = _ARRAY_PARTS.fullmatch(text)
    if not found or found[1] not in ELEMENT_TYPES:
        return None
    try:
        dims = tuple(map(int, found[2].split(","))) if found[2] else ()
        order = tuple(map(int, found[3].split(","))) if found[3] else ()
    except ValueError:
        return None
    if (
        len(dims) > MAX_RANK
        or any(n >= 1 << 63 for n in dims)
        or (found[3] is not None and sorted(order) != list(range(len(dims))))
    ):
        return None
    if found[4] and not _LAYOUT_PARTS.match(found[4], 1):
        return None
    layout = Layout(order, found[4]) if found[3] is not None and (order or found[4]) else None
    return Shape(ShapeKind.ARRAY, ELEMENT_TYPES[found[1]], dims, layout)


def _tuple(cursor: Cursor, what: str, depth: int) -> Shape:
    if depth >= MAX_NESTING:
        raise cursor.error(f"shapes nest deeper than {MAX_NESTING}")
    cursor.expect("(", f"to start {what}")
    elements: list[Shape] = []
    while not cursor.accept(")"):
        if elements:
            cursor.expect(",", f"or ')' in {what}")
        if len(elements) == MAX_ELEMENTS:
            raise cursor.error(f"a tuple has at most {MAX_ELEMENTS} elements")
        elements.append(parse_shape(cursor, what, depth + 1))
    return tuple_of(elements)


def _buffer(cursor: Cursor, what: str, depth: int) -> Shape:
    if depth >= MAX_NESTING:
        raise cursor.error(f"shapes nest deeper than {MAX_NESTING}")
    cursor.expect("(", "to start the array of a buffer")
    start = cursor.pos
    inner = parse_shape(cursor, what, depth + 1)
    if not inner.is_array:
        raise cursor.error(f"a buffer holds an array, not {inner}", start)
    cursor.expect(")", "to end the array of a buffer")
    return buffer_of(inner)


def _array(cursor: Cursor, what: str) -> Shape:
    """An array by the whole grammar."""
    start = cursor.pos
    found = cursor.match(_TYPE)
    if not found:
        cursor.fail(f"{what} such as f32[2,3]")
    name = found.group()
    if name not in ELEMENT_TYPES and name not in ("token", "opaque"):
        raise cursor.error(f"unknown element type {name!r}; known: {', '.join(ELEMENT_TYPES)}", start)
    cursor.expect("[", "to start the sizes of a shape")
    dims: list[int] = []
    dynamic: list[bool] = []
    while not cursor.accept("]"):
        if dims:
            cursor.expect(",", "or ']' in the sizes of a shape")
        size, flag = _size(cursor)
        dims.append(size)
        dynamic.append(flag)
    if len(dims) > MAX_RANK:
        raise cursor.error(f"an array has at most {MAX_RANK} dimensions, this one {len(dims)}", start)
    layout = _layout(cursor, len(dims)) if _OPENS_LAYOUT.match(cursor.text, cursor.pos) else None
    if name not in ELEMENT_TYPES:
        if dims or layout:
            raise cursor.error(f"{name}[] has neither sizes nor a layout", start)
        return TOKEN if name == "token" else OPAQUE
    flags = tuple(dynamic) if any(dynamic) else ()
    return Shape(ShapeKind.ARRAY, ELEMENT_TYPES[name], tuple(dims), layout, flags)


def _size(cursor: Cursor) -> tuple[int, bool]:
    if cursor.accept("?"):
        return UNBOUNDED, True
    bounded = cursor.accept("<=")
    start = cursor.pos
    size = cursor.integer("a size such as 8, <=8 or ? in a shape")
    if size < 0:
        raise cursor.error("a size in a shape is from 0 to 2**63 - 1", start)
    return size, bounded


def _layout(cursor: Cursor, rank: int) -> Layout | None:
    start = cursor.pos
    cursor.expect("{", "to start a layout")
    order: list[int] = []
    while not cursor.at("}") and not cursor.at(":"):
        if order:
            cursor.expect(",", "or '}' in a layout")
        order.append(cursor.integer("a dimension number in a layout"))
    if sorted(order) != list(range(rank)):
        shown = ",".join(map(str, order[:20]))
        raise cursor.error(f"expected a layout that is a permutation of 0 to {rank - 1}, got {{{shown}}}", start)
    at = cursor.pos
    text = _layout_text(cursor) if cursor.accept(":") else ""
    parts = _LAYOUT_PARTS.match(text)
    if not parts:
        raise cursor.error(
            f"expected a layout's D(...)T(...)L(...)#(...)*(...)E(...)S(...)SC(...)M(...), got {text[:40]!r}", at
        )
    for key in ("index", "pointer"):
        if parts[key] is not None and parts[key] not in ("u1", "u2", "u4", "u8", "u16", "u32", "u64"):
            raise cursor.error(f"expected an unsigned integer type for the {key}es of a layout, got {parts[key]!r}", at)
    cursor.expect("}", "to end a layout")
    return Layout(tuple(order), f":{text}" if text else "") if order or text else None


def _layout_text(cursor: Cursor) -> str:
    """The text up to the layout's end, without white space and comments."""
    parts: list[str] = []
    while not cursor.at("}"):
        parts.append(cursor.token("'}' to end a layout"))
    return "".join(parts)
