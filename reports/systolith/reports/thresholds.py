"""Thresholds of a run's figures, from a file, for tests of performance: what got worse.

    baseline = "base.json"      # a record, beside this file; needed for `worse`

    [figures.cycles]
    most = 160_000              # or `least`
    worse = 0.02                # at most 2 % worse than the baseline's

    [groups."fusion.3".cycles]  # a fusion group by name
    most = 20_000

Cycles, seconds, bytes and instructions get worse as they grow; shares of the MXUs' peak as they fall.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from systolith.isa.errors import SystolithError
from systolith.isa.files import read_text
from systolith.reports.numbers import percent
from systolith.reports.roofline import mxu_use, peaks
from systolith.reports.run_data import Group, RunData, load_run, short, timed


class ThresholdError(SystolithError):
    """A file of thresholds breaks its schema, or a run lacks what it names."""


@dataclass(frozen=True)
class Measure:
    """A figure of a run: its value, and whether more of it is worse."""

    of: Callable[[RunData], float | None]
    more_is_worse: bool = True


FIGURES = {
    "cycles": Measure(lambda run: run.total),
    "seconds": Measure(lambda run: run.seconds),
    "instructions": Measure(lambda run: run.instructions),
    "hbm_bytes": Measure(lambda run: run.hbm_bytes.read + run.hbm_bytes.written),
    "hbm_allocated": Measure(lambda run: sum(run.hbm_allocated.values())),
    "vmem_high_water": Measure(lambda run: run.vmem_high_water),
    "joules": Measure(lambda run: run.energy.joules if run.energy else None),
    "mxu_busy": Measure(lambda run: mxu_use(run, peaks(run.chip_parameters)).busy, False),
    "mxu_active": Measure(lambda run: mxu_use(run, peaks(run.chip_parameters)).active, False),
    "mxu_useful": Measure(lambda run: mxu_use(run, peaks(run.chip_parameters)).useful, False),
}
GROUP_FIGURES: dict[str, Callable[[Group], float]] = {
    "cycles": lambda group: group.cycles,
    "instructions": lambda group: group.instructions,
    "hbm_bytes": lambda group: group.hbm_bytes.read + group.hbm_bytes.written,
}
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Threshold(BaseModel):
    """Limits of a figure: `most` and `least` absolute, `worse` a share of the baseline's."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    most: int | Finite | None = None
    least: int | Finite | None = None
    worse: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _limits(self) -> Threshold:
        if self.most is self.least is self.worse is None:
            raise ValueError("needs most, least or worse")
        return self


class Thresholds(BaseModel):
    """The contents of a file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    baseline: str | None = None
    figures: dict[str, Threshold] = {}
    groups: dict[str, dict[str, Threshold]] = {}


@dataclass(frozen=True)
class Finding:
    """A threshold that does not hold: the figure, what it is, and what it may be (`limit` says which limit)."""

    figure: str
    value: float
    bound: float
    limit: str

    def __str__(self) -> str:
        sign = "+" if self.value > self.bound else ""
        change = f" ({sign}{percent(self.value / self.bound - 1)})" if self.bound else ""
        return f"{self.figure}: {_shown(self.value)}, {self.limit} {_shown(self.bound)}{change}"


def load_thresholds(path: Path) -> tuple[Thresholds, RunData | None]:
    """A file of thresholds, and the baseline that it names.

    Raises:
        SystolithError: it cannot be read, is not TOML or breaks the schema: file, key, value.
    """
    try:
        raw = tomllib.loads(read_text(path, ThresholdError))
    except tomllib.TOMLDecodeError as error:
        raise ThresholdError(f"{path}: not TOML: {error}") from None
    try:
        found = Thresholds.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("int", "float"))
        if first["type"] == "extra_forbidden":
            keys = ", ".join((Threshold if len(first["loc"]) > 1 else Thresholds).model_fields)
            raise ThresholdError(f"{path}: {where}: unknown key; there are: {keys}") from None
        raise ThresholdError(f"{path}: {where} = {short(first['input'])}: {first['msg'].lower()}") from None
    asked = [("figures", found.figures, list(FIGURES))]
    asked += [(f"groups.{name}", limits, list(GROUP_FIGURES)) for name, limits in found.groups.items()]
    for where, limits, known in asked:
        for figure, limit in limits.items():
            if figure not in known:
                raise ThresholdError(f"{path}: {where}.{figure}: no such figure; there are: {', '.join(known)}")
            if limit.worse is not None and found.baseline is None:
                raise ThresholdError(f"{path}: {where}.{figure}.worse: needs a baseline, the path of a run's JSON")
    if not any(limits for _, limits, _ in asked):
        raise ThresholdError(f'{path}: no thresholds: [figures.cycles], or [groups."NAME".cycles], with most = N')
    base = path.parent / found.baseline if found.baseline else None
    return found, timed(load_run(base), str(base)) if base else None


def check(run: RunData, wanted: Thresholds, base: RunData | None) -> list[Finding]:
    """The thresholds that do not hold for a timed run, in the file's order.

    Raises:
        ThresholdError: the run or the baseline has no such group or figure.
    """
    found = []
    for name, limit in wanted.figures.items():
        of = FIGURES[name]
        before = _known(of.of(base), name, base) if base and limit.worse is not None else None
        found += _beyond(name, _known(of.of(run), name, run), before, limit, of.more_is_worse)
    for group, limits in wanted.groups.items():
        for name, limit in limits.items():
            figure = f"{group} {name}"
            of_group = GROUP_FIGURES[name]
            before = of_group(_group(base, group)) if base and limit.worse is not None else None
            found += _beyond(figure, of_group(_group(run, group)), before, limit, True)
    return found


def _beyond(figure: str, value: float, base: float | None, limit: Threshold, more_is_worse: bool) -> list[Finding]:
    found = []
    if limit.most is not None and value > limit.most:
        found.append(Finding(figure, value, limit.most, "at most"))
    if limit.least is not None and value < limit.least:
        found.append(Finding(figure, value, limit.least, "at least"))
    if base is not None and limit.worse is not None:
        grown = value > base * (1 + limit.worse) if more_is_worse else value < base * (1 - limit.worse)
        if grown:
            found.append(Finding(figure, value, base, "baseline"))
    return found


def _known(value: float | None, name: str, run: RunData | None) -> float:
    if value is None:
        raise ThresholdError(f"{run.title if run else 'run'}: figures.{name}: the record does not have it")
    return value


def _group(run: RunData | None, name: str) -> Group:
    groups: dict[str, Any] = {g.name: g for g in run.groups} if run else {}
    if name not in groups:
        raise ThresholdError(f"{run.title if run else 'run'}: groups.{name}: the run has no such group")
    found: Group = groups[name]
    return found


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
