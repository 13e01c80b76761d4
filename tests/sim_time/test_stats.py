"""Figures and traces of a run, on a program of every unit, its loop unrolled by hand."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from systolith.isa.errors import SystolithError
from systolith.isa.instruction import Instruction
from systolith.isa.opcodes import queue_of
from systolith.isa.program import Program
from systolith.sim import causes
from systolith.sim.chrome import chrome_trace, write_trace
from systolith.sim.plane import HazardPlane, TimePlane
from systolith.sim.stats import RunResult
from tests.sim_time.programs import CHIP, matmul_program

TILES = 3


def executed(program: Program) -> Iterator[tuple[int, Instruction]]:
    order = [*range(5), *[*range(5, 14)] * TILES, *range(14, len(program.code))]
    return ((i, program.code[i]) for i in order)


@pytest.fixture(scope="module")
def result() -> RunResult:
    program = matmul_program(TILES)
    plane = TimePlane(program, CHIP)
    counts = np.zeros(len(program.code), np.int64)
    for i, instr in executed(program):
        plane.execute(i, queue_of(instr), False)
        counts[i] += 1
    cycles, units, trace, facts = plane.finish()
    return RunResult(CHIP, program, "time", cycles, units, int(counts.sum()), trace, facts, counts)


def test_causes_add_up(result: RunResult) -> None:
    assert result.cycles is not None
    causes.check(result.units, result.cycles)
    known = {c for c in causes.DOCS if "<" not in c}
    queues = {"seq", *result.units}
    for unit in result.units.values():
        for cause in set(unit) - known:
            assert cause.removeprefix("wait_").removeprefix("fifo_full_") in queues


def test_traffic_and_work(result: RunResult) -> None:
    assert result.hbm_bytes == {"read": TILES * (128 + 256), "written": TILES * 512}
    assert result.macs == TILES * 16 * 8 * 8
    assert result.array_active == {"s0": TILES * 16}
    assert result.mxu_utilization == result.macs / (64 * result.cycles)  # type: ignore[operator]


def test_active_and_busy_are_two_figures(result: RunResult) -> None:
    assert result.array_active["s0"] < result.units["s0"]["busy"]  # latches and nops occupy it, no row enters


def test_the_critical_cycles_add_up(result: RunResult) -> None:
    assert result.trace is not None
    for key in ("group", "hlo"):
        assert sum(e["cycles"] for e in result.by(key)) == result.trace.retire.max()
    ops = {e["name"]: e for e in result.by("hlo")}
    assert ops["dot.1"]["instructions"] == 2 * TILES
    assert ops["dot.1"]["macs"] == result.macs
    assert ops["add.2"]["busy"].keys() == {"vpu"}
    unit = result.units["vpu"]
    for cause in ("wait_s0", "fifo_empty"):
        assert sum(e["stalls"].get("vpu", {}).get(cause, 0) for e in result.by("group")) == unit.get(cause, 0)
    (group,) = [g for g in result.groups() if g["name"] == "fusion.1"]
    assert (group["kind"], group["flops"], group["hlo"]) == ("kOutput", 2048, ["dot.1", "add.2"])


def test_the_timeline_has_all_the_bytes(result: RunResult) -> None:
    for buckets in (1, 7, 200, 10**6):
        line = result.timeline(buckets)
        assert sum(line["read"]) == pytest.approx(result.hbm_bytes["read"])
        assert sum(line["written"]) == pytest.approx(result.hbm_bytes["written"])
        assert line["edges"][0] == 0
        assert line["edges"][-1] == result.cycles
        assert len(line["edges"]) == len(line["read"]) + 1 <= buckets + 1


def test_json_has_what_users_read(result: RunResult) -> None:
    report = json.loads(json.dumps(result.to_json()))
    assert report["ok"] is True
    assert report["chip"] == "tiny"
    assert report["seconds"] == pytest.approx(report["cycles"] / 100e6)
    assert report["vmem_high_water"] == 2560
    for unit in report["units"].values():
        assert sum(unit.values()) == report["cycles"]
    for key in ("wall_seconds", "mxu_utilization", "instructions", "max_abs_error", "max_rel_error", "groups", "ops"):
        assert key in report


def test_a_run_of_values_has_no_times() -> None:
    values = RunResult(CHIP, matmul_program(), "values")
    assert (values.cycles, values.seconds, values.mxu_utilization) == (None, None, None)
    assert json.loads(json.dumps(values.to_json()))["cycles"] is None
    with pytest.raises(SystolithError, match="values"):
        chrome_trace(values)


def test_the_trace_is_what_perfetto_reads(result: RunResult, tmp_path: Path) -> None:
    write_trace(result, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert result.trace is not None
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    places = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    above = ["host", "groups", "HLO ops"]
    assert [names[tid] for tid in sorted(names, key=lambda tid: places[tid])] == [*above, *result.trace.queues]
    (launch,) = (e for e in events if e.get("cat") == "host")
    assert (launch["ts"], launch["dur"]) == (0, pytest.approx(CHIP.host.launch / CHIP.clock_mhz))
    complete = [e for e in events if e["ph"] == "X" and e["cat"] in result.trace.queues]
    start = launch["dur"]
    assert all(e["ts"] == pytest.approx(start + e["args"]["start"] / CHIP.clock_mhz) for e in complete)
    assert len(complete) == len(result.trace.index)
    ends = dict.fromkeys(names, 0.0)
    for e in sorted(complete, key=lambda e: e["ts"]):
        assert e["ts"] >= ends[e["tid"]] - 1e-9  # no overlap on a track
        ends[e["tid"]] = e["ts"] + e["dur"]
        assert e["dur"] == pytest.approx(e["args"]["cycles"] / CHIP.clock_mhz)
    matmuls = [e for e in complete if e["name"] == "mxu.matmul dot.1"]
    assert len(matmuls) == TILES
    assert matmuls[0]["args"].items() >= {"hlo": "dot.1", "group": "fusion.1", "what": "matmul", "macs": 1024}.items()
    ends = dict.fromkeys(names, 0)
    for e in complete:
        if e["tid"]:  # its wait fills the gap before it
            assert sum(e["args"].get("waited", {}).values()) == e["args"]["start"] - ends[e["tid"]]
            ends[e["tid"]] = e["args"]["start"] + e["args"]["cycles"]
    loads = [e for e in complete if e["name"] == "dma.load"]
    assert sum(e["args"]["hbm_bytes"] for e in loads) == result.hbm_bytes["read"]
    assert {e["ph"] for e in events} == {"M", "X", "C", "s", "f"}


def races(program: Program) -> list[str]:
    plane = HazardPlane(program, CHIP)
    for i, instr in executed(program):
        plane.execute(i, instr)
    return [f"{h.kind} {h.place}" for h in plane.hazards]


def test_a_correct_program_has_no_races() -> None:
    assert races(matmul_program(TILES)) == []


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        (0, "read after write vmem 0"),  # mxu.load does not wait for its weights
        (2, "read after write shadow 0"),  # the latch does not wait for the tile
        (3, "write after read shadow 0"),  # the next tile does not wait for the latch
        (4, "read after write acc 0"),  # the epilogue does not wait for the sums
        (8, "write after read acc 0"),  # the next matmul does not wait for the epilogue
        (9, "write after read vmem 0"),  # the next epilogue does not wait for the store
    ],
)
def test_every_token_is_needed(token: int, kind: str) -> None:
    program = matmul_program(TILES)
    program.code = [
        Instruction(
            i.op,
            i.args,
            i.unit,
            tuple(t for t in i.waits if t != token),
            tuple(t for t in i.signals if t != token),
            i.fence,
        )
        for i in program.code
    ]
    assert kind in races(program)


def test_groups_operations_and_arrows_are_in_the_json(result: RunResult) -> None:
    """Groups and operations share the run out as reports do; arrows go from signals to the waits that take them."""
    assert result.trace is not None
    events = chrome_trace(result)["traceEvents"]
    for track, key in (("groups", "group"), ("HLO ops", "hlo")):
        shares = Counter[str]()
        for e in events:
            if e["ph"] == "X" and e["cat"] == track:
                shares[e["args"]["hlo"]] += e["args"]["cycles"]
        assert dict(shares) == {e["name"]: e["cycles"] for e in result.by(key) if e["name"] and e["cycles"]}
    at = {(e["tid"], e["ts"], "token"): e for e in events if e["ph"] == "X"}
    begins, ends = ({e["id"]: at[e["tid"], e["ts"], e["cat"]] for e in events if e["ph"] == ph} for ph in "sf")
    waits = sum(len(result.program.code[i].waits) for i in result.trace.index)
    assert set(begins) == set(ends)
    assert len(ends) == waits > 0
    for number, waiter in ends.items():
        signaller = begins[number]
        assert signaller["args"]["retire"] <= waiter["args"]["start"]
        code = result.program.code
        assert {*code[signaller["args"]["index"]].signals} & {*code[waiter["args"]["index"]].waits}
