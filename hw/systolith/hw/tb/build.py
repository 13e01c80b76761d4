"""Builds a bench's top with Verilator, once for each (top, configuration) and state of the sources, and runs it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from systolith.hw.packages import packages
from systolith.hw.toolchain import WORKAROUNDS, environment
from systolith.isa.chip import Chip

HW = Path(__file__).resolve().parent.parent
CACHE = HW.parents[2] / "build" / "hw"  # of the checkout

# No expansion of wide operations and little optimisation: the C++ compiler takes most of the time of a short run.
VERILATE = [
    *("--assert", "--relative-includes", "--no-public-flat-rw", "-fno-expand", "--output-split", "20000"),
    "--no-timing",
    *WORKAROUNDS,
]
# Verilator's makefile leaves out how gcc is told of the precompiled header.
MAKE = "-j2 OPT_FAST=-O1 CFG_CXXFLAGS_PCH_I=-include"


@dataclass(frozen=True)
class Top:
    """A model to build.

    Attributes:
        module: the top.
        parameters: its parameters.
        name: of the folder under build/hw.
        sources: the sources, or a folder with changed copies of them.
    """

    module: str
    parameters: tuple[tuple[str, int], ...]
    name: str
    sources: Path = HW

    def files(self) -> list[Path]:
        """Packages, then modules, then waivers and public signals."""
        found = [p for part in ("gen", "rtl", "tb") for p in sorted((self.sources / part).glob("*.sv"))]
        rest = [p for p in found if not p.stem.endswith(("_pkg", "_tb"))]
        top = [p for p in found if p.stem == self.module]
        return [*sorted(self.sources.rglob("*.vlt")), *packages(found), *[p for p in rest if p not in top], *top]

    def key(self) -> str:
        """A digest of everything that the build depends on."""
        digest = hashlib.sha256(json.dumps([self.module, self.parameters, VERILATE, MAKE, sys.version]).encode())
        for path in [*self.files(), *sorted(self.sources.rglob("*.svh"))]:
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:16]


def mxu_parameters(chip: Chip) -> dict[str, int]:
    """The parameters of `mxu_tb` for a chip."""
    m = chip.mxu
    return {
        "Rows": m.rows,
        "Cols": m.cols,
        "AccRows": m.acc_rows,
        "Segments": m.segments,
        "SegmentBytes": m.segment_bytes,
        "FifoDepth": chip.fifo.depth,
        "TokenMax": chip.token.max,
        "LoadLatency": m.load_latency,
        "Pipeline": m.pipeline,
        "VmemBytes": chip.vmem.bytes,
    }


def variant(chip: Chip, **fields: int) -> Chip:
    """The chip with other fields in its `mxu` group, and a name that says so."""
    name = "-".join([chip.name, *(f"{k}{v}" for k, v in fields.items())])
    return replace(chip, name=name, mxu=replace(chip.mxu, **fields))


def mxu_top(chip: Chip, sources: Path = HW, suffix: str = "") -> Top:
    """`mxu_tb` for a chip."""
    return Top("mxu_tb", tuple(mxu_parameters(chip).items()), f"mxu_tb-{chip.name}{suffix}", sources)


def build(top: Top) -> Path:
    """The folder with the compiled simulation; built only if its sources have changed."""
    folder = CACHE / top.name
    folder.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{top.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "built"
        if not stamp.exists() or stamp.read_text() != top.key():
            shutil.rmtree(folder)
            folder.mkdir()
            _verilate(top, folder)
            stamp.write_text(top.key())
    return folder


def runtime(flags: Sequence[str]) -> Path:
    """The folder with the objects of Verilator's runtime as compiled with some flags (not of cocotb's main, which
    includes the top's header).

    They are the same for every top, and take most of the time of a small build.
    """
    command = ["verilator", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment()).stdout
    key = json.dumps([*flags, told, version("cocotb"), sys.version])
    return CACHE / f"runtime-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def copy_objects(source: Path, to: Path) -> None:
    """Copy them, to be newer than the makefile that Verilator will write, or make would compile them again."""
    to.mkdir(parents=True, exist_ok=True)
    later = time.time() + 3600
    for path in source.glob("verilated*.o"):
        fresh = to / f"{path.name}.{os.getpid()}"
        shutil.copy(path, fresh)
        os.utime(fresh, (later, later))
        fresh.replace(to / path.name)


def _verilate(top: Top, folder: Path) -> None:
    saved = os.environ.get("MAKEFLAGS")
    os.environ.update(environment(), MAKEFLAGS=MAKE)
    try:
        compiled = runtime([*VERILATE, MAKE])
        copy_objects(compiled, folder)
        get_runner("verilator").build(
            sources=top.files(),
            hdl_toplevel=top.module,
            parameters=dict(top.parameters),
            build_dir=folder,
            build_args=VERILATE,
            always=True,
            timescale=("1ns", "1ps"),
            log_file=folder / "build.log",
        )
        copy_objects(folder, compiled)
    finally:
        del os.environ["MAKEFLAGS"]
        if saved is not None:
            os.environ["MAKEFLAGS"] = saved


def run(top: Top, bench: str, test: str, variables: Mapping[str, str], plusargs: Sequence[str] = ()) -> str:
    """Build if needed and run a test of a bench (empty: all of them); its output.

    Raises:
        BenchError: a test of the bench failed; the message ends with why.
    """
    folder = build(top)
    runner = get_runner("verilator")
    place = Path(tempfile.mkdtemp(prefix=f"{test}-", dir=folder))
    log = place / "run.log"
    os.environ.update(environment())
    results = place / "results.xml"
    # Under pytest the runner exits when a test fails; failures are read from the results all the same.  It raises
    # RuntimeError when an assertion of the RTL has failed.
    stopped = False
    try:
        runner.test(
            hdl_toplevel=top.module,
            hdl_toplevel_lang="verilog",
            test_module=bench,
            test_filter=rf"\.{test}$" if test else None,
            build_dir=folder,
            test_dir=place,
            results_xml=str(results),
            extra_env=dict(variables),
            plusargs=list(plusargs),
            log_file=log,
        )
    except SystemExit:
        pass
    except RuntimeError:
        stopped = True
    text = log.read_text()
    tests, failed = get_results(results) if results.exists() else (0, 0)
    if stopped or failed or not tests:
        raise BenchError(f"{bench}: {failed} of {tests} tests failed\n" + _why(text))
    return text


class BenchError(AssertionError):
    """A bench found a difference, or did not run."""


def _why(log: str) -> str:
    lines = log.splitlines()
    telling = [line for line in lines if "Error" in line or "assert" in line.lower()]
    return "\n".join(telling[-6:] or lines[-20:])
