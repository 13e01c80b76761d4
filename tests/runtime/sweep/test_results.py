"""Best points, fronts and sensitivities, against pandas and by hand; files, as pandas reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.errors import SystolithError
from systolith.runtime.sweep.formula import read_formula
from systolith.runtime.sweep.results import Results
from systolith.runtime.sweep.run import sweep
from systolith.runtime.sweep.study import Study
from tests.runtime.sweep.studies import study


def results(rows: list[dict[str, Any]], **about: Any) -> Results:
    plain = {"model": "m", "chip": "c", "status": "ok", "reason": "", "cycles": 1, "mxu_utilization": 0.5}
    fields = {name: () for name in rows[0] if "." in name}
    made = Study("s", (), (), fields, **about)
    return Results(made, [plain | row for row in rows], [{} for _ in rows])


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=30))
def test_a_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    found = results([{"seconds": float(a), "hbm.p": b} for a, b in points]).pareto("seconds", "hbm.p")
    expected = [
        (a, b) for a, b in points if not any(x <= a and y <= b and (x, y) != (a, b) for x, y in points)
    ]  # fmt: skip
    assert sorted((row["seconds"], row["hbm.p"]) for row in found) == sorted(expected)


def test_elasticities_are_the_exponents() -> None:
    rows = [{"seconds": 3 * p**-0.7 * q**0.2, "hbm.p": p, "hbm.q": q} for p in (1, 2, 8) for q in (1, 3)]
    found = {s.field: s for s in results(rows).sensitivities()}
    assert found["hbm.p"].elasticity == pytest.approx(-0.7)
    assert found["hbm.q"].elasticity == pytest.approx(0.2)
    assert found["hbm.p"].r2 == pytest.approx(1)


def test_elasticities_are_least_squares() -> None:
    rng = np.random.default_rng(1)
    rows = [{"seconds": rng.uniform(1, 2), "hbm.p": float(rng.uniform(1, 9))} for _ in range(20)]
    (found,) = results(rows).sensitivities()
    frame = pd.DataFrame(rows).apply(np.log)
    slope = np.polyfit(frame["hbm.p"], frame["seconds"], 1)[0]
    assert found.elasticity == pytest.approx(slope)
    assert found.r2 == pytest.approx(np.corrcoef(frame["hbm.p"], frame["seconds"])[0, 1] ** 2)


def test_parameters_that_move_together_have_no_elasticity() -> None:
    assert results([{"seconds": 1.0 / p, "hbm.p": p, "hbm.q": p} for p in (1, 2, 4)]).sensitivities() == []


def test_a_parameter_beside_such_that_move_together_has_its_elasticity() -> None:
    grid = [(x, y) for x in (1, 2, 4) for y in (1, 3, 9)]
    rows = [{"seconds": x**-0.5 / y, "hbm.p": x, "hbm.q": x**2, "mxu.count": y} for x, y in grid]
    (only,) = results(rows).sensitivities()
    assert only.field == "mxu.count"
    assert only.elasticity == pytest.approx(-1)
    assert only.r2 == pytest.approx(1)


def test_files_and_frames_agree(tmp_path: Path) -> None:
    found = sweep(study(tmp_path), workers=1)
    frame = found.frame()
    for name, read in (("r.csv", pd.read_csv), ("r.parquet", pd.read_parquet), ("r.json", pd.read_json)):
        again = read(found.write(tmp_path / name))
        assert list(again.columns) == found.columns
        assert again["cycles"].tolist() == frame["cycles"].tolist()
        assert again["seconds"].to_numpy() == pytest.approx(frame["seconds"].to_numpy())
    (best,) = found.best()
    assert best["seconds"] == frame["seconds"].min()
    with pytest.raises(SystolithError, match=r"r\.xls: results are written as \.csv, \.parquet, \.json"):
        found.write(tmp_path / "r.xls")


VALUES = {"a": 3.0, "b.c": 5, "d": 0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a * b.c + 2 ** 3 // 3 % 2", 15.0),
        ("min(a, b.c) / max(1, 2)", 1.5),
        ("-a < b.c <= 5 and not d", True),
        ("a > 3 or log2(8) == 3", True),
    ],
)
def test_formulas_are_pythons_own_arithmetic(text: str, value: float) -> None:
    assert read_formula(text, "f")(VALUES) == value


@pytest.mark.parametrize("text", ["a / d", "log2(d)", "10.0 ** 400", "gone", "a + "])
def test_formulas_that_fail_say_so(text: str) -> None:
    with pytest.raises(SystolithError, match=r"a formula|column|division|math domain|large|range"):
        read_formula(text, "a formula")(VALUES)


@pytest.mark.parametrize(
    "text", ["a.__class__()", "[a]", "'x'", "lambda: 1", "open(a)", "a if a else a", "f'{a}'", "a := 1"]
)
def test_formulas_are_arithmetic_only(text: str) -> None:
    with pytest.raises(SystolithError, match="is no formula"):
        read_formula(text, "f")


def test_results_have_a_short_repr(tmp_path: Path) -> None:
    assert repr(sweep(study(tmp_path), workers=1)) == "<Results of study: 4 points>"
