from typing import Any

import pytest

from systolith.isa.errors import SystolithError
from systolith.reports.attribution import attribute_run
from systolith.reports.compare import (
    cause_table,
    differences,
    energy_tables,
    figure_table,
    group_table,
    render_comparison,
    verdict,
)
from systolith.reports.run_data import from_json
from tests.reports.fabricate import fabricate, with_energy
from tests.reports.test_html import page
from tests.reports.test_roofline import PEAKS


def half_bandwidth() -> dict[str, Any]:
    """The same module where loads take 1.6 times as long, on half the bandwidth."""
    raw = fabricate(1.6, chip="tpu_v3_slow")
    for row in raw["chip_parameters"]:
        if row["field"] == "hbm.p":
            row["value"] //= 2
    return raw


RUNS = {"base": from_json(fabricate()), "slow": from_json(half_bandwidth())}
BASE, SLOW = RUNS.values()


def test_the_page_has_every_section() -> None:
    found = page(render_comparison({**RUNS, "again": BASE}))
    assert [i for i in found.ids if i in ("run", "headline", "units", "groups", "causes", "chip")] == [
        "run", "headline", "units", "groups", "causes", "chip",
    ]  # fmt: skip
    assert found.tags.count("svg") == 4
    assert "again / base" in found.text
    assert "11250" in found.text


def test_ratios_are_to_the_first_run() -> None:
    rows = {row[0].text: row for row in figure_table(RUNS).rows}
    a, b = BASE.total, SLOW.total
    assert [cell.text for cell in rows["Cycles"][1:]] == [f"{a:,}", f"{b:,}", f"{b / a:.2f}x"]
    assert rows["Bound"][3].value == pytest.approx(2, rel=1e-3)


def test_power_of_runs_and_energy_of_their_units_are_set_side_by_side() -> None:
    base, other = with_energy(fabricate()), with_energy(half_bandwidth())
    other["energy"] |= {"average_watts": 140.0, "tops_per_watt": 0.1, "by_unit": {"mxu": 10**12, "hbm": 5 * 10**12}}
    rows = {row[0].text: row for row in figure_table({"base": from_json(base), "other": from_json(other)}).rows}
    assert rows["Average power"][1].value == 70
    for label, factor in (("Average power", 2), ("Peak power", 1), ("TOPS/W", 0.5), ("Energy: hbm", 2.5)):
        assert rows[label][3].value == pytest.approx(factor)
    assert "Energy: host" not in rows
    assert not any("power" in row[0].text for row in figure_table(RUNS).rows)


def test_energy_and_tops_per_watt_of_units_and_ops_are_set_side_by_side() -> None:
    base, other = with_energy(fabricate()), with_energy(half_bandwidth())
    other["energy"] |= {"by_op": {"dot.0": 3 * 10**12}, "tops_per_watt_by_op": {"dot.0": 0.8}}
    other["energy"] |= {"by_unit": {"mxu": 10**12, "hbm": 5 * 10**12}, "tops_per_watt_by_unit": {"mxu": 2.4}}
    (_, units), (_, ops) = energy_tables({"base": from_json(base), "other": from_json(other)})
    rows = {row[0].value: [cell.text for cell in row[1:]] for row in (*units.rows, *ops.rows)}
    assert rows["mxu"] == ["4.00 mJ", "1.00 mJ", "0.25x", "0.60", "2.40"]
    assert rows["hbm"] == ["2.00 mJ", "5.00 mJ", "2.50x", "1.20", "–"]
    assert rows["leakage"][:3] == ["6.00 mJ", "6.00 mJ", "1.00x"]
    (op,) = ops.rows
    assert [cell.text for cell in op[1:]] == ["6.00 mJ", "3.00 mJ", "0.50x", "0.40", "0.80"]
    assert energy_tables(RUNS) == []


def test_ops_of_another_model_have_no_ratio_of_energies() -> None:
    base, other = with_energy(fabricate()), with_energy(fabricate()) | {"program": "another"}
    _, (_, ops) = energy_tables({"base": from_json(base), "other": from_json(other)})
    assert [cell.text for cell in ops.rows[0][1:4]] == ["6.00 mJ", "6.00 mJ", "–"]


