"""Trip counts of `while` loops as XLA's `backend_config` states them."""

from __future__ import annotations

import re

from systolith.compiler.hlo.attributes import Raw
from systolith.compiler.hlo.ir import Instruction

_PATTERN = re.compile(r'"known_trip_count":\{"n":"(\d{1,18})"\}')  # a 64-bit integer, as in XLA


def stated(count: int, told: str = "") -> Raw:
    """The `backend_config` `told` with a trip count added."""
    rest = told.strip().removeprefix("{").strip()
    entry = f'{{"known_trip_count":{{"n":"{count}"}}'
    return Raw(f"{entry},{rest}" if rest not in ("", "}") and told.startswith("{") else f"{entry}}}")


def trip_count(loop: Instruction) -> int | None:
    """The trip count that a `while` states; None if it states none."""
    found = _PATTERN.search(str(loop.attributes.get("backend_config", "")))
    return int(found.group(1)) if found else None
