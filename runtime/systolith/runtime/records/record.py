"""The JSON object of a run (schema: `systolith.reports.run_data`): what ran on what, what was measured and checked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from systolith.compiler.memory.report import MemoryUse
from systolith.isa.chip import describe
from systolith.isa.chip_schema import describe_beside
from systolith.reports.record_version import VERSION
from systolith.runtime.records.held import held
from systolith.sim.simulate import RunResult

if TYPE_CHECKING:  # the compiler takes long to import, and binaries do without it
    from systolith.compiler.bounds.bound import Bounds


@dataclass(frozen=True)
class Circumstances:
    """Facts about a run that the simulator does not know.

    Attributes:
        source: file name of the module.
        precision: of dots and convolutions.
        hostile: memory started as NaNs.
        compile_seconds, simulate_seconds: host time.
        groups, executions: checked against the evaluator.
        unchecked: elements without a known bound.
        without_reference: targets of custom calls that were not checked.
        expected: results compared with given ones.
        failures: one line each.
        max_abs_error, max_rel_error: None: nothing was compared.
    """

    source: str = ""
    precision: str | None = None
    hostile: bool = False
    compile_seconds: float | None = None
    simulate_seconds: float | None = None
    groups: int = 0
    executions: int = 0
    unchecked: int = 0
    without_reference: Sequence[str] = ()
    expected: int = 0
    failures: Sequence[str] = field(default_factory=tuple)
    max_abs_error: float | None = None
    max_rel_error: float | None = None


def run_record(
    result: RunResult, memory: MemoryUse, about: Circumstances, bounds: Bounds | None = None
) -> dict[str, Any]:
    """The run as JSON values; `bounds`: of the module, if it is known."""
    chip, energy = result.chip, result.energy
    measured = result.to_json()
    line = measured["timeline"]
    line |= {space: steps.most(line["edges"]) for space, steps in held(result, memory).items()}
    if bounds and result.cycles is not None:
        _add_bounds(measured, bounds)
    return measured | {
        "schema_version": VERSION,
        "ok": result.ok and not about.failures,
        "source": about.source,
        "command": " ".join(["systolith", *sys.argv[1:]]) if about.source else "",
        "precision": about.precision,
        "hostile": about.hostile,
        "chip_digest": chip.digest(),
        "chip_parameters": [row._asdict() for row in (*describe(chip), *describe_beside(chip))],
        "energy": energy.to_json(np.array(line["edges"], np.int64)) if energy else None,
        "wall_seconds": {"compile": about.compile_seconds, "simulate": about.simulate_seconds},
        "hbm_allocated": {
            "parameter": memory.parameters,
            "result": memory.results,
            "constant": memory.constants,
            "temp": memory.temporaries,
        },
        "memory": memory.to_json(),
        "checks": {
            "groups": about.groups,
            "executions": about.executions,
            "unchecked": about.unchecked,
            "without_reference": list(about.without_reference),
            "expected": about.expected,
            "failures": list(about.failures),
        },
        "max_abs_error": about.max_abs_error,
        "max_rel_error": about.max_rel_error,
    }


def _add_bounds(measured: dict[str, Any], bounds: Bounds) -> None:
    """Add the least cycles of the run, and of each group and operation for all executions.

    Of HBM what a part moved counts, as far as it is its inputs and outputs once.
    """
    measured["bound"] = dict(bounds.whole.units)
    executions: dict[str, int] = {}
    for group in measured["groups"]:
        names, times = group.get("hlo", ()), group.get("executions", 1)
        executions |= {n: max(times, executions.get(n, 0)) for n in names}
        moved = min(sum(group["hbm_bytes"].values()), group.get("bytes", 0) * times)
        group["bound"] = dict(bounds.of(names, times, moved).units)
    for op in measured["ops"]:
        times = executions.get(op["name"], 0)
        moved = min(sum(op["hbm_bytes"].values()), bounds.ends.get(op["name"], 0) * times)
        op["bound"] = dict(bounds.of([op["name"]], times, moved).units)
