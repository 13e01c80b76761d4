"""Values of dataclasses from JSON: exactly of the types that they declare, no number for a text or a bool.

Keys that a dataclass does not have are ignored; those that it lacks have its defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from systolith.isa.chip_fields import Ge, Le
from systolith.isa.errors import BinaryError
from systolith.isa.files import parse_json

T = TypeVar("T")
Reader = Callable[[Any], Any]


class _MisfitError(Exception):
    """A value is not of its type; `path`: its place, from the inside out."""

    def __init__(self, wanted: str, *path: object) -> None:
        self.wanted = wanted
        self.path = path

    def at(self, place: object) -> _MisfitError:
        return _MisfitError(self.wanted, *self.path, place)


def read_json(text: str | bytes, kind: type[T]) -> T:
    """A value of a type from JSON: a dataclass, list, tuple, dict of texts, enumeration, number, text or bool.

    Raises:
        BinaryError: it is not JSON, or not that of such a value: which part, and why.
    """
    raw = parse_json(text, "it", BinaryError)
    try:
        value: T = _reader(cast(Hashable, kind))(raw)
        return value
    except _MisfitError as problem:
        where = ".".join(map(str, reversed(problem.path))) or "it"
        raise BinaryError(f"{where}: must be {problem.wanted}") from None


@cache
def _reader(hint: Any) -> Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _ranged(*arguments)
    if origin in (Union, UnionType):
        kinds = [a for a in arguments if a is not type(None)]
        return _optional(_reader(kinds[0])) if len(kinds) == 1 else _plain(*kinds)
    if origin is list:
        return _list(_reader(arguments[0]))
    if origin is tuple and arguments[1:] == (...,):
        items = _list(_reader(arguments[0]))
        return lambda value: tuple(items(value))
    if origin is tuple:
        return _tuple([_reader(a) for a in arguments])
    if origin is dict:
        return _dict(_reader(arguments[1]))
    if isinstance(hint, type) and is_dataclass(hint):
        return _object(hint)
    return _choice(hint) if issubclass(hint, Enum) else _plain(hint)


def _plain(*kinds: type) -> Reader:
    wanted = " or ".join(kind.__name__ for kind in kinds)

    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise _MisfitError(wanted)
        return value

    return read


def _optional(item: Reader) -> Reader:
    return lambda value: None if value is None else item(value)


def _ranged(kind: type, *limits: Any) -> Reader:
    plain = _plain(kind)
    least = next((x.ge for x in limits if isinstance(x, Ge)), float("-inf"))
    most = next((x.le for x in limits if isinstance(x, Le)), float("inf"))

    def read(value: Any) -> Any:
        if not least <= plain(value) <= most:
            raise _MisfitError(f"from {least} to {most}")
        return value

    return read


def _choice(kind: type[Enum]) -> Reader:
    def read(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError:
            raise _MisfitError(f"one of {', '.join(str(one.value) for one in kind)}") from None

    return read


def _list(item: Reader) -> Reader:
    def read(values: Any) -> list[Any]:
        if type(values) is not list:
            raise _MisfitError("a list")
        found: list[Any] = []
        try:
            for value in values:
                found.append(item(value))
        except _MisfitError as problem:
            raise problem.at(len(found)) from None
        return found

    return read


def _tuple(items: list[Reader]) -> Reader:
    def read(values: Any) -> tuple[Any, ...]:
        if type(values) is not list or len(values) != len(items):
            raise _MisfitError(f"a list of {len(items)}")
        found: list[Any] = []
        try:
            for item, value in zip(items, values, strict=True):
                found.append(item(value))
        except _MisfitError as problem:
            raise problem.at(len(found)) from None
        return tuple(found)

    return read


def _dict(item: Reader) -> Reader:
    def read(values: Any) -> dict[str, Any]:
        if type(values) is not dict:
            raise _MisfitError("an object")
        key = ""
        try:
            return {(key := name): item(value) for name, value in values.items()}
        except _MisfitError as problem:
            raise problem.at(key) from None

    return read


def _object(kind: type) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    readers = [(f.name, _reader(hints[f.name])) for f in fields(kind)]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _MisfitError("an object")
        if not value.keys() >= needed:
            raise _MisfitError("there", min(needed - value.keys()))
        name = ""
        try:
            return kind(**{(name := n): reader(value[n]) for n, reader in readers if n in value})
        except _MisfitError as problem:
            raise problem.at(name) from None

    return read
