"""Traces in Perfetto's protobuf, read back by the messages of the package `perfetto`."""

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

from systolith.isa.errors import SystolithError
from systolith.runtime.cli import cli
from systolith.runtime.jobs.job import Outcome, Request, run
from systolith.runtime.records.held import held
from systolith.runtime.records.perfetto import perfetto_trace
from tests.corpus.load import load

Track = messages.TrackDescriptor
Event = messages.TrackEvent


class Read:
    """A trace: names of tracks in order, slices and counters by track."""

    def __init__(self, data: bytes) -> None:
        trace: Any = messages.Trace.FromString(data)
        tracks = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
        self.process = tracks[0]
        children = sorted(tracks[1:], key=lambda t: t.sibling_order_rank)
        assert {t.parent_uuid for t in children} == {self.process.uuid}
        names = {t.uuid: t.name for t in tracks}
        assert len(names) == len(tracks)
        self.order = [t.name for t in children]
        self.slices: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.counters: dict[str, list[tuple[int, float]]] = defaultdict(list)
        last, running = 0, dict[str, dict[str, Any]]()
        for packet in trace.packet:
            if not packet.HasField("track_event"):
                continue
            assert packet.timestamp >= last
            last, event = packet.timestamp, packet.track_event
            track = names[event.track_uuid]
            if event.type == Event.TYPE_COUNTER:
                self.counters[track].append((packet.timestamp, event.double_counter_value))
            elif event.type == Event.TYPE_SLICE_BEGIN:
                assert track not in running, f"{track}: a slice in a slice"
                notes = {
                    n.name: n.int_value if n.HasField("int_value") else n.string_value for n in event.debug_annotations
                }
                running[track] = {
                    "name": event.name, "start": packet.timestamp, "notes": notes, "gives": list(event.flow_ids),
                    "takes": list(event.terminating_flow_ids),
                }  # fmt: skip
            else:
                self.slices[track].append(running.pop(track) | {"end": packet.timestamp})
        assert not running


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run(Request(load("mlp_infer").path, "small", mode="time"))


@pytest.fixture(scope="module")
def trace(outcome: Outcome) -> Read:
    return Read(perfetto_trace(outcome.result, outcome.memory))


def test_groups_and_operations_stand_above_the_units(outcome: Outcome, trace: Read) -> None:
    assert outcome.result.trace
    assert trace.process.process.process_name == "small: jit_mlp"
    first = ["host", "groups", "HLO ops", *outcome.result.trace.queues]
    assert trace.order[: len(first)] == first
    assert trace.order[-4:] == [
        "HBM bytes read a cycle",
        "HBM bytes written a cycle",
        "VMEM bytes held",
        "HBM bytes held",
    ]


def test_every_instruction_is_a_slice(outcome: Outcome, trace: Read) -> None:
    result = outcome.result
    assert result.trace
    for q, queue in enumerate(result.trace.queues):
        mine = result.trace.queue == q
        found = [(s["notes"]["index"], s["notes"]["start"], s["notes"]["cycles"]) for s in trace.slices[queue]]
        occupied = result.trace.end - result.trace.start
        assert found == list(
            zip(*(x[mine].tolist() for x in (result.trace.index, result.trace.start, occupied)), strict=True)
        )


def test_times_are_those_of_the_clock(outcome: Outcome, trace: Read) -> None:
    for s in trace.slices["ld"]:
        cycles = outcome.result.chip.host.launch + s["notes"]["start"]
        assert s["start"] == pytest.approx(cycles * 1000 / outcome.result.chip.clock_mhz, abs=0.5)


def test_it_begins_with_the_launch(outcome: Outcome, trace: Read) -> None:
    (launch,) = trace.slices["host"]
    cycles = outcome.result.chip.host.launch
    assert (launch["name"], launch["start"], launch["notes"]) == ("launch jit_mlp", 0, {"cycles": cycles})
    assert launch["end"] == pytest.approx(cycles * 1000 / outcome.result.chip.clock_mhz, abs=0.5)


