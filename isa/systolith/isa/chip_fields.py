"""Fields of configurations: declared once, as annotated fields of dataclasses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple, get_args, get_type_hints


class Ge(NamedTuple):
    """The least value of a field."""

    ge: float


class Le(NamedTuple):
    """The largest value of a field."""

    le: float


@dataclass(frozen=True)
class Doc:
    """The meaning of a field.

    Attributes:
        unit: unit of the value; empty for plain numbers.
        text: one line.
        power: the value must be a power of two.
        multiple: the value must be a multiple of this.
    """

    unit: str
    text: str
    power: bool = False
    multiple: int = 1


class Declared(NamedTuple):
    """A field of a schema."""

    name: str
    type: type
    doc: Doc
    lo: float | None
    hi: float | None


def declared(cls: type, prefix: str, beside: tuple[str, ...] = ()) -> Iterator[Declared]:
    """The fields of a class and of the classes of its fields, by dotted names; those called `beside` are left out."""
    hints = get_type_hints(cls, include_extras=True)
    for f in fields(cls):
        hint = hints[f.name]
        if f.name in beside:
            continue
        if not hasattr(hint, "__metadata__"):
            yield from declared(hint, f"{f.name}.")
            continue
        base, *extra = get_args(hint)
        doc = next(e for e in extra if isinstance(e, Doc))
        lo = next((e.ge for e in extra if isinstance(e, Ge)), None)
        hi = next((e.le for e in extra if isinstance(e, Le)), None)
        yield Declared(prefix + f.name, base, doc, lo, hi)
