"""Rules between the fields of a chip: those that follow from others, and combinations that no chip can have.

A field of `DERIVED` may be left out: it follows from the others. A variant's value that it takes from its base follows
them too, where they no longer allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from systolith.isa.chip_schema import FIELDS, Chip

Values = Mapping[str, Any]


class Derived(NamedTuple):
    """How a field follows from others.

    Attributes:
        needs: the fields that it follows from.
        value: of these fields and its own value in the base (0: it has none).
        possible: whether its own value, the last, may stay as it is.
        because: one phrase.
    """

    needs: tuple[str, ...]
    value: Callable[..., int]
    possible: Callable[..., bool]
    because: str


def power_of_two(least: Fraction | int) -> int:
    """The smallest power of two that is at least this."""
    return 1 << max(0, -(-least // 1) - 1).bit_length()


DERIVED: dict[str, Derived] = {
    "hbm.chunk": Derived(
        ("hbm.p", "hbm.q"),
        lambda p, q, own: max(own, 32, power_of_two(Fraction(p, q))),
        lambda p, q, own: p <= q * own,
        "the power of two that holds the bytes of a cycle",
    ),
    "hbm.granule": Derived(
        ("hbm.chunk",),
        lambda chunk, own: min(own or 32, chunk),
        lambda chunk, own: own <= chunk,
        "at most a chunk",
    ),
    "mxu.segments": Derived(
        ("vpu.sublanes",), lambda sublanes, own: sublanes, lambda sublanes, own: True, "a bank of VMEM a sublane"
    ),
    "mxu.segment_bytes": Derived(
        ("vpu.lanes",), lambda lanes, own: 4 * lanes, lambda lanes, own: True, "a bank of VMEM holds a row of lanes"
    ),
    "dma.segments": Derived(
        ("vpu.sublanes",),
        lambda sublanes, own: power_of_two(sublanes),
        lambda sublanes, own: True,
        "a bank of VMEM a sublane",
    ),
    "host.launch": Derived(
        ("host.latency", "host.setup"),
        lambda latency, setup, own: 2 * (setup + latency),
        lambda latency, setup, own: True,
        "the call comes and its end is told, a transfer each",
    ),
}


def derive(values: dict[str, Any], fixed: frozenset[str]) -> dict[str, str]:
    """Fill in what follows from other fields; the reason of each field that was given a value.

    Args:
        values: whole numbers by the names of their fields; changed.
        fixed: fields whose values stay.
    """
    because: dict[str, str] = {}
    for name, rule in DERIVED.items():
        inputs = [values.get(n) for n in rule.needs]
        own = values.get(name, 0)
        numbers = [*inputs, own]
        if name in fixed or not all(type(n) is int and n >= 0 for n in numbers) or 0 in inputs:
            continue
        if name in values and rule.possible(*numbers):
            continue
        values[name] = rule.value(*numbers)
        stated = ", ".join(f"{n} = {values[n]}" for n in rule.needs)
        was = f"; {own} in its base" if own else ""
        because[name] = f"follows from {stated}: {rule.because}{was}"
    return because


class Rule(NamedTuple):
    """A condition on several fields: the field that breaks it, whether it holds, its limit, and other ways out."""

    name: str
    good: bool
    limit: str
    other: str


def rules(chip: Chip) -> tuple[Rule, ...]:
    """The conditions on a chip whose fields are each within their own limits."""
    m, v, h = chip.mxu, chip.vpu, chip.hbm
    vector = v.lanes * v.sublanes * 4
    tile = m.rows * m.cols * 4 + m.rows * m.rows * 4 + 3 * vector
    most = h.q * h.chunk
    name, limit = "hbm.p", f"at most hbm.q * hbm.chunk = {most}: one chunk is granted a cycle"
    if "hbm.gbps" in chip.declared:
        speed = float(h.chunk * Fraction(str(chip.clock_mhz)) / 1000)
        name, limit = "hbm.gbps", f"at most {speed:.6g}: one hbm.chunk of {h.chunk} bytes is granted a cycle"
    return (
        Rule(
            "vmem.bytes",
            chip.vmem.bytes >= tile,
            f"at least {tile}: one f32 weight tile, `rows` rows, three vectors",
            "lower mxu.rows, mxu.cols, vpu.lanes or vpu.sublanes",
        ),
        Rule("hbm.granule", h.granule <= h.chunk, f"at most hbm.chunk = {h.chunk}", "raise hbm.chunk"),
        Rule(name, h.p <= most, limit, "raise hbm.chunk"),
        Rule("vmem.bytes", h.bytes >= chip.vmem.bytes, f"at most hbm.bytes = {h.bytes}", "raise hbm.bytes"),
        Rule("hbm.chunk", h.chunk <= chip.vmem.bytes, f"at most vmem.bytes = {chip.vmem.bytes}", "raise vmem.bytes"),
    )


KNOWN = (*FIELDS, "hbm.gbps")
"""Fields, and what stands for several of them."""
