"""The JSON object of a run (schema: `systolith.reports.run_data`): what ran on what, what was measured and checked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from systolith.compiler.memory.report import MemoryUse
from systolith.isa.chip import describe
from systolith.isa.chip_schema import describe_beside
from systolith.reports.record_version import VERSION
from systolith.runtime.records.held import held
from systolith.sim.simulate import RunResult


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


def run_record(result: RunResult, memory: MemoryUse, about: Circumstances) -> dict[str, Any]:
    """The run as JSON values."""
    chip, energy = result.chip, result.energy
    measured = result.to_json()
    line = measured["timeline"]
    line |= {space: steps.most(line["edges"]) for space, steps in held(result, memory).items()}
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
