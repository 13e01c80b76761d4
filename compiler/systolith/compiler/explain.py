"""Records of decisions and their alternatives, which `explain` prints.

A decision is about one group of the grouped module (or about the module: no group).  What was rejected keeps the
numbers that it lost by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Number = int | float


@dataclass(frozen=True)
class Alternative:
    """A rejected candidate of a decision.

    Attributes:
        what: it would have been.
        why: it lost.
        numbers: by name.
    """

    what: str
    why: str = ""
    numbers: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """One choice.

    Attributes:
        kind: `slices`, `loop`, `recompute`, `fusion`, `prologue`, `outputs`, `unit`, `region`, `tiles`, `blocks`,
            `memory`, `repeat`, `schedule` or `autotune`.
        group: the group's name; empty: the whole module.
        chosen: what.
        why: in a few words.
        numbers: that it was chosen by: cycles, bytes, counts.
        rejected: the best others, best first.
    """

    kind: str
    group: str
    chosen: str
    why: str = ""
    numbers: Mapping[str, Number] = field(default_factory=dict)
    rejected: tuple[Alternative, ...] = ()

    def lines(self) -> list[str]:
        """As text: what was chosen, then a line for each rejected."""
        head = " ".join(filter(None, (self.kind, self.group)))
        return [
            f"{head}: {_text(self.chosen, self.why, self.numbers)}",
            *(f"    not {_text(r.what, r.why, r.numbers)}" for r in self.rejected),
        ]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def _text(what: str, why: str, numbers: Mapping[str, Number]) -> str:
    figures = ", ".join(f"{k} {v:,}" if isinstance(v, int) else f"{k} {v:.1%}" for k, v in numbers.items())
    return "; ".join(filter(None, (f"{what} ({why})" if why else what, figures)))


def each_once(decisions: Iterable[Decision]) -> list[Decision]:
    """Decisions in order; one that is taken again (for every block of a blocked group) counts once."""
    return list({tuple(d.lines()): d for d in decisions}.values())


def as_text(decisions: Iterable[Decision]) -> str:
    """All decisions, a paragraph of lines for each."""
    return "".join(f"{line}\n" for d in decisions for line in d.lines())


def planned_cycles(decisions: Iterable[Decision]) -> dict[str, int]:
    """For each group whose tiles or blocks were chosen by an estimate, its cycles."""
    found: dict[str, int] = {}
    for d in decisions:
        if d.kind in ("tiles", "blocks"):
            found.setdefault(d.group, int(d.numbers["cycles"]))  # the choice of blocks comes before the tiles in them
    return found
