"""Random changes to chips."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from systolith.isa.chip_schema import SCHEMA

# The largest memories that a test can hold and compile for.
MOST = {"vmem.bytes": 2**24, "hbm.bytes": 2**40}


def _values(name: str) -> st.SearchStrategy[Any]:
    d = SCHEMA[name]
    if d.type is bool:
        return st.booleans()
    lo, hi = d.lo or 0, min(d.hi or 0, MOST.get(name, d.hi or 0))
    if d.type is float:
        return st.floats(lo, hi)
    if d.doc.power:
        return st.integers(int(lo).bit_length() - 1, int(hi).bit_length() - 1).map(lambda n: 1 << n)
    step = d.doc.multiple
    spread = st.integers(int(lo).bit_length(), int(hi).bit_length()).map(lambda n: min(max(1 << n, int(lo)), int(hi)))
    return (spread | st.integers(int(lo), int(hi))).map(lambda n: n // step * step)


def changes(most: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    """Values of some fields, each within its own limits."""
    names = [n for n in SCHEMA if n != "name"]
    chosen = st.lists(st.sampled_from(names), min_size=1, max_size=most, unique=True)
    return chosen.flatmap(lambda some: st.fixed_dictionaries({n: _values(n) for n in some}))
