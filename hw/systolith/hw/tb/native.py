"""Combinational tops at native speed: programs that put operands from stdin through a top, built if sources changed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from systolith.hw.packages import packages
from systolith.hw.tb.build import CACHE, HW
from systolith.hw.toolchain import WORKAROUNDS, environment

# Verilator's makefile leaves out how gcc is told of the precompiled header.
MAKE = "OPT_FAST=-O2 CFG_CXXFLAGS_PCH_I=-include"


def files(name: str, sources: Path = HW) -> list[Path]:
    """The packages that top `<name>_tb` needs, each after those that it uses; the top, and its C++ `<name>_main`."""
    known = {p.stem: p for part in ("gen", "rtl") for p in (sources / part).glob("*_pkg.sv")}
    top = sources / "tb" / f"{name}_tb.sv"
    todo = [top]
    used: dict[str, Path] = {}
    while todo:
        names = set(re.findall(r"\b(\w+_pkg)::", todo.pop().read_text())) & known.keys() - used.keys()
        used |= {each: known[each] for each in names}
        todo += [known[each] for each in names]
    return [*packages(list(used.values())), top, sources / "tb" / f"{name}_main.cpp"]


def build(name: str, sources: Path = HW, suffix: str = "") -> Path:
    """The executable; built only if the sources (a folder with changed copies of them, say) have changed.

    Raises:
        subprocess.CalledProcessError: Verilator or the C++ compiler failed; the log is in the folder.
    """
    top = f"{name}_tb"
    folder = CACHE / f"{top}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    needed = files(name, sources)
    included = sorted((sources / "rtl").glob("*.svh"))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in [*needed, *included])).hexdigest()
    with (CACHE / f"{top}{suffix}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "built"
        if not stamp.exists() or stamp.read_text() != key:
            shutil.rmtree(folder)
            folder.mkdir()
            command = [
                "verilator",
                "--cc",
                "--exe",
                "--build",
                "-O3",
                *WORKAROUNDS,
                "--relative-includes",
                "--Mdir",
                str(folder),
            ]
            command += ["-MAKEFLAGS", MAKE, "--top-module", top, *map(str, needed)]
            with (folder / "build.log").open("w") as log:
                subprocess.run(command, check=True, stdout=log, stderr=log, env=os.environ | environment())
            stamp.write_text(key)
    return folder / f"V{top}"
