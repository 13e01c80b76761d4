"""Causes of a unit's cycles: the names, and the rule that they add up.

Every cycle of every queue from 0 to the end of the run has exactly one cause.  In the gap before an instruction starts,
the cause is a constraint not yet met at that time, in this order: not issued yet, tokens (the earliest available
first), fence.  A wait for a token is named after its producer queue until the rest of it is a known delay: the HBM
latency of a transfer that has been granted wholly, or a weight tile that is being shifted in.
"""

from __future__ import annotations

from collections.abc import Mapping

BUSY = "busy"
SELF_CONFLICT = "self_conflict"
FILL = "fill"
GRANULARITY = "granularity"
WEIGHT_SHIFT = "weight_shift"
HBM_LATENCY = "hbm_latency"
HBM_BANDWIDTH = "hbm_bandwidth"
HBM_CONTENTION = "hbm_contention"
HOST = "host"
HOST_LINK = "host_link"
FENCE = "fence"
FIFO_EMPTY = "fifo_empty"
FETCH = "fetch"
BRANCH = "branch"
DRAIN = "drain"
IDLE = "idle"

DOCS: dict[str, str] = {
    BUSY: "occupied, at the rate of its ports (transfers on HBM: a chunk is being granted; SEQ: scalar instructions)",
    SELF_CONFLICT: "occupied, but slowed down by conflicts among its own accesses to a memory port",
    FILL: "occupied, while a pipeline fills or drains",
    GRANULARITY: "transfer under way, moving bytes of granules and chunks that nobody asked for",
    WEIGHT_SHIFT: "waiting for a weight tile while it is being shifted into the array",
    HBM_LATENCY: "everything granted, waiting for the data to arrive",
    HBM_BANDWIDTH: "transfer under way, waiting for credit: the bandwidth limits",
    HBM_CONTENTION: "transfer under way, the other DMA queue is granted",
    HOST: "transfer under way, the host has not sent its data, or not made room for it",
    HOST_LINK: "transfer under way, the host's link is set up, or its bandwidth limits",
    FENCE: "waiting for earlier instructions of the same queue to retire",
    FIFO_EMPTY: "waiting for SEQ to issue",
    FETCH: "SEQ: fetching the words of instructions that it issues",
    BRANCH: "SEQ: penalty of taken branches",
    DRAIN: "after the last instruction's occupancy, until it retires",
    IDLE: "nothing left to do",
    "wait_<queue>": "waiting for a token that this queue signals",
    "fifo_full_<queue>": "SEQ: waiting for a free place in the FIFO of this queue",
}


class InternalError(Exception):
    """The simulator contradicts itself: a bug in it, never the user's mistake."""


def wait_on(queue: str) -> str:
    """The cause of waiting for a token that `queue` signals."""
    return f"wait_{queue}"


def fifo_full(queue: str) -> str:
    """SEQ's cause of waiting for a place in the FIFO of `queue`."""
    return f"fifo_full_{queue}"


def check(units: Mapping[str, Mapping[str, int]], cycles: int) -> None:
    """Assert that each unit's causes (cycles) add up to `cycles` and none is negative.

    Raises:
        InternalError: naming the unit.
    """
    for name, causes in units.items():
        total = sum(causes.values())
        if total != cycles or any(n < 0 for n in causes.values()):
            raise InternalError(f"unit {name}: causes add up to {total} of {cycles} cycles: {dict(causes)}")
