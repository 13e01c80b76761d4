"""Options of a compilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from systolith.compiler.explain import Decision
from systolith.compiler.hlo.values.contraction import PRECISIONS
from systolith.compiler.plan import ForcedPlan
from systolith.isa.errors import SystolithError
from systolith.isa.program import Program


class Plan(Protocol):
    """One of several ways to lower a group."""

    @property
    def signature(self) -> str:
        """A text unique among the plans of a group."""


Alone = Callable[[str], tuple[Program | None, Sequence[Plan]]]
"""From a plan's signature (empty: the cheapest) to a program of one group alone, None if it does not fit, and the plans
that the group could have, the cheapest first."""


class Tuner(Protocol):
    """Whoever can measure programs, and so pick plans: see `autotune.py`.

    Attributes:
        problem: why what was measured is not remembered; empty: it is.
    """

    problem: str

    @property
    def measure(self) -> Callable[[Program], int | None]:
        """Gives the cycles of a program; None: they depend on data."""

    def pick(self, group: str, key: str, alone: Alone) -> tuple[str, Decision | None]:
        """The signature of the plan that a group is to have (empty: the cheapest), and what was decided.

        Args:
            group: its name.
            key: what the cycles of its plans depend on.
            alone: compiles it.
        """


@dataclass(frozen=True)
class Options:
    """Options of a compilation, as the user gives them.

    Attributes:
        precision: default, high or highest for every dot and convolution; None: what the module asks for.
        probes: record where each group's inputs and outputs lie, for checks.
        elided: what constants are whose values the text leaves out (`{...}`): `zeros`, of which nothing is known when
            code is chosen, so that cycles are those of any values; None: refused.
        autotune: tile plans of each product, and sizes of blocks, to try in the simulator; 0: the estimate decides.
        autotune_cache: where results of that are remembered; None: in the user's cache folder.
        tuner: what tries them; whoever has a simulator gives it.
        plan: choices that are to be taken.
        complete: check what passes, lowering and assembly made, and predict cycles for reports; a run in mode `time`
            needs neither, and `complete` in `schedule/program.py` does it afterwards for a program.
    """

    precision: str | None = None
    probes: bool = True
    elided: str | None = None
    autotune: int = 0
    autotune_cache: Path | None = None
    tuner: Tuner | None = None
    plan: ForcedPlan | None = None
    complete: bool = True

    def __post_init__(self) -> None:
        if self.precision is not None and self.precision not in PRECISIONS:
            raise SystolithError(f"precision {self.precision!r}: must be one of {', '.join(PRECISIONS)}")
        if self.elided not in (None, "zeros"):
            raise SystolithError(f"elided {self.elided!r}: must be zeros or None")
        if type(self.autotune) is not int or self.autotune < 0:
            raise SystolithError(f"autotune {self.autotune!r}: must be a number of plans, at least 0")
        if self.plan is not None and self.autotune:
            raise SystolithError("plan and autotune: either of them chooses tiles and blocks")
        if not isinstance(self.autotune_cache, Path | None):
            raise SystolithError(f"autotune_cache: expected a Path, got {type(self.autotune_cache).__name__}")
