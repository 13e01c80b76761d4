"""An optimiser chooses the points: Optuna's tree of Parzen estimators (Bergstra et al., 2011), in batches.

Batches are of a fixed size, and told in order, so that the points depend on the study alone: a sweep that is repeated
asks for the same ones, and finds their results in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import exp, log
from typing import Any

from systolith.runtime.sweep.extras import need
from systolith.runtime.sweep.formula import FormulaError
from systolith.runtime.sweep.points import Point, Space, at_share, settings_of
from systolith.runtime.sweep.study import Range
from systolith.runtime.sweep.work import OK, Row

BATCH = 4
_ASKED = 50  # suggestions for each point, before those that break constraints on chips are given up

Measure = Callable[[Sequence[Point]], list[Row]]


def optimise(space: Space, measure: Measure) -> Iterator[tuple[Point, Row]]:
    """The points that an optimiser asks for, with their results, for each base chip and option.

    With several models a point's objective is the geometric mean over them.
    """
    for base, options in product(space.chips, space.options):
        yield from _Search(space, base, options).run(measure)


class _Search:
    """One search."""

    def __init__(self, space: Space, base: str, options: dict[str, Any]) -> None:
        self._optuna = optuna = need("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._base, self._options = space, base, options
        sample = space.study.sample
        self._after = [f for f in space.study.constraints if f not in space.constraints]
        sampler = optuna.samplers.TPESampler(seed=sample.seed)
        self._study = optuna.create_study(directions=["minimize"] * len(sample.objective), sampler=sampler)

    def run(self, measure: Measure) -> Iterator[tuple[Point, Row]]:
        left, tried = self._space.study.sample.points, 0
        most = _ASKED * left
        while left > 0 and tried < most:
            asked: list[tuple[Any, list[Point]]] = []
            while len(asked) < min(BATCH, left) and tried < most:
                tried += 1
                if (found := self._suggested()) is not None:
                    asked.append(found)
            rows = measure([point for _, points in asked for point in points])
            found_rows = iter(zip([p for _, points in asked for p in points], rows, strict=True))
            for trial, points in asked:
                mine = [next(found_rows) for _ in points]
                self._tell(trial, mine)
                yield from mine
            left -= len(asked)

    def _suggested(self) -> tuple[Any, list[Point]] | None:
        """A trial and its points, one of each model; None: no such chip, or it breaks a constraint on chips."""
        trial = self._study.ask()
        settings = {name: self._suggest(trial, name) for name in self._space.study.vary}
        points = [self._space.point(m, self._base, settings, self._options) for m in self._space.models]
        chip = points[0].chip
        if chip is not None and self._space.allowed(chip):
            return trial, points
        margins = [1.0] if chip is None else [x for f in self._space.constraints for x in f.margins(settings_of(chip))]
        self._prune(trial, margins)
        return None

    def _suggest(self, trial: Any, name: str) -> Any:
        axis = self._space.study.vary[name]
        if not isinstance(axis, Range):
            return trial.suggest_categorical(name, axis)
        return at_share(name, axis, trial.suggest_float(name, 0.0, 1.0))

    def _prune(self, trial: Any, margins: Sequence[float]) -> None:
        _constrain(trial, margins)
        self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def _tell(self, trial: Any, found: Sequence[tuple[Point, Row]]) -> None:
        try:
            columns = [row | (settings_of(p.chip) if p.chip is not None else {}) for p, row in found]
            if any(row["status"] != OK for _, row in found):
                return self._prune(trial, [1.0])
            margins = [x for f in self._after for c in columns for x in f.margins(c)]
            goals = [
                exp(sum(log(f(c)) for c in columns) / len(columns)) if len(columns) > 1 else float(f(columns[0]))
                for f in self._space.study.sample.objective
            ]
        except (FormulaError, ValueError):
            return self._prune(trial, [1.0])
        _constrain(trial, margins)
        self._study.tell(trial, goals)
        return None


def _constrain(trial: Any, margins: Sequence[float]) -> None:
    for n, margin in enumerate(margins):
        trial.set_constraint(str(n), margin)
