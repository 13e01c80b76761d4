"""A run as Chrome trace events: opens in Perfetto (ui.perfetto.dev) and in chrome://tracing.

A process is the chip, a thread each queue, and each of the host's: the launch, with which the trace begins, and the
transfers of infeeds and outfeeds.  Each executed instruction is a complete event over its occupancy; its
arguments say where it comes from, when it was issued and retired, and the cause of the unit's wait before it.  Counters
show HBM traffic in bytes a cycle.  Times are microseconds of the chip's clock: cycles / `clock_mhz`.
Cycle 0 of the run is where the launch ends; arguments have the run's cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from systolith.isa.errors import SystolithError
from systolith.isa.files import json_text, text_fill, write_atomic
from systolith.sim.host_timeline import host_slices
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
    events = [*_names(result, trace), *_host(result, trace), *_instructions(result, trace), *_counters(result)]
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


def _names(result: RunResult, trace: Trace) -> list[Event]:
    events: list[Event] = [_meta("process_name", 0, name=f"{result.chip.name}: {result.program.name}")]
    for q, name in enumerate(trace.queues):
        events.append(_meta("thread_name", q, name=name))
        events.append(_meta("thread_sort_index", q, sort_index=q))
    return events


def _meta(what: str, thread: int, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": PID, "tid": thread, "args": args}


def _place(result: RunResult, start: int, end: int) -> Event:
    """Where an event stands that takes the cycles from one of the run to another."""
    host = result.chip.host
    return {"ts": (host.launch + start) / result.chip.clock_mhz, "dur": (end - start) / result.chip.clock_mhz}


def _host(result: RunResult, trace: Trace) -> Iterator[Event]:
    """Threads of the host, above those of the chip."""
    threads: dict[str, int] = {}
    for s in host_slices(result, trace):
        thread = threads.setdefault(s.track, len(trace.queues) + len(threads))
        event = {"ph": "X", "name": s.name, "cat": "host", "pid": PID, "tid": thread, "args": s.args}
        yield event | _place(result, s.start, s.end)
    for track, thread in threads.items():
        yield _meta("thread_name", thread, name=track)
        yield _meta("thread_sort_index", thread, sort_index=thread - len(trace.queues) - len(threads))


def _instructions(result: RunResult, trace: Trace) -> list[Event]:
    return [
        {"ph": "X", "name": e.name, "cat": trace.queues[e.queue], "pid": PID, "tid": e.queue, "args": e.args}
        | _place(result, e.start, e.end)
        for e in executed(result, trace)
    ]


class Executed(NamedTuple):
    """An executed instruction: position of its queue, name, cycles of its occupancy, and what else is known of it."""

    queue: int
    name: str
    start: int
    end: int
    args: dict[str, Any]


def executed(result: RunResult, trace: Trace) -> Iterator[Executed]:
    """The entries of a run's trace, in program order."""
    facts = result.facts
    fixed = {int(i): _fixed(result, int(i)) for i in np.unique(trace.index)}
    waits: dict[int, dict[str, int]] = {}
    for at, cause, cycles in zip(trace.stall_at.tolist(), trace.stall_cause.tolist(), trace.stall_cycles, strict=True):
        waits.setdefault(at, {})[trace.causes[cause]] = int(cycles)
    columns = (trace.index, trace.queue, trace.issue, trace.start, trace.end, trace.retire)
    for at, (i, q, issue, start, end, retire) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        name, args = fixed[i]
        args = {**args, "cycles": end - start, "issue": issue, "start": start, "retire": retire}
        if at in waits:
            args["waited"] = waits[at]
        if facts is not None and (facts.read[i] or facts.written[i]):
            args["hbm_bytes"] = int(facts.read[i] + facts.written[i])
        yield Executed(q, name, start, end, args)


def _fixed(result: RunResult, index: int) -> tuple[str, dict[str, Any]]:
    """Name and arguments that all executions of an instruction share."""
    origin, op = result.origin(index), result.program.code[index].op
    args: dict[str, Any] = {"index": index, "op": op}
    args |= {k: v for k in ("hlo", "group", "what", "macs") if (v := getattr(origin, k))}
    return (f"{op} {origin.hlo}".strip(), args)


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
