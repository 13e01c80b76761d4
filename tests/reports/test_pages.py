"""Pages as a browser lays them out: how many they are on paper, how small their text is on a narrow screen."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from systolith.reports.html import render_report, write_report
from systolith.reports.run_data import from_json
from systolith.runtime.jobs.job import Request, run
from tests.corpus.load import load
from tests.reports.fabricate import fabricate

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MOST_PAGES, LEAST_PIXELS, NARROW = 8, 9.0, 400
browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")

TRAINING = """
import jax, jax.numpy as jnp

def loss(ws, x, y):
    for w in ws[:-1]:
        x = jnp.tanh(x @ w)
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(x @ ws[-1]) * y, -1))

def step(ws, x, y):
    value, grads = jax.value_and_grad(loss)(ws, x, y)
    return [w - 0.1 * g for w, g in zip(ws, grads)], value
"""


def training_step(path: Path) -> Path:
    """A step of a network of four layers, with its metadata."""
    jax = pytest.importorskip("jax")
    (path / "model.py").write_text(TRAINING)
    names: dict[str, object] = {}
    exec(compile(TRAINING, str(path / "model.py"), "exec"), names)
    f32 = jax.numpy.float32
    sizes = (784, 1024, 1024, 1024, 10)
    ws = [jax.ShapeDtypeStruct(pair, f32) for pair in pairwise(sizes)]
    x, y = jax.ShapeDtypeStruct((256, 784), f32), jax.ShapeDtypeStruct((256, 10), f32)
    lowered = jax.jit(names["step"]).lower(ws, x, y).compiler_ir("hlo")
    (path / "step.pb").write_bytes(lowered.as_serialized_hlo_module_proto())
    return path / "step.pb"


def chromium(*options: str) -> str:
    assert CHROMIUM is not None
    base = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
    return subprocess.run([*base, *options], capture_output=True, text=True, timeout=120, check=True).stdout


def pages(page: Path) -> int:
    pdf = page.with_suffix(".pdf")
    chromium(f"--print-to-pdf={pdf}", "--no-pdf-header-footer", page.as_uri())
    return len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))


MEASURE = """<script>addEventListener("load", () => {
  let least = [Infinity, ""];
  for (const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walk.nextNode();) {
    const at = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !at.getClientRects().length || at.closest("script, style, title")) continue;
    const m = at.ownerSVGElement ? at.getScreenCTM() : {a: 1, b: 0};
    const scale = Math.hypot(m.a, m.b);
    const size = scale * parseFloat(getComputedStyle(at).fontSize);
    if (size < least[0]) least = [size, walk.currentNode.data.trim()];
  }
  parent.postMessage(least[0] + " " + innerWidth + " " + least[1], "*");
});</script>"""
FRAME = """<iframe src="{page}" width="{width}" height="800" frameborder="0"></iframe>
<script>addEventListener("message", e => document.title = "least " + e.data);</script>"""


def least_text(page: Path, width: int) -> tuple[float, str]:
    """The smallest text on a screen of that width, in pixels; and what it says."""
    inner = page.with_name("inner.html")
    inner.write_text(page.read_text() + MEASURE)
    outer = page.with_name("outer.html")
    outer.write_text(FRAME.format(page=inner.name, width=width))
    found = re.search(r"<title>least ([\d.]+) (\d+) (.*?)</title>", chromium("--dump-dom", outer.as_uri()))
    assert found is not None
    assert int(found[2]) == width
    return float(found[1]), found[3]


@browser
@pytest.mark.slow
@pytest.mark.parametrize("which", ["resnet18_infer_224", "training_step"])
def test_a_report_is_short_on_paper_and_legible_on_a_telephone(which: str, tmp_path: Path) -> None:
    path = training_step(tmp_path) if which == "training_step" else load(which).path
    page = write_report(run(Request(path, "tpu_v3", mode="time")).record(), tmp_path / "r.html")
    assert MOST_PAGES // 2 < pages(page) <= MOST_PAGES
    size, text = least_text(page, NARROW)
    assert size >= LEAST_PIXELS, text
    if which == "training_step":
        assert "<small>model.py:" in page.read_text()


def test_heads_of_tables_are_no_buttons() -> None:
    """Chromium leaves buttons out of the heads that it repeats on the next page of a print."""
    assert "<button" not in render_report(from_json(fabricate()))


@browser
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext is not installed")
def test_the_head_of_a_table_is_on_every_page_that_it_covers(tmp_path: Path) -> None:
    raw = fabricate()
    raw["groups"] += [{**raw["groups"][0], "name": f"more.{n}", "cycles": 0} for n in range(30)]
    page, pdf = write_report(raw, tmp_path / "r.html"), tmp_path / "r.pdf"
    chromium(f"--print-to-pdf={pdf}", "--no-pdf-header-footer", page.as_uri())
    printed = subprocess.run(["pdftotext", "-layout", str(pdf), "-"], capture_output=True, text=True, check=True).stdout
    with_rows = [text for text in printed.split("\f") if "kOutput" in text]
    assert len(with_rows) > 1
    assert all("flop/byte" in text for text in with_rows)


SORT = """<script>addEventListener("load", () => {
  const head = document.querySelectorAll("#groups-table th [role=button]")[2];
  const order = () => [...document.querySelectorAll("#groups-table tbody td:nth-child(3)")].map(td => td.dataset.v);
  const found = [order()];
  for (let n = 0; n < 2; n++) { head.click(); found.push(order()); }
  head.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"})); found.push(order());
  document.title = "order " + found.join(";");
});</script>"""


@browser
@pytest.mark.slow
def test_the_head_of_a_column_turns_its_order_round(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    path.write_text(render_report(from_json(fabricate())) + SORT)
    title = re.search(r"<title>order ([\d,;]+)</title>", chromium("--dump-dom", path.as_uri()))
    assert title is not None
    orders = [[int(n) for n in part.split(",")] for part in title[1].split(";")]
    down = sorted(orders[0], reverse=True)
    assert orders == [down, down[::-1], down, down[::-1]]


def test_no_text_is_below_nine_pixels_where_charts_begin_to_scroll() -> None:
    """Without a browser: every size of the style for screens, and those in charts at the least width of these."""
    page = render_report(from_json(fabricate()))
    style = page[page.index("<style>") : page.index("</style>")]
    screen = style[: style.index("@media print")]
    chart = float(*re.findall(r"\.chart svg \{ min-width: ([\d.]+)px", screen))
    sizes = [float(n) for n in re.findall(r"font(?:-size)?: ?[^;{}]*?([\d.]+)px", screen)]
    assert len(sizes) > 10
    assert min(sizes) >= LEAST_PIXELS
    in_charts = [float(n) for n in re.findall(r"svg \.\w+ \{[^}]*font-size: ([\d.]+)px", screen)]
    widths = [float(w) for w in re.findall(r'<svg[^>]*viewBox="0 0 ([\d.]+) ', page)]
    assert widths
    assert min(in_charts) * chart / max(widths) >= LEAST_PIXELS
