"""The transcendental micro-operations in RTL against the model, bit for bit, at native speed.

python -m hw.tb.trans_bench [operands of each function, in millions]
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from hw.lint import packages
from hw.tb.build import CACHE, HW
from hw.tb.data import Words
from hw.tb.trans_operands import corners, operands
from hw.toolchain import WORKAROUNDS, environment
from systolith.isa.microops import MICROOPS
from systolith.isa.numerics.alu import MICROOP_FUNCTIONS
from systolith.isa.numerics.transcendental import FUNCTIONS

TOP = "trans_tb"
BATCH = 1 << 20  # operands at a time


def _files(sources: Path) -> list[Path]:
    """The top and the packages under it, each after those that it uses."""
    known = {p.stem: p for part in ("gen", "rtl") for p in (sources / part).glob("*_pkg.sv")}
    todo = [sources / "tb" / f"{TOP}.sv"]
    used: dict[str, Path] = {}
    while todo:
        names = set(re.findall(r"\b(\w+_pkg)::", todo.pop().read_text())) & known.keys() - used.keys()
        used |= {name: known[name] for name in names}
        todo += [known[name] for name in names]
    return [*packages(list(used.values())), sources / "tb" / f"{TOP}.sv", sources / "tb" / "trans_main.cpp"]


def build(sources: Path = HW, suffix: str = "") -> Path:
    """The simulation as an executable; built only if its sources, or the changed copies of them, have changed.

    Raises:
        subprocess.CalledProcessError: Verilator or the C++ compiler failed; the log is in the folder.
    """
    folder = CACHE / f"{TOP}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    files = _files(sources)
    included = sorted((sources / "rtl").glob("*.svh"))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in [*files, *included])).hexdigest()
    with (CACHE / f"{TOP}{suffix}.lock").open("w") as lock:
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
            command += ["-MAKEFLAGS", "OPT_FAST=-O2", "--top-module", TOP, *map(str, files)]
            with (folder / "build.log").open("w") as log:
                subprocess.run(command, check=True, stdout=log, stderr=log, env=os.environ | environment())
            stamp.write_text(key)
    return folder / f"V{TOP}"


def run(executable: Path, name: str, a: Words, b: Words) -> Words:
    """What the RTL makes of the operands of function `name`."""
    command = [str(executable), str(MICROOPS[f"{name}.f32"].code)]
    pairs = np.stack([a, b], axis=1).tobytes()
    return np.frombuffer(subprocess.run(command, input=pairs, stdout=subprocess.PIPE, check=True).stdout, np.uint32)


def model(name: str, a: Words, b: Words) -> Words:
    """The same from the model."""
    arguments = (a, b)[: MICROOPS[f"{name}.f32"].sources]
    return MICROOP_FUNCTIONS[f"{name}.f32"](*arguments)


def check(executable: Path, name: str, a: Words, b: Words) -> None:
    """Compare the RTL with the model.

    Raises:
        AssertionError: they differ; the message has the first operands for which they do.
    """
    got, want = run(executable, name, a, b), model(name, a, b)
    assert len(got) == len(want), f"{name}: {len(got)} results of {len(want)}"
    bad = np.flatnonzero(got != want)
    if len(bad):
        i = bad[0]
        found = f"RTL {got[i]:#010x}, model {want[i]:#010x}"
        raise AssertionError(f"{name}: {len(bad)} of {len(got)} differ; {a[i]:#010x}, {b[i]:#010x}: {found}")


def main(argv: list[str]) -> int:
    """Check every function, and print the processor time that one result takes."""
    batches = int(argv[0]) if argv else 1
    executable = build()
    for name in FUNCTIONS:
        check(executable, name, *corners())
        for seed in range(batches):
            check(executable, name, *operands(name, seed, BATCH))
        before = os.times().children_user
        run(executable, name, *operands(name, 0, BATCH))
        taken = (os.times().children_user - before) / BATCH
        print(f"{name:9} {batches * BATCH:>11,} operands equal  {taken * 1e9:4.0f} ns each", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
