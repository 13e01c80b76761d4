"""A study: models, chips, what varies, how points are chosen, what they have to fulfil (docs/sweeps.md)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from systolith.compiler.hlo.values.contraction import PRECISIONS
from systolith.isa.chip import SCHEMA, load_chip
from systolith.isa.chip_energy import UNITS
from systolith.isa.chip_entries import nearest, short
from systolith.isa.chip_rules import KNOWN
from systolith.isa.chip_schema import FIELDS as DECLARED
from systolith.isa.chip_units import is_time, plain, quantity, units_of
from systolith.isa.errors import SystolithError
from systolith.isa.files import read_text
from systolith.runtime.sweep.formula import Formula, read_formula

FIELDS = tuple(name for name in KNOWN if name != "name")
"""Fields that a study can vary; `hbm.gbps` is one."""

METHODS = ("factorial", "latin-hypercube", "optimise")
PROGRAMS = ("tuned", "fixed")
PARTS = (*UNITS, "idle", "leakage")
"""What energy is of: units, the clock, leakage."""

OF_ENERGY = ("joules", "average_watts", "peak_watts", "tops_per_watt", *(f"joules_{part}" for part in PARTS))
"""Columns that a point has on chips that state energies; as in the record of a run."""

MEASURED = (
    "cycles", "seconds", "mxu_utilization", "hbm_read_bytes", "hbm_written_bytes", "instructions", "vmem_high_water",
    *OF_ENERGY, "compile_seconds", "simulate_seconds",
)  # fmt: skip
"""Columns that a point has once it has run."""

_KEYS = ("name", "models", "chips", "program", "vary", "points", "options", "sample", "constraints", "pareto")
_SAMPLE = ("method", "points", "seed", "objective")
_RANGE = ("from", "to", "scale")
_SCALES = ("linear", "log")
MOST_POINTS = 1_000_000


class StudyError(SystolithError):
    """A study is wrong: file, key, value, limit."""


@dataclass(frozen=True)
class Range:
    """All values from `low` to `high`, as likely each, or each ratio where `log`."""

    low: float
    high: float
    log: bool = False


Axis = tuple[Any, ...] | Range


@dataclass(frozen=True)
class Sample:
    """How points are chosen.

    Attributes:
        method: of METHODS.
        points: how many of each chip; 0: all (`factorial`).
        seed: of the generator.
        objective: formulas to be minimised (`optimise`).
    """

    method: str = "factorial"
    points: int = 0
    seed: int = 0
    objective: tuple[Formula, ...] = ()


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        name: which the file of its results carries.
        models: files.
        chips: names or files of base chips.
        vary: values of a field of the chip, by its name.
        points: explicit settings of fields; each is combined with all of `vary`.
        options: values of options of the compiler.
        program: `tuned`: each point is compiled for its chip; `fixed`: one binary runs under other times.
        sample: how points are chosen.
        constraints: formulas that have to hold.
        pareto: formulas that are all to be small.
    """

    name: str
    models: tuple[Path, ...]
    chips: tuple[str, ...]
    vary: Mapping[str, Axis] = field(default_factory=dict)
    points: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    program: str = "tuned"
    sample: Sample = Sample()
    constraints: tuple[Formula, ...] = ()
    pareto: tuple[Formula, ...] = ()

    @property
    def fields(self) -> list[str]:
        """The fields of chips that differ between points, in the order in which the study names them."""
        return list(dict.fromkeys([*self.vary, *(name for point in self.points for name in point)]))


def read_study(path: Path) -> Study:
    """The study in a TOML file; models and chips are found from its folder.

    Raises:
        StudyError: it is none, or impossible.
    """
    try:
        raw = tomllib.loads(read_text(path, StudyError))
    except RecursionError:
        raise StudyError(f"{path}: not TOML that can be read: it nests too deep") from None
    except ValueError as problem:
        raise StudyError(f"{path}: {problem}") from None
    return study_of(raw, str(path), path.parent, path.stem)


