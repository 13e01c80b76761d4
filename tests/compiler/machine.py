"""Compiles a module, runs it on the simulator in hostile mode, and compares with the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from systolith.compiler.driver import Compiled, compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.options import Options
from systolith.isa.chip import Chip, load_chip
from systolith.isa.program import Program, Role
from systolith.sim.simulate import simulate

Array = npt.NDArray[Any]


def compiled(text: str, chip: str | Chip = "tiny", precision: str | None = None) -> Compiled:
    """A module's text, compiled."""
    target = load_chip(chip) if isinstance(chip, str) else chip
    return compile_module(parse_hlo(text), target, Options(precision=precision))


def run(program: Program, chip: Chip, args: list[Array]) -> list[Array]:
    """Results of a program; fails on a race."""
    given = {
        n: np.ascontiguousarray(args[b.number]).reshape(-1).view(np.uint8).copy()
        for n, b in enumerate(program.buffers)
        if b.role is Role.PARAMETER and args[b.number].size
    }
    finished = simulate(program, chip, given, "full", hostile=True)
    assert not finished.hazards, str(finished.hazards[0])
    return finished.outputs


def error(got: Array, wanted: Array) -> float:
    """Largest difference relative to the largest magnitude; for integers the fraction that differs."""
    assert got.shape == wanted.shape
    if not got.size:
        return 0.0
    if got.dtype.kind in "biu":
        return float((got != wanted).mean())
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), wanted.astype(wide)
    assert (np.isnan(a) == np.isnan(b)).all()
    return float(np.nanmax(np.abs(a - b)) / max(float(np.nanmax(np.abs(b))), 1e-30))


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
