"""The numbers behind charts of many design points, from a plain table: a pandas DataFrame or a list of dicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any, Protocol

from systolith.isa.errors import SystolithError


class Frame(Protocol):
    """A pandas DataFrame, as far as type checkers need it."""

    @property
    def columns(self) -> Any: ...


Table = Frame | Iterable[Mapping[str, Any]]


class TableError(SystolithError):
    """A table without rows, or without a column that is asked for."""


@dataclass(frozen=True)
class Design:
    """A design point: its place, its name, and whether no other is better in both."""

    x: float
    y: float
    label: str
    front: bool


@dataclass(frozen=True)
class Pareto:
    """Design points of two figures, both the smaller the better.

    Attributes:
        x, y: names of the columns.
        label: what the points are named by, for people; empty: they are not.
        points: in the table's order.
        undrawn: rows without a finite number for either.
    """

    x: str
    y: str
    label: str
    points: tuple[Design, ...]
    undrawn: int

    @property
    def front(self) -> list[Design]:
        """Points that no other is better than in both, from the smallest x."""
        return sorted((p for p in self.points if p.front), key=lambda p: (p.x, p.y))


def pareto(table: Table, x: str, y: str, label: str | None = None) -> Pareto:
    """The Pareto front of a table for two columns, the smaller the better.

    A point is on the front if no other is as small in one column and smaller in the other.

    Raises:
        TableError: no row has both, or there is no such column.
    """
    rows = _rows(table, [x, y, *([label] if label else [])])
    found = [(_number(row[x]), _number(row[y]), str(row[label]) if label else "") for row in rows]
    drawn = [(a, b, name) for a, b, name in found if a is not None and b is not None]
    if not drawn:
        raise TableError(f"table: none of its {len(rows)} rows has numbers for both {x!r} and {y!r}")
    front, best = set(), float("inf")
    for a, b in sorted({(a, b) for a, b, _ in drawn}):
        if b < best:
            front.add((a, b))
            best = b
    points = tuple(Design(a, b, name, (a, b) in front) for a, b, name in drawn)
    return Pareto(x, y, label or "", points, len(rows) - len(drawn))


@dataclass(frozen=True)
class Swing:
    """How far a metric goes when one parameter changes.

    Attributes:
        parameter: its name.
        low, high: the smallest and the largest metric, over the baseline's.
        low_at, high_at: the parameter's values there.
    """

    parameter: str
    low: float
    high: float
    low_at: str
    high_at: str


@dataclass(frozen=True)
class Sensitivity:
    """Swings, the longest first; `base` is the baseline's metric."""

    metric: str
    base: float
    swings: tuple[Swing, ...]
    undrawn: int


def sensitivity(
    table: Table, metric: str, base: float, parameter: str = "parameter", value: str = "value"
) -> Sensitivity:
    """How a metric depends on parameters that were changed one at a time.

    Args:
        table: a row for each change: the name of the parameter, its value, the metric.
        metric: name of the metric's column.
        base: metric of the baseline.
        parameter, value: names of the other columns.

    Raises:
        TableError: the baseline is not a positive number, no row has the metric, or there is no such column.
    """
    if not (isfinite(base) and base > 0):
        raise TableError(f"base = {base}: a positive number is needed, for ratios to it")
    rows = _rows(table, [parameter, value, metric])
    by_parameter: dict[str, list[tuple[float, str]]] = {}
    for row in rows:
        if (amount := _number(row[metric])) is not None:
            by_parameter.setdefault(str(row[parameter]), []).append((amount / base, shown(row[value])))
    if not by_parameter:
        raise TableError(f"table: none of its {len(rows)} rows has a number for {metric!r}")
    swings = []
    for name, found in by_parameter.items():
        (low, low_at), (high, high_at) = min(found, key=lambda f: f[0]), max(found, key=lambda f: f[0])
        swings.append(Swing(name, low, high, low_at, high_at))
    swings.sort(key=lambda s: min(1.0, s.low) - max(1.0, s.high))
    return Sensitivity(metric, base, tuple(swings), len(rows) - sum(map(len, by_parameter.values())))


@dataclass(frozen=True)
class Elasticities:
    """Percents of a metric for one percent of each parameter, the strongest first."""

    metric: str
    bars: tuple[tuple[str, float], ...]


def elasticities(table: Table, metric: str, parameter: str = "field", value: str = "elasticity") -> Elasticities:
    """How a metric follows parameters, from a row for each: its name, its elasticity.

    Raises:
        TableError: a row has no number, or there is no such column.
    """
    bars = []
    for row in _rows(table, [parameter, value]):
        if (amount := _number(row[value])) is None:
            raise TableError(f"table: {value!r} of {row[parameter]} is no number: {row[value]!r}")
        bars.append((str(row[parameter]), amount))
    return Elasticities(metric, tuple(sorted(bars, key=lambda bar: -abs(bar[1]))))


def _rows(table: Table, columns: Sequence[str]) -> list[Mapping[str, Any]]:
    records: Any = table
    rows: list[Mapping[str, Any]] = records.to_dict("records") if hasattr(table, "to_dict") else list(records)
    if not rows:
        raise TableError("table: it has no rows")
    for number, row in enumerate(rows):
        for column in columns:
            if column not in row:
                raise TableError(f"table: row {number} has no column {column!r}; there are: {', '.join(map(str, row))}")
    return rows


def _number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if isfinite(value) else None


def shown(value: object) -> str:
    """A parameter's value in few characters: sizes in Mi or Ki."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    number = float(value)
    for scale, prefix in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if number >= scale and number % scale == 0:
            return f"{number / scale:g}{prefix}"
    return f"{number:.4g}"
