"""A chip from its entries, and its entries as TOML: what each field was declared as, and where it is from.

An entry stands for a field of the schema, or for several: `hbm.gbps`, the bandwidth in GB/s, stands for `hbm.p` and
`hbm.q`, which follow from it and the clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from systolith.isa.chip_energy import ENERGY
from systolith.isa.chip_fields import Declared
from systolith.isa.chip_rules import KNOWN, derive, rules
from systolith.isa.chip_schema import FIELDS, GROUPS, SCHEMA, Chip, Provenance, describe_beside, value_of
from systolith.isa.chip_units import UNITS, is_time, quantity, units_of
from systolith.isa.errors import ConfigError

GBPS = "hbm.gbps"
_RATE = ("hbm.p", "hbm.q")
_LARGEST_P = int(SCHEMA["hbm.p"].hi or 1)
_LARGEST_Q = int(SCHEMA["hbm.q"].hi or 1)
_LARGEST_CHUNK = int(SCHEMA["hbm.chunk"].hi or 1)


class Entry(NamedTuple):
    """A value as it was declared, and where it is from."""

    value: Any
    provenance: Provenance = Provenance("invented", "")


Entries = Mapping[str, Entry]


def resolve(entries: Entries, fixed: frozenset[str], file: str, absent: Mapping[str, str] | None = None) -> Chip:
    """The chip that entries declare.

    Args:
        entries: by dotted names.
        fixed: names of those that the user gave; what others say may follow from them.
        file: only for messages.
        absent: as for `Chip`.

    Raises:
        ConfigError: naming file, field, value and limit.
    """
    for name, entry in entries.items():
        if name not in KNOWN:
            raise ConfigError(f"{file}: {cut(name)} = {short(entry.value)}: unknown field{nearest(name)}")
    clock = _clock(entries, file)
    values = {n: _number(n, e.value, clock, file) for n, e in entries.items() if n != GBPS}
    provenance = {n: e.provenance for n, e in entries.items() if n != GBPS}
    declared = {n: e.value for n, e in entries.items() if n == GBPS or is_time(e.value)}
    if GBPS in entries:
        rate, of = _rate(entries[GBPS].value, clock, file), entries[GBPS].provenance
        values |= dict(zip(_RATE, (rate.numerator, rate.denominator), strict=True))
        given = entries[GBPS].value
        said = f"{given if isinstance(given, str) else f'{given:g} GB/s'} at {float(clock):g} MHz"
        provenance |= dict.fromkeys(_RATE, of._replace(source=f"{said}: {of.source}" if of.source else said))
    for name, because in derive(values, fixed).items():
        provenance[name] = Provenance("derived", because)
    for name in (*SCHEMA, *(ENERGY if values.keys() & ENERGY.keys() else ())):
        if name not in values:
            raise _missing(name, file)
    beside = {"provenance": provenance, "declared": declared, "absent": absent or {}}
    chip = _validated(values, beside, file)
    for rule in rules(chip):
        if not rule.good:
            value = short(declared.get(rule.name, values.get(rule.name)))
            raise ConfigError(f"{file}: {rule.name} = {value}: must be {rule.limit}; or {rule.other}")
    return chip


def entries_of(chip: Chip) -> dict[str, Entry]:
    """The entries of a chip: values as they were declared where these still stand for its fields."""
    names = (*SCHEMA, *(row.field for row in describe_beside(chip)))
    entries = {n: Entry(value_of(chip, n), chip.provenance.get(n, Provenance("invented", ""))) for n in names}
    clock = Fraction(str(chip.clock_mhz))
    for name, value in chip.declared.items():
        if name == GBPS:
            if _rate(value, clock, chip.name) == Fraction(chip.hbm.p, chip.hbm.q):
                of = entries["hbm.p"].provenance
                source = of.source.partition(" MHz")[2].removeprefix(": ")
                entries = {n: e for n, e in entries.items() if n not in _RATE}
                entries[GBPS] = Entry(value, of._replace(source=source))
        elif _number(name, value, clock, chip.name) == value_of(chip, name):
            entries[name] = entries[name]._replace(value=value)
    return entries


def merged(base: Entries, changes: Entries) -> dict[str, Entry]:
    """Entries with changes over them: a bandwidth in GB/s takes the place of one in bytes a cycle, and the reverse."""
    left_out = set(_RATE) if GBPS in changes else {GBPS} if changes.keys() & set(_RATE) else set()
    return {n: e for n, e in base.items() if n not in left_out} | dict(changes)


def to_toml(chip: Chip) -> str:
    """The file of a chip: every field, with provenance and source; it reads back equal."""
    entries = entries_of(chip)
    order = [n for n in FIELDS if n in entries]
    if GBPS in entries:
        order.insert(order.index("hbm.chunk"), GBPS)
    lines, group = [f"name = {_toml(chip.name)}"], ""
    for name in order:
        head, _, leaf = name.rpartition(".")
        if head != group:
            lines += ["", f"[{head}]"]
            group = head
        if name != "name":
            value, (label, source) = entries[name]
            of = f', provenance = "{label}"' if label else ""
            lines.append(f"{leaf} = {{ value = {_toml(value)}{of}{f', source = {_toml(source)}' if source else ''} }}")
    if chip.absent:
        lines += ["", "[absent]", *(f"{_toml(part)} = {_toml(how)}" for part, how in chip.absent.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def scalar(name: str, text: str) -> Any:
    """The value of a field that a text of the command line stands for; the text itself, if it is none."""
    kind = FIELDS[name].type if name in FIELDS else float if name == GBPS else str
    if kind is bool:
        return {"true": True, "false": False}.get(text, text)
    try:
        return text if kind is str else kind(text)
    except ValueError:
        return text


def nearest(name: str) -> str:
    """What there is in place of a field that is unknown: the end of a message."""
    from difflib import get_close_matches

    inside = [of.removeprefix(f"{name}.") for of in KNOWN if of.startswith(f"{name}.")]
    if inside:
        return f"; fields of {name}: {', '.join(inside)}"
    near = get_close_matches(name, KNOWN, 1, 0.5)
    return f"; did you mean {near[0]}?" if near else "; `systolith chips NAME` lists those of a chip"


def _clock(entries: Entries, file: str) -> Fraction:
    """The clock in MHz, by which others are read."""
    name = "clock_mhz"
    if name not in entries:
        raise _missing(name, file)
    value = _number(name, entries[name].value, Fraction(0), file)
    _require_good(name, value, file)
    return Fraction(str(float(value)))


def _missing(name: str, file: str) -> ConfigError:
    beside = ""
    if name in _RATE:
        beside = f", beside {_RATE[name == _RATE[0]]}; or {GBPS} in place of both"
    elif name in ENERGY:
        beside = "; a chip states all of its energies, or none"
    return ConfigError(f"{file}: {name}: missing; needed: {limits(FIELDS[name])}{beside}")


def _number(name: str, value: Any, clock: Fraction, file: str) -> Any:
    """The value of a field in its unit; what is no text with a unit, as it is."""
    d = FIELDS[name]
    if not isinstance(value, str) or d.doc.unit not in UNITS:
        return value
    number = quantity(value, d.doc.unit, clock)
    if number is None or (d.type is int and number.denominator != 1):
        part = f", {float(number):.10g} {d.doc.unit}" if number is not None else ""
        raise ConfigError(f"{file}: {name} = {short(value)}{part}: must be {limits(d)}; units: {units_of(d.doc.unit)}")
    return d.type(number)


def _rate(value: Any, clock: Fraction, file: str) -> Fraction:
    """Bytes a cycle of a bandwidth in GB/s; as close as `hbm.p` and `hbm.q` allow."""
    text = value if isinstance(value, str) else str(value)
    number = None if isinstance(value, bool) else quantity(text, "GB/s")
    if not number:
        raise ConfigError(f"{file}: {GBPS} = {short(value)}: must be a number above 0; units: {units_of('GB/s')}")
    exact = number * 1000 / clock
    if exact > _LARGEST_CHUNK:
        most = f"at most {float(_LARGEST_CHUNK * clock / 1000):.6g}: the largest hbm.chunk, {_LARGEST_CHUNK} bytes"
        raise ConfigError(f"{file}: {GBPS} = {short(value)}: must be {most}, a cycle; or raise clock_mhz")
    if exact < Fraction(1, _LARGEST_Q):
        least = f"at least {float(clock / 1000 / _LARGEST_Q):.6g}: a byte in the most cycles of hbm.q, {_LARGEST_Q}"
        raise ConfigError(f"{file}: {GBPS} = {short(value)}: must be {least}; or lower clock_mhz")
    return exact.limit_denominator(min(_LARGEST_Q, _LARGEST_P // exact))


_TYPES = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}


def limits(d: Declared) -> str:
    """The type, range and unit that a field must have, for messages."""
    span = f" from {_figure(d.lo)} to {_figure(d.hi)}" if d.lo is not None and d.hi is not None else ""
    power = ", a power of two" if d.doc.power else ""
    multiple = f", a multiple of {d.doc.multiple}" if d.doc.multiple > 1 else ""
    unit = f" ({d.doc.unit})" if d.doc.unit else ""
    return f"{_TYPES[d.type]}{span}{power}{multiple}{unit}"


def short(value: object) -> str:
    """A value for a message."""
    try:
        return cut(repr(value))
    except ValueError:  # Python prints no integer of over 4300 digits
        return "an integer of thousands of digits"


def cut(text: str) -> str:
    """A text for a message."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def _figure(x: float) -> str:
    return str(int(x)) if x == int(x) else str(x)


def _validated(values: Mapping[str, Any], beside: Mapping[str, Any], file: str) -> Chip:
    """The chip with these values, each of its type and within its limits."""
    nested: dict[str, Any] = dict(beside)
    for name, d in FIELDS.items():
        if name not in values:
            continue
        value = values[name]
        _require_good(name, value, file)
        group, _, leaf = name.rpartition(".")
        (nested.setdefault(group, {}) if group else nested)[leaf] = d.type(value)
    return Chip(**{n: GROUPS[n](**v) if n in GROUPS else v for n, v in nested.items()})


def _require_good(name: str, value: Any, file: str) -> None:
    d = FIELDS[name]
    if not _is_good(value, d):
        raise ConfigError(f"{file}: {name} = {short(value)}: must be {limits(d)}")


def _is_good(value: Any, d: Declared) -> bool:
    if isinstance(value, bool) or d.type is bool:
        return isinstance(value, bool) and d.type is bool
    if d.type is str or not isinstance(value, int | float if d.type is float else int):
        return d.type is str and isinstance(value, str)
    if d.lo is None or d.hi is None or not d.lo <= value <= d.hi:
        return False
    return d.type is float or not ((d.doc.power and value & (value - 1)) or value % d.doc.multiple)
