"""The results of a sweep: a table, its best points, Pareto fronts and sensitivities."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from systolith.isa.chip_energy import UNITS
from systolith.isa.errors import SystolithError
from systolith.isa.files import Fill, json_text, make_folder, text_fill, write_all
from systolith.runtime.sweep.extras import need
from systolith.runtime.sweep.formula import Formula, FormulaError, read_formula
from systolith.runtime.sweep.study import MEASURED, PARTS, Study
from systolith.runtime.sweep.work import OK, Row

if TYPE_CHECKING:
    from pandas import DataFrame

TABLES = ("pareto.csv", "elasticities.csv", "energy.csv")

OF_PARTS = ("of", "name", "joules", "tops_per_watt")
"""Columns of the energy of a part of a point, beside those of the point."""


@dataclass(frozen=True)
class Sensitivity:
    """How the time of a model follows a parameter.

    Attributes:
        model, chip: of which points.
        field: the parameter.
        elasticity: percents of time for one percent of the parameter, least squares over all points.
        r2: part of the variance of log time that all parameters together explain so.
        points: how many there are.
    """

    model: str
    chip: str
    field: str
    elasticity: float
    r2: float
    points: int


@dataclass(repr=False)
class Results:
    """The points of a sweep and what they took.

    Attributes:
        study: the study.
        rows: one of each point: columns of the point, `status`, `reason`, and `MEASURED`.
        values: all fields of the chip of each row, for formulas.
        by_op: of each row, joules, and TOPS/W or None, of the HLO instructions with most energy.
        known: how many were in the file already.
        computed: how many were simulated now.
        left_out: how many more the study has whose chips break a constraint; an optimiser asks for none such.
    """

    study: Study
    rows: list[Row] = field(default_factory=list)
    values: list[Mapping[str, Any]] = field(default_factory=list)
    by_op: list[Mapping[str, Sequence[float | None]]] = field(default_factory=list)
    known: int = 0
    computed: int = 0
    left_out: int = 0

    def __repr__(self) -> str:
        bad = f", {len(self.failures)} without cycles" if self.failures else ""
        return f"<Results of {self.study.name}: {len(self.rows)} points{bad}>"

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return [*self._of_points, "status", "reason", *MEASURED]

    @property
    def _of_points(self) -> list[str]:
        return ["model", "chip", *self.study.fields, *self.study.options, "program"]

    @property
    def failures(self) -> list[Row]:
        """The points that have no cycles."""
        return [row for row in self.rows if row["status"] != OK]

    @property
    def ok(self) -> bool:
        """Whether every point ran."""
        return not self.failures

    @property
    def broken(self) -> int:
        """How many points ran, and break a constraint on results."""
        return len(self.rows) - len(self.failures) - len(self.good())

    def frame(self) -> DataFrame:
        """A pandas frame of all rows.

        Raises:
            SystolithError: pandas is not installed.
        """
        pandas = need("pandas")
        frame: DataFrame = pandas.DataFrame(self.rows, columns=self.columns)
        return frame

    def value(self, formula: Formula, n: int) -> float:
        """The value of a formula for row `n`.

        Raises:
            FormulaError: it has none there.
        """
        return float(formula({**self.values[n], **self.rows[n]}))

    def good(self) -> list[int]:
        """The rows that ran and fulfil the constraints."""
        good = [n for n, row in enumerate(self.rows) if row["status"] == OK]
        return [n for n in good if all(f({**self.values[n], **self.rows[n]}) for f in self.study.constraints)]

    def best(self, objective: str = "seconds") -> list[Row]:
        """The row with the least value of a formula, of each model.

        Raises:
            FormulaError: it is no formula of columns.
        """
        formula = read_formula(objective, "best")
        good = sorted(self.good(), key=lambda n: (self.rows[n]["model"], self.value(formula, n), n))
        return [self.rows[next(group)] for _, group in groupby(good, key=lambda n: self.rows[n]["model"])]

    def pareto(self, *objectives: str) -> list[Row]:
        """The rows of each model that no other row beats in one formula without losing in another.

        Args:
            objectives: formulas that are to be small; none: those of the study.

        Raises:
            FormulaError: one is no formula of columns; there are none.
        """
        formulas = [read_formula(text, "pareto") for text in objectives] or list(self.study.pareto)
        if not formulas:
            raise FormulaError("pareto: needs formulas that are to be small, such as 'seconds' and 'vmem.bytes'")
        front: list[Row] = []
        good = sorted(self.good(), key=lambda n: self.rows[n]["model"])
        for _, group in groupby(good, key=lambda n: self.rows[n]["model"]):
            numbers = list(group)
            costs = np.array([[self.value(f, n) for f in formulas] for n in numbers])
            kept = [n for n, cost in zip(numbers, costs, strict=True) if not _beaten(cost, costs)]
            front += [self.rows[n] for n in sorted(kept, key=lambda n: self.value(formulas[0], n))]
        return front

    def sensitivities(self) -> list[Sensitivity]:
        """The elasticity of time to each parameter that varies, for each model and base chip."""
        found = []
        good = [row for row in self.rows if row["status"] == OK]
        for model, chip in dict.fromkeys((row["model"], row["chip"]) for row in good):
            found += _sensitivities(model, chip, [r for r in good if (r["model"], r["chip"]) == (model, chip)], self)
        return found

    def energy(self) -> list[Row]:
        """The energy of each point that has any, by unit and by HLO op.

        A row has the columns of the point, `of`: "unit" or "op", `name`, `joules`, and `tops_per_watt`: the useful
        operations of all products over the energy of the unit alone, or those of the op over that of its events.
        """
        found = []
        for row, ops in zip(self.rows, self.by_op, strict=True):
            if row.get("joules") is None:
                continue
            point = {name: row[name] for name in self._of_points}
            useful = row["tops_per_watt"] * row["joules"]
            units = {part: row[f"joules_{part}"] for part in PARTS}
            tops = {unit: useful / units[unit] for unit in UNITS if units[unit] and useful}
            parts: list[tuple[Any, ...]] = [("unit", part, joules, tops.get(part)) for part, joules in units.items()]
            parts += [("op", op, *values) for op, values in ops.items()]
            found += [point | dict(zip(OF_PARTS, part, strict=True)) for part in parts]
        return found

    def fills(self, path: Path) -> dict[Path, Fill]:
        """The table as a file: CSV, Parquet or JSON by its ending.

        Raises:
            SystolithError: another ending, or a library is not installed.
        """
        return {path: writer_of(path)(self)}

    def tables(self, folder: Path) -> tuple[dict[Path, Fill], list[str]]:
        """`pareto.csv`, `elasticities.csv` and `energy.csv` in a folder, with what fills them.

        A row of the front is a point, its formulas' values under their texts; one of elasticities a `Sensitivity`; of
        energies, which not all chips state, one of `energy`.

        Returns:
            the files, and a line for each one that the study has nothing for.
        """
        files: dict[Path, Fill] = {}
        missing = []
        front_file, found_file, energy_file = (folder / name for name in TABLES)
        if formulas := self.study.pareto:
            columns = list(dict.fromkeys([*self.columns, *(f.text for f in formulas)]))
            numbers = {id(row): n for n, row in enumerate(self.rows)}
            front = [{f.text: self.value(f, numbers[id(row)]) for f in formulas} | row for row in self.pareto()]
            files[front_file] = _csv_fill(columns, front)
        else:
            missing.append("no pareto.csv: the study has no formulas in `pareto`")
        if found := self.sensitivities():
            names = [f.name for f in fields(Sensitivity)]
            files[found_file] = _csv_fill(names, [vars(s) for s in found])
        else:
            missing.append("no elasticities.csv: too few points, or what varies has no numbers above 0")
        if parts := self.energy():
            files[energy_file] = _csv_fill([*self._of_points, *OF_PARTS], parts)
        return files, missing

    def write_tables(self, folder: str | Path) -> Path:
        """Write `tables` into a folder; those that the study has nothing for are left out."""
        make_folder(Path(folder))
        write_all(self.tables(Path(folder))[0])
        return Path(folder)

    def write(self, path: str | Path) -> Path:
        """Write the table; as `fills`."""
        write_all(self.fills(Path(path)))
        return Path(path)


def _beaten(cost: Any, costs: Any) -> bool:
    return bool(((costs <= cost).all(axis=1) & (costs < cost).any(axis=1)).any())


def _sensitivities(model: str, chip: str, rows: Sequence[Row], results: Results) -> list[Sensitivity]:
    """By least squares of the logarithm of time on those of the parameters; options are levels of their own."""
    names = [f for f in results.study.fields if len({row[f] for row in rows}) > 1]
    names = [f for f in names if all(_positive(row[f]) for row in rows)]
    levels = list(dict.fromkeys(tuple(row[o] for o in results.study.options) for row in rows))
    if not names or len(rows) < len(names) + len(levels):
        return []
    logs = np.array([[log(row[f]) for f in names] for row in rows])
    level = np.array([[tuple(r[o] for o in results.study.options) == one for one in levels] for r in rows], float)
    time = np.log([row["seconds"] for row in rows])
    design = np.hstack([logs, level])
    solved, _, rank, _ = np.linalg.lstsq(design, time, rcond=None)
    spread = float(((time - time.mean()) ** 2).sum())
    r2 = 1 - float(((time - design @ solved) ** 2).sum()) / spread if spread > 0 else 1.0
    # Parameters that move together have no share of their own: without one of them the others say as much.
    alone = [np.linalg.matrix_rank(np.delete(design, n, axis=1)) < rank for n in range(len(names))]
    return [Sensitivity(model, chip, f, float(solved[n]), r2, len(rows)) for n, f in enumerate(names) if alone[n]]


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _csv(results: Results) -> Fill:
    return _csv_fill(results.columns, results.rows)


def _csv_fill(columns: Sequence[str], rows: Sequence[Row]) -> Fill:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text_fill(text.getvalue())


def _parquet(results: Results) -> Fill:
    need("pyarrow")
    frame = results.frame()
    return lambda handle: frame.to_parquet(handle, index=False)


def _json(results: Results) -> Fill:
    rows = [{name: row.get(name) for name in results.columns} for row in results.rows]
    return text_fill(json_text(rows, indent=1) + "\n")


_WRITERS: Mapping[str, Callable[[Results], Fill]] = {".csv": _csv, ".parquet": _parquet, ".json": _json}


def writer_of(path: Path) -> Callable[[Results], Fill]:
    """Choose the writer of a file of results by its suffix.

    Raises:
        SystolithError: no writer has this suffix.
    """
    if path.suffix not in _WRITERS:
        raise SystolithError(f"{path}: results are written as {', '.join(_WRITERS)}: give a name with such an ending")
    if path.suffix == ".parquet":
        need("pyarrow")
    return _WRITERS[path.suffix]
