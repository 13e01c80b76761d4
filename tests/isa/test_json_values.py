"""Values of dataclasses from JSON, compared with pydantic's strict reading of the same types."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from systolith.isa.chip_fields import Ge, Le
from systolith.isa.errors import BinaryError
from systolith.isa.json_values import read_json
from systolith.isa.program import Role


@dataclass(frozen=True)
class Inner:
    name: str
    sizes: tuple[int, ...] = ()
    pair: tuple[str, int] = ("", 0)


@dataclass(frozen=True)
class Outer:
    role: Role
    count: Annotated[int, Ge(0), Le(10), Field(ge=0, le=10)]
    good: bool
    inner: list[Inner]
    table: dict[str, int | str | bool] | None = None


WHOLE: dict[str, Any] = {
    "role": "state",
    "count": 7,
    "good": True,
    "inner": [{"name": "a", "sizes": [1, 2], "pair": ["x", 3]}, {"name": "b"}],
    "table": {"k": 1, "l": "m", "n": False},
}
SCALARS = st.sampled_from([0, 1, -1, 11, 2.5, True, None, "x", "state", "", [], {}, ["x", 1], [1, "x"], {"name": "y"}])


def _strict(text: str) -> Outer | None:
    try:
        return TypeAdapter(Outer).validate_json(text, strict=True)
    except ValidationError:
        return None


def _read(text: str) -> Outer | None:
    try:
        return read_json(text, Outer)
    except BinaryError:
        return None


def test_a_value_is_of_the_types_that_are_declared() -> None:
    found = _read(json.dumps(WHOLE))
    assert found == _strict(json.dumps(WHOLE))
    assert found is not None
    assert found.role is Role.STATE
    assert found.inner[0] == Inner("a", (1, 2), ("x", 3))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Containers in a JSON value, and their keys."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else [])
    return [(value, key) for key, _ in items] + [place for _, part in items for place in _places(part)]


@given(st.data())
def test_what_another_strict_reader_refuses_is_refused(data: st.DataObject) -> None:
    whole = json.loads(json.dumps(WHOLE))
    places = _places(whole)
    container, key = places[data.draw(st.integers(0, len(places) - 1))]
    if data.draw(st.booleans()):
        container[key] = data.draw(SCALARS)
    else:
        del container[key]
    text = json.dumps(whole)
    assert _read(text) == _strict(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 11}, "count: must be from 0 to 10"),
        ({"count": True}, "count: must be int"),
        ({"inner": [{"name": "a", "sizes": [1, "x"]}]}, r"inner\.0\.sizes\.1: must be int"),
        ({"inner": [{"sizes": []}]}, r"inner\.0\.name: must be there"),
        ({"table": {"k": []}}, r"table\.k: must be int or str or bool"),
        ({"role": "x"}, "role: must be one of parameter, result"),
    ],
)
def test_messages_name_the_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BinaryError, match=message):
        read_json(json.dumps(WHOLE | change), Outer)


@pytest.mark.parametrize("text", ["", "{", "[" * 100000, "nul"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(BinaryError, match="not JSON"):
        read_json(text, Outer)
