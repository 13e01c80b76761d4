"""Parts of the free VMEM that groups may take for something: less for those of which that has no place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from systolith.compiler.hlo.ir import Instruction


@dataclass(frozen=True)
class Shares:
    """Which of some parts each group has.

    Attributes:
        parts: there are, the largest first.
        usual: that of groups which `less` does not name.
        less: those of the others.
    """

    parts: tuple[float, ...]
    usual: float
    less: Mapping[Instruction, float] = field(default_factory=dict)

    def of(self, group: Instruction) -> float:
        """That of a group."""
        return self.less.get(group, self.usual)

    def lowered(self, taken: Mapping[Instruction, float]) -> Shares | None:
        """The next part for some groups by which each takes less than it does now; None: they all have the smallest."""
        limits = {group: min(part, self.of(group)) for group, part in taken.items()}
        smaller = {group: [part for part in self.parts if part < limit] for group, limit in limits.items()}
        less = {group: parts[0] for group, parts in smaller.items() if parts}
        return replace(self, less={**self.less, **less}) if less else None

    def all_lowered(self) -> Shares | None:
        """The next part for all groups; None: it would be none of them."""
        usual = next((part for part in self.parts if part < self.usual), None)
        if usual is None:
            return self.lowered(dict.fromkeys(self.less, inf))
        return replace(self, usual=usual, less={group: part for group, part in self.less.items() if part < usual})
