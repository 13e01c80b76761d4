"""A run as a trace in Perfetto's protobuf, which ui.perfetto.dev and the package `perfetto` open and query.

Tracks and slices are those of `systolith.sim.slices`; below them are counters of HBM traffic, of bytes held and of
power.  Arrows go from the instruction that signals a token to the one that waits for it.
Times are nanoseconds of the chip's clock, rounded; arguments have the cycles of the run, whose cycle 0 is
where the launch ends.

Source of the messages: `protos/perfetto/trace` of Perfetto; the fields used here only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from systolith.compiler.hlo.proto.declared import Declared
from systolith.compiler.memory.report import MemoryUse
from systolith.isa.errors import SystolithError
from systolith.isa.files import write_atomic
from systolith.runtime.records.held import held
from systolith.sim.chrome import COUNTER_BUCKETS, write_trace
from systolith.sim.slices import Slice, slices, tracks
from systolith.sim.stats import RunResult

SUFFIXES = (".perfetto-trace", ".pftrace")
PROCESS, TRACKS, COUNTERS = 1, 2, 10_000
"""Track ids; those of tracks and counters count from theirs on."""
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4  # TrackEvent.Type
EXPLICIT, BYTES = 3, 3  # TrackDescriptor.ChildTracksOrdering, CounterDescriptor.Unit
SEQUENCE = 1

MESSAGES = {
    "Trace": "1 packet TracePacket*",
    "TracePacket": "8 timestamp uint64?,10 trusted_packet_sequence_id uint32,11 track_event TrackEvent,"
    "60 track_descriptor TrackDescriptor",
    "TrackEvent": "4 debug_annotations DebugAnnotation*,9 type int32,11 track_uuid uint64,22 categories string*,"
    "23 name string,30 counter_value int64?,44 double_counter_value double?,47 flow_ids fixed64*,"
    "48 terminating_flow_ids fixed64*",
    "TrackDescriptor": "1 uuid uint64,2 name string,3 process ProcessDescriptor,5 parent_uuid uint64,"
    "8 counter CounterDescriptor,11 child_ordering int32,12 sibling_order_rank int32",
    "ProcessDescriptor": "1 pid int32,6 process_name string",
    "CounterDescriptor": "3 unit int32,6 unit_name string",
    "DebugAnnotation": "10 name string,3 uint_value uint64?,4 int_value int64?,6 string_value string?",
}

Fields = dict[str, Any]


def perfetto_trace(result: RunResult, memory: MemoryUse | None = None) -> bytes:
    """The trace of a run.

    Args:
        result: the run.
        memory: the compiler's placement, for counters of bytes held.

    Raises:
        SystolithError: the run has no times (mode `values`).
    """
    if result.trace is None:
        raise SystolithError(f"a trace needs times: the run was in mode {result.mode!r}")
    clock, launch = result.chip.clock_mhz, result.chip.host.launch

    def ns(cycle: int) -> int:
        return round((launch + cycle) * 1000 / clock)

    found = slices(result, result.trace)
    names = tracks(found, result.trace)
    packets = list(_tracks(result, names))
    packets += _slices(found, names, ns)
    packets += _counters(result, memory, ns)
    packets.sort(key=lambda packet: packet.get("timestamp", -1))  # stable: ends before beginnings, as they come
    message: Any = Declared("systolith.perfetto", MESSAGES).message_class("Trace")
    encoded: bytes = message(
        packet=[{**p, "trusted_packet_sequence_id": SEQUENCE} for p in packets]
    ).SerializeToString()
    return encoded


def write_any_trace(result: RunResult, path: Path, memory: MemoryUse | None = None) -> None:
    """Write a trace in the format that the suffix says: Perfetto's protobuf (SUFFIXES), else Chrome's JSON.

    Raises:
        SystolithError: the run has no times, or the file cannot be written.
    """
    if path.suffix in SUFFIXES:
        trace = perfetto_trace(result, memory)
        write_atomic(path, lambda handle: handle.write(trace))
    else:
        write_trace(result, path)


def _tracks(result: RunResult, names: Sequence[str]) -> Iterator[Fields]:
    process = {"pid": PROCESS, "process_name": f"{result.chip.name}: {result.program.name}"}
    yield {"track_descriptor": {"uuid": PROCESS, "process": process, "child_ordering": EXPLICIT}}
    for rank, name in enumerate(names):
        about = {"uuid": TRACKS + rank, "parent_uuid": PROCESS, "name": name, "sibling_order_rank": rank}
        yield {"track_descriptor": about}


def _slices(found: Sequence[Slice], names: Sequence[str], ns: Callable[[int], int]) -> Iterator[Fields]:
    uuids = {name: TRACKS + rank for rank, name in enumerate(names)}
    for s in found:
        about = {"type": SLICE_BEGIN, "track_uuid": uuids[s.track], "name": s.name, "categories": [s.track]}
        about |= {"debug_annotations": _notes(s.args), "flow_ids": s.gives, "terminating_flow_ids": s.takes}
        yield {"timestamp": ns(s.start), "track_event": about}
        yield {"timestamp": ns(s.end), "track_event": {"type": SLICE_END, "track_uuid": uuids[s.track]}}


def _notes(args: Mapping[str, Any]) -> list[Fields]:
    """Arguments of an event."""
    flat = {k: v for k, v in args.items() if not isinstance(v, dict)}
    flat |= {f"{k} {part}": n for k, v in args.items() if isinstance(v, dict) for part, n in v.items()}
    return [{"name": k, ("int_value" if isinstance(v, int) else "string_value"): v} for k, v in flat.items()]


def _counters(result: RunResult, memory: MemoryUse | None, ns: Callable[[int], int]) -> Iterator[Fields]:
    line = result.timeline(COUNTER_BUCKETS)
    widths = [end - start for start, end in pairwise(line["edges"])]
    series: list[tuple[str, Fields, list[tuple[int, float]]]] = []
    for what in ("read", "written"):
        rates = [value / n for value, n in zip(line[what], widths, strict=True)]
        points = list(zip(line["edges"], [*rates, 0.0], strict=False))
        series.append((f"HBM bytes {what} a cycle", {"unit_name": "bytes/cycle"}, points))
    for space, steps in (held(result, memory) if memory else {}).items():
        points = list(zip(steps.times.tolist(), steps.held.tolist(), strict=True))
        series.append((f"{space.upper()} bytes held", {"unit": BYTES}, points))
    if result.energy is not None:
        watts = result.energy.watts(np.array(line["edges"], np.int64)).tolist()
        series.append(("power", {"unit_name": "W"}, list(zip(line["edges"], [*watts, 0.0], strict=True))))
    for number, (name, unit, points) in enumerate(series):
        uuid = COUNTERS + number
        about = {"uuid": uuid, "parent_uuid": PROCESS, "name": name, "sibling_order_rank": uuid, "counter": unit}
        yield {"track_descriptor": about}
        for cycle, value in points:
            event = {"type": COUNTER, "track_uuid": uuid, "double_counter_value": float(value)}
            yield {"timestamp": ns(cycle), "track_event": event}