def test_the_run_is_shared_out_as_in_reports(outcome: Outcome, trace: Read) -> None:
    for track, key in (("groups", "group"), ("HLO ops", "hlo")):
        shares = Counter[str]()
        for s in trace.slices[track]:
            shares[s["notes"]["hlo"]] += s["notes"]["cycles"]
        assert dict(shares) == {e["name"]: e["cycles"] for e in outcome.result.by(key) if e["name"] and e["cycles"]}


PLACED = """HloModule placed
ENTRY e {
  x = f32[64,64] parameter(0)
  d = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/layer/dot_general" source_file="model.py" source_line=7}
  ROOT t = f32[64,64] tanh(d), metadata={op_name="jit(f)/layer/tanh" source_file="model.py" source_line=8}
}
"""  # noqa: E501


def test_slices_have_the_names_of_the_program(tmp_path: Path) -> None:
    """Of operations that the HLO's metadata places: the name that the user knows, and the line that it is from."""
    (tmp_path / "m.hlo").write_text(PLACED)
    slices = Read(perfetto_trace(run(Request(tmp_path / "m.hlo", "small", mode="time")).result)).slices
    names = {(s["name"], s["notes"]["source"]) for s in slices["HLO ops"] if "op_name" in s["notes"]}
    assert ("layer/dot_general (d)", "model.py:7") in names
    assert {s["name"].split(" ")[0] for s in slices["groups"]} <= {"layer/dot_general", "layer/tanh"}


def test_arrows_go_from_a_signal_to_the_wait_that_takes_it(outcome: Outcome, trace: Read) -> None:
    result = outcome.result
    assert result.trace
    every = [s for queue in result.trace.queues for s in trace.slices[queue]]
    gives = {flow: s for s in every for flow in s["gives"]}
    takes = {flow: s for s in every for flow in s["takes"]}
    waits = sum(len(result.program.code[i].waits) for i in result.trace.index)
    assert len(takes) == waits > 10
    for flow, waiter in takes.items():
        signaller = gives[flow]
        assert signaller["notes"]["retire"] <= waiter["notes"]["start"]
        signals = result.program.code[signaller["notes"]["index"]].signals
        assert {*signals} & {*result.program.code[waiter["notes"]["index"]].waits}


def test_counters_add_up(outcome: Outcome, trace: Read) -> None:
    clock = outcome.result.chip.clock_mhz
    for what, amount in outcome.result.hbm_bytes.items():
        points = trace.counters[f"HBM bytes {what} a cycle"]
        moved = sum(rate * (end - start) * clock / 1000 for (start, rate), (end, _) in pairwise(points))
        assert moved == pytest.approx(amount, rel=0.02)  # nanoseconds are whole
    assert outcome.memory
    for space, steps in held(outcome.result, outcome.memory).items():
        assert [value for _, value in trace.counters[f"{space.upper()} bytes held"]] == steps.held.tolist()


def test_power_of_a_chip_with_energies_adds_up_to_the_energy() -> None:
    result = run(Request(load("mlp_infer").path, "tpu_v3", mode="time")).result
    energy = result.energy
    assert energy is not None
    points = Read(perfetto_trace(result)).counters["power"]
    joules = sum(watts * (end - start) * 1e-9 for (start, watts), (end, _) in pairwise(points))
    assert joules == pytest.approx(energy.total * 1e-15, rel=0.02)


@pytest.mark.parametrize("suffix", ["perfetto-trace", "pftrace"])
def test_the_command(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t.{suffix}"
    arguments = ["run", str(load("mlp_infer").path), "--chip", "small", "--mode", "time", "-q", "--trace", str(path)]
    assert CliRunner().invoke(cli, arguments, standalone_mode=False).return_value == 0
    assert Read(path.read_bytes()).slices["s0"]


def test_it_needs_times() -> None:
    outcome = run(Request(Path("examples/axpy.s"), mode="values", random=0))
    with pytest.raises(SystolithError, match="'values'"):
        perfetto_trace(outcome.result)
