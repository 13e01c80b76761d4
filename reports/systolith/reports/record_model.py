"""Objects of a record's schema: dataclasses whose annotations say what JSON must hold, for pydantic where it reads one.

Pydantic takes long to import, and a record of this process needs no check.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler


@dataclass(frozen=True)
class Rule:
    """In an annotation: what JSON must hold there, by its name in `record_rules.py`."""

    name: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from systolith.reports.record_rules import RULES

        return handler.generate_schema(RULES[self.name])


Count = Annotated[int, Rule("count")]
Amount = Annotated[float, Rule("amount")]
Energies = Annotated[int, Rule("energies")]
Flag = Annotated[bool, Rule("flag")]
Label = Annotated[str, Rule("label")]
Error = Annotated[float, Rule("error")]
Value = Annotated[int | float | bool | str, Rule("value")]


class Model:
    """Base of the schema's objects: frozen dataclasses; pydantic ignores keys that it does not know."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The JSON schema, with the docstrings' summary and what their `Attributes:` say of the properties."""
        schema = handler.resolve_ref_schema(handler(core))
        texts: dict[str, str] = {}
        summary = ""
        for parent in reversed([c for c in cls.__mro__ if issubclass(c, Model)]):
            summary, _, attributes = (inspect.getdoc(parent) or "").partition("\n\nAttributes:\n")
            texts |= {
                name.strip(): " ".join(text.split())
                for names, text in _ATTRIBUTE.findall(inspect.cleandoc(attributes))
                for name in names.split(",")
            }
        schema["description"] = " ".join(summary.split())
        for name, text in texts.items():
            if name in schema.get("properties", {}):
                schema["properties"][name]["description"] = text
        return schema


# An entry of a docstring's `Attributes:`: names, and a text that goes on in lines further in.
_ATTRIBUTE = re.compile(r"^([\w, ]+): (.+(?:\n +.+)*)", re.M)
