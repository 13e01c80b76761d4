"""Tops at native speed: programs of C++ that play stimuli from stdin through a top, built if their sources changed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from systolith.hw.packages import packages
from systolith.hw.tb.build import CACHE, HW, copy_objects, runtime
from systolith.hw.toolchain import WORKAROUNDS, environment

VERILATE = ["--cc", "--exe", "--build", "--assert", "-O3", *WORKAROUNDS, "--relative-includes"]
VERILATE += ["--output-split", "20000"]
# A build at -O2 takes three times as long, and the runs are short.  Verilator's makefile leaves out how gcc is told of
# the precompiled header.
MAKE = "OPT_FAST=-O1 OPT_GLOBAL=-O0 CFG_CXXFLAGS_PCH_I=-include"


def files(name: str, sources: Path = HW, modules: str = "") -> list[Path]:
    """Waivers of planted errors, the packages that top `<name>_tb` needs, each after those that it uses; the modules
    whose files match a pattern; the top, and its C++ `<name>_main`.
    """
    known = {p.stem: p for part in ("gen", "rtl") for p in (sources / part).glob("*_pkg.sv")}
    units = [p for p in sorted((sources / "rtl").glob(modules)) if p.stem not in known] if modules else []
    top = sources / "tb" / f"{name}_tb.sv"
    todo, used = [top, *units], dict[str, Path]()
    while todo:
        names = set(re.findall(r"\b(\w+_pkg)::", todo.pop().read_text())) & known.keys() - used.keys()
        used |= {each: known[each] for each in names}
        todo += [known[each] for each in names]
    waivers = sorted((sources / "rtl").glob("mutants.vlt")) if modules else []
    return [*waivers, *packages(list(used.values())), *units, top, sources / "tb" / f"{name}_main.cpp"]


def build(
    name: str, sources: Path = HW, suffix: str = "", modules: str = "", parameters: Mapping[str, int] | None = None
) -> Path:
    """The executable; built only if the sources (a folder with changed copies of them, say) have changed.

    Args:
        name: the top is `<name>_tb`.
        sources: the folder of the sources.
        suffix: of the folder's name under build/hw.
        modules: files below `rtl` that the top instantiates, as a pattern.
        parameters: of the top.

    Raises:
        subprocess.CalledProcessError: Verilator or the C++ compiler failed; the log is in the folder.
    """
    top = f"{name}_tb"
    folder = CACHE / f"{top}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    needed = files(name, sources, modules)
    arguments = [*VERILATE, *(f"-G{each}={value}" for each, value in (parameters or {}).items())]
    included = sorted((sources / "rtl").glob("*.svh"))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in [*needed, *included]))
    key.update(" ".join([*arguments, MAKE]).encode())
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "built"
        if not stamp.exists() or stamp.read_text() != key.hexdigest():
            shutil.rmtree(folder)
            folder.mkdir()
            compiled = runtime([*VERILATE, MAKE])
            copy_objects(compiled, folder)
            command = ["verilator", *arguments, "--Mdir", str(folder), "-MAKEFLAGS", MAKE, "--top-module", top]
            with (folder / "build.log").open("w") as log:
                command += map(str, needed)
                subprocess.run(command, check=True, stdout=log, stderr=log, env=os.environ | environment())
            copy_objects(folder, compiled)
            stamp.write_text(key.hexdigest())
    return folder / f"V{top}"
