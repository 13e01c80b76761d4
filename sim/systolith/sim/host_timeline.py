"""The host in the timeline of a run: the launch, the transfers of its queues, and when full ones hold it.

The launch (`host.launch`) ends at cycle 0 of the run, so its cycles are negative; traces begin with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from systolith.isa.instruction import Space, Stream
from systolith.isa.program import FEEDS
from systolith.isa.timing import CostModel
from systolith.sim.causes import HOST
from systolith.sim.host_calls import declared
from systolith.sim.stats import RunResult
from systolith.sim.trace import Trace

LAUNCH = "host"
"""The track of the launch."""


class HostSlice(NamedTuple):
    """An action of the host from one cycle of the run to another: its track, its name, and what else is known of it."""

    track: str
    name: str
    start: int
    end: int
    args: dict[str, Any]


def host_slices(result: RunResult, trace: Trace) -> Iterator[HostSlice]:
    """The launch, the waits for credits of infeed queues, then the transfers as the link moves them, in program order.

    A transfer's slice begins where the host is ready for it, and ends with its last byte on the link.
    """
    launch = result.chip.host.launch
    yield HostSlice(LAUNCH, f"launch {result.program.name}", -launch, 0, {"cycles": launch})
    for number, held in result.held.items():
        for start, end in held:
            args = {"cycles": end - start}
            yield HostSlice(f"host of infeed {number}", "waits for credits: the queue is full", start, end, args)
    moved = _transfers(result, trace)
    waited = {
        at: cycles
        for at, cause, cycles in zip(
            trace.stall_at.tolist(), trace.stall_cause.tolist(), trace.stall_cycles.tolist(), strict=True
        )
        if trace.causes[cause] == HOST
    }
    columns = (trace.index.tolist(), trace.start.tolist(), trace.end.tolist())
    for at, (index, start, end) in enumerate(zip(*columns, strict=True)):
        if index in moved:
            track, size = moved[index]
            begin = start + waited.get(at, 0)
            args = {"cycles": end - begin, "bytes": size, "start": begin}
            yield HostSlice(track, f"{size} bytes {result.origin(index).hlo}".strip(), begin, end, args)


def _transfers(result: RunResult, trace: Trace) -> dict[int, tuple[str, int]]:
    """Of the instructions of the trace that move data of a host queue: its name, and bytes."""
    costs, found = CostModel(result.program, result.chip), dict[int, tuple[str, int]]()
    for index in dict.fromkeys(trace.index.tolist()):
        instruction = result.program.code[index]
        for side, what in (("src", "infeed"), ("dst", "outfeed")):
            stream = instruction.args.get(side)
            if isinstance(stream, Stream) and stream.space is Space.HOST:
                decl = declared(result.program, stream, FEEDS)
                role = decl.role if decl is not None else what
                found[index] = f"{role} {stream.buffer}", costs.of(instruction).host_bytes
    return found
