"""Builds `vpu_tb` with vpu_main.cpp for a chip; built only if its sources have changed."""

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
from systolith.hw.tb.native import MAKE
from systolith.hw.toolchain import WORKAROUNDS, environment
from systolith.isa.chip import Chip

TOP = "vpu_tb"
VERILATE = [
    "--cc",
    "--exe",
    "--build",
    "--assert",
    "-O3",
    *WORKAROUNDS,
    "--relative-includes",
    "--output-split",
    "20000",
]


def parameters(chip: Chip) -> dict[str, int]:
    """The parameters of `vpu_tb` for a chip."""
    v = chip.vpu
    return {
        "Lanes": v.lanes,
        "Sublanes": v.sublanes,
        "AluSlots": v.alu_slots,
        "LoadSlots": v.load_slots,
        "StoreSlots": v.store_slots,
        "TransSlots": v.trans_slots,
        "AluLatency": v.alu_latency,
        "LoadLatency": v.load_latency,
        "TransLatency": v.trans_latency,
        "Bytes": chip.vmem.bytes,
        "Accumulators": chip.mxu.count,
    }


def _files(sources: Path) -> list[Path]:
    """Waivers of planted errors, the packages that the unit uses, its modules, top and C++."""
    known = {p.stem: p for part in ("gen", "rtl") for p in (sources / part).glob("*_pkg.sv")}
    modules = [p for p in sorted((sources / "rtl").glob("vpu*.sv")) if p.stem not in known]
    top = sources / "tb" / f"{TOP}.sv"
    todo, used = [top, *modules], dict[str, Path]()
    while todo:
        names = set(re.findall(r"\b(\w+_pkg)::", todo.pop().read_text())) & known.keys() - used.keys()
        used |= {name: known[name] for name in names}
        todo += [known[name] for name in names]
    waivers = sorted((sources / "rtl").glob("mutants.vlt"))
    return [*waivers, *packages(list(used.values())), *modules, top, sources / "tb" / "vpu_main.cpp"]


def executable(chip: Chip, sources: Path = HW, suffix: str = "") -> Path:
    """The simulation of a chip's vector unit.

    Raises:
        subprocess.CalledProcessError: Verilator or the C++ compiler failed; the log is in the folder.
    """
    arguments = [f"-G{name}={value}" for name, value in parameters(chip).items()]
    folder = CACHE / f"{TOP}-{chip.name}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    needed = _files(sources)
    included = sorted((sources / "rtl").glob("*.svh"))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in [*needed, *included]))
    key.update(" ".join([*VERILATE, *arguments, MAKE]).encode())
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "built"
        if not stamp.exists() or stamp.read_text() != key.hexdigest():
            shutil.rmtree(folder)
            folder.mkdir()
            command = ["verilator", *VERILATE, "--Mdir", str(folder), "-MAKEFLAGS", MAKE, "--top-module", TOP]
            with (folder / "build.log").open("w") as log:
                command += [*arguments, *map(str, needed)]
                subprocess.run(command, check=True, stdout=log, stderr=log, env=os.environ | environment())
            stamp.write_text(key.hexdigest())
    return folder / f"V{TOP}"
