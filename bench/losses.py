"""Groups of a run that took longer than their own bound, the largest losses first.

A group's bound is the work of its operations on the compute units, or the bytes that it moved to and from HBM at the
chip's bandwidth, whichever takes longer.  Its cycles are those in which the run waited for it, so a group that others
hide loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from systolith.compiler.bounds.bound import group_bound, op_works
from systolith.compiler.hlo.ir import Module
from systolith.isa.chip import Chip
from systolith.sim.simulate import RunResult

LEAST_SHARE = 0.02
"""Losses of less of their run's cycles are left out."""
MOST = 5
"""Groups named of each case."""


@dataclass(frozen=True)
class Loss:
    """A group of a case.

    Attributes:
        opcodes: of its operations that compute something.
        cycles: that the run waited for it.
        bound: cycles that it takes at least.
        unit: the unit that the bound is of.
        share: cycles beyond the bound over the run's cycles.
    """

    case: str
    group: str
    kind: str
    opcodes: tuple[str, ...]
    cycles: int
    bound: float
    unit: str
    share: float


def losses(case: str, result: RunResult, canonical: Module, chip: Chip) -> tuple[Loss, ...]:
    """The groups that lost most."""
    assert result.cycles is not None
    works = op_works(canonical, chip)
    found = []
    for g in result.groups():
        if "kind" not in g:
            continue
        limit = group_bound(g["hlo"], g["executions"], sum(g["hbm_bytes"].values()), works, chip)
        share = (g["cycles"] - limit.cycles) / result.cycles
        opcodes = tuple(dict.fromkeys(op for op, name in zip(g["opcodes"], g["hlo"], strict=True) if name in works))
        found.append(Loss(case, g["name"], g["kind"], opcodes, g["cycles"], limit.cycles, limit.unit, share))
    found = [loss for loss in found if loss.share >= LEAST_SHARE]
    return tuple(sorted(found, key=lambda loss: -loss.share)[:MOST])


def loss_section(found: Iterable[Loss]) -> list[str]:
    """Lines of Markdown."""
    lines = [
        "", "## Groups over their own bound", "",
        f"At most {MOST} groups of each case, with at least {LEAST_SHARE:.0%} of the run's cycles beyond the bound: the"
        " work of the group's operations, or the bytes that it moved.", "",
        "| case | group | operations | cycles | over its bound | bound by | of the run |", "|---" * 7 + "|",
    ]  # fmt: skip
    for loss in found:
        over = f"{loss.cycles / loss.bound:.2f}" if loss.bound else ""
        shown = ", ".join(loss.opcodes[:4]) + (", ..." if len(loss.opcodes) > 4 else "")
        cells = (loss.case, loss.group, shown, f"{loss.cycles:,}", over, loss.unit, f"{loss.share:.1%}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines
