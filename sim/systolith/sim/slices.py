"""A run as slices of time on tracks, which traces are written from (`chrome.py`, the runtime's `perfetto.py`).

Tracks, from the top: the host's launch and the transfers of its queues; the fusion groups and the HLO operations (the
run shared out, as reports do: to each the time in which the oldest unfinished instruction is its own); each queue with
every executed instruction.  Flows go from the instruction that signals a token to the one that waits for it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import numpy as np

from systolith.isa.printable import title
from systolith.sim.host_timeline import host_slices
from systolith.sim.stats import RunResult
from systolith.sim.trace import Trace

GROUPS, OPS = "groups", "HLO ops"
_NONE: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of time of a track.

    Attributes:
        track: its name.
        name: of the slice.
        start, end: cycles of the run; the launch ends at 0.
        args: what else is known of it.
        gives, takes: numbers of the flows that begin and end there.
    """

    track: str
    name: str
    start: int
    end: int
    args: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    gives: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()


def slices(result: RunResult, trace: Trace) -> list[Slice]:
    """All slices, those of a track in order of time."""
    host = [Slice(s.track, s.name, s.start, s.end, s.args) for s in host_slices(result, trace)]
    return [*host, *_shares(result, trace), *_instructions(result, trace)]


def tracks(found: list[Slice], trace: Trace) -> list[str]:
    """The tracks of slices, from the top."""
    below = (GROUPS, OPS, *trace.queues)
    return [*(track for track in dict.fromkeys(s.track for s in found) if track not in below), *below]


def _shares(result: RunResult, trace: Trace) -> Iterator[Slice]:
    """Groups, and HLO operations: consecutive parts of one are one slice."""
    retired = np.maximum.accumulate(trace.retire).tolist()
    for track, key in ((GROUPS, "group"), (OPS, "hlo")):
        known = _known(result, track)
        names = [str(getattr(result.origin(i), key)) for i in range(len(result.program.code))]
        parts: list[tuple[str, int, int]] = []
        for (start, end), index in zip(pairwise([0, *retired]), trace.index.tolist(), strict=True):
            name = names[index]
            if end > start and parts and parts[-1][0] == name:
                parts[-1] = (name, parts[-1][1], end)
            elif end > start:
                parts.append((name, start, end))
        for name, start, end in parts:
            if name:
                about = known.get(name, {})
                args = {"hlo": name, **about, "cycles": end - start}
                yield Slice(track, title(name, about.get("op_name", "")), start, end, args)


def _known(result: RunResult, track: str) -> dict[str, dict[str, str]]:
    """The `op_name` and `source` of groups, or of HLO operations, where the HLO's metadata has them."""
    groups = result.program.groups
    if track == GROUPS:
        places = {g.name: g.places[0] for g in groups if g.places}
    else:
        places = {place[0]: place for g in groups for place in g.places}
    pairs = {name: {"op_name": place[1], "source": place[2]} for name, place in places.items()}
    return {name: {key: text for key, text in about.items() if text} for name, about in pairs.items()}


def _instructions(result: RunResult, trace: Trace) -> Iterator[Slice]:
    """The entries of the trace, in program order."""
    facts = result.facts
    fixed = {int(i): _fixed(result, int(i)) for i in np.unique(trace.index)}
    waits: dict[int, dict[str, int]] = {}
    for at, cause, cycles in zip(trace.stall_at.tolist(), trace.stall_cause.tolist(), trace.stall_cycles, strict=True):
        waits.setdefault(at, {})[trace.causes[cause]] = int(cycles)
    gives, takes = _flows(result, trace)
    columns = (trace.index, trace.queue, trace.issue, trace.start, trace.end, trace.retire)
    for at, (i, q, issue, start, end, retire) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        name, args = fixed[i]
        args = {**args, "cycles": end - start, "issue": issue, "start": start, "retire": retire}
        if at in waits:
            args["waited"] = waits[at]
        if facts is not None and (facts.read[i] or facts.written[i]):
            args["hbm_bytes"] = int(facts.read[i] + facts.written[i])
        yield Slice(trace.queues[q], name, start, end, args, tuple(gives[at]), tuple(takes[at]))


def _fixed(result: RunResult, index: int) -> tuple[str, dict[str, Any]]:
    """Name and arguments that all executions of an instruction share."""
    origin, op = result.origin(index), result.program.code[index].op
    args: dict[str, Any] = {"index": index, "op": op}
    args |= {k: v for k in ("hlo", "group", "what", "macs") if (v := getattr(origin, k))}
    return (f"{op} {origin.hlo}".strip(), args)


def _flows(result: RunResult, trace: Trace) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Flows that entries of the trace begin and end: the n-th wait for a token takes its n-th signal."""
    numbers = count(1)
    waiting: dict[int, deque[tuple[int, int]]] = defaultdict(deque)
    gives: dict[int, list[int]] = defaultdict(list)
    takes: dict[int, list[int]] = defaultdict(list)
    for at, index in enumerate(trace.index.tolist()):
        instruction = result.program.code[index]
        for token in instruction.waits:
            if waiting[token]:
                number, giver = waiting[token].popleft()
                gives[giver].append(number)
                takes[at].append(number)
        for token in instruction.signals:
            waiting[token].append((next(numbers), at))
    return gives, takes
