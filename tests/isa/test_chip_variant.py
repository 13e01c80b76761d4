"""Variants of chips: only what differs is said, what follows from it follows, and what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from systolith.isa.chip import (
    chip_differences,
    chip_of,
    describe,
    load_chip,
    parse_chip,
    preset_names,
    to_toml,
    variant,
)
from systolith.isa.chip_energy import GROWTH
from systolith.isa.chip_schema import SCHEMA, value_of
from systolith.isa.errors import ConfigError
from tests.isa.chip_variants import changes

V3 = load_chip("tpu_v3")


def source(name: str, changes: dict[str, Any]) -> tuple[str, str]:
    chip = variant(V3, changes)
    return next((r.provenance, r.source) for r in describe(chip) if r.field == name)


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"vmem.bytes": "8MiB"}, "vmem.bytes", 8 * 2**20),
        ({"vmem.bytes": "12 MiB"}, "vmem.bytes", 12 * 2**20),
        ({"vmem.bytes": "10MB"}, "vmem.bytes", 10**7),
        ({"vmem.bytes": 10_000_000}, "vmem.bytes", 10**7),
        ({"hbm.bytes": "1.5GiB"}, "hbm.bytes", 3 * 2**29),
        ({"clock_mhz": "1.05 GHz"}, "clock_mhz", 1050.0),
        ({"clock_mhz": "700"}, "clock_mhz", 700.0),
        ({"vmem.bytes": np.int64(2**23)}, "vmem.bytes", 2**23),
        ({"clock_mhz": np.float32(700)}, "clock_mhz", 700.0),
        ({"hbm.gbps": np.int32(470)}, "hbm.p", 500),
        ({"mxu.rows": "256"}, "mxu.rows", 256),
        ({"features.wide": "true"}, "features.wide", True),
        ({"hbm.latency": "1us"}, "hbm.latency", 940),
        ({"hbm.latency": "12 cycles"}, "hbm.latency", 12),
        ({"name": "8"}, "name", "8"),
    ],
)
def test_values_as_people_write_them(changes: dict[str, Any], field: str, value: object) -> None:
    assert value_of(variant(V3, changes), field) == value


@pytest.mark.parametrize(
    ("rate", "clock", "expected"),
    [
        (900, 940, Fraction(45000, 47)),
        ("900GB/s", 940, Fraction(45000, 47)),
        ("819.2 GB/s", 1500, Fraction(8192, 15)),
        ("1.2 TB/s", 1000, Fraction(1200)),
        ("1GiB/s", 1024, Fraction(2**30, 1024 * 10**6)),
    ],
)
def test_a_bandwidth_is_exact(rate: object, clock: int, expected: Fraction) -> None:
    hbm = variant(V3, {"hbm.gbps": rate, "clock_mhz": clock}).hbm
    assert Fraction(hbm.p, hbm.q) == expected


@given(rate=st.floats(0.1, 20_000), clock=st.sampled_from([333.3, 940, 1750]))
@example(rate=1832.9491970117897, clock=940)
def test_any_bandwidth_is_as_close_as_a_fraction_can_be(rate: float, clock: float) -> None:
    hbm = variant(V3, {"hbm.gbps": rate, "clock_mhz": clock}).hbm
    assert hbm.p / hbm.q * clock / 1000 == pytest.approx(rate, rel=1e-6)


def test_a_bandwidth_and_times_stay_when_the_clock_changes() -> None:
    slow = variant(V3, {"clock_mhz": 470})
    assert Fraction(slow.hbm.p, slow.hbm.q) == 2 * Fraction(V3.hbm.p, V3.hbm.q)
    assert slow.hbm.latency == V3.hbm.latency // 2
    assert variant(slow, {"clock_mhz": 940}).hbm.p == V3.hbm.p
    fixed = variant(V3, {"hbm.p": 100, "hbm.q": 1})
    assert variant(fixed, {"clock_mhz": 470}).hbm.p == 100


def test_the_chunk_follows_the_bandwidth_unless_it_is_given() -> None:
    fast = variant(V3, {"hbm.gbps": 1800})
    assert fast.hbm.chunk == 2048
    assert source("hbm.chunk", {"hbm.gbps": 1800}) == (
        "derived",
        "follows from hbm.p = 90000, hbm.q = 47: the power of two that holds the bytes of a cycle; 512 in its base",
    )
    assert variant(V3, {"hbm.gbps": 100}).hbm.chunk == 512
    assert variant(V3, {"hbm.gbps": 1800, "hbm.chunk": 4096}).hbm.chunk == 4096
    with pytest.raises(ConfigError, match=r"hbm\.gbps = 1800: must be at most 481\.28.*or raise hbm\.chunk"):
        variant(V3, {"hbm.gbps": 1800, "hbm.chunk": 512})


def test_banks_of_vmem_follow_the_vector_unit_where_they_are_left_out() -> None:
    left_out = ("segments", "segment_bytes", "chunk", "granule")
    text = "\n".join(line for line in to_toml(V3).splitlines() if not line.startswith(left_out))
    chip = parse_chip(text, "mine.toml")
    assert chip_differences(chip, V3) == []
    assert {n for n, p in chip.provenance.items() if p.label == "derived"} == {
        "mxu.segments",
        "mxu.segment_bytes",
        "dma.segments",
        "hbm.chunk",
        "hbm.granule",
    }
    wide = variant(chip, {"vpu.lanes": 256, "vpu.sublanes": 16})
    assert (wide.mxu.segments, wide.mxu.segment_bytes, wide.dma.segments) == (16, 1024, 16)


def test_a_file_with_a_base_says_only_what_differs(tmp_path: Path) -> None:
    (tmp_path / "half.toml").write_text('base = "tpu_v3"\nvmem.bytes = "8MiB"\n[hbm]\ngbps = 225\n')
    (tmp_path / "quarter.toml").write_text('base = "half.toml"\nname = "q"\nvmem = { bytes = { value = "4MiB" } }\n')
    half, quarter = load_chip(tmp_path / "half.toml"), load_chip(tmp_path / "quarter.toml")
    assert (half.name, half.vmem.bytes, half.hbm.p, half.hbm.q) == ("half", 2**23, 11250, 47)
    assert chip_differences(half, V3) == ["vmem.bytes 8388608 and not 16777216", "hbm.p 11250 and not 22500"]
    assert (quarter.name, quarter.vmem.bytes, quarter.hbm) == ("q", 2**22, half.hbm)
    assert half.provenance["mxu.rows"] == V3.provenance["mxu.rows"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "tpu_v33"', "mine.toml: base: chip 'tpu_v33': no such preset; there are "),
        ('base = "none.toml"', "none.toml: No such file"),
        ("base = 3", "mine.toml: base = 3: must be the name of a preset or the path of a TOML file"),
        ('base = "mine.toml"', "mine.toml: base = 'mine.toml': is a chip that has this one as its base"),
        ('base = "other.toml"', "base = 'mine.toml': is a chip that has this one as its base"),
        ('bas = "tiny"', "mine.toml: bas = 'tiny': unknown; did you mean base?"),
        ('base = "tiny"\nvmem.bytes = "1.7 MiB"', "vmem.bytes = '1.7 MiB', 1782579.2 bytes: must be an integer"),
        ('base = "tiny"\nvmem.byte = 3', "mine.toml: vmem.byte = 3: unknown field; did you mean vmem.bytes?"),
        ('base = "tiny"\nhbm.gbs = 3', "mine.toml: hbm.gbs = 3: unknown field; did you mean hbm.gbps?"),
        ('base = "tiny"\nvmem.bytes = "8Mb"', "vmem.bytes = '8Mb': must be an integer from 1024"),
        ('base = "tiny"\nvmem.bytes = "1MHz"', "units: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, KB"),
        ('base = "tiny"\nvmem.bytes = 1025', "to 1073741824, a multiple of 4 (bytes)"),
        ('base = "tiny"\nvmem.bytes = "0.3B"', "vmem.bytes = '0.3B', 0.3 bytes: must be"),
        ('base = "tiny"\nfoo = 3', "mine.toml: foo = 3: unknown field; `systolith chips NAME` lists those of a chip"),
        ('base = "tpu_v3"\nhbm.gbps = 1e5', "hbm.gbps = 100000.0: must be at most 61603.8: the largest hbm.chunk, "
         "65536 bytes, a cycle; or raise clock_mhz"),
        ('base = "tiny"\nhbm.gbps = 0', "hbm.gbps = 0: must be a number above 0"),
        ('base = "tpu_v3"\nclock_mhz = 0', "mine.toml: clock_mhz = 0: must be a number from 1 to 100000 (MHz)"),
        ('base = "tpu_v3"\nclock_mhz = "1 s"', "mine.toml: clock_mhz = '1 s': must be a number from 1 to 100000 (MHz)"),
        ("hbm.gbps = 3", "mine.toml: clock_mhz: missing; needed: a number from 1"),
        ('base = "tpu_v3"\nhbm.p = 3', "mine.toml: hbm.q: missing; needed: an integer from 1 to 1048576 (cycles), "
         "beside hbm.p; or hbm.gbps in place of both"),
        ('base = "tiny"\nenergy.leakage = 3', "missing; needed: an integer from 0 to 1000000000000 (fJ); a chip states "
         "all of its energies, or none"),
        ('base = "tpu_v3"\nenergy.hbm_byte = 0.5', "energy.hbm_byte = 0.5: must be an integer"),
        ('base = "tpu_v3"\nhbm.gbps = 1e-9', "hbm.gbps = 1e-09: must be at least 8.96454e-07: a byte in the most "
         "cycles of hbm.q, 1048576; or lower clock_mhz"),
        ('base = "tiny"\nhbm.gbps = true', "hbm.gbps = True: must be"),
        ('base = "tiny"\nhbm.gbps = nan', "hbm.gbps = nan: must be"),
        ('base = "tiny"\nvmem.bytes = 1024\nmxu.rows = 16', "at least 1728: one f32 weight tile, `rows` rows, three "
         "vectors; or lower mxu.rows, mxu.cols"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    (tmp_path / "other.toml").write_text('base = "mine.toml"')
    with pytest.raises(ConfigError) as error:
        load_chip(tmp_path / "mine.toml")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_variant_is_called_after_its_changes() -> None:
    assert load_chip("tpu_v3", {"vmem.bytes": "8MiB"}).name == "tpu_v3 vmem.bytes=8MiB"
    assert load_chip("tpu_v3", {"vmem.bytes": "8MiB", "name": "half"}).name == "half"
    assert load_chip("tpu_v3", {}) is V3


def test_values_of_a_chip_that_was_changed_by_hand_win_over_what_was_declared() -> None:
    values = {row.field: row.value for row in describe(V3)}
    other = chip_of(values | {"hbm.p": 100, "hbm.q": 1}, "other")
    assert variant(other, {"mxu.count": 1}).hbm == other.hbm


@pytest.mark.parametrize("name", preset_names())
def test_the_file_of_a_preset_reads_back_equal(name: str) -> None:
    chip = load_chip(name)
    again = parse_chip(to_toml(chip), "again.toml")
    assert again == chip
    assert again.provenance == chip.provenance
    assert again.declared == chip.declared


@given(st.sampled_from(preset_names()), changes())
def test_the_file_of_any_variant_reads_back_equal(name: str, given: dict[str, Any]) -> None:
    try:
        chip = load_chip(name, given)
    except ConfigError:
        return
    again = parse_chip(to_toml(chip), "again.toml")
    assert again == chip
    assert again.provenance == chip.provenance
    assert variant(again, {"clock_mhz": 333.3}).hbm == variant(chip, {"clock_mhz": 333.3}).hbm
    kept = {n: v for n, v in given.items() if n in SCHEMA}
    assert {n: value_of(chip, n) for n in kept} == kept


@pytest.mark.parametrize(("preset", "small", "large"), [("tpu_v5e", 8.5, 14), ("tpu_v1", None, None)])
def test_energy_of_vmem_grows_with_its_size(preset: str, small: float | None, large: float | None) -> None:
    """By as much as the published energies of SRAMs of 32 KB and 1 MB differ."""
    chip = load_chip(preset)
    assert chip.energy is not None
    found = variant(chip, {"vmem.bytes": chip.vmem.bytes // 32})
    assert found.energy is not None
    ratio = found.energy.vmem_byte / chip.energy.vmem_byte
    own = small / large if small and large else chip.energy.smem_byte / chip.energy.vmem_byte
    assert ratio == pytest.approx(own, rel=1e-3)
    assert replace(found.energy, vmem_byte=chip.energy.vmem_byte) == chip.energy
    assert found.provenance["energy.vmem_byte"].label == "derived"
    assert parse_chip(to_toml(found), "again.toml") == found
    assert parse_chip(to_toml(found), "again.toml").energy == found.energy


def test_energy_of_vmem_stays_where_it_is_given_or_the_size_does() -> None:
    chip = load_chip("tpu_v3")
    assert chip.energy is not None
    other = variant(chip, {"mxu.count": 4})
    given = variant(chip, {"vmem.bytes": "8MiB", "energy.vmem_byte": "5 pJ"})
    assert other.energy == chip.energy
    assert given.energy is not None
    assert given.energy.vmem_byte == 5000
    later = variant(variant(chip, {"vmem.bytes": "8MiB"}), {"hbm.gbps": 300}).energy
    assert later == variant(chip, {"vmem.bytes": "8MiB"}).energy


def test_energy_of_vmem_grows_within_published_exponents() -> None:
    chip = load_chip("tpu_v3")
    for smem, exponent in ((0, GROWTH[0]), (1, GROWTH[1]), (10**6, GROWTH[0])):
        base = variant(chip, {"energy.smem_byte": smem})
        found = variant(base, {"vmem.bytes": 4 * chip.vmem.bytes}).energy
        assert found is not None
        assert base.energy is not None
        assert found.vmem_byte == round(base.energy.vmem_byte * 4**exponent)
