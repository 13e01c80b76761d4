"""The record that the time plane leaves of a run, as arrays: when each instruction ran, and figures of each one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systolith.isa.program import Origin, Program
from systolith.sim.queues import Record

Ints = NDArray[np.int64]
NOWHERE = Origin()


def origin_of(program: Program, index: int) -> Origin:
    """Where the instruction with that index comes from; an empty Origin where the program does not say."""
    if index >= len(program.debug) or program.debug[index] < 0:
        return NOWHERE
    return program.origins[program.debug[index]]


@dataclass(frozen=True)
class Trace:
    """One entry per executed unit instruction or sync, in program order.

    Attributes:
        index: instruction index in the program.
        queue: position in `queues`.
        issue, start, end, retire: cycles; the unit is occupied from start to end.
        queues: queue names, `seq` first.
        stall_at, stall_cause, stall_cycles: the gaps before starts, in parts, and waits for the host after them, in
            order of time for each entry: entry `stall_at` waited `stall_cycles` because of `causes[stall_cause]`
            (`causes.DOCS`).
        causes: names.
    """

    index: Ints
    queue: Ints
    issue: Ints
    start: Ints
    end: Ints
    retire: Ints
    queues: tuple[str, ...]
    stall_at: Ints
    stall_cause: Ints
    stall_cycles: Ints
    causes: tuple[str, ...]

    @staticmethod
    def of(record: Record, queues: Sequence[str]) -> Trace:
        """The record of an engine as arrays."""
        return Trace(
            index=np.array(record.index, np.int64),
            queue=np.array(record.queue, np.int64),
            issue=np.array(record.issue, np.int64),
            start=np.array(record.start, np.int64),
            end=np.array(record.end, np.int64),
            retire=np.array(record.retire, np.int64),
            queues=tuple(queues),
            stall_at=np.array(record.stall_at, np.int64),
            stall_cause=np.array(record.stall_cause, np.int64),
            stall_cycles=np.array(record.stall_cycles, np.int64),
            causes=tuple(record.cause_numbers),
        )


@dataclass(frozen=True)
class Facts:
    """Figures of each instruction of the program that are the same whenever it runs.

    Attributes:
        read, written: bytes of HBM one execution moves, granules counted whole.
        macs: useful multiply-accumulates of `mxu.matmul`.
        active: cycles in which rows enter the array.
    """

    read: Ints
    written: Ints
    macs: Ints
    active: Ints


def spread(edges: Ints, times: Ints, amounts: Ints | NDArray[np.float64]) -> NDArray[np.float64]:
    """Amounts that each flow evenly from one time to the next (start, end, start, end, ...), summed by bucket."""
    steps = np.zeros(len(times))
    steps[1::2] = amounts
    return np.diff(np.interp(edges, times, np.cumsum(steps)))
