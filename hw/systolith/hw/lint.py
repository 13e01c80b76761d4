"""Lint the RTL: Verilator with every warning on, modules that no other instantiates elaborated as tops, with all below.

    python -m systolith.hw.lint           # from anywhere in the project; 0 when all is well

A module `name` is in a file `name.sv`, a package in `name_pkg.sv`.  Waivers are in `*.vlt` files, each with its reason.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from systolith.hw.packages import packages
from systolith.hw.toolchain import environment

HW = Path(__file__).resolve().parent
INSTANCE = re.compile(r"^ *(\w+) +(?:#\(|u_\w+ *\()", re.M)
"""How an instance begins: the module's name, then parameters or the instance's name."""


def find(suffix: str) -> list[Path]:
    """The RTL's files."""
    return [path for path in sorted(HW.rglob(f"*{suffix}")) if "sim_build" not in path.parts]


def tops(modules: list[Path]) -> list[Path]:
    """The modules that no other one instantiates."""
    inside = {name for path in modules for name in INSTANCE.findall(path.read_text()) if name != path.stem}
    return [path for path in modules if path.stem not in inside]


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
    modules = [path for path in sources if path not in first]
    before, folders = [*find(".vlt"), *first], sorted({path.parent for path in sources})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda top: complaints(top, before, folders), tops(modules)))
    sys.stderr.write("".join(found))
    bad = sum(map(bool, found))
    print(f"Verilator: {len(modules)} modules below {len(found)} tops, {bad} of these with complaints")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
