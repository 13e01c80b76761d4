import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.reports.attribution import (
    BOUND_BY_UNIT,
    COMPUTE,
    CONTROL,
    LATENCY,
    MEMORY,
    NOTHING,
    VECTOR,
    attribute,
    attribute_run,
)
from systolith.reports.causes import cause
from systolith.reports.headline import shares, verdict
from systolith.reports.run_data import Group, HbmBytes, from_json
from systolith.sim.causes import DOCS
from tests.reports.fabricate import QUEUES, fabricate
from tests.reports.test_roofline import PEAKS


@pytest.mark.parametrize(
    ("busy", "stalls", "unit", "dominant", "bound", "words"),
    [
        ({"s0": 950, "s1": 940, "ld": 300}, {}, "s0", "busy", COMPUTE, "95 %"),
        ({"ld": 900, "s0": 200}, {}, "ld", "busy", MEMORY, "90 %"),
        ({"vpu": 800}, {}, "vpu", "busy", VECTOR, "80 %"),
        ({"w0": 750, "s0": 100}, {}, "w0", "busy", COMPUTE, "too few rows"),
        ({"seq": 990}, {}, "seq", "busy", CONTROL, "issuing"),
        ({"vpu": 200}, {"vpu": {"wait_xlu": 700}}, "vpu", "wait_xlu", LATENCY, "waiting for the cross-lane unit"),
        ({"ld": 200}, {"ld": {"hbm_contention": 600}}, "ld", "hbm_contention", MEMORY, "other DMA queue"),
        ({"s0": 200}, {"s0": {"fifo_empty": 700}}, "s0", "fifo_empty", CONTROL, "sequencer"),
        ({"s0": 200}, {"s0": {"wait_w0": 500}}, "s0", "wait_w0", LATENCY, "weight tiles of MXU0"),
        (
            {"vpu": 200},
            {"vpu": {"wait_ld": 9000, "": 9999}},
            "vpu",
            "wait_ld",
            LATENCY,
            "the rest goes by waiting for loads",
        ),
        ({"vpu": 500}, {"vpu": {"wait_ld": 300}}, "vpu", "busy", LATENCY, "30 % go by waiting for loads"),
    ],
)
def test_the_dominant_unit_and_cause(
    busy: dict[str, int], stalls: dict[str, dict[str, int]], unit: str, dominant: str, bound: str, words: str
) -> None:
    found = attribute(Group(name="g", cycles=1000, busy=busy, stalls=stalls), PEAKS)
    assert (found.unit, found.cause, found.bound) == (unit, dominant, bound)
    assert words in found.sentence
    assert found.sentence.endswith(".")


def test_a_memory_bound_group_is_told_why() -> None:
    moved = HbmBytes(read=430_000, written=0)
    group = Group(name="g", cycles=1000, busy={"ld": 950}, flops=860_000, bytes=430_000, hbm_bytes=moved)
    sentence = attribute(group, PEAKS).sentence
    assert "420 KiB" in sentence
    assert "90 % of the bandwidth" in sentence
    assert "2 flops a byte are below the 137" in sentence


def test_work_ahead_of_its_cycles_is_told_and_no_rate_is_above_its_peak() -> None:
    """Streams of 3000 cycles of which 1000 are charged to the group; transfers of as much as 2000 cycles take."""
    macs = 2000 * PEAKS.macs
    group = Group(name="g", cycles=1000, busy={"s0": 3000, "s1": 3000}, macs=macs, flops=2 * macs)
    sentence = attribute(group, PEAKS).sentence
    assert "occupied for 100 % of its cycles and 2,000 before them, 67 % of the MXU peak" in sentence
    moved = HbmBytes(read=int(2000 * PEAKS.hbm), written=0)
    group = Group(name="g", cycles=1000, busy={"ld": 2000}, flops=1, bytes=10**6, hbm_bytes=moved)
    assert (
        "and 1,000 before them, moving 935 KiB (100 % of the bandwidth in that time)"
        in attribute(group, PEAKS).sentence
    )


def test_data_read_again_is_told() -> None:
    moved = HbmBytes(read=400_000, written=0)
    group = Group(
        name="g", cycles=1000, busy={"ld": 950}, macs=10_000_000, flops=20_000_000, bytes=100_000, hbm_bytes=moved
    )
    assert "4.0 times its inputs and outputs" in attribute(group, PEAKS).sentence


