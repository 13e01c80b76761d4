"""Plans: choices of a compilation that were written down, as `explain --json` prints them, to be taken again.

A choice is made by its text: of tiles, of sizes of blocks, of loops, of the room that tiles have and of values that are
spilled.  What a plan says nothing of is chosen as without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from systolith.compiler.errors import CompileError
from systolith.compiler.explain import Decision
from systolith.isa.files import parse_json, read_text

FORCED = ("tiles", "blocks", "loop")
"""Kinds of decisions that are taken from a plan, or refused."""

WHY = "as the plan has it"
_SHOWN = 3


class PlanError(CompileError):
    """A plan cannot be read, or not be taken."""


@dataclass(frozen=True)
class ForcedPlan:
    """The choices of a plan.

    Attributes:
        name: of its file, for errors.
        chosen: texts, by kind of decision and group.
    """

    name: str
    chosen: Mapping[tuple[str, str], tuple[str, ...]]

    def has(self, kind: str, group: str, text: str) -> bool:
        """Whether it makes a choice."""
        return text in self.chosen.get((kind, group), ())

    def of_kind(self, kind: str) -> list[tuple[str, str]]:
        """Its choices of a kind: pairs of a group and a text."""
        return [(group, text) for (k, group), texts in self.chosen.items() if k == kind for text in texts]

    def pick(self, kind: str, group: str, texts: Sequence[str]) -> int | None:
        """The number of the first of `texts` that it has; None: it says nothing of this group.

        Raises:
            PlanError: it has others only.
        """
        wanted = self.chosen.get((kind, group), ())
        if not wanted:
            return None
        found = next((n for n, text in enumerate(texts) if text in wanted), None)
        if found is None:
            others = "".join(f" | {text}" for text in texts[:_SHOWN])
            more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
            raise PlanError(f"{self.name}: {kind} of {group!r}: {wanted[0]!r} is not possible; what is:{others}{more}")
        return found

    def unmet(self, decisions: Iterable[Decision]) -> list[Decision]:
        """Decisions that say what was asked for and did not come out so: of kinds that are not taken from plans.

        Raises:
            PlanError: a choice of those kinds that are did not: there is no such group.
        """
        made: dict[tuple[str, str], list[str]] = {}
        for d in decisions:
            made.setdefault((d.kind, d.group), []).append(d.chosen)
        found = []
        for (kind, group), texts in self.chosen.items():
            for text in texts:
                came = made.get((kind, group), [])
                if text in came or kind == "autotune":
                    continue
                if kind in FORCED:
                    raise PlanError(f"{self.name}: {kind} of {group!r}: {text!r}: no such choice is to be made there")
                why = f"it came out as {came[0]!r}" if came else "nothing is decided there"
                found.append(Decision("plan", group, f"{kind} is not taken from a plan: {text!r}", why))
        return found


def read_plan(path: Path) -> ForcedPlan:
    """The plan in a file: an object with `decisions` and `groups`, each with `decisions`, or a list of decisions.

    Raises:
        PlanError: it cannot be read, or is none.
    """
    found = parse_json(read_text(path, PlanError), path, PlanError)
    chosen: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in _rows(found, path):
        if not isinstance(row, dict) or not all(isinstance(row.get(k), str) for k in ("kind", "group", "chosen")):
            raise PlanError(f"{path}: a decision has texts `kind`, `group` and `chosen`, not {str(row)[:80]}")
        key = row["kind"], row["group"]
        chosen[key] = (*chosen.get(key, ()), row["chosen"])
    return ForcedPlan(str(path), chosen)


def _rows(found: Any, path: Path) -> list[Any]:
    groups = found.get("groups", []) if isinstance(found, dict) else []
    parts = [found, *(groups if isinstance(groups, list) else [None])]
    rows = [part.get("decisions", []) if isinstance(part, dict) else part for part in parts]
    if not all(isinstance(part, list) for part in rows):
        raise PlanError(f"{path}: not a plan: a list of decisions, or what `explain --json` prints")
    return [row for part in rows for row in part]
