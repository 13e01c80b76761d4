"""A sweep: the points of a study that have no result yet are given to a pool, and kept as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from math import prod
from pathlib import Path
from typing import Any

from systolith.isa.checked import checked
from systolith.isa.errors import SystolithError
from systolith.runtime.sweep.optimise import optimise
from systolith.runtime.sweep.points import Point, Space, settings_of
from systolith.runtime.sweep.pool import Pool, pool_for
from systolith.runtime.sweep.results import Results
from systolith.runtime.sweep.store import Store
from systolith.runtime.sweep.study import Study, StudyError, read_study, study_of
from systolith.runtime.sweep.work import BY_OP, FAILED, OK, REFUSED, Job, Row, parsed

POINTS_OF_A_JOB = {"tuned": 1, "fixed": 8}
"""So many points at most, whose results are kept together, does a process at a time."""

JOBS_OF_A_BATCH = {"tuned": 16, "fixed": 1}
"""So many jobs at most of points that have most of their making in common does one process, one after the other."""

SHARES = 4
"""A process is to have so many batches of tuned points at least, so that all have work until the end."""

Watch = Callable[[int, int, int], None]
"""Told how many points are done, how many there are, and how many of those done have no cycles."""


@checked
def sweep(
    study: str | Path | Mapping[str, Any] | Study,
    store: str | Path | None = None,
    workers: int | None = None,
    dask: str | None = None,
    watch: Watch | None = None,
) -> Results:
    """Simulate every point of a study (docs/sweeps.md).

    Args:
        study: a TOML file, or a mapping with its keys.
        store: the SQLite file in which results are kept as they come, and looked up; None: in memory.
        workers: processes; None: one for each processor, 1: in this process.
        dask: address of a Dask scheduler, whose workers do the work instead.
        watch: told how far it is.

    Raises:
        SystolithError: before any work: the study is wrong or impossible, a model or chip cannot be read, the file is
            of another study or cannot be written, no cluster answers.  A point that is refused is a row of the results.
    """
    if isinstance(study, str | Path):
        study = read_study(Path(study))
    elif not isinstance(study, Study):
        study = study_of(study)
    if workers is not None and workers < 1:
        raise StudyError(f"workers = {workers}: must be at least 1")
    space = Space(study)
    _readable(space)
    with Store(Path(store) if store is not None else None, study.name, _most(space)) as kept:
        return _Sweep(space, kept, lambda: pool_for(workers, dask), watch or (lambda *_: None)).run()


def _readable(space: Space) -> None:
    for model in space.models:
        try:
            parsed(model)
        except SystolithError as error:
            raise StudyError(f"models: {error}") from None


def _most(space: Space) -> int:
    """How many points there are at most."""
    study = space.study
    axes = prod(len(axis) for axis in study.vary.values() if isinstance(axis, tuple))
    chosen = study.sample.points or len(study.points or [0]) * axes
    return chosen * len(space.models) * len(space.chips) * len(space.options)


class _Sweep:
    """Carries out a study."""

    def __init__(self, space: Space, store: Store, pool: Callable[[], Pool], watch: Watch) -> None:
        self._space, self._store, self._watch = space, store, watch
        self._open_pool = pool
        self._pool: Pool | None = None
        self._known = store.known()
        self._stored = frozenset(self._known)
        self._results = Results(space.study)
        self._total, self._done, self._bad = _most(space), 0, 0

    def run(self) -> Results:
        try:
            if self._space.study.sample.method == "optimise":
                for point, row in optimise(self._space, self._measured):
                    self._add(point, row)
            else:
                points = list(self._space.points())
                self._results.left_out = self._total - len(points)
                self._total = len(points)
                for point, row in zip(points, self._measured(points), strict=True):
                    self._add(point, row)
        finally:
            if self._pool is not None:
                self._pool.close()
        return self._results

    def _add(self, point: Point, row: Row) -> None:
        chip = settings_of(point.chip) if point.chip is not None else dict(point.settings)
        columns = {name: value for name, value in row.items() if name != BY_OP}
        self._results.rows.append(point.columns(self._space.study) | columns)
        self._results.by_op.append(row.get(BY_OP, {}))
        self._results.values.append(chip)

    def _measured(self, points: Sequence[Point]) -> list[Row]:
        """The results of points, in order: those that are known, and the others as they come."""
        keys = [point.key for point in points]
        missing: dict[str, Point] = {}
        for key, point in zip(keys, points, strict=True):
            if point.chip is None:
                self._known[key] = {"status": REFUSED, "reason": point.refusal}
            elif key not in self._known:
                missing[key] = point
        count = Counter(keys)
        for key, copies in count.items():
            if key not in missing:
                self._results.known += copies * (key in self._stored)
                self._tell(self._known[key], copies)
        if missing:
            self._pool = pool = self._pool or self._open_pool()
            for found in pool.run(self._batches(missing, pool.workers)):
                self._store.add((key, row) for key, row in found if row["status"] != FAILED)
                self._known.update(found)
                self._results.computed += len(found)
                for key, row in found:
                    self._tell(row, count[key])
        return [self._known[key] for key in keys]

    def _batches(self, points: Mapping[str, Point], workers: int) -> Iterator[list[Job]]:
        """Jobs of points whose programs are one; those of programs that have much in common together."""
        program = self._space.study.program
        most = max(1, min(JOBS_OF_A_BATCH[program], len(points) // (SHARES * workers)))
        ordered = sorted(points.items(), key=lambda item: item[1].order)
        for _, group in groupby(ordered, key=lambda item: item[1].family):
            jobs = _jobs(group, POINTS_OF_A_JOB[program])
            while batch := [*islice(jobs, most)]:
                yield batch

    def _tell(self, row: Row, copies: int) -> None:
        self._done += copies
        self._bad += copies * (row["status"] != OK)
        self._watch(self._done, self._total, self._bad)


def _jobs(points: Iterable[tuple[str, Point]], most: int) -> Iterator[Job]:
    """Jobs of so many points at most, whose programs are one."""
    for _, group in groupby(points, key=lambda item: item[1].program):
        while part := [*islice(group, most)]:
            first = part[0][1]
            yield Job(first.model, first.options, [_measurable(key, p) for key, p in part])


def _measurable(key: str, point: Point) -> tuple[str, Any, Any]:
    return key, point.chip, point.compiled_for or point.chip
