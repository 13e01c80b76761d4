"""The order of the packages of the RTL: Verilator and Yosys read them as they are listed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path


def packages(sources: Iterable[Path]) -> list[Path]:
    """The package files, each after those that it uses, in one order always: builds are known by their sources.

    A module `name` is in a file `name.sv`, a package in `name_pkg.sv`.
    """
    files = {path.stem: path for path in sources if path.stem.endswith("_pkg")}
    order: TopologicalSorter[str] = TopologicalSorter()
    for name, path in sorted(files.items()):
        used = set(re.findall(r"\b(\w+_pkg)::", path.read_text())) - {name}
        order.add(name, *sorted(used & files.keys()))
    return [files[name] for name in order.static_order()]