def test_what_holds_up_the_sequencer_is_followed() -> None:
    stalls = {"ld": {"fifo_empty": 600}, "s0": {"wait_w0": 800, "weight_shift": 100}, "s1": {"wait_w1": 10}}
    group = Group(name="g", cycles=1000, busy={"ld": 300, "s0": 100}, stalls=stalls)
    plain = "60 % go by waiting for the sequencer to issue"
    assert attribute(group, PEAKS).sentence.endswith(f"{plain}.")
    held = attribute(group, PEAKS, ["s0", "s1"])
    assert held.bound == CONTROL
    assert held.sentence.endswith(
        f"{plain}, which is held up by the full queue of MXU0 stream: that is waiting for weight tiles of MXU0."
    )


def test_a_longest_unit_that_never_waits_gives_way_to_one_that_does() -> None:
    group = Group(name="g", cycles=1000, busy={"ld": 500, "s0": 400}, stalls={"s0": {"wait_w0": 5000}})
    found = attribute(group, PEAKS)
    assert (found.unit, found.bound) == ("ld", LATENCY)
    assert "MXU0 stream spends 60 % waiting for weight tiles of MXU0" in found.sentence
    assert "latencies and dependencies" in attribute(Group(name="g", cycles=1000, busy={"ld": 500}), PEAKS).sentence


def test_groups_that_cost_nothing() -> None:
    assert attribute(Group(name="g"), PEAKS).bound == NOTHING
    hidden = attribute(Group(name="g", busy={"xlu": 1300}), PEAKS)
    assert hidden.bound == NOTHING
    assert "1,300 cycles of XLU" in hidden.sentence
    assert attribute(Group(name="g", cycles=7, busy={"vpu": 498}), PEAKS).bound == NOTHING


@given(st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 5000)), st.integers(0, 3000))
def test_shares_are_fractions_and_the_limiter_is_the_longest(busy: dict[str, int], cycles: int) -> None:
    found = attribute(Group(name="g", cycles=cycles, busy=busy), PEAKS)
    assert 0 <= found.share <= 1
    assert found.bound in {*BOUND_BY_UNIT.values(), LATENCY, NOTHING}
    if found.unit:
        assert busy[found.unit] == max(busy.values())


def test_a_program_without_groups_is_bound_by_what_its_units_do() -> None:
    """Assembly has none: all that it does is in the one without a name."""
    moved = {"read": 65_552, "written": 32_768}
    one = {"name": "", "cycles": 6352, "busy": {"seq": 1, "ld": 5887, "st": 3826}, "instructions": 38, "macs": 0}
    raw = fabricate()
    run = from_json(raw | {"groups": [one | {"hbm_bytes": moved, "stalls": {}}], "ops": []})
    (found,) = attribute_run(run, PEAKS).values()
    assert (found.unit, found.bound) == ("ld", MEMORY)
    assert found.sentence.startswith("DMA load is occupied for 93 % of its cycles, moving 96.0 KiB")
    beside = from_json(raw | {"groups": [*raw["groups"], one | {"cycles": 0, "hbm_bytes": moved}]})
    assert attribute_run(beside, PEAKS)[""].bound == CONTROL


def test_shares_of_the_run_add_up() -> None:
    run = from_json(fabricate())
    why = attribute_run(run, PEAKS)
    parts = shares(run, why)
    assert sum(share.cycles for share in parts) == run.cycles
    assert sum(share.fraction for share in parts) == pytest.approx(1)
    assert [share.cycles for share in parts] == sorted((s.cycles for s in parts), reverse=True)
    assert parts[0].bound == MEMORY
    said = verdict(run, why)
    assert "dot_gelu_fusion with 29.9 %" in said
    assert said.startswith(f"Of the run's cycles, {parts[0].fraction:.0%} are bound by ".replace("%", " %"))


@pytest.mark.parametrize("name", [name for name in DOCS if "<" not in name])
def test_every_cause_of_the_simulator_has_a_colour(name: str) -> None:
    assert cause(name).css != "other"
    assert cause(name).text == DOCS[name]


@pytest.mark.parametrize("queue", QUEUES)
def test_every_wait_has_a_colour(queue: str) -> None:
    assert cause(f"wait_{queue}").css.startswith("wait-")
    assert cause(f"fifo_full_{queue}").css == "full"
    assert queue in cause(f"wait_{queue}").text
