"""Quantities as people write them: `8 MiB`, `900 GB/s`, `1.05 GHz`, `400 ns`.

A field takes the units of its own kind (the unit of its declaration: bytes, MHz, GB/s, fJ, cycles). Times in cycles
follow from the clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from numbers import Integral, Real

UNITS: Mapping[str, Mapping[str, Fraction]] = {
    "bytes": {
        "B": Fraction(1),
        **{f"{prefix}iB": Fraction(1024**n) for n, prefix in enumerate("KMGT", 1)},
        **{f"{prefix}B": Fraction(1000**n) for n, prefix in enumerate("kMGT", 1)},
        "KB": Fraction(1000),
    },
    "MHz": {"Hz": Fraction(1, 10**6), "kHz": Fraction(1, 1000), "MHz": Fraction(1), "GHz": Fraction(1000)},
    "GB/s": {
        **{f"{prefix}B/s": Fraction(1000 ** (n - 3)) for n, prefix in enumerate(("", "k", "M", "G", "T"))},
        **{f"{prefix}iB/s": Fraction(1024**n, 10**9) for n, prefix in enumerate("KMGT", 1)},
    },
    "fJ": {f"{prefix}J": Fraction(1000**n) for n, prefix in enumerate("fpnum")},
    "mW": {"mW": Fraction(1), "W": Fraction(1000)},
    "mm2": {"mm2": Fraction(1)},
    "cycles": {"cycles": Fraction(1), "cycle": Fraction(1)},
}
"""Units of each kind, and their sizes in the unit that the kind is called after."""
TIMES: Mapping[str, Fraction] = {"ns": Fraction(1), "us": Fraction(1000), "ms": Fraction(10**6)}
"""Units of time, in nanoseconds: of fields in cycles."""

_QUANTITY = re.compile(r"([0-9][0-9_]{0,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?) ?([A-Za-z/]*)")


def quantity(text: str, kind: str, clock_mhz: Fraction | None = None) -> Fraction | None:
    """The value of a text in the unit of a kind; None: it is no such text.

    Args:
        text: a number with a unit, or without one.
        kind: a key of `UNITS`; any other takes plain numbers only.
        clock_mhz: the clock by which times become cycles.

    Times in cycles and energies with a unit are rounded to the nearest whole cycle and femtojoule.
    """
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = Fraction(found[1].replace("_", "")), found[2]
    if not unit:
        return number
    if kind == "cycles" and unit in TIMES and clock_mhz is not None:
        return _nearest(number * TIMES[unit] * clock_mhz / 1000)
    size = UNITS.get(kind, {}).get(unit)
    if size is None:
        return None
    return _nearest(number * size) if kind == "fJ" else number * size


def _nearest(number: Fraction) -> Fraction:
    return Fraction(int(number + Fraction(1, 2)))


def plain(value: object) -> object:
    """A number of numpy as Python's; anything else as it is."""
    if isinstance(value, bool | int | float):
        return value
    return int(value) if isinstance(value, Integral) else float(value) if isinstance(value, Real) else value


def is_time(value: object) -> bool:
    """Whether a value is a text with a unit of time."""
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    return found is not None and found[2] in TIMES


def units_of(kind: str) -> str:
    """The units that a field of a kind takes, for messages."""
    return ", ".join([*UNITS.get(kind, ()), *(TIMES if kind == "cycles" else ())])
