"""Callers' spellings of element types, shapes, values, groups and lists, made into the types of `hlo/`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import index
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from systolith.compiler.hlo import ir
from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.device_groups import DeviceGroups, Iota, MeshGroups
from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.shape import Layout, Shape, array, tuple_of
from systolith.isa.dtypes import DType, Kind

T = TypeVar("T")
Ints: TypeAlias = Sequence[int]
Pairs: TypeAlias = Sequence[Sequence[int]]
PrimitiveType: TypeAlias = "DType | str | type | np.dtype[np.generic]"
ShapeLike: TypeAlias = "Shape | str"
Groups: TypeAlias = "DeviceGroups | Sequence[Ints]"


@runtime_checkable
class HasValue(Protocol):
    """A literal: a value with its shape."""

    @property
    def value(self) -> ir.Literal: ...

    @property
    def shape(self) -> Shape: ...


class ChannelType(StrEnum):
    """Who talks over a channel."""

    DEVICE_TO_DEVICE = "device to device"
    DEVICE_TO_HOST = "device to host"
    HOST_TO_DEVICE = "host to device"


@dataclass(frozen=True)
class ChannelHandle:
    """A channel: a number that sender and receiver share."""

    handle: int
    type: ChannelType = ChannelType.DEVICE_TO_DEVICE


# C++'s templates ConstantR0<float>, ... give these types; Python's own numbers get the same.
_PYTHON = {bool: "pred", int: "s32", float: "f32", complex: "c64"}
_STORED: dict[np.dtype[np.generic], DType] = {}
for _dtype in ELEMENT_TYPES.values():
    _STORED.setdefault(_dtype.stored, _dtype)


def element_type(what: PrimitiveType) -> DType:
    """An element type from itself, its name (`f32`, `F32`), a numpy type, or `bool`, `int`, `float`, `complex`.

    Raises:
        HloError: it is none of them.
    """
    if isinstance(what, DType):
        return what
    if isinstance(what, str) and what.lower() in ELEMENT_TYPES:
        return ELEMENT_TYPES[what.lower()]
    if isinstance(what, type) and what in _PYTHON:
        return ELEMENT_TYPES[_PYTHON[what]]
    try:
        return _STORED[np.dtype(what)]
    except (TypeError, KeyError):
        raise HloError(f"{what!r} is no element type; known: {', '.join(ELEMENT_TYPES)}") from None


def as_shape(what: ShapeLike) -> Shape:
    """A shape from itself or its text; arrays without a layout get the row-major one.

    Raises:
        HloError: it is none.
    """
    if isinstance(what, Shape):
        return _laid_out(what)
    if isinstance(what, str):
        return _laid_out(Shape.parse(what))
    raise HloError(f"a shape or its text is needed, got {type(what).__name__}")


def _laid_out(shape: Shape) -> Shape:
    if shape.is_tuple:
        return tuple_of([_laid_out(element) for element in shape.elements])
    if not shape.rank or shape.layout is not None:
        return shape
    return shape.with_layout(Layout(tuple(reversed(range(shape.rank)))))


def ints(what: Iterable[int], name: str) -> tuple[int, ...]:
    """A list of integers.

    Raises:
        HloError: it is none.
    """
    try:
        return tuple(index(n) for n in what)
    except TypeError:
        raise HloError(f"{name} is a list of integers, got {what!r}") from None


def expect(what: object, kind: type[T], name: str) -> T:
    """An argument that is of a type.

    Raises:
        HloError: it is of another.
    """
    if not isinstance(what, kind):
        raise HloError(f"{name} is a {kind.__name__}, got {type(what).__name__}")
    return what


def sequence(what: Sequence[T], name: str) -> Sequence[T]:
    """A list.

    Raises:
        HloError: it is none.
    """
    if not isinstance(what, Sequence):
        raise HloError(f"{name} is a list, got {type(what).__name__}")
    return what


def flag(what: bool, name: str) -> bool:
    """A truth value.

    Raises:
        HloError: it is none.
    """
    if not isinstance(what, bool | int | np.bool_):
        raise HloError(f"{name} is true or false, got {type(what).__name__}")
    return bool(what)


def integer(what: int, name: str) -> int:
    """An integer.

    Raises:
        HloError: it is none.
    """
    try:
        return index(what)
    except TypeError:
        raise HloError(f"{name} is an integer, got {what!r}") from None


def pairs(what: Pairs, name: str) -> tuple[tuple[int, ...], ...]:
    """A list of pairs of integers.

    Raises:
        HloError: it is none.
    """
    try:
        found = tuple(ints(pair, name) for pair in what)
    except TypeError:
        raise HloError(f"{name} is a list of pairs, got {what!r}") from None
    if any(len(pair) != 2 for pair in found):
        raise HloError(f"{name} is a list of pairs, got {what!r}")
    return found


def pad_dims(what: Sequence[PadDim | Ints]) -> tuple[PadDim, ...]:
    """A padding configuration: for each dimension a `PadDim`, or (low, high) or (low, high, interior)."""
    found: list[PadDim] = []
    for dim in sequence(what, "padding_config"):
        numbers = (dim.low, dim.high, dim.interior) if isinstance(dim, PadDim) else ints(dim, "padding_config")
        if len(numbers) not in (2, 3):
            raise HloError(f"padding_config has (low, high, interior) for each dimension, got {dim!r}")
        found.append(PadDim(*numbers))
    return tuple(found)


def device_groups(what: Groups) -> DeviceGroups:
    """Groups of devices from themselves or from lists of device numbers."""
    if isinstance(what, DeviceGroups):
        return what
    if isinstance(what, Iota | MeshGroups):
        return DeviceGroups(what)
    if not isinstance(what, Sequence):
        raise HloError(f"replica_groups is a list of lists of devices, got {what!r}")
    return DeviceGroups(tuple(ints(group, "replica_groups") for group in what))


def channel_number(what: ChannelHandle | int | None) -> int | None:
    """The number of a channel."""
    if isinstance(what, ChannelHandle):
        return what.handle
    return None if what is None else integer(what, "a channel")


def literal(what: object, dtype: PrimitiveType | None = None) -> tuple[ir.Literal, Shape]:
    """A value and its shape, from a literal, an array, a Python number or nested lists of them, or a tuple of values.

    Args:
        what: the value.
        dtype: element type; None for the array's own, and for Python's numbers pred, s32, f32 or c64.

    Raises:
        HloError: it is no value, or does not fit the element type.
    """
    if isinstance(what, HasValue):
        return what.value, what.shape
    if isinstance(what, tuple):
        parts = [literal(part, dtype) for part in what]
        return tuple(value for value, _ in parts), tuple_of([shape for _, shape in parts])
    try:
        found = np.asarray(what)
    except (ValueError, TypeError, OverflowError) as problem:
        raise HloError(f"not an array of numbers: {str(problem).splitlines()[0]}") from None
    if found.dtype.kind in "OUSMm":
        raise HloError(f"not an array of numbers: {str(what)[:60]!r}")
    if dtype is None and not isinstance(what, np.ndarray | np.generic):
        dtype = {"b": "pred", "f": "f32", "c": "c64"}.get(found.dtype.kind, "s32")
    element = element_type(found.dtype if dtype is None else dtype)
    _require_fit(found, element)
    with np.errstate(over="ignore", invalid="ignore"):
        value = np.array(found.astype(element.stored), order="C", copy=True)
    return value, array(element, value.shape)


def _require_fit(value: np.ndarray, element: DType) -> None:
    """Refuse types that change values: whole numbers stay exact, and complex numbers complex."""
    if value.dtype.kind == "c" and element.kind is not Kind.COMPLEX:
        raise HloError(f"complex numbers do not fit {element}")
    if not (element.is_integer or element.kind is Kind.PRED) or value.dtype.kind not in "iuf" or not value.size:
        return
    if value.dtype.kind == "f" and not (np.isfinite(value).all() and (value == np.trunc(value)).all()):
        raise HloError(f"numbers that are not whole do not fit {element}")
    if element.is_integer:
        bits = element.bits - (element.kind is Kind.SIGNED)
        low, high = -(1 << bits) if element.kind is Kind.SIGNED else 0, (1 << bits) - 1
        least, greatest = int(value.min()), int(value.max())
        if least < low or greatest > high:
            raise HloError(f"{least if least < low else greatest} does not fit {element} ({low} to {high})")
