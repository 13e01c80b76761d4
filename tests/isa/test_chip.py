from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from systolith.isa.chip import PRESETS, SCHEMA, describe, load_chip, parse_chip, preset_names
from systolith.isa.errors import ConfigError

TINY = (PRESETS / "tiny.toml").read_text()
PUBLISHED = [f"tpu_{n}" for n in ("v1", "v2", "v3", "v4", "v4i", "v5e", "v5p", "v6e")]
PRESET_NAMES = ["small", "tiny", *PUBLISHED]
# bf16 TFLOP/s (v1: int8 TOPS) and HBM bandwidth in GB/s of a chip, and its cores: anchors of arXiv 1704.04760 (v1) and
# jax _src/tpu_info.py.
PEAKS = {
    "tpu_v1": (92, 34, 1), "tpu_v2": (46, 716, 2), "tpu_v3": (123, 900, 2), "tpu_v4": (275, 1230, 2),
    "tpu_v4i": (137, 614, 1), "tpu_v5e": (197, 820, 1), "tpu_v5p": (459, 2460, 2), "tpu_v6e": (920, 1640, 1),
}  # fmt: skip


def test_presets_are_complete_and_differ() -> None:
    chips = [load_chip(n) for n in preset_names()]
    assert [c.name for c in chips] == PRESET_NAMES == preset_names()
    assert len({c.digest() for c in chips}) == len(chips)
    for chip in chips:
        assert [r.field for r in describe(chip)] == list(SCHEMA)


def test_published_figures() -> None:
    chip = load_chip("tpu_v3")
    assert (chip.mxu.count, chip.mxu.rows, chip.mxu.cols, chip.vmem.bytes) == (2, 128, 128, 16 * 2**20)
    assert chip.hbm.p / chip.hbm.q * chip.clock_mhz * 1e6 == pytest.approx(450e9)


@pytest.mark.parametrize("name", PUBLISHED)
def test_peaks_are_the_published_ones(name: str) -> None:
    chip = load_chip(name)
    flops, bandwidth, cores = PEAKS[name]
    peak = 2 * chip.mxu.count * chip.mxu.rows * chip.mxu.cols * chip.clock_mhz * 1e6 * cores
    assert peak / 1e12 == pytest.approx(flops, rel=0.005)
    assert chip.hbm.p / chip.hbm.q * chip.clock_mhz * 1e6 * cores == pytest.approx(bandwidth * 1e9)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_field_says_where_it_is_from(name: str) -> None:
    chip = load_chip(name)
    rows = [r for r in describe(chip) if r.field != "name"]
    assert all(r.provenance for r in rows)
    assert all(r.source for r in rows if r.provenance != "invented")
    assert chip.absent
    assert all(chip.absent.values())


def test_a_row_says_unit_and_source() -> None:
    row = next(r for r in describe(load_chip("tpu_v3")) if r.field == "vmem.bytes")
    assert (row.value, row.unit, row.provenance) == (16 * 2**20, "bytes", "published")
    assert "tpu_info" in row.source


def test_the_digest_is_of_the_values() -> None:
    assert parse_chip(TINY.replace('"tiny"', '"other"', 1), "f").digest() == load_chip("tiny").digest()
    assert parse_chip(TINY.replace("invented", "inferred"), "f").digest() == load_chip("tiny").digest()
    assert (
        parse_chip(TINY.replace("rows = { value = 8", "rows = { value = 16"), "f").digest()
        != load_chip("tiny").digest()
    )


def test_bare_values_are_invented(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TINY.replace('rows = { value = 8, provenance = "invented" }', "rows = 16"))
    chip = load_chip(path)
    assert chip.mxu.rows == 16
    assert chip.provenance["mxu.rows"].label == "invented"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows = { value = 8", "rows = { value = 9", "mxu.rows = 9: must be"),
        ("rows = { value = 8", "rows = { value = 4096", "mxu.rows = 4096: must be an integer from 2 to 512"),
        ("rows = { value = 8", 'rows = { value = "8"', "mxu.rows = '8'"),
        ("rows = { value = 8", "rows = { value = true", "mxu.rows = True"),
        ("rows = { value = 8", "rows = { value = 8.0", "mxu.rows = 8.0"),
        ("rows = { value = 8", "rowz = { value = 8", "mxu.rowz = 8: unknown field"),
        ("rows = { value = 8", "rows = { size = 8", "mxu.rows.size"),
        ("cols = { value = 8", "# cols = { value = 8", "mxu.cols: missing"),
        ("[mxu]", "[mxv]", "mxv"),
        ('"invented"', '"guessed"', "clock_mhz.provenance = 'guessed'"),
        ("value = 262_144", "value = 1024", "vmem.bytes = 1024: must be at least"),
        ("granule = { value = 16", "granule = { value = 64", "hbm.granule = 64: must be at most"),
        ("\np = { value = 16", "\np = { value = 33", "hbm.p = 33: must be at most"),
        ("value = false", "value = 0", "features.wide = 0"),
        ("clock_mhz = { value = 100.0", "clock_mhz = { value = 0.0", "clock_mhz = 0.0"),
        ("[seq]", "[seq", "line 5"),
    ],
)
def test_errors_name_file_field_value_limit(old: str, new: str, message: str) -> None:
    text = TINY
    if message.startswith("vmem"):
        text = TINY.replace("rows = { value = 8", "rows = { value = 16").replace(
            "cols = { value = 8", "cols = { value = 16"
        )
    assert old in text
    with pytest.raises(ConfigError) as e:
        parse_chip(text.replace(old, new, 1), "mine.toml")
    assert str(e.value).startswith("mine.toml: ")
    assert message in str(e.value)
    assert "\n" not in str(e.value)


def test_unknown_chips_are_named() -> None:
    with pytest.raises(ConfigError, match="chip 'huge': no such preset; there are small, tiny, tpu_v1, "):
        load_chip("huge")
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load_chip("none.toml")


def test_importing_the_schema_does_not_import_pydantic() -> None:
    code = "import sys, systolith.isa.chip; sys.exit('pydantic' in sys.modules)"
    path = str(Path(__file__).parents[2] / "isa")
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, check=False).returncode == 0


BAD_VALUES = [
    "inf", "-inf", "nan", "1e400", "-1", "0", "1.5", "0x" + "f" * 5000, "9" * 5000, "true", '"x"', f'"{"x" * 9999}"',
    "[]", "{}", "{ value = [] }", "{ value = 8, source = 3 }", "{ value = 8, provenance = [] }", "{ value = 8, x = 1 }",
    "1979-05-27", "[" * 9_999, "{a=" * 9_999, '"\\ud800"', "'", "{ source = 'x' }",
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_VALUES, ids=[bad[:12] for bad in BAD_VALUES])
def test_any_field_may_be_bad(bad: str) -> None:
    """Each field in turn: a chip, or a refusal of one short line."""
    lines = TINY.splitlines()
    for number, line in enumerate(lines):
        name, sign, _ = line.partition(" = ")
        if not sign:
            continue
        text = "\n".join([*lines[:number], f"{name} = {bad}", *lines[number + 1 :]])
        problem = ""
        try:
            parse_chip(text, "mine.toml")
        except ConfigError as error:
            problem = str(error)
        assert "\n" not in problem
        assert len(problem) < 500