def test_groups_are_matched_by_name() -> None:
    other = fabricate()
    other["groups"][0]["name"] = "renamed"
    other["ops"] = []
    runs = {"base": BASE, "other": from_json(other)}
    rows = {
        row[0].text: [cell.text for cell in row[1:4]]
        for row in group_table(runs, [attribute_run(r, PEAKS) for r in runs.values()]).rows
    }
    assert rows["renamed"] == ["–", "12,900", "–"]
    assert rows["dot_add_fusion"] == ["12,900", "–", "–"]
    assert rows["softmax_fusion"] == ["4,100", "4,100", "1.00x"]


def test_causes_that_changed_come_largest_first() -> None:
    table = cause_table(RUNS)
    moved = [abs(float(row[4].value or 0)) for row in table.rows]
    assert moved == sorted(moved, reverse=True)
    row = next(r for r in table.rows if (r[0].text, r[1].text) == ("DMA load", "busy"))
    change = SLOW.units["ld"]["busy"] - BASE.units["ld"]["busy"]
    assert row[4].text == f"{change:+,}"
    assert cause_table({"a": BASE, "b": BASE}).rows == ()


def test_the_verdict_says_how_much_longer_and_where() -> None:
    text = verdict(RUNS)
    assert f"slow takes {SLOW.total / BASE.total:.2f}x as long as base" in text
    assert "most of it: dot_gelu_fusion +13,020, dot_add_fusion.4 +11,880, dot_add_fusion +7,740 cycles." in text
    shorter = 100 * (1 - BASE.total / SLOW.total)
    assert f"base takes {shorter:.1f} % less time than slow" in verdict({"slow": SLOW, "base": BASE})
    assert verdict({"A": BASE, "B": BASE}) == "B takes as long as A, in 1.00x its cycles."


def test_one_run_is_no_comparison() -> None:
    with pytest.raises(SystolithError, match="2 or more runs, got 1"):
        render_comparison({"base": BASE})


def test_other_work_is_warned_of() -> None:
    assert differences(RUNS) == []
    other = from_json(fabricate(name="gpt2") | {"precision": "highest"})
    precise = from_json(fabricate() | {"precision": "highest"})
    assert differences({"base": BASE, "other": other, "precise": precise}) == [
        "other and base differ in module: gpt2 and bert_base_layer",
        "precise and base differ in precision: highest and default",
    ]
    assert "the times are of different work" in page(render_comparison({"base": BASE, "other": other})).text
    many = {f"run{n}": from_json(fabricate(name=f"jit_{n}")) for n in range(9)}
    assert differences({"base": BASE, "precise": precise, **many}) == [
        "precise and base differ in precision: highest and default",
        "9 runs and base differ in module: jit_0, jit_1, jit_2 (6 more) and bert_base_layer",
    ]


def test_groups_of_another_model_are_not_compared() -> None:
    """Modules that JAX made are often called the same, and so are their instructions."""
    other = fabricate(1.5) | {"hbm_allocated": {"parameter": 8, "result": 8}}
    runs = {"base": BASE, "other": from_json(other), "slow": SLOW}
    assert "most of it" not in verdict({"base": BASE, "other": runs["other"]})
    rows = group_table(runs, [attribute_run(r, PEAKS) for r in runs.values()]).rows
    ratios = {row[0].text: (row[4].text, row[5].text) for row in rows}
    assert ratios["dot_gelu_fusion"] == ("–", "1.60x")
    assert {other for other, _ in ratios.values()} == {"–"}


def test_a_long_comparison_is_cut_on_paper() -> None:
    raw = fabricate()
    raw["groups"] += [{**raw["groups"][0], "name": f"more.{n}", "cycles": 0, "hlo": []} for n in range(30)]
    text = render_comparison({"a": from_json(raw), "b": from_json(raw)})
    assert f"20 of {len(raw['groups'])} rows; the others are in the file." in page(text).text


def test_many_runs_are_compared() -> None:
    runs = {f"run {n}": BASE for n in range(40)}
    assert len(figure_table(runs).heads) == 1 + 40 + 39
    assert "run 39" in page(render_comparison(runs)).text
