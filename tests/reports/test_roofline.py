"""Bounds by hand, on tpu_v3: 2 x 128 x 128 MACs, 8 x 128 lanes x 2 ALU slots, 22500/47 bytes a cycle, 940 MHz."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.chip import describe
from systolith.reports.roofline import (
    HBM,
    MXU,
    TRANS,
    VPU,
    bandwidth_fraction,
    group_roof,
    module_bound,
    mxu_use,
    peaks,
)
from systolith.reports.run_data import Bound, ChipRow, Group, HbmBytes, RunDataError, from_json
from tests.reports.fabricate import CHIP, fabricate

ROWS = [ChipRow(**row._asdict()) for row in describe(CHIP)]
PEAKS = peaks(ROWS)


def test_peaks() -> None:
    assert PEAKS.macs == 32768
    assert PEAKS.mxu_flops == pytest.approx(61.6e12, rel=1e-3)
    assert PEAKS.alu == 2048
    assert PEAKS.trans == 1024
    assert PEAKS.bandwidth == pytest.approx(450e9)


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(RunDataError, match=r"mxu\.rows = None"):
        peaks([row for row in ROWS if row.field != "mxu.rows"])


@pytest.mark.parametrize(
    ("group", "roof", "bound"),
    [
        # 32768000 MACs / 32768 a cycle; its bytes take 450000 / (22500 / 47) = 940 cycles.
        (Group(name="g", cycles=2000, macs=32_768_000, flops=65_536_000, bytes=450_000), MXU, 1000.0),
        # The same twice over HBM: 1880 cycles.
        (
            Group(
                name="g",
                cycles=2000,
                macs=32_768_000,
                flops=65_536_000,
                bytes=900_000,
                hbm_bytes=HbmBytes(read=800_000, written=100_000),
            ),
            HBM,
            1880.0,
        ),
        # 4096000 operations / 2048 a cycle.
        (Group(name="g", cycles=2000, flops=4_096_000, bytes=4), VPU, 2000.0),
        # 5 executions of 102400 transcendentals / 1024 a cycle.
        (Group(name="g", cycles=2000, flops=8, bytes=4, transcendentals=102_400, executions=5), TRANS, 500.0),
    ],
)
def test_bounds_by_hand(group: Group, roof: str, bound: float) -> None:
    found = group_roof(group, PEAKS)
    assert found.roof == roof
    assert found.bound == pytest.approx(bound)
    assert found.fraction == pytest.approx(bound / 2000)


def test_intensity_and_rate_by_hand() -> None:
    found = group_roof(Group(name="g", cycles=940, flops=500, bytes=200, executions=2), PEAKS)
    assert found.intensity == 2.5
    assert found.achieved == pytest.approx(1000 / 1e-6)  # 940 cycles are a microsecond
    assert group_roof(Group(name="g", cycles=10, bytes=64), PEAKS).intensity is None
    assert group_roof(Group(name="g", flops=10, bytes=64), PEAKS).fraction is None


def test_data_that_stays_in_vmem_does_not_bound_a_group() -> None:
    group = Group(name="g", cycles=2000, flops=8, bytes=900_000, hbm_bytes=HbmBytes(read=450_000, written=0))
    assert group_roof(group, PEAKS).needs[HBM] == pytest.approx(940)


@given(
    cycles=st.integers(1, 1000), stream=st.integers(1, 5000), read=st.integers(0, 10**6), written=st.integers(0, 10**6),
    filled=st.floats(0, 1), inputs=st.integers(0, 10**7),
)  # fmt: skip
def test_no_group_is_faster_than_a_roof(
    cycles: int, stream: int, read: int, written: int, filled: float, inputs: int
) -> None:
    """Whatever it ran ahead of the cycles charged to it: its units' occupied cycles and its transfers count."""
    macs, busy = int(filled * stream * PEAKS.macs), {"s0": stream, "s1": stream}
    moved = HbmBytes(read=read, written=written)
    found = group_roof(
        Group(name="g", cycles=cycles, macs=macs, flops=2 * macs, bytes=inputs, hbm_bytes=moved, busy=busy), PEAKS
    )
    assert found.took >= cycles
    assert found.fraction is not None
    assert found.fraction <= 1 + 1e-9
    assert (found.achieved or 0) <= PEAKS.mxu_flops * (1 + 1e-9)


def test_the_bound_of_a_record_is_taken_as_it_is() -> None:
    """Whole tiles are in it, which useful MACs at the peak are not: 26 % of the peak may be 93 % of the bound."""
    bound = Bound(mxu=1860, alu=200, trans=7, hbm=450)
    group = Group(name="g", cycles=2000, macs=17_000_000, flops=34_000_000, bytes=900_000, bound=bound)
    found = group_roof(group, PEAKS)
    assert (found.bound, found.bound_by, found.fraction) == (1860, MXU, 0.93)
    assert found.needs[MXU] == pytest.approx(17e6 / 32768)
    assert group_roof(replace(group, busy={"s0": 3000}), PEAKS).fraction == 0.62
    raw = fabricate() | {"bound": {"mxu": 11.0, "alu": 2.0, "trans": 3.0, "hbm": 12.5}}
    assert module_bound(from_json(raw), PEAKS) == {MXU: 11, VPU: 2, TRANS: 3, HBM: 12.5}


def test_the_bound_of_a_record_that_does_not_say_it() -> None:
    raw = fabricate() | {"hbm_bytes": {"read": 30_000_000, "written": 400_000}}
    found = module_bound(from_json(raw), PEAKS)
    assert found == {
        MXU: pytest.approx(raw["macs"] / 32768),
        HBM: pytest.approx((28_745_728 + 393_216) * 47 / 22500),
    }


def test_a_table_that_is_read_in_part_is_in_the_bound_with_that_part() -> None:
    """So no run is faster than its bound."""
    raw = fabricate()
    raw["hbm_bytes"] = {"read": 1_000_000, "written": 1_000}
    assert module_bound(from_json(raw), PEAKS)[HBM] == pytest.approx(1_001_000 * 47 / 22500)


def test_three_figures_of_the_matrix_units() -> None:
    raw = fabricate()
    use = mxu_use(from_json(raw), PEAKS)
    occupied = sum(sum(raw["units"][q][c] for c in ("busy", "self_conflict", "fill")) for q in ("s0", "s1"))
    assert use.busy == pytest.approx(occupied / (2 * raw["cycles"]))
    assert use.active == pytest.approx(67_800 / (2 * raw["cycles"]))
    assert use.useful == raw["mxu_utilization"]
    assert mxu_use(from_json(raw | {"array_active": {}}), PEAKS).active is None


def test_bandwidth_used() -> None:
    raw = fabricate()
    moved = raw["hbm_bytes"]["read"] + raw["hbm_bytes"]["written"]
    assert bandwidth_fraction(from_json(raw), PEAKS) == pytest.approx(moved / (raw["cycles"] * 22500 / 47))