def study_of(raw: Mapping[str, Any], what: str = "study", folder: Path = Path(), name: str = "study") -> Study:
    """The study that a mapping declares, as a TOML file would.

    Args:
        raw: its keys.
        what: names it in errors.
        folder: where relative paths begin.
        name: where it has no `name`.

    Raises:
        StudyError: it is none, or impossible.
    """
    read = _Reader(what, folder)
    read.known(raw, _KEYS, "key")
    options = read.options(raw.get("options", {}))
    study = Study(
        name=read.text(raw.get("name", name), "name"),
        models=tuple(read.file(text) for text in read.texts(raw, "models")),
        chips=tuple(read.chip(text) for text in read.texts(raw, "chips")),
        vary=read.vary(raw.get("vary", {})),
        points=read.points(raw["points"]) if "points" in raw else (),
        options=options,
        program=read.one_of(raw.get("program", PROGRAMS[0]), PROGRAMS, "program"),
        sample=read.sample(raw.get("sample", {})),
        constraints=read.formulas(raw.get("constraints", []), "constraints"),
        pareto=read.formulas(raw.get("pareto", []), "pareto"),
    )
    read.fits_together(study)
    return study


@dataclass(frozen=True)
class _Reader:
    """Checks parts of a study; errors name it."""

    what: str
    folder: Path

    def fail(self, text: str) -> StudyError:
        return StudyError(f"{self.what}: {text}")

    def table(self, value: Any, key: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self.fail(f"{key} = {value!r}: must be a table")
        return value

    def known(self, table: Mapping[str, Any], names: Sequence[str], kind: str) -> None:
        for name in table:
            if name not in names:
                near = get_close_matches(str(name), names, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
                raise self.fail(f"{name}: unknown {kind}; {hint}")

    def fields(self, given: Any, key: str) -> dict[str, Any]:
        """The entries of a table of fields of the chip."""
        table = _dotted(self.table(given, key))
        for name in table:
            if name not in FIELDS:
                raise self.fail(f"{name}: unknown field of a chip{nearest(name)}")
        return table

    def text(self, value: Any, key: str) -> str:
        if not isinstance(value, str) or not value:
            raise self.fail(f"{key} = {short(value)}: must be a text")
        return value

    def one_of(self, value: Any, choices: Sequence[str], key: str) -> str:
        if value not in choices:
            raise self.fail(f"{key} = {value!r}: must be one of {', '.join(choices)}")
        return str(value)

    def items(self, value: Any, key: str) -> list[Any]:
        if not isinstance(value, list | tuple) or not value:
            raise self.fail(f"{key} = {value!r}: must be a list with something in it")
        return list(value)

    def texts(self, raw: Mapping[str, Any], key: str) -> list[str]:
        if key not in raw:
            raise self.fail(f"{key}: missing; needed: a list of {'files' if key == 'models' else 'chips'}")
        texts = [self.text(str(item) if isinstance(item, Path) else item, key) for item in self.items(raw[key], key)]
        twice = next((t for t in texts if texts.count(t) > 1), None)
        if twice is not None:
            raise self.fail(f"{key}: {twice!r} is there twice")
        return texts

    def file(self, text: str) -> Path:
        path = self.folder / text
        if not path.is_file():
            raise self.fail(f"models: {text}: no such file")
        return path

    def chip(self, text: str) -> str:
        """A chip that can be loaded, by name or by the path of its file."""
        found = str(self.folder / text) if text.endswith(".toml") else text
        load_chip(found)
        return found

    def value(self, name: str, given: Any) -> Any:
        """A number of the field's unit; times in place of cycles stay as they are, to follow the clock."""
        given = plain(given)
        if isinstance(given, bool | int | float) or (is_time(given) and name in SCHEMA):
            return given
        unit = DECLARED[name].doc.unit if name in DECLARED else "GB/s"
        number = quantity(given, unit) if isinstance(given, str) else None
        if number is None:
            units = f"; units: {units_of(unit)}" if units_of(unit) else ""
            raise self.fail(f"{name} = {given!r}: must be a number, true or false{units}")
        return int(number) if number.denominator == 1 else float(number)

    def values(self, name: str, given: Any) -> tuple[Any, ...]:
        values = [self.value(name, v) for v in (given if isinstance(given, list | tuple) else [given])]
        if not values:
            raise self.fail(f"vary.{name}: must have a value")
        if len({*values}) < len(values):
            raise self.fail(f"vary.{name}: a value is there twice")
        return tuple(values)

    def range(self, name: str, given: Mapping[str, Any]) -> Range:
        self.known(given, _RANGE, f"key of the range of {name}")
        if "from" not in given or "to" not in given:
            raise self.fail(f"vary.{name}: a range has from and to")
        low, high = (self.value(name, given[k]) for k in ("from", "to"))
        if is_time(low) or is_time(high):
            raise self.fail(f"vary.{name}: from {low} to {high}: must be in cycles; a list of values may have times")
        if any(isinstance(x, bool) for x in (low, high)) or not low < high:
            raise self.fail(f"vary.{name}: from {low} to {high}: must be two numbers, the smaller first")
        log = self.one_of(given.get("scale", "linear"), _SCALES, f"vary.{name}.scale") == "log"
        if log and low <= 0:
            raise self.fail(f"vary.{name}: from {low}: must be above 0 for scale log")
        return Range(low, high, log)

    def vary(self, given: Any) -> dict[str, Axis]:
        table = self.fields(given, "vary")
        return {n: self.range(n, v) if isinstance(v, Mapping) else self.values(n, v) for n, v in table.items()}

    def points(self, given: Any) -> tuple[Mapping[str, Any], ...]:
        rows = [self.fields(row, "points") for row in self.items(given, "points")]
        return tuple({n: self.value(n, v) for n, v in row.items()} for row in rows)

    def options(self, given: Any) -> dict[str, tuple[Any, ...]]:
        self.known(self.table(given, "options"), tuple(OPTIONS), "option")
        found = {n: tuple(v) if isinstance(v, list | tuple) else (v,) for n, v in given.items()}
        for name, values in found.items():
            good, needed = OPTIONS[name]
            for value in values:
                if not good(value):
                    raise self.fail(f"options.{name} = {value!r}: must be {needed}")
        return found

    def whole(self, table: Mapping[str, Any], key: str, least: int) -> int:
        value = table.get(key, least)
        if type(value) is not int or not least <= value <= MOST_POINTS:
            raise self.fail(f"sample.{key} = {value!r}: must be a whole number from {least} to {MOST_POINTS}")
        return value

    def sample(self, given: Any) -> Sample:
        self.known(self.table(given, "sample"), _SAMPLE, "key of sample")
        method = self.one_of(given.get("method", METHODS[0]), METHODS, "sample.method")
        factorial, optimise = method == "factorial", method == "optimise"
        if factorial and "points" in given:
            raise self.fail("sample.points: factorial takes all points")
        if not factorial and "points" not in given:
            raise self.fail(f"sample.points: missing; {method} needs how many points of each chip")
        if not optimise and "objective" in given:
            raise self.fail(f"sample.objective: is for method optimise, not for {method}")
        objective = given.get("objective", "seconds")
        return Sample(
            method,
            0 if factorial else self.whole(given, "points", 1),
            self.whole(given, "seed", 0),
            self.formulas(objective, "sample.objective") if optimise else (),
        )

    def formulas(self, given: Any, key: str) -> tuple[Formula, ...]:
        texts = given if isinstance(given, list | tuple) else [given]
        return tuple(read_formula(text, f"{self.what}: {key}") for text in texts)

    def fits_together(self, study: Study) -> None:
        known = {*SCHEMA, *FIELDS, *MEASURED}
        for kind, formulas in (
            ("constraints", study.constraints),
            ("pareto", study.pareto),
            ("sample.objective", study.sample.objective),
        ):
            for formula in formulas:
                for name in sorted(formula.names - known):
                    near = get_close_matches(name, known, 1)
                    hint = f"did you mean {near[0]}?" if near else "a field of a chip or a column of results"
                    raise self.fail(f"{kind}: {formula.text!r}: unknown {name}; {hint}")
        for name in study.vary:
            if any(name in point for point in study.points):
                raise self.fail(f"vary.{name}: is in points too")
        if study.sample.method == "factorial":
            for name, axis in study.vary.items():
                if isinstance(axis, Range):
                    raise self.fail(f"vary.{name}: a range is for latin-hypercube and optimise; give a list of values")
        elif study.points or not study.vary:
            raise self.fail(f"sample.method = {study.sample.method!r}: chooses points in vary, not in a list of points")
        if study.program == "fixed" and study.options.get("autotune", (0,)) != (0,):
            raise self.fail("options.autotune: is for program = 'tuned': a fixed binary is compiled once")


OPTIONS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "precision": (lambda v: v in PRECISIONS, f"one of {', '.join(PRECISIONS)}"),
    "autotune": (lambda v: type(v) is int and v >= 0, "a number of plans, at least 0"),
}
"""Options of the compiler that a study can set: whether a value is good, and what it must be."""


def _dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """The entries by dotted names: `[vary.vmem]` with `bytes` is as good as `"vmem.bytes"`."""
    groups = {name.split(".")[0] for name in FIELDS if "." in name}
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key in groups and isinstance(value, Mapping):
            found |= {f"{key}.{leaf}": v for leaf, v in value.items()}
        else:
            found[key] = value
    return found
