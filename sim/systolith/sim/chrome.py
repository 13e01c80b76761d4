"""A run as Chrome trace events: opens in Perfetto (ui.perfetto.dev) and in chrome://tracing.

A process is the chip, a thread each track of `slices.py`.  A slice is a complete event; the arguments of an instruction
say where it comes from, when it was issued and retired, and the cause of the unit's wait before it.  Flow events are
arrows along tokens.  Counters show HBM traffic in bytes a cycle.
Times are microseconds of the chip's clock: cycles / `clock_mhz`.
Cycle 0 of the run is where the launch ends; arguments have the run's cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from systolith.isa.errors import SystolithError
from systolith.isa.files import json_text, text_fill, write_atomic
from systolith.sim.slices import Slice, slices, tracks
from systolith.sim.stats import RunResult
from systolith.sim.trace import Trace

PID = 1
COUNTER_BUCKETS = 1000
Event = dict[str, Any]


def chrome_trace(result: RunResult) -> dict[str, Any]:
    """The JSON object: `traceEvents` and `otherData`.

    Raises:
        SystolithError: the run has no times (mode `values`).
    """
    if result.trace is None:
        raise SystolithError(f"a trace needs times: the run was in mode {result.mode!r}")
    trace = result.trace
    found = slices(result, trace)
    names = tracks(found, trace)
    events = [*_names(result, names, trace), *_events(result, found, _threads(names, trace)), *_counters(result)]
    other = {"program": result.program.name, "chip": result.chip.name, "cycles": result.cycles}
    other["launch"] = result.launch
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


def write_trace(result: RunResult, path: str | Path) -> None:
    """Write `chrome_trace(result)` to a file.

    Raises:
        SystolithError: the run has no times, or the file cannot be written.
    """
    text = json_text(chrome_trace(result), separators=(",", ":"))
    write_atomic(Path(path), text_fill(text))


def _names(result: RunResult, names: list[str], trace: Trace) -> Iterator[Event]:
    """The process and its threads, in order; queues have the numbers that they have in the trace."""
    yield _meta("process_name", 0, name=f"{result.chip.name}: {result.program.name}")
    for place, (name, thread) in enumerate(_threads(names, trace).items()):
        yield _meta("thread_name", thread, name=name)
        yield _meta("thread_sort_index", thread, sort_index=place)


def _threads(names: list[str], trace: Trace) -> dict[str, int]:
    others = [name for name in names if name not in trace.queues]
    numbers = {name: n for n, name in enumerate((*trace.queues, *others))}
    return {name: numbers[name] for name in names}


def _meta(what: str, thread: int, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": PID, "tid": thread, "args": args}


def _events(result: RunResult, found: list[Slice], threads: dict[str, int]) -> Iterator[Event]:
    """A slice's event, and the ends of its arrows, which stand at its start."""
    clock, launch = result.chip.clock_mhz, result.chip.host.launch
    for s in found:
        place = {"pid": PID, "tid": threads[s.track], "ts": (launch + s.start) / clock}
        yield {"ph": "X", "name": s.name, "cat": s.track, **place, "dur": (s.end - s.start) / clock, "args": s.args}
        for number in s.takes:
            yield {"ph": "f", "bp": "e", "name": "token", "cat": "token", "id": number, **place}
        for number in s.gives:
            yield {"ph": "s", "name": "token", "cat": "token", "id": number, **place}


def _counters(result: RunResult) -> list[Event]:
    line = result.timeline(COUNTER_BUCKETS)
    edges, clock, launch = line["edges"], result.chip.clock_mhz, result.chip.host.launch
    events: list[Event] = []
    for i, (read, written) in enumerate(zip(line["read"], line["written"], strict=True)):
        width = edges[i + 1] - edges[i]
        args = {"read": read / width, "written": written / width}
        ts = (launch + edges[i]) / clock
        events.append({"ph": "C", "name": "HBM bytes/cycle", "pid": PID, "ts": ts, "args": args})
    if edges:
        zero = {"read": 0.0, "written": 0.0}
        events.append(
            {"ph": "C", "name": "HBM bytes/cycle", "pid": PID, "ts": (launch + edges[-1]) / clock, "args": zero}
        )
    return events
