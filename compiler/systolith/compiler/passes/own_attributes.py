"""Frontend attributes by which the compiler's stages tell each other facts about an instruction.

Their names start with `PREFIX`; those that a module comes with are dropped (`DropOwnAttributes`), so that no fact in a
module's text is taken for one that the compiler found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from systolith.compiler.hlo.attributes import Fields
from systolith.compiler.hlo.ir import Instruction, Module

PREFIX = "systolith."
FRONTEND = "frontend_attributes"


def stated(i: Instruction, name: str) -> str:
    """What a stage has stated about an instruction under a name; empty: nothing."""
    return cast("dict[str, str]", i.attributes.get(FRONTEND, {})).get(PREFIX + name, "")


def state(i: Instruction, name: str, value: str) -> None:
    """State something about an instruction."""
    known = cast("dict[str, str]", i.attributes.get(FRONTEND, {}))
    i.attributes[FRONTEND] = {**known, PREFIX + name: value}


@dataclass(frozen=True)
class DropOwnAttributes:
    """Drop frontend attributes whose names are the compiler's own."""

    def run(self, module: Module) -> bool:
        changed = False
        for i in module.instructions():
            known = cast(Fields, i.attributes.get(FRONTEND, {}))
            kept: Fields = {key: value for key, value in known.items() if not key.startswith(PREFIX)}
            if len(kept) < len(known):
                i.attributes[FRONTEND] = kept
                if not kept:
                    del i.attributes[FRONTEND]
                changed = True
        return changed
