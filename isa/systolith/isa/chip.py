"""The chip: one configuration that the compiler, the simulator and the RTL's parameters are read from.

A chip is a TOML file with a table for each group of fields (`chip_schema.py`); an entry is a value, or an inline table
that says where the value is from:

    [mxu]
    rows = { value = 128, provenance = "published", source = "jax _src/tpu_info.py" }

Provenance is `published`, `inferred`, `invented` or `derived` (it follows from other fields); a bare value is
`invented`. Values may have units: `"8 MiB"`, `"1.05 GHz"`, times such as `"400 ns"` for cycles; `hbm.gbps` stands for
`hbm.p` and `hbm.q`.

A file with `base`, the name of a preset or the path of another file (relative to its own), declares only what differs.
Without a name it is called after its file. Some fields may be left out in any file: they follow from others.

The tables `energy` and `area` (`chip_energy.py`) change no time, and no digest covers them. The table `absent` of a
published chip lists the parts that the machine lacks or has otherwise, each with a text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from systolith.isa.checked import checked
from systolith.isa.chip_energy import growth
from systolith.isa.chip_entries import Entry, cut, entries_of, merged, resolve, scalar, short, to_toml
from systolith.isa.chip_schema import FIELDS, SCHEMA, Chip, Provenance, Row, describe, value_of
from systolith.isa.chip_units import plain
from systolith.isa.errors import ConfigError
from systolith.isa.files import read_text

__all__ = [
    "PRESETS", "PROVENANCE", "SCHEMA", "Chip", "Provenance", "Row", "changed", "changes_of", "chip_differences",
    "chip_file", "chip_of", "describe", "load_chip", "parse_chip", "preset_names", "to_toml", "value_of", "variant",
]  # fmt: skip

PRESETS = Path(__file__).parent / "chips"
_PRESET = re.compile(r"\w+")
PROVENANCE = ("published", "inferred", "invented", "derived")
_VMEM_BYTE = "energy.vmem_byte"


def preset_names() -> list[str]:
    """Names of the chips that come with the package."""
    return sorted(p.stem for p in PRESETS.glob("*.toml"))


@checked
def load_chip(name_or_path: str | Path, changes: Mapping[str, Any] | None = None) -> Chip:
    """The preset of that name, or the chip in that TOML file; or a variant of it (`variant`).

    Raises:
        ConfigError: no such chip, or the file or a change is wrong.
    """
    chip = _load(str(name_or_path), ())
    return variant(chip, changes) if changes else chip


def _load(text: str, above: tuple[str, ...]) -> Chip:
    if _PRESET.fullmatch(text):
        known = preset_names()
        if text not in known:
            raise ConfigError(f"chip {short(text)}: no such preset; there are {', '.join(known)}, or give a .toml file")
        return _load_preset(PRESETS / f"{text}.toml")
    return parse_chip(read_text(text, ConfigError), text, above)


@lru_cache(maxsize=16)
def _load_preset(path: Path) -> Chip:
    return parse_chip(read_text(path, ConfigError), path.name)


def chip_file(name_or_path: str | Path) -> Path | None:
    """The file that `load_chip` reads; None for a preset."""
    return None if _PRESET.fullmatch(str(name_or_path)) else Path(name_or_path)


@checked
def variant(chip: Chip, changes: Mapping[str, Any]) -> Chip:
    """A chip with other values of some fields; fields that these no longer allow follow them (`chip_rules.DERIVED`).

    Args:
        chip: the chip to change.
        changes: values by dotted names, such as `vmem.bytes`; numbers, or texts as on the command line (`8MiB`).
            Without `name`, the changes are added to the name of the chip.

    Raises:
        ConfigError: naming the chip, the field, the value and the limit.
    """
    given: dict[str, Any] = {}
    for name, value in changes.items():
        if not isinstance(name, str):
            raise ConfigError(f"chip {cut(chip.name)}: {short(name)}: must be the name of a field")
        given[name] = scalar(name, value) if isinstance(value, str) else plain(value)
    said = " ".join(f"{name}={cut(str(value))}" for name, value in changes.items())
    entries = {n: Entry(v, Provenance("invented", f"in place of that of {chip.name}")) for n, v in given.items()}
    entries.setdefault("name", Entry(f"{chip.name} {said}".strip()))
    return changed(chip, entries, f"chip {cut(chip.name)}")


def changes_of(texts: tuple[str, ...] | list[str]) -> dict[str, str]:
    """The changes that `FIELD=VALUE` texts stand for; of several for a field, the last.

    Raises:
        ConfigError: one is no such text.
    """
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (sign and name.strip() and value.strip()):
            raise ConfigError(f"{short(text)}: must be FIELD=VALUE, such as vmem.bytes=8MiB")
        found[name.strip()] = value.strip()
    return found


def changed(base: Chip, entries: Mapping[str, Entry], file: str, absent: Mapping[str, str] | None = None) -> Chip:
    """A chip with these entries in place of its own; what followed from others follows from them again.

    Args:
        base: the chip.
        entries: by dotted names.
        file: only for messages.
        absent: parts that the machine lacks besides those of the base.

    Raises:
        ConfigError: naming file, field, value and limit.
    """
    kept = {n: e for n, e in entries_of(base).items() if e.provenance.label != "derived" or n == _VMEM_BYTE}
    chip = resolve(merged(kept, entries), frozenset(entries), file, {**base.absent, **(absent or {})})
    return chip if _VMEM_BYTE in entries else _with_vmem_energy(chip, base)


def _with_vmem_energy(chip: Chip, base: Chip) -> Chip:
    """The chip with the energy of a byte of VMEM that follows from that of its base and the size of both memories."""
    old, new = base.vmem.bytes, chip.vmem.bytes
    if chip.energy is None or base.energy is None or old == new:
        return chip
    power = growth(base.energy)
    value = round(base.energy.vmem_byte * (new / old) ** power)
    was = base.energy.vmem_byte
    why = f"estimate: follows from vmem.bytes = {new}: {was} in its base x ({new} / {old}) ^ {power:.3f}"
    provenance = {**chip.provenance, _VMEM_BYTE: Provenance("derived", why)}
    declared = {n: v for n, v in chip.declared.items() if n != _VMEM_BYTE}
    return replace(chip, energy=replace(chip.energy, vmem_byte=value), provenance=provenance, declared=declared)


def parse_chip(text: str, file: str, above: tuple[str, ...] = ()) -> Chip:
    """The chip that a TOML text declares.

    Args:
        text: the contents of a file.
        file: its path, for messages, and for the place of its base.
        above: files that have this one as their base.

    Raises:
        ConfigError: naming file, field, value and limit.
    """
    try:
        raw = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{file}: not TOML that can be read: it nests too deep") from None
    except ValueError as e:
        raise ConfigError(f"{file}: {e}") from None
    base, absent = raw.pop("base", None), _absent(raw.pop("absent", {}), file)
    _no_misspelt(raw, file)
    entries = {name: _entry(entry, name, file) for name, entry in _flatten(raw, file)}
    if base is None:
        return resolve(entries, frozenset(entries), file, absent)
    entries.setdefault("name", Entry(Path(file).stem))
    return changed(_base(base, file, above), entries, file, absent)


def _no_misspelt(raw: Mapping[str, Any], file: str) -> None:
    """Refuse keys that are to be `base` or `absent`: without a base, fields would be missing."""
    from difflib import get_close_matches

    for key in raw.keys() - {name.partition(".")[0] for name in FIELDS}:
        if near := get_close_matches(key, ("base", "absent"), 1, 0.7):
            raise ConfigError(f"{file}: {cut(key)} = {short(raw[key])}: unknown; did you mean {near[0]}?")


def _absent(raw: Any, file: str) -> dict[str, str]:
    """The parts of a published chip that a file says the machine lacks."""
    if not (isinstance(raw, dict) and all(isinstance(how, str) for how in raw.values())):
        raise ConfigError(f"{file}: absent: must be a table of texts: what the machine lacks, and how it goes without")
    return raw


def _base(base: Any, file: str, above: tuple[str, ...]) -> Chip:
    """The chip that a file names as its base."""
    if not isinstance(base, str):
        raise ConfigError(f"{file}: base = {short(base)}: must be the name of a preset or the path of a TOML file")
    here = (*above, str(Path(file).resolve()))
    path = base if _PRESET.fullmatch(base) else str(Path(file).parent / base)
    if str(Path(path).resolve()) in here:
        raise ConfigError(f"{file}: base = {short(base)}: is a chip that has this one as its base")
    try:
        return _load(path, here)
    except ConfigError as error:
        raise ConfigError(f"{file}: base: {error}") from None


def chip_of(values: Mapping[str, Any], file: str) -> Chip:
    """The chip with these values of its fields, by their dotted names; `file` is only for messages.

    Raises:
        ConfigError: naming file, field, value and limit.
    """
    entries = {name: Entry(value) for name, value in values.items()}
    return resolve(entries, frozenset(entries), file)


def chip_differences(chip: Chip, other: Chip) -> list[str]:
    """A text for each field, but the name, in which two chips differ; those that programs rely on come first."""
    names = sorted(SCHEMA, key=lambda name: not name.startswith(("vmem.", "mxu.")))
    pairs = ((name, value_of(chip, name), value_of(other, name)) for name in names if name != "name")
    return [f"{name} {a} and not {b}" for name, a, b in pairs if a != b]


def _flatten(raw: dict[str, Any], file: str) -> Iterator[tuple[str, Any]]:
    groups = {name.split(".")[0] for name in FIELDS if "." in name}
    for key, entry in raw.items():
        if key not in groups:
            yield key, entry
        elif isinstance(entry, dict):
            for sub, value in entry.items():
                yield f"{key}.{sub}", value
        else:
            raise ConfigError(f"{file}: {key} = {short(entry)}: must be a table")


def _entry(entry: Any, name: str, file: str) -> Entry:
    if not isinstance(entry, dict):
        return Entry(entry)
    for key in entry:
        if key not in ("value", "provenance", "source"):
            raise ConfigError(f"{file}: {cut(name)}.{cut(key)}: unknown; an entry has value, provenance, source")
    if "value" not in entry:
        raise ConfigError(f"{file}: {cut(name)}: has no value")
    label = entry.get("provenance", "invented")
    if label not in PROVENANCE:
        raise ConfigError(f"{file}: {cut(name)}.provenance = {short(label)}: must be one of {', '.join(PROVENANCE)}")
    source = entry.get("source", "")
    if not isinstance(source, str):
        raise ConfigError(f"{file}: {name}.source = {short(source)}: must be a text")
    return Entry(entry["value"], Provenance(label, source))
