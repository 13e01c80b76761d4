"""Trying tile plans and sizes of blocks: the best of an estimate, each compiled for its group alone and simulated.

The simulator is given by the caller (the compiler knows none).  What won is remembered in a JSON file, by what the
group computes, where its values lie, the room that it has, the chip and the compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.options import Alone, Plan
from systolith.isa.cache import cache_home
from systolith.isa.errors import BinaryError, SystolithError
from systolith.isa.files import OutputError, json_text, make_folder, read_bytes, text_fill, write_atomic
from systolith.isa.json_values import read_json
from systolith.isa.program import Program


@dataclass(frozen=True)
class Tuned:
    """The outcome of measuring the plans of one group.

    Attributes:
        plan: signature of the fastest.
        tried: how many plans were to be.
        cycles: of the fastest.
        first: cycles of the one that the estimate prefers.
    """

    plan: str
    tried: int
    cycles: int
    first: int


def default_cache() -> Path:
    """Where results are remembered."""
    return cache_home() / "autotune.json"


@dataclass(eq=False)
class Tuner:
    """Picks tile plans and sizes of blocks.

    Attributes:
        count: plans of each group to try.
        measure: gives the cycles of a program; None: they depend on data.
        path: of the memory.
        stage: told what is being tried.
        known: results by key.
        problem: why results are not remembered; empty: they are.
    """

    count: int
    measure: Callable[[Program], int | None]
    path: Path
    stage: Callable[[str], None] = lambda _: None
    known: dict[str, Tuned] = field(default_factory=dict)
    problem: str = ""

    def __post_init__(self) -> None:
        try:
            self.known = read_cache(self.path)
        except CacheError as error:
            self.problem = str(error)

    def _remember(self, key: str, tuned: Tuned) -> None:
        self.known[key] = tuned
        if not self.problem:
            try:
                write_cache(self.path, {key: tuned})
            except (CacheError, OutputError) as error:
                self.problem = str(error)

    def pick(self, group: str, key: str, alone: Alone) -> tuple[str, Decision | None]:
        """The signature of the plan that a group is to have (empty: the cheapest), and what was decided.

        Args:
            group: its name.
            key: what the cycles of its plans depend on.
            alone: compiles it.
        """
        tuned = self.known.get(key)
        if tuned is None or tuned.tried < self.count:
            tuned = self._try(group, alone)
            self._remember(key, tuned)
        if not tuned.plan:
            return "", None
        rejected = Alternative("what the estimate prefers", "", {"cycles": tuned.first})
        other = (rejected,) if tuned.cycles < tuned.first else ()
        numbers = {"cycles": tuned.cycles, "tried": tuned.tried}
        return tuned.plan, Decision("autotune", group, tuned.plan, "the fastest alone", numbers, other)

    def _try(self, group: str, alone: Alone) -> Tuned:
        found: list[tuple[int, int, str]] = []
        plans: Sequence[Plan] = ()
        number = 0
        while number < max(1, min(self.count, len(plans))):
            self.stage(f"autotuning {group}: {number + 1} of {self.count}")
            picked = plans[number].signature if plans else ""
            program, plans = alone(picked)
            cycles = None if program is None else self.measure(program)
            if cycles is not None:
                found.append((cycles, number, plans[number].signature))
            number += 1
        if not found or found[0][1]:  # the estimate's own choice does not fit alone
            return Tuned("", self.count, 0, 0)
        best, _, plan = min(found)
        return Tuned(plan, self.count, best, found[0][0])


# The memory.


class CacheError(SystolithError):
    """The file of remembered results is not there to be used."""


def read_cache(path: Path) -> dict[str, Tuned]:
    """The remembered outcomes by key; empty if there is no file yet.

    Raises:
        CacheError: the file cannot be read, or is no memory of plans.
    """
    if not os.path.exists(path):
        return {}
    try:
        return read_json(read_bytes(path, CacheError), dict[str, Tuned])
    except BinaryError as error:
        raise CacheError(f"{path}: not a file of autotuning results: {error}") from None


def write_cache(path: Path, found: dict[str, Tuned]) -> None:
    """Add results to the file, whole or not at all.

    Raises:
        CacheError: the file that is there is no memory of plans, and stays as it is.
        OutputError: it cannot be written.
    """
    make_folder(path.parent)
    rows = {key: vars(t) for key, t in (read_cache(path) | found).items()}
    write_atomic(path, text_fill(json_text(rows, indent=1, sort_keys=True) + "\n"))
