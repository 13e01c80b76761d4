"""Energies of a chip from a table of another tool: picojoules of an action of a component.

CSV has the columns `component`, `action` and `energy` (pJ):

    component,action,energy
    mxu,mac_bf16,0.59
    chip,leakage,45000

YAML is an energy reference table as Accelergy writes it: `ERT: {tables: [{name: system.mxu, actions: [{name: mac_bf16,
energy: 0.59}]}]}`; only the last part of a component's name counts. Component and action, joined by `_`, are a field of
the table `energy` of a chip; `idle_cycle` and `leakage` (mW) have the component `chip`. A table that leaves out fields
takes these from the chip, if it has them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from systolith.isa.chip import Chip, Provenance, changed
from systolith.isa.chip_energy import ENERGY
from systolith.isa.chip_entries import Entry, cut, short
from systolith.isa.errors import ConfigError
from systolith.isa.files import read_text

_COLUMNS = ("component", "action", "energy")
_CHIP = "chip"


def with_energy(chip: Chip, path: Path) -> Chip:
    """A chip with the energies of a file.

    Raises:
        ConfigError: the file cannot be read, or names what the chip does not have; says where.
    """
    text = read_text(path, ConfigError)
    rows = _yaml(text, path) if path.suffix in (".yaml", ".yml") else _csv(text, path)
    entries: dict[str, Entry] = {}
    for where, component, action, energy in rows:
        name = _field(component, action, where)
        unit = "mW" if name == "energy.leakage" else "pJ"
        try:
            value = f"{float(energy):.15f} {unit}"
        except (ValueError, TypeError):
            raise ConfigError(f"{where}: energy {short(energy)}: must be a number ({unit})") from None
        entries[name] = Entry(value, Provenance("inferred", str(path)))
    if not entries:
        raise ConfigError(f"{path}: holds no energies")
    return changed(chip, entries, str(path))


def _field(component: str, action: str, where: str) -> str:
    leaf = component.rpartition(".")[2].partition("[")[0]
    name = f"energy.{action}" if leaf == _CHIP else f"energy.{leaf}_{action}"
    if name in ENERGY:
        return name
    known = [n.removeprefix("energy.") for n in ENERGY]
    near = get_close_matches(f"{leaf}_{action}", known, 1, 0.4) or known[:1]
    raise ConfigError(f"{where}: {cut(component)}, {cut(action)}: no such event; the nearest is {near[0]}")


def _csv(text: str, path: Path) -> Iterator[tuple[str, str, str, Any]]:
    reader = csv.DictReader(io.StringIO(text))
    if not set(_COLUMNS) <= set(reader.fieldnames or ()):
        raise ConfigError(f"{path}: must have the columns {', '.join(_COLUMNS)}")
    for row in reader:
        component, action, energy = (row[name] or "" for name in _COLUMNS)
        yield f"{path}: line {reader.line_num}", component.strip(), action.strip(), energy


def _yaml(text: str, path: Path) -> Iterator[tuple[str, str, str, Any]]:
    try:
        import yaml
    except ImportError:
        raise ConfigError(f"{path}: YAML needs PyYAML: pip install 'systolith[accelergy]'") from None
    try:
        tables = yaml.safe_load(text)["ERT"]["tables"]
        for table in tables:
            for action in table["actions"]:
                yield f"{path}: {table['name']}", str(table["name"]), str(action["name"]), action["energy"]
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    except (KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path}: must be ERT: tables: each with name and actions, of name and energy") from None
