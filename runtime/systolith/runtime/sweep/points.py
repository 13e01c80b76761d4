"""The points of a study: which chips, with which options, for which models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version as version_of
from itertools import product
from math import exp, log, log2, prod
from pathlib import Path
from typing import Any

import systolith.compiler
import systolith.isa
import systolith.sim
from systolith.compiler import plugins
from systolith.isa.chip import SCHEMA, Chip, describe, load_chip, value_of, variant
from systolith.isa.chip_entries import GBPS
from systolith.isa.chip_schema import TIME_FIELDS, describe_beside
from systolith.isa.errors import ConfigError
from systolith.isa.files import read_bytes
from systolith.runtime.inputs.sources import SourceError
from systolith.runtime.sweep.formula import Formula
from systolith.runtime.sweep.registered import NOTHING, Registered
from systolith.runtime.sweep.study import MEASURED, MOST_POINTS, OF_ENERGY, Axis, Range, Study, StudyError

_ORDER = sorted(SCHEMA.keys() - {"name"}, key=lambda name: (name in TIME_FIELDS, name == "clock_mhz", name))

_TIMES = sum(name in TIME_FIELDS for name in _ORDER)

_TRIED = 4096  # settings in ranges, before constraints are said to be impossible


@dataclass(frozen=True)
class Model:
    """A module, as its file has it.

    Attributes:
        name: of the file.
        data: its bytes.
        digest: of them, and of what is registered.
        registered: for its custom calls.
    """

    name: str
    data: bytes
    digest: str
    registered: Registered = NOTHING


@dataclass(frozen=True)
class Point:
    """A point of the design space.

    Attributes:
        model: what runs.
        base: name or file of the chip that is varied.
        settings: values of fields, as the study has them.
        options: of the compiler.
        chip: where it runs; None: there is no such chip.
        compiled_for: for which chip the program is compiled; None: for `chip`.
        refusal: why there is no such chip.
    """

    model: Model
    base: str
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    chip: Chip | None
    compiled_for: Chip | None = None
    refusal: str = ""

    @property
    def key(self) -> str:
        """Digest of all that its result depends on: 32 hexadecimal digits."""
        chip = self.chip.digest() if self.chip is not None else [self.base, sorted(self.settings.items())]
        energy = repr(self.chip.energy) if self.chip is not None else ""  # no part of the chip's digest
        fixed = self.compiled_for.digest() if self.compiled_for is not None else ""
        parts = [self.model.digest, chip, energy, fixed, sorted(self.options.items()), version()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def program(self) -> tuple[str, str, str]:
        """Digests of all that its program depends on: points with the same one come one after the other."""
        chip = self.compiled_for or self.chip
        return self.model.digest, json.dumps(sorted(self.options.items())), chip.digest() if chip is not None else ""

    @property
    def order(self) -> tuple[Any, ...]:
        """Points with the same program come one after the other, then such as may have the same program."""
        chip = self.compiled_for or self.chip
        return *self.program[:2], *(value_of(chip, name) for name in _ORDER if chip is not None)

    @property
    def family(self) -> tuple[Any, ...]:
        """Of points of one program, and of those that differ in times alone, which have most of their making."""
        return self.program if self.compiled_for is not None else self.order[: len(self.order) - _TIMES]

    def columns(self, study: Study) -> dict[str, Any]:
        """The columns that say which point it is."""
        named = {"model": self.model.name, "chip": self.base} | {f: self.settings.get(f) for f in study.fields}
        if self.chip is not None:
            values = settings_of(self.chip)
            named |= {f: values[f] for f in study.fields if f != GBPS}
        return named | {name: self.options.get(name) for name in study.options} | {"program": study.program}


@lru_cache(maxsize=1)
def version() -> str:
    """The version of systolith, and a digest of the sources and installed extensions that results depend on."""
    digest = hashlib.sha256(plugins.stamp().encode())
    for package in (systolith.isa, systolith.compiler, systolith.sim):
        for folder in package.__path__:
            for path in sorted(p for p in Path(folder).rglob("*") if p.suffix in {".py", ".toml"}):
                digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return f"{version_of('systolith')} {digest.hexdigest()[:12]}"


def settings_of(chip: Chip) -> dict[str, Any]:
    """All fields of a chip that it states, and its bandwidth, by their names in formulas."""
    values = {row.field: row.value for row in (*describe(chip), *describe_beside(chip))}
    return values | {GBPS: chip.hbm.p / chip.hbm.q * chip.clock_mhz / 1000}


def read_models(study: Study) -> list[Model]:
    """The models of a study, each once.

    Raises:
        StudyError: two have one name, so that nobody could tell their results apart.
    """
    models = []
    for path in study.models:
        data = read_bytes(path, SourceError)
        registered = Registered.of(data)
        digest = hashlib.sha256(data + (repr(registered).encode() if registered != NOTHING else b""))
        models.append(Model(path.name, data, digest.hexdigest(), registered))
    names = [m.name for m in models]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise StudyError(f"models: two files are called {twice}: give one another name")
    return models


class Space:
    """The points that a study can have.

    Args:
        study: the study.

    Raises:
        SystolithError: a model or a chip cannot be read, there are too many points, or no point is possible.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.models = read_models(study)
        self.chips = {name: load_chip(name) for name in study.chips}
        self.options = [dict(zip(study.options, v, strict=True)) for v in product(*study.options.values())]
        self._need_what_formulas_name()
        self._before = [f for f in study.constraints if not f.names & {*MEASURED}]
        each = len(self.models) * len(self.options) * len(self.chips)
        count = each * (study.sample.points or len(study.points or [0]) * prod(map(_length, study.vary.values())))
        if count > MOST_POINTS:
            raise StudyError(f"{study.name}: {count} points: must be at most {MOST_POINTS}")
        self._settings = self._chosen()
        if not any(self.possible(base, s) for base in self.chips for s in self._settings):
            texts = " and ".join(repr(f.text) for f in self._before) or "the limits of chips"
            raise StudyError(f"{study.name}: no point fulfils {texts}{self._example()}")

    def _need_what_formulas_name(self) -> None:
        """Refuse formulas of energies and areas that a chip does not state, before any work."""
        study = self.study
        for name, chip in self.chips.items():
            measured = {*MEASURED}.difference(OF_ENERGY if chip.energy is None else ())
            stated = settings_of(chip).keys() | study.fields | measured
            for formula in (*study.constraints, *study.pareto, *study.sample.objective):
                for lacking in sorted(formula.names - stated):
                    what = lacking if lacking.startswith("area.") else "energies ([energy] in its file)"
                    text = f"chip {name} states no {what}: take another, or leave {lacking} out"
                    raise StudyError(f"{study.name}: {formula.text!r}: {text}")

    def _chosen(self) -> list[dict[str, Any]]:
        """The settings of points, for any chip; for an optimiser such as show that its constraints are possible."""
        study = self.study
        if study.sample.method == "factorial":
            grid = [
                dict(zip(study.vary, values, strict=True)) for values in product(*map(_listed, study.vary.values()))
            ]
            return [{**point, **values} for point in study.points or ({},) for values in grid]
        optimise = study.sample.method == "optimise"
        count = _TRIED if optimise and self._before else study.sample.points
        return list(latin_hypercube(study.vary, count, study.sample.seed))

    def _example(self) -> str:
        """Why the first point is none, if no chip is possible at all."""
        base = next(iter(self.chips))
        try:
            variant(self.chips[base], self._settings[0])
        except ConfigError as error:
            return f"; the first: {error}"
        return ""

    def possible(self, base: str, settings: Mapping[str, Any]) -> bool:
        """Whether there is such a chip, and it fulfils the constraints on chips."""
        try:
            chip = variant(self.chips[base], settings)
        except ConfigError:
            return False
        return self.allowed(chip)

    def allowed(self, chip: Chip) -> bool:
        """Whether a chip fulfils the constraints that need no result."""
        columns = settings_of(chip) if self._before else {}
        return all(formula(columns) for formula in self._before)

    @property
    def constraints(self) -> Sequence[Formula]:
        """Those on chips alone."""
        return self._before

    def points(self) -> Iterator[Point]:
        """All points; those whose chip breaks a constraint are left out."""
        for model, base, options in product(self.models, self.chips, self.options):
            for settings in self._settings:
                point = self.point(model, base, settings, options)
                if point.chip is None or self.allowed(point.chip):
                    yield point

    def point(self, model: Model, base: str, settings: Mapping[str, Any], options: Mapping[str, Any]) -> Point:
        """One point."""
        origin = self.chips[base]
        try:
            chip = variant(origin, settings)
        except ConfigError as error:
            return Point(model, base, settings, options, None, None, str(error))
        if self.study.program == "tuned":
            return Point(model, base, settings, options, chip)
        return Point(model, base, settings, options, chip, with_times_of(chip, origin))


