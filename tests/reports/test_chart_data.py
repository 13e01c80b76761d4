"""The numbers behind charts, and that pages and figures draw the same ones."""

import json
import re
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from systolith.reports.causes import FAMILIES, cause, family
from systolith.reports.charts import data
from systolith.reports.charts.study import TableError, elasticities, pareto, sensitivity, shown
from systolith.reports.numbers import percent
from systolith.reports.roofline import peaks
from systolith.reports.run_data import from_json
from systolith.reports.terminal import render_summary
from systolith.sim.causes import DOCS
from tests.reports.fabricate import QUEUES, fabricate
from tests.reports.figure_data import KNOWN, figure_data


def test_known_numbers() -> None:
    assert figure_data() == json.loads(KNOWN.read_text()), "if meant: python -m tests.reports.figure_data"


def test_stacks_add_up_and_rates_give_the_bytes_back() -> None:
    raw = fabricate()
    run = from_json(raw)
    chip = peaks(run.chip_parameters)
    for stack in data.stalls(run).stacks:
        assert sum(n for _, n in stack.parts) == raw["cycles"]
    traffic = data.traffic(run, chip)
    widths = [end - start for start, end in pairwise(traffic.edges)]
    read = sum(rate[0] * n for rate, n in zip(traffic.rates, widths, strict=True))
    assert read == pytest.approx(sum(raw["timeline"]["read"]))
    groups = data.activity(run, chip).groups
    assert [g.start for g in groups[1:]] == [g.start + g.cycles for g in groups[:-1]]


def test_busy_is_the_same_in_bars_figures_and_the_terminal() -> None:
    """Filling a pipeline is work of the unit, in all of them."""
    raw = fabricate()
    raw["units"]["vpu"] = {"busy": 30_000, "fill": 10_000, "wait_s0": raw["cycles"] - 40_000}
    run = from_json(raw)
    bars = {stack.unit: stack.busy / run.total for stack in data.stalls(run).stacks}
    uses = {use.label: use.fraction for use in data.utilisation(run, peaks(run.chip_parameters))}
    assert bars["VPU"] == uses["VPU busy"] == 40_000 / run.total
    console = Console(width=100)
    with console.capture() as printed:
        console.print(*render_summary(raw))
    assert re.search(rf"VPU +│ +{percent(bars['VPU'])} │", printed.get())


@pytest.mark.parametrize("name", [*(n for n in DOCS if "<" not in n), *(f"wait_{q}" for q in QUEUES), "fifo_full_ld"])
def test_every_cause_is_in_one_family(name: str) -> None:
    assert sum(cause(name).css in f.css for f in FAMILIES) == 1
    assert cause(name).css in family(name).css


amounts = st.floats(-1e9, 1e9) | st.integers(-5, 5)
tables = st.lists(st.fixed_dictionaries({"x": amounts, "y": amounts}), min_size=1, max_size=30)


@given(tables)
def test_a_point_is_on_the_front_unless_another_dominates_it(rows: list[dict[str, float]]) -> None:
    found = pareto(rows, "x", "y")
    for point, row in zip(found.points, rows, strict=True):
        beaten = any(
            o["x"] <= row["x"] and o["y"] <= row["y"] and (o["x"] < row["x"] or o["y"] < row["y"]) for o in rows
        )
        assert point.front == (not beaten)


def test_a_data_frame_is_a_table() -> None:
    rows: list[dict[str, object]] = [
        {"area": 1.0, "cycles": 9, "name": "a"},
        {"area": 2.0, "cycles": None, "name": "b"},
    ]
    found = pareto(pd.DataFrame(rows), "area", "cycles", "name")
    assert found == pareto(rows, "area", "cycles", "name")
    assert (len(found.points), found.undrawn, found.points[0].label) == (1, 1, "a")


def test_swings_by_hand() -> None:
    rows = [
        {"parameter": "mxu.count", "value": 1, "cycles": 150},
        {"parameter": "mxu.count", "value": 4, "cycles": 90},
        {"parameter": "vmem.bytes", "value": 8 << 20, "cycles": 300},
        {"parameter": "vmem.bytes", "value": 64, "cycles": float("nan")},
    ]
    found = sensitivity(rows, "cycles", base=100)
    assert [s.parameter for s in found.swings] == ["vmem.bytes", "mxu.count"]
    assert (found.swings[0].high, found.swings[0].high_at) == (3.0, "8Mi")
    assert (found.swings[1].low, found.swings[1].low_at, found.swings[1].high_at) == (0.9, "4", "1")
    assert found.undrawn == 1


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([], "no rows"),
        ([{"x": 1}], "no column 'y'"),
        ([{"x": 1, "y": "much"}], "none of its 1 rows has numbers"),
        ([{"x": 1, "y": True}], "none of its 1 rows has numbers"),
    ],
)
def test_tables_that_cannot_be_drawn(rows: list[dict[str, object]], part: str) -> None:
    with pytest.raises(TableError, match=part):
        pareto(rows, "x", "y")
    with pytest.raises(TableError):
        sensitivity(rows, "y", 1.0, "x", "x")


def test_elasticities_come_strongest_first() -> None:
    rows = [{"field": "a", "elasticity": 0.1}, {"field": "b", "elasticity": -0.5}]
    assert elasticities(rows, "time").bars == (("b", -0.5), ("a", 0.1))
    with pytest.raises(TableError, match="'elasticity' of c is no number: None"):
        elasticities([{"field": "c", "elasticity": None}], "time")


@pytest.mark.parametrize(
    ("value", "text"), [(1 << 20, "1Mi"), (3 << 10, "3Ki"), (1000, "1000"), (0.5, "0.5"), ("x", "x")]
)
def test_values_in_few_characters(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("base", [0.0, -1.0, float("nan"), float("inf")])
def test_a_baseline_is_a_positive_number(base: float) -> None:
    with pytest.raises(TableError, match="positive"):
        sensitivity([{"parameter": "a", "value": 1, "cycles": 1}], "cycles", base)
