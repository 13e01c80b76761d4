"""Accuracy of the compiler's cost model: cycles planned and predicted, over those simulated, by group.

`planned` is the estimate that tiles and blocks were chosen by; `predicted` is made from the code
(`schedule/predict.py`).  A group's simulated cycles are those in which the run waited for it, so groups that others
hide are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from systolith.sim.simulate import RunResult

LEAST_SHARE = 0.01
"""Groups with less of their run's cycles are left out."""


@dataclass(frozen=True)
class Predicted:
    """A group of a case.

    Attributes:
        kind: of the group.
        planned, predicted, simulated: cycles of all its executions; planned is 0 where there was no estimate.
    """

    case: str
    group: str
    kind: str
    planned: int
    predicted: int
    simulated: int


def predictions(case: str, result: RunResult) -> tuple[Predicted, ...]:
    """The groups of a run that take part of its time."""
    assert result.cycles is not None
    return tuple(
        Predicted(case, g["name"], g["kind"], g["planned"], g["predicted"], g["cycles"])
        for g in result.groups()
        if "kind" in g and g["cycles"] >= LEAST_SHARE * result.cycles
    )


def section(groups: Iterable[Predicted]) -> list[str]:
    """Lines of Markdown: the distribution of both ratios by kind of group."""
    found = list(groups)
    lines = [
        "", "## Predicted over simulated", "",
        f"Groups of all cases with at least {LEAST_SHARE:.0%} of their run's cycles; `planned` is the estimate that"
        " tiles and blocks are chosen by, `predicted` is one pass over the code. Near: within 10 %."
        " Worst: the furthest from 1.", "",
        "| kind | which | groups | median | 10 % | 90 % | near | worst | where |", "|---" * 9 + "|",
    ]  # fmt: skip
    which: tuple[tuple[str, Callable[[Predicted], int]], ...] = (
        ("planned", lambda g: g.planned),
        ("predicted", lambda g: g.predicted),
    )
    for kind in sorted({g.kind for g in found}):
        for name, cycles in which:
            rows = [g for g in found if g.kind == kind and cycles(g)]
            if rows:
                lines.append(_row(kind, name, rows, [cycles(g) / g.simulated for g in rows]))
    return lines


def _row(kind: str, name: str, rows: Sequence[Predicted], ratios: Sequence[float]) -> str:
    low, median, high = np.percentile(ratios, (10, 50, 90))
    worst = int(np.argmax(np.abs(np.log(ratios))))
    near = np.mean(np.abs(np.array(ratios) - 1) <= 0.1)
    spread = (f"{r:.2f}" for r in (median, low, high))
    cells = (kind, name, len(rows), *spread, f"{near:.0%}", f"{ratios[worst]:.2f}")
    return "| " + " | ".join(map(str, cells)) + f" | {rows[worst].case}, {rows[worst].group} |"