def with_times_of(chip: Chip, other: Chip) -> Chip:
    """The chip, but with the times of another."""
    changed: dict[str, Any] = {}
    for name in TIME_FIELDS:
        group, _, leaf = name.rpartition(".")
        if group:
            changed[group] = replace(changed.get(group, getattr(chip, group)), **{leaf: value_of(other, name)})
        else:
            changed[leaf] = value_of(other, name)
    return replace(chip, **changed)


def _length(axis: Axis) -> int:
    return 1 if isinstance(axis, Range) else len(axis)


def _listed(axis: Axis) -> Sequence[Any]:
    assert not isinstance(axis, Range), "refused when the study was read"
    return axis


def latin_hypercube(vary: Mapping[str, Axis], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Settings that divide each axis into as many parts as there are points, with one point in each."""
    from systolith.runtime.sweep.extras import need

    qmc = need("scipy.stats.qmc")
    sampled = qmc.LatinHypercube(d=len(vary), seed=seed).random(count)
    for row in sampled.tolist():
        yield {name: at_share(name, axis, x) for (name, axis), x in zip(vary.items(), row, strict=True)}


def at_share(name: str, axis: Axis, x: float) -> Any:
    """The value at a share from 0 to 1 of an axis."""
    if not isinstance(axis, Range):
        return axis[min(int(x * len(axis)), len(axis) - 1)]
    if name in SCHEMA and SCHEMA[name].doc.power:
        powers = _powers_of_two(axis)
        return powers[min(int(x * len(powers)), len(powers) - 1)]
    value = exp(log(axis.low) + x * log(axis.high / axis.low)) if axis.log else axis.low + x * (axis.high - axis.low)
    if name not in SCHEMA or SCHEMA[name].type is not int:
        return value
    step = SCHEMA[name].doc.multiple
    return round(value / step) * step


def _powers_of_two(axis: Range) -> list[int]:
    """The powers of two in a range.

    Raises:
        StudyError: there is none.
    """
    first = max(0, int(log2(max(axis.low, 1))))
    found = [1 << n for n in range(first, int(log2(max(axis.high, 1))) + 1) if axis.low <= 1 << n <= axis.high]
    if not found:
        raise StudyError(f"from {axis.low} to {axis.high}: no power of two is there")
    return found
