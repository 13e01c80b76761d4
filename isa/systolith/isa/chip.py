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
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from systolith.isa.chip_schema import SCHEMA, Chip, Declared, Provenance, Row, describe, value_of
from systolith.isa.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "PRESETS", "PROVENANCE", "SCHEMA", "Chip", "Provenance", "Row", "describe", "load_chip", "parse_chip",
    "preset_names", "value_of",
]  # fmt: skip

PRESETS = Path(__file__).parent / "chips"
PROVENANCE = ("published", "inferred", "invented")


def preset_names() -> list[str]:
    """Names of the chips that come with the package."""
    return sorted(p.stem for p in PRESETS.glob("*.toml"))


def load_chip(name_or_path: str | Path) -> Chip:
    """The preset of that name, or the chip in that TOML file.

    Raises:
        ConfigError: no such chip, or the file is wrong.
    """
    text = str(name_or_path)
    if re.fullmatch(r"\w+", text):
        path = PRESETS / f"{text}.toml"
        if not path.exists():
            known = ", ".join(preset_names())
            raise ConfigError(f"chip {text!r}: no such preset; there are {known}, or give a .toml file")
        return _load_preset(path)
    return parse_chip(_read(Path(text)), str(text))


@lru_cache(maxsize=16)
def _load_preset(path: Path) -> Chip:
    return parse_chip(_read(path), path.name)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "not UTF-8 text"
        raise ConfigError(f"chip file {path}: {reason}") from None


def parse_chip(text: str, file: str) -> Chip:
    """The chip that a TOML text declares; `file` is only for messages.

    Raises:
        ConfigError: naming file, field, value and limit.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{file}: {e}") from None
    values: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    for name, entry in _flatten(raw, file):
        values[name], provenance[name] = _entry(entry, name, file)
    for name in values:
        if name not in SCHEMA:
            raise ConfigError(f"{file}: {name} = {values[name]!r}: unknown field")
    for name, d in SCHEMA.items():
        if name not in values:
            raise ConfigError(f"{file}: {name}: missing; needed: {_limits(d)}")
    chip = _validate(values, provenance, file)
    _check_possible(chip, file)
    return chip


def _flatten(raw: dict[str, Any], file: str) -> Iterator[tuple[str, Any]]:
    groups = {name.split(".")[0] for name in SCHEMA if "." in name}
    for key, entry in raw.items():
        if key not in groups:
            yield key, entry
        elif isinstance(entry, dict):
            for sub, value in entry.items():
                yield f"{key}.{sub}", value
        else:
            raise ConfigError(f"{file}: {key} = {entry!r}: must be a table")


def _entry(entry: Any, name: str, file: str) -> tuple[Any, Provenance]:
    if not isinstance(entry, dict):
        return entry, Provenance("invented", "")
    for key in entry:
        if key not in ("value", "provenance", "source"):
            raise ConfigError(f"{file}: {name}.{key} = {entry[key]!r}: unknown; an entry has value, provenance, source")
    if "value" not in entry:
        raise ConfigError(f"{file}: {name}: has no value")
    label = entry.get("provenance", "invented")
    if label not in PROVENANCE:
        raise ConfigError(f"{file}: {name}.provenance = {label!r}: must be one of {', '.join(PROVENANCE)}")
    return entry["value"], Provenance(label, str(entry.get("source", "")))


_TYPES = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}


def _limits(d: Declared) -> str:
    span = f" from {_figure(d.lo)} to {_figure(d.hi)}" if d.lo is not None and d.hi is not None else ""
    power = ", a power of two" if d.doc.power else ""
    unit = f" ({d.doc.unit})" if d.doc.unit else ""
    return f"{_TYPES[d.type]}{span}{power}{unit}"


def _figure(x: float) -> str:
    return str(int(x)) if x == int(x) else str(x)


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Chip]:
    # pydantic takes a tenth of a second to import, and most commands that import this module load no chip.
    from pydantic import TypeAdapter

    return TypeAdapter(Chip)


def _validate(values: dict[str, Any], provenance: dict[str, Provenance], file: str) -> Chip:
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
                raise ConfigError(f"{file}: {name} = {value!r}: must be {_limits(SCHEMA[name])}")
        chip = _adapter().validate_python(nested)
    except ValidationError as e:
        first = e.errors()[0]
        name = ".".join(str(p) for p in first["loc"])
        raise ConfigError(f"{file}: {name} = {values.get(name)!r}: must be {_limits(SCHEMA[name])}") from None
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
