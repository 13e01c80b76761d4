"""Runs and copies of devices as an XSpace: the trace format of XProf, TensorBoard and `jax.profiler.ProfileData`.

A plane is a device.  Its lines: copies from and to the host, as long as its chip's link takes; programs; and the tracks
of a run's timeline (`sim/slices.py`): launches, groups, HLO operations, each queue's instructions.  A run stands at the
time at which the host called it; from there on times are the chip's, which take less than simulating them.

Source of the messages: `tsl/profiler/protobuf/xplane.proto`; the fields used here only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from systolith.compiler.hlo.proto.declared import Declared
from systolith.isa.chip import Chip
from systolith.runtime.device import Device
from systolith.runtime.run import Run
from systolith.sim.slices import OPS, slices

MOST_INSTRUCTIONS = 200_000
"""Instructions of a trace; of later runs it has programs and operations only, and says so."""
PROGRAMS, OPERATIONS, COPIES = "XLA Modules", "XLA Ops", "copies"

# Maps are lists of pairs.
MESSAGES = {
    "XSpace": "1 planes XPlane*,2 errors string*,3 warnings string*",
    "XPlane": "1 id int64,2 name string,3 lines XLine*,4 event_metadata EventEntry*,5 stat_metadata StatEntry*",
    "EventEntry": "1 key int64,2 value XEventMetadata",
    "StatEntry": "1 key int64,2 value XStatMetadata",
    "XLine": "1 id int64,2 name string,3 timestamp_ns int64,4 events XEvent*",
    "XEvent": "1 metadata_id int64,2 offset_ps int64,3 duration_ps int64,4 stats XStat*",
    "XStat": "1 metadata_id int64,4 int64_value int64?,5 str_value string?",
    "XEventMetadata": "1 id int64,2 name string",
    "XStatMetadata": "1 id int64,2 name string",
}


class Noted(NamedTuple):
    """What a device did: a run, or a copy of `size` bytes; `began`: nanoseconds on the host's clock."""

    began: int
    device: Device
    run: Run | None
    to_device: bool
    size: int


class _Event(NamedTuple):
    """On a line, from one time to another (picoseconds of the host's clock)."""

    line: str
    name: str
    start: int
    end: int
    stats: dict[str, int | str]


@cache
def _declared() -> Declared:
    return Declared("systolith.xplane", MESSAGES)


def xspace(noted: Sequence[Noted]) -> bytes:
    """The serialized XSpace."""
    planes: dict[str, list[_Event]] = defaultdict(list)
    left = MOST_INSTRUCTIONS
    for one in noted:
        events = planes[f"/device:CUSTOM:systolith {one.device.number} ({one.device.chip.name})"]
        if one.run is None:
            events.append(_copy(one))
            continue
        left -= one.run.result.instructions
        events += _run(one.began, one.run, instructions=left >= 0)
    said = [f"of {MOST_INSTRUCTIONS} instructions no more are shown: take a shorter trace"] if left < 0 else []
    message: Any = _declared().message_class("XSpace")
    fields = [_plane(n, name, events) for n, (name, events) in enumerate(planes.items())]
    encoded: bytes = message(planes=fields, warnings=said).SerializeToString()
    return encoded


def _ps(cycles: int, chip: Chip) -> int:
    return round(cycles * 1_000_000 / chip.clock_mhz)


def _copy(one: Noted) -> _Event:
    """A copy takes its time on the link: set-up, bandwidth, latency."""
    chip, start = one.device.chip, 1000 * one.began
    host = chip.host
    cycles = host.setup + -(-one.size * host.q // host.p) + host.latency
    name = "copy to device" if one.to_device else "copy to host"
    return _Event(COPIES, name, start, start + _ps(cycles, chip), {"bytes": one.size, "cycles": cycles})


def _run(began: int, run: Run, instructions: bool) -> Iterator[_Event]:
    result = run.result
    trace, chip, start = result.trace, run.chip, 1000 * began
    if trace is None or result.cycles is None:
        return
    base = start + _ps(chip.host.launch, chip)

    def event(line: str, name: str, first: int, last: int, stats: dict[str, int | str]) -> _Event:
        return _Event(line, name, base + _ps(first, chip), base + _ps(last, chip), stats)

    yield event(PROGRAMS, run.program.name, 0, result.cycles, {"cycles": result.cycles})
    for s in slices(result, trace):
        if instructions or s.track not in trace.queues:
            yield event(OPERATIONS if s.track == OPS else s.track, s.name, s.start, s.end, _plain(s.args))


def _plain(args: Mapping[str, Any]) -> dict[str, int | str]:
    flat = {k: v for k, v in args.items() if isinstance(v, int | str)}
    return flat | {f"{k} {p}": n for k, v in args.items() if isinstance(v, dict) for p, n in v.items()}


def _plane(number: int, name: str, events: Sequence[_Event]) -> dict[str, Any]:
    names: dict[str, int] = {}
    stats: dict[str, int] = {}
    lines: dict[str, list[_Event]] = defaultdict(list)
    for e in events:
        lines[e.line].append(e)
    start = min(e.start for e in events) // 1000
    made = []
    for at, (line, those) in enumerate(lines.items()):
        fields = [_event(e, start, names, stats) for e in sorted(those, key=lambda e: e.start)]
        made.append({"id": at, "name": line, "timestamp_ns": start, "events": fields})
    return {
        "id": number,
        "name": name,
        "lines": made,
        "event_metadata": [{"key": n, "value": {"id": n, "name": text}} for text, n in names.items()],
        "stat_metadata": [{"key": n, "value": {"id": n, "name": text}} for text, n in stats.items()],
    }


def _event(e: _Event, start: int, names: dict[str, int], stats: dict[str, int]) -> dict[str, Any]:
    told = [
        {
            "metadata_id": stats.setdefault(name, len(stats) + 1),
            "str_value" if isinstance(v, str) else "int64_value": v,
        }
        for name, v in e.stats.items()
    ]
    place = {"offset_ps": e.start - 1000 * start, "duration_ps": e.end - e.start}
    return {"metadata_id": names.setdefault(e.name, len(names) + 1), **place, "stats": told}
