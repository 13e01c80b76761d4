"""Records against the schema, no key of them unknown to it."""

from __future__ import annotations

import json
from typing import Any, get_args, get_type_hints

from systolith.isa.files import json_text
from systolith.reports.record_model import Model
from systolith.reports.run_data import RunData, from_json


def require_schema(record: dict[str, Any]) -> None:
    """Assert that a record, as JSON holds it, breaks no rule of the schema and has no key that it does not describe."""
    written = json.loads(json_text(record))
    from_json(written)
    unknown = list(_unknown(RunData, written, ""))
    assert not unknown, f"keys that no model describes: {', '.join(unknown)}"


def _unknown(model: type[Model], value: dict[str, Any], where: str) -> list[str]:
    types = get_type_hints(model)
    found = [f"{where}{key}" for key in value if key not in types]
    for key, annotation in types.items():
        for inner in _models(annotation):
            item = value.get(key)
            items = enumerate(item) if isinstance(item, list) else [("", item)] if isinstance(item, dict) else []
            for n, part in items:
                found += _unknown(inner, part, f"{where}{key}.{n}." if n != "" else f"{where}{key}.")
    return found


def _models(annotation: Any) -> list[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    return [m for argument in get_args(annotation) for m in _models(argument)]
