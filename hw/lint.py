"""Lint the RTL: Verilator with every warning on, each module elaborated as the top.

    python -m hw.lint           # from anywhere in the project; 0 when all is well

A module `name` is in a file `name.sv`, a package in `name_pkg.sv`.  Waivers are in `*.vlt` files, each with its reason.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from graphlib import TopologicalSorter
from pathlib import Path

from hw.toolchain import environment

ROOT = Path(__file__).resolve().parent.parent


def find(suffix: str) -> list[Path]:
    """The files under hw/ that are ours, relative to the root."""
    found = sorted((ROOT / "hw").rglob(f"*{suffix}"))
    return [path.relative_to(ROOT) for path in found if "sim_build" not in path.parts]


def packages(sources: list[Path]) -> list[Path]:
    """The package files, each after those that it uses, in one order always: builds are known by their sources."""
    files = {path.stem: path for path in sources if path.stem.endswith("_pkg")}
    order: TopologicalSorter[str] = TopologicalSorter()
    for name, path in sorted(files.items()):
        used = set(re.findall(r"\b(\w+_pkg)::", (ROOT / path).read_text())) - {name}
        order.add(name, *sorted(used & files.keys()))
    return [files[name] for name in order.static_order()]


def complaints(top: Path, before: list[Path], folders: list[Path]) -> str:
    """What Verilator has against the module in file `top`; empty when nothing."""
    command = ["verilator", "--lint-only", "-Wall", "--timing", "--top-module", top.stem]
    command += [f"-I{folder}" for folder in folders] + [str(path) for path in (*before, top)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment())
    return done.stdout + done.stderr if done.returncode else ""


def main() -> int:
    """Lint every module under hw/ and print the complaints."""
    sources = find(".sv")
    first = packages(sources)
    tops = [path for path in sources if path not in first]
    before, folders = [*find(".vlt"), *first], sorted({path.parent for path in sources})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda top: complaints(top, before, folders), tops))
    sys.stderr.write("".join(found))
    bad = sum(map(bool, found))
    print(f"Verilator: {len(tops)} modules, {bad} with complaints")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
