"""Lint the RTL: Verilator with every warning on, each module elaborated as the top.

    python -m systolith.hw.lint           # from anywhere in the project; 0 when all is well

A module `name` is in a file `name.sv`, a package in `name_pkg.sv`.  Waivers are in `*.vlt` files, each with its reason.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from systolith.hw.packages import packages
from systolith.hw.toolchain import environment

HW = Path(__file__).resolve().parent


def find(suffix: str) -> list[Path]:
    """The RTL's files."""
    return [path for path in sorted(HW.rglob(f"*{suffix}")) if "sim_build" not in path.parts]


def complaints(top: Path, before: list[Path], folders: list[Path]) -> str:
    """Verilator's warnings on the module in file `top`; empty if there are none."""
    command = ["verilator", "--lint-only", "-Wall", "--timing", "--top-module", top.stem]
    command += [f"-I{folder}" for folder in folders] + [str(path) for path in (*before, top)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment())
    return done.stdout + done.stderr if done.returncode else ""


def main() -> int:
    """Lint every module and print the complaints."""
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
