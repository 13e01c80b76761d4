"""Numbers as people read them: thousands separators, binary sizes, SI rates; text alone, no markup."""

from __future__ import annotations

from math import isfinite

NONE = "–"
BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
SI = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}


def count(value: int | None) -> str:
    """1234567 -> '1,234,567'."""
    return NONE if value is None else f"{value:,}"


def percent(fraction: float | None, digits: int = 1) -> str:
    """0.1234 -> '12.3 %'."""
    return NONE if fraction is None or not isfinite(fraction) else f"{100 * fraction:,.{digits}f} %"


def size(value: int | float | None) -> str:
    """Bytes with a binary prefix: 1536 -> '1.50 KiB'."""
    if value is None:
        return NONE
    amount, unit = float(value), 0
    while abs(amount) >= 1024 and unit < len(BINARY) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{int(amount):,} B" if unit == 0 else f"{_digits(amount)} {BINARY[unit]}"


def si(value: float | None, unit: str) -> str:
    """A quantity with an SI prefix: 4.5e11 of 'B/s' -> '450 GB/s'."""
    if value is None or not isfinite(value):
        return NONE
    if value == 0:
        return f"0 {unit}"
    exponent = next((e for e in sorted(SI, reverse=True) if abs(value) >= 10.0**e * 0.9995), min(SI))
    return f"{_digits(value / 10.0**exponent)} {SI[exponent]}{unit}"


def ratio(new: float | None, old: float | None) -> str:
    """The factor from old to new, as a factor: '0.85x'; '–' where there is none."""
    if new is None or old is None or not old:
        return NONE
    return f"{new / old:.2f}x" if new / old < 100 else f"{new / old:,.0f}x"


def decimal(value: float | None) -> str:
    """Three significant digits with separators."""
    return NONE if value is None or not isfinite(value) else _digits(value)


def _digits(value: float) -> str:
    """Three significant digits, without an exponent where that is readable."""
    magnitude = abs(value)
    if magnitude >= 100 or value == 0:
        return f"{value:,.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 0.1 else f"{value:.3g}"
