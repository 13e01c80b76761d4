"""The chip: one configuration that the compiler, the simulator and the RTL's parameters are read from.

A chip is a TOML file with a table for each group of fields (`chip_schema.py`); an entry is a value, or an inline table
that says where the value is from:

    [mxu]
    rows = { value = 128, provenance = "published", source = "jax _src/tpu_info.py" }

Provenance is `published`, `inferred` or `invented`; a bare value is `invented`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from systolith.isa.checked import checked
from systolith.isa.chip_schema import SCHEMA, Chip, Declared, Provenance, Row, describe, value_of
from systolith.isa.errors import ConfigError
from systolith.isa.files import read_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "PRESETS", "PROVENANCE", "SCHEMA", "Chip", "Provenance", "Row", "chip_differences", "chip_file", "chip_of",
    "describe", "load_chip", "parse_chip", "preset_names", "value_of",
]  # fmt: skip

PRESETS = Path(__file__).parent / "chips"
_PRESET = re.compile(r"\w+")
PROVENANCE = ("published", "inferred", "invented")


def preset_names() -> list[str]:
    """Names of the chips that come with the package."""
    return sorted(p.stem for p in PRESETS.glob("*.toml"))


@checked
def load_chip(name_or_path: str | Path) -> Chip:
    """The preset of that name, or the chip in that TOML file.

    Raises:
        ConfigError: no such chip, or the file is wrong.
    """
    text = str(name_or_path)
    if _PRESET.fullmatch(text):
        known = preset_names()
        if text not in known:
            raise ConfigError(
                f"chip {_short(text)}: no such preset; there are {', '.join(known)}, or give a .toml file"
            )
        return _load_preset(PRESETS / f"{text}.toml")
    return parse_chip(read_text(text, ConfigError), text)


@lru_cache(maxsize=16)
def _load_preset(path: Path) -> Chip:
    return parse_chip(read_text(path, ConfigError), path.name)


def chip_file(name_or_path: str | Path) -> Path | None:
    """The file that `load_chip` reads; None for a preset."""
    return None if _PRESET.fullmatch(str(name_or_path)) else Path(name_or_path)


def parse_chip(text: str, file: str) -> Chip:
    """The chip that a TOML text declares; `file` is only for messages.

    Raises:
        ConfigError: naming file, field, value and limit.
    """
    try:
        raw = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{file}: not TOML that can be read: it nests too deep") from None
    except ValueError as e:
        raise ConfigError(f"{file}: {e}") from None
    values: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    for name, entry in _flatten(raw, file):
        values[name], provenance[name] = _entry(entry, name, file)
    return chip_of(values, file, provenance)


def chip_of(values: Mapping[str, Any], file: str, provenance: Mapping[str, Provenance] | None = None) -> Chip:
    """The chip with these values of its fields, by their dotted names; `file` is only for messages.

    Raises:
        ConfigError: naming file, field, value and limit.
    """
    for name in values:
        if name not in SCHEMA:
            raise ConfigError(f"{file}: {_cut(name)} = {_short(values[name])}: unknown field")
    for name, d in SCHEMA.items():
        if name not in values:
            raise ConfigError(f"{file}: {name}: missing; needed: {_limits(d)}")
    chip = _validate(values, provenance or {}, file)
    _check_possible(chip, file)
    return chip


def chip_differences(chip: Chip, other: Chip) -> list[str]:
    """A text for each field, but the name, in which two chips differ; those that programs rely on come first."""
    names = sorted(SCHEMA, key=lambda name: not name.startswith(("vmem.", "mxu.")))
    pairs = ((name, value_of(chip, name), value_of(other, name)) for name in names if name != "name")
    return [f"{name} {a} and not {b}" for name, a, b in pairs if a != b]


def _flatten(raw: dict[str, Any], file: str) -> Iterator[tuple[str, Any]]:
    groups = {name.split(".")[0] for name in SCHEMA if "." in name}
    for key, entry in raw.items():
        if key not in groups:
            yield key, entry
        elif isinstance(entry, dict):
            for sub, value in entry.items():
                yield f"{key}.{sub}", value
        else:
            raise ConfigError(f"{file}: {key} = {_short(entry)}: must be a table")


def _entry(entry: Any, name: str, file: str) -> tuple[Any, Provenance]:
    if not isinstance(entry, dict):
        return entry, Provenance("invented", "")
    for key in entry:
        if key not in ("value", "provenance", "source"):
            raise ConfigError(f"{file}: {_cut(name)}.{_cut(key)}: unknown; an entry has value, provenance, source")
    if "value" not in entry:
        raise ConfigError(f"{file}: {_cut(name)}: has no value")
    label = entry.get("provenance", "invented")
    if label not in PROVENANCE:
        raise ConfigError(f"{file}: {_cut(name)}.provenance = {_short(label)}: must be one of {', '.join(PROVENANCE)}")
    source = entry.get("source", "")
    if not isinstance(source, str):
        raise ConfigError(f"{file}: {name}.source = {_short(source)}: must be a text")
    return entry["value"], Provenance(label, source)


_TYPES = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}


def _limits(d: Declared) -> str:
    span = f" from {_figure(d.lo)} to {_figure(d.hi)}" if d.lo is not None and d.hi is not None else ""
    power = ", a power of two" if d.doc.power else ""
    unit = f" ({d.doc.unit})" if d.doc.unit else ""
    return f"{_TYPES[d.type]}{span}{power}{unit}"


def _short(value: object) -> str:
    """A value for a message."""
    try:
        return _cut(repr(value))
    except ValueError:  # Python prints no integer of over 4300 digits
        return "an integer of thousands of digits"


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _figure(x: float) -> str:
    return str(int(x)) if x == int(x) else str(x)


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Chip]:
    # pydantic takes a tenth of a second to import, and most commands that import this module load no chip.
    from pydantic import TypeAdapter

    return TypeAdapter(Chip)


def _validate(values: Mapping[str, Any], provenance: Mapping[str, Provenance], file: str) -> Chip:
    from pydantic import ValidationError

    nested: dict[str, Any] = {"provenance": provenance}
    for name, value in values.items():
        group, _, leaf = name.rpartition(".")
        (nested.setdefault(group, {}) if group else nested)[leaf] = value
    try:
        for name, value in values.items():
            if isinstance(value, bool) != (SCHEMA[name].type is bool) or (
                SCHEMA[name].type is int and not isinstance(value, int)
            ):
                raise ConfigError(f"{file}: {name} = {_short(value)}: must be {_limits(SCHEMA[name])}")
        chip = _adapter().validate_python(nested)
    except ValidationError as e:
        first = e.errors()[0]
        name = ".".join(str(p) for p in first["loc"])
        raise ConfigError(f"{file}: {name} = {_short(values.get(name))}: must be {_limits(SCHEMA[name])}") from None
    for name, d in SCHEMA.items():
        if d.doc.power and values[name] & (values[name] - 1):
            raise ConfigError(f"{file}: {name} = {values[name]}: must be {_limits(d)}")
    return chip


def _check_possible(chip: Chip, file: str) -> None:
    m, v, h = chip.mxu, chip.vpu, chip.hbm
    vector = v.lanes * v.sublanes * 4
    tile = m.rows * m.cols * 4 + m.rows * m.rows * 4 + 3 * vector
    rules = (
        ("vmem.bytes", chip.vmem.bytes >= tile, f"at least {tile}: one f32 weight tile, `rows` rows, three vectors"),
        ("hbm.granule", h.granule <= h.chunk, f"at most hbm.chunk = {h.chunk}"),
        ("hbm.p", h.p <= h.q * h.chunk, f"at most hbm.q * hbm.chunk = {h.q * h.chunk}: one chunk is granted a cycle"),
        ("vmem.bytes", h.bytes >= chip.vmem.bytes, f"at most hbm.bytes = {h.bytes}"),
        ("hbm.chunk", h.chunk <= chip.vmem.bytes, f"at most vmem.bytes = {chip.vmem.bytes}"),
    )
    for name, good, limit in rules:
        if not good:
            raise ConfigError(f"{file}: {name} = {value_of(chip, name)}: must be {limit}")
