"""Compiles a module, runs it on the simulator in hostile mode, and compares with the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from systolith.compiler.driver import Compiled, compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.error_bounds import bounded
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.options import Options
from systolith.isa.chip import Chip, load_chip
from systolith.isa.program import Program, Role
from systolith.runtime.jobs.checks import Checker, CheckReport, distance
from systolith.sim.simulate import simulate

Array = npt.NDArray[Any]

TINY = load_chip("tiny")


def with_vmem(chip: Chip, size: int) -> Chip:
    """A chip with so many bytes of VMEM."""
    return replace(chip, vmem=replace(chip.vmem, bytes=size))


CHIPS = {kib: with_vmem(TINY, kib << 10) for kib in (16, 32, 256)}
"""By KiB of VMEM."""
LOOSE = {"float32": 2.0**-18, "float16": 2.0**-8, "bfloat16": 2.0**-5, "float8_e4m3fn": 2.0**-2, "float8_e5m2": 2.0**-1}
"""Of the largest magnitude, where no bound is known (behind a loop)."""


def counting(name: str, state: str, count: int) -> str:
    """The condition of a loop that counts to so many in the first element of its state, as text."""
    return f"""{name} {{
  state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  end = s32[] constant({count})
  ROOT less = pred[] compare(i, end), direction=LT
}}"""


def compiled(text: str, chip: str | Chip = "tiny", precision: str | None = None) -> Compiled:
    """A module's text, compiled."""
    target = load_chip(chip) if isinstance(chip, str) else chip
    return compile_module(parse_hlo(text), target, Options(precision=precision))


def memory(program: Program, args: Sequence[Array]) -> dict[int, npt.NDArray[np.uint8]]:
    """The bytes of a program's parameters, by their entries of the buffer table."""
    return {
        n: np.ascontiguousarray(args[b.number]).reshape(-1).view(np.uint8).copy()
        for n, b in enumerate(program.buffers)
        if b.role is Role.PARAMETER and args[b.number].size
    }


def checked_run(made: Compiled, chip: Chip, args: Sequence[Array]) -> tuple[list[Array], CheckReport]:
    """Results of a run, every group of which is compared with the evaluator; fails on a race, and where one is beyond
    its bound.
    """
    checker = Checker(made.program, made, "highest")
    finished = simulate(made.program, chip, memory(made.program, args), "full", hostile=True, observer=checker)
    assert not finished.hazards, str(finished.hazards[0])
    report = checker.report()
    assert not report.failures, report.failures[0]
    return finished.outputs, report


def checked(made: Compiled, chip: Chip, args: Sequence[Array]) -> CheckReport:
    """What `checked_run` found."""
    return checked_run(made, chip, args)[1]


def run(program: Program, chip: Chip, args: list[Array]) -> list[Array]:
    """Results of a program; fails on a race."""
    given = memory(program, args)
    finished = simulate(program, chip, given, "full", hostile=True)
    assert not finished.hazards, str(finished.hazards[0])
    return finished.outputs


def error(got: Array, wanted: Array) -> float:
    """Largest difference relative to the largest finite magnitude, infinite where only one is infinite or NaN; for
    integers the fraction that differs.
    """
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if not got.size:
        return 0.0
    if got.dtype.kind in "biu":
        return float((got != wanted).mean())
    return float(distance(got, wanted).max()) / max(_scale(wanted), 1e-30)


def _scale(x: Array) -> float:
    """The largest finite magnitude."""
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    return float(np.abs(wide[np.isfinite(wide)]).max(initial=0))


def assert_within(got: Sequence[Array], wanted: Sequence[tuple[Array, Array]], what: str = "") -> None:
    """Results against those of the evaluator, each with the bound of its error.

    Raises:
        AssertionError: a shape, a type or a value is another.
    """
    for number, (a, (want, bound)) in enumerate(zip(got, wanted, strict=True)):
        where = f"{what}result {number}"
        assert (a.shape, a.dtype) == (want.shape, want.dtype), where
        loose = LOOSE.get(a.dtype.name, 0.0) * (_scale(want) if a.dtype.kind not in "biu" else 0)
        over = distance(a, want) - np.where(np.isfinite(bound), bound, loose)
        assert not (over > 0).any(), f"{where}: {int((over > 0).sum())} of {over.size} elements are wrong"


def check(
    text: str, args: list[Array], chip: str | Chip = "tiny", precision: str | None = "highest", most: float = 1e-5
) -> Compiled:
    """Compile, run, compare every result with the evaluator's."""
    target = load_chip(chip) if isinstance(chip, str) else chip
    result = compiled(text, target, precision)
    got = run(result.program, target, args)
    wanted = evaluate(parse_hlo(text), *args, precision=precision)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert error(a, b) <= most
    return result


def compare(text: str, args: list[Array], chip: Chip) -> Compiled:
    """Compile, run, compare every result with the evaluator's, within the bounds of their errors.

    Raises:
        AssertionError: a result beyond its bound, or a race.
    """
    result = compiled(text, chip, "highest")
    assert_within(run(result.program, chip, args), bounded(parse_hlo(text).entry, args, "highest"))
    return result
