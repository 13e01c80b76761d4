"""Which parameters of a module are states that live from run to run: in the module's text, and from there on.

Such a parameter is the state before the run; the result that has its memory (`must-alias`) is that after it.  The host
gives neither and sees neither: the program's buffer table says how the state begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from systolith.compiler.hlo.ir import Module

KEY = "systolith_states"
"""Frontend attribute of the module that has them."""

WORDS = 2
"""64-bit words of a state."""


def note_states(module: Module, first: Mapping[int, int]) -> None:
    """Have the module say which parameters (tuples flattened) are states, and the number that each begins with."""
    known = module.attributes.get("frontend_attributes")
    text = ",".join(f"{number}={value}" for number, value in first.items())
    module.attributes["frontend_attributes"] = {**(known if isinstance(known, dict) else {}), KEY: text}


def states_of(module: Module) -> dict[int, bytes]:
    """The numbers of the parameters that are states, with what each begins with."""
    known = module.attributes.get("frontend_attributes")
    text = str(known.get(KEY, "")) if isinstance(known, dict) else ""
    return {int(n): int(value).to_bytes(8 * WORDS, "little") for n, value in re.findall(r"(\d+)=(\d+)", text)}
