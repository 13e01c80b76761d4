"""Packages with entry points, put on a path as an installer would: a module, and a folder with their metadata."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from systolith.compiler.hlo.values import custom_calls
from systolith.compiler.lower.installed import register_installed
from systolith.compiler.ops.table import OPS, TARGETS
from systolith.compiler.plugins import installed

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "plugin"


def install(folder: Path, name: str, text: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    """Put module `NAME.py` with entry points, by group and name, into a folder."""
    (folder / f"{name}.py").write_text(text)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [line for group, points in entry_points.items() for line in (f"[{group}]", *_lines(points))]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def _lines(points: Mapping[str, str]) -> list[str]:
    return [f"{name} = {value}" for name, value in points.items()]


def install_example(folder: Path) -> None:
    """Put the example package into a folder."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(folder, "systolith_example", (EXAMPLE / "systolith_example.py").read_text(), project["entry-points"])


@contextmanager
def path_of(folder: Path) -> Iterator[None]:
    """Let this process find the packages of a folder, and forget them afterwards."""
    tables: list[dict[str, Any]] = [OPS, TARGETS, custom_calls.CUSTOM_CALLS]
    before = [dict(table) for table in tables]
    modules = set(sys.modules)
    sys.path.insert(0, str(folder))
    _forget()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
        for table, rows in zip(tables, before, strict=True):
            table.clear()
            table.update(rows)
        _forget()


def _forget() -> None:
    importlib.invalidate_caches()
    installed.cache_clear()
    register_installed.cache_clear()
