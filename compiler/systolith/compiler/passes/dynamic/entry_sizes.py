"""Which parameters and results of a module are actual sizes of others: in the module's text, and from there on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from systolith.compiler.hlo.ir import Module

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

    def note(self, module: Module) -> None:
        """Have the module say it, if there are some; its layout and aliases of before hold no longer."""
        for key in ("entry_computation_layout", "input_output_alias", "buffer_donor"):
            module.attributes.pop(key, None)
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
        """What a module says."""
        found = EntrySizes()
        known = module.attributes.get("frontend_attributes")
        text = str(known.get(KEY, "")) if isinstance(known, dict) else ""
        for kind, number, dimension, n in _ENTRY.findall(text):
            (found.parameters if kind == "p" else found.results)[Place(int(number), int(dimension))] = int(n)
        return found
