"""Which parameters and results of a module are actual sizes of others: in the module's text, and from there on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from systolith.compiler.hlo.attributes import Alias
from systolith.compiler.hlo.ir import Module

ALIASES = "input_output_alias"
KEY = "systolith_sizes"
"""Frontend attribute of the module that has them."""

_ENTRY = re.compile(r"([pr])(\d+)\.(\d+)=(\d+)")


class Place(NamedTuple):
    """A dimension of a parameter or result, tuples flattened."""

    number: int
    dimension: int


def _of(known: Mapping[Place, int], number: int, rank: int) -> tuple[int, ...]:
    found = tuple(known.get(Place(number, d), -1) for d in range(rank))
    return found if any(n >= 0 for n in found) else ()


@dataclass
class EntrySizes:
    """The numbers of the parameters, or results, with the sizes.

    Attributes:
        parameters: of dimensions of parameters.
        results: of dimensions of results.
    """

    parameters: dict[Place, int] = field(default_factory=dict)
    results: dict[Place, int] = field(default_factory=dict)

    def of_parameter(self, number: int, rank: int) -> tuple[int, ...]:
        """For each dimension the number of the parameter with its size, -1: it has its bound; empty: all have."""
        return _of(self.parameters, number, rank)

    def of_result(self, number: int, rank: int) -> tuple[int, ...]:
        """Likewise of results."""
        return _of(self.results, number, rank)

    def note(self, module: Module, wrapped: bool) -> None:
        """Have the module say it, if there are some; its layout of before holds no longer.

        Sizes stand behind the parameters and results of before, which keep their numbers.

        Args:
            module: with sizes.
            wrapped: its result was an array, and is now the first of a tuple.
        """
        module.attributes.pop("entry_computation_layout", None)
        aliases = cast("tuple[Alias, ...]", module.attributes.get(ALIASES, ()))
        if wrapped and aliases:
            module.attributes[ALIASES] = tuple(replace(a, output=(0, *a.output)) for a in aliases)
        text = [
            f"{kind}{place.number}.{place.dimension}={n}"
            for kind, found in (("p", self.parameters), ("r", self.results))
            for place, n in found.items()
        ]
        if text:
            known = module.attributes.get("frontend_attributes")
            module.attributes["frontend_attributes"] = {
                **(known if isinstance(known, dict) else {}),
                KEY: ",".join(text),
            }

    @staticmethod
    def of(module: Module) -> EntrySizes:
        """The sizes that a module states."""
        found = EntrySizes()
        known = module.attributes.get("frontend_attributes")
        text = str(known.get(KEY, "")) if isinstance(known, dict) else ""
        for kind, number, dimension, n in _ENTRY.findall(text):
            (found.parameters if kind == "p" else found.results)[Place(int(number), int(dimension))] = int(n)
        return found
