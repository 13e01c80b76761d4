"""JSON that any reader takes: no Infinity, no NaN."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.files import json_text
from tests.examples import examples

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


def strict(text: str) -> Any:
    """The value of a text, which has none of the numbers that only Python takes for JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def same(value: Any, read: Any) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return isinstance(read, str) and repr(float(read)) == repr(abs(value) if math.isnan(value) else value)
    if isinstance(value, dict):
        return list(value) == list(read) and all(same(item, read[key]) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return len(value) == len(read) and all(map(same, value, read))
    return bool(value == read)


@examples(17, 300)
@given(VALUES)
def test_any_value_is_written_as_json(value: Any) -> None:
    assert same(value, strict(json_text(value)))
    assert json_text(value, indent=1).count("\n") == json.dumps(value, indent=1).count("\n")
