import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from systolith.isa.errors import SystolithError
from systolith.reports.attribution import attribute_run
from systolith.reports.charts import data
from systolith.reports.charts.labels import Box
from systolith.reports.charts.roofline import roofline
from systolith.reports.html import render_report, write_report
from systolith.reports.run_data import Group, from_json
from tests.reports.fabricate import fabricate
from tests.reports.test_roofline import PEAKS

SECTIONS = "run headline units roofline groups ops traffic timeline memory checks chip".split()
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Contents of a page: ids, links, text; and that every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.resources: list[str] = []
        self.anchors: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self._open.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "data", "action") and value:
                (self.anchors if value.startswith("#") else self.resources).append(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(text: str) -> Page:
    found = Page(text)
    assert found.resources == []
    assert not re.search(r"https?://|@import|url\(", text)
    assert len(found.ids) == len(set(found.ids))
    assert {anchor.removeprefix("#") for anchor in found.anchors} <= set(found.ids)
    return found


def test_the_report_has_every_section_and_needs_nothing_else(tmp_path: Path) -> None:
    path = write_report(fabricate(), tmp_path / "r.html")
    found = page(path.read_text(encoding="utf-8"))
    assert [name for name in found.ids if name in SECTIONS] == SECTIONS
    assert found.tags.count("svg") == 6


def test_the_numbers_of_the_run_are_there() -> None:
    raw = fabricate()
    found = page(render_report(from_json(raw)))
    shown = [
        f"{raw['cycles']:,}",
        "77.2 µs",
        "450 GB/s",
        "61.6 TFLOP/s",
        raw["command"],
        raw["chip_digest"],
        "jax _src/tpu_info.py",
    ]
    shown += [f"{group['cycles']:,}" for group in raw["groups"]] + [group["name"] for group in raw["groups"]]
    shown += [f"{causes['idle']:,}" for causes in raw["units"].values()]
    for text in shown:
        assert text in found.text, text


def test_busy_active_and_useful_are_three_figures() -> None:
    found = page(render_report(from_json(fabricate())))
    assert {"figure-mxu_busy", "figure-mxu_active", "figure-mxu_useful"} <= set(found.ids)
    assert "not measured" in page(render_report(from_json(fabricate() | {"array_active": {}}))).text


def test_the_same_run_gives_the_same_bytes() -> None:
    assert render_report(from_json(fabricate())) == render_report(from_json(fabricate()))


def test_names_are_escaped() -> None:
    raw = fabricate(name="<script>alert(1)</script>")
    raw["groups"][0]["name"] = '"><img src=x>'
    text = render_report(from_json(raw))
    assert "<script>alert" not in text
    assert "<img" not in text
    page(text)


def test_a_run_without_details_says_so() -> None:
    bare = {k: v for k, v in fabricate().items() if k not in ("groups", "ops", "timeline", "hbm_allocated", "checks")}
    found = page(render_report(from_json(bare | {"hostile": False})))
    for text in ("no record of groups", "no record of ops", "no record over time", "not compared", "not looked for"):
        assert text in found.text


def test_failures_and_hazards_are_listed() -> None:
    raw = fabricate() | {"ok": False, "hazards": ["race on VMEM 0x40 between 3 and 9"]}
    raw["checks"] = {"failures": ["result 0: 3 elements differ"]}
    found = page(render_report(from_json(raw)))
    for text in ("a check failed", "1 found", "race on VMEM 0x40 between 3 and 9", "result 0: 3 elements differ"):
        assert text in found.text


def test_bars_are_as_long_as_the_run() -> None:
    raw = fabricate()
    units = re.search(r'<section id="units">.*?</section>', render_report(from_json(raw)), re.DOTALL)
    assert units
    rows: dict[str, float] = {}
    for y, width in re.findall(r'<rect class="f-[\w-]+" x="[\d.]+" y="([\d.]+)" width="([\d.]+)"', units[0]):
        rows[y] = rows.get(y, 0) + float(width)
    assert len(rows) == len(raw["units"])
    assert all(total == pytest.approx(1000 - 120 - 70, abs=0.1) for total in rows.values())


def test_labels_of_the_roofline_do_not_overlap() -> None:
    groups = [
        Group(name=f"convolution_add_fusion.{i}", cycles=900 + i, flops=10**7, bytes=10**5 + i) for i in range(30)
    ]
    run = replace(from_json(fabricate()), groups=groups)
    drawn = roofline(data.roofline(run, PEAKS, attribute_run(run, PEAKS)))
    found = re.findall(r'halo" x="([\d.]+)" y="([\d.]+)" text-anchor="start">([^<]+)<', drawn)
    assert found
    boxes = [Box(float(x), float(y) - 10, float(x) + 6.5 * len(name), float(y)) for x, y, name in found]
    assert not any(a.hits(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_the_name_of_the_roof_of_hbm_is_beside_points() -> None:
    """A group on the roof, where its name would be without any."""
    run = replace(from_json(fabricate()), groups=[Group(name="g", cycles=900, flops=10**6, bytes=10**5)])
    name = re.compile(r'halo" x="([\d.]+)" y="([\d.]+)" text-anchor="middle" transform[^>]*>HBM')
    point = re.compile(r'<circle class="point[^>]* cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"')
    full = data.roofline(run, PEAKS, attribute_run(run, PEAKS))
    (alone,) = name.findall(roofline(replace(full, points=())))
    for achieved in (full.bandwidth * 10.0**e for e in (-2, -1.5, -1, -0.5, 0, 0.5, 1)):
        at = replace(full.points[0], achieved=achieved, intensity=achieved / full.bandwidth)
        drawn = roofline(replace(full, points=(at,)))
        (there,), ((x, y, r),) = name.findall(drawn), point.findall(drawn)
        assert max(abs(float(there[0]) - float(x)), abs(float(there[1]) - float(y))) > float(r), (alone, achieved)


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(SystolithError, match="does not exist"):
        write_report(fabricate(), tmp_path / "no" / "r.html")


def test_no_text_is_smaller_than_9_pixels_on_a_narrow_screen() -> None:
    """Charts are at least 860 pixels wide there, 1000 units of their own; other text is as the style sheet says."""
    text = render_report(from_json(fabricate()))
    style = text[text.index("<style>") : text.index("</style>")]
    screen, _, _ = style.partition("@media print")
    (least,) = re.findall(r"@media screen and \(max-width: 760px\).*?svg \{ min-width: (\d+)px", screen, re.S)
    charts = re.findall(r"svg \.\w+ \{[^}]*font-size: ([\d.]+)px", screen)
    assert charts
    assert min(map(float, charts)) * float(least) / 1000 >= 9
    others = [float(n) for n in re.findall(r"font(?:-size)?: ([\d.]+)px", screen)]
    assert min(others) >= 9
    assert set(re.findall(r'<svg viewBox="0 0 (\d+) ', text)) == {"1000"}
    assert text.count('<div class="chart') == text.count("<svg ")
