"""How reports show the simulator's causes: label, colour class and order; and the names of units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from systolith.sim.causes import DOCS


class Cause(NamedTuple):
    """A cause as it is shown.

    Attributes:
        label: for legends.
        css: colour class of the style sheet.
        order: place in a stacked bar, work first, idle last.
        text: its meaning, a clause.
    """

    label: str
    css: str
    order: int
    text: str


FIXED = {
    "busy": ("busy", "busy", 0),
    "fetch": ("instruction fetch", "fetch", 1),
    "self_conflict": ("port conflict", "conflict", 2),
    "fill": ("pipeline fill", "fill", 2),
    "granularity": ("granularity", "granularity", 2),
    "hbm_bandwidth": ("HBM bandwidth", "bandwidth", 3),
    "hbm_contention": ("HBM contention", "contention", 4),
    "hbm_latency": ("HBM latency", "latency", 5),
    "host": ("host", "host", 5),
    "host_link": ("host link", "host-link", 5),
    "weight_shift": ("weight shift", "shift", 6),
    "fence": ("fence", "fence", 40),
    "branch": ("branch penalty", "branch", 41),
    "fifo_empty": ("not issued yet", "empty", 60),
    "drain": ("drain", "drain", 61),
    "idle": ("idle", "idle", 62),
}


class Family(NamedTuple):
    """Causes that a figure of few colours shows as one: label, colour classes of the causes in it, meaning."""

    label: str
    css: frozenset[str]
    text: str


# In the order of a stacked bar; a cause of another colour class is a wait for another unit.
FAMILIES = (
    Family("working", frozenset({"busy"}), "occupied at the rate of its ports"),
    Family("own overhead", frozenset({"conflict", "fill", "granularity", "fetch", "branch"}),
           "port conflicts, pipeline fill, granules, instruction fetch and branches"),
    Family("HBM", frozenset({"bandwidth", "contention", "latency"}), "HBM's bandwidth, contention or latency"),
    Family("host", frozenset({"host", "host-link"}), "the host's data or room, or the link to it"),
    Family("wait: DMA", frozenset({"wait-ld", "wait-st"}), "a token of the DMA queues"),
    Family("wait: weights", frozenset({"wait-w", "shift"}), "weight tiles loading or shifting in"),
    Family("wait: other unit", frozenset({"wait-s", "wait-vpu", "wait-xlu", "wait-seq", "fence", "other"}),
           "a token of another unit, or a fence"),
    Family("issue", frozenset({"empty", "full"}), "not issued yet; of SEQ, a full queue"),
    Family("idle", frozenset({"idle", "drain"}), "nothing left to do, or draining"),
)  # fmt: skip


def family(name: str) -> Family:
    """The family of a cause."""
    css = cause(name).css
    return next((f for f in FAMILIES if css in f.css), FAMILIES[6])


OCCUPIED = ("busy", "self_conflict", "fill", "granularity")  # the unit has an instruction that it is working on


def occupied(causes: Mapping[str, int]) -> int:
    """Cycles in which a unit is busy, as all pages, figures and summaries say it."""
    return sum(causes.get(name, 0) for name in OCCUPIED)


QUEUES = {
    "seq": ("SEQ", "the sequencer", "wait-seq", 10),
    "ld": ("DMA load", "loads", "wait-ld", 11),
    "st": ("DMA store", "stores", "wait-st", 12),
    "w": ("MXU{} weights", "weight tiles", "wait-w", 13),
    "s": ("MXU{} stream", "results", "wait-s", 14),
    "vpu": ("VPU", "the vector unit", "wait-vpu", 15),
    "xlu": ("XLU", "the cross-lane unit", "wait-xlu", 16),
}


def queue_class(queue: str) -> tuple[str, str]:
    """A queue's entry of QUEUES and its number: 'w1' -> ('w', '1'), 'ld' -> ('ld', '')."""
    match = re.fullmatch(r"([ws])(\d+)", queue)
    return (match[1], match[2]) if match else (queue, "")


def unit_label(queue: str) -> str:
    """'s0' -> 'MXU0 stream'."""
    kind, number = queue_class(queue)
    return QUEUES[kind][0].format(number) if kind in QUEUES else queue


def producer(queue: str) -> str:
    """The product of a queue, as the object of 'waits for': 'ld' -> 'loads'."""
    kind, number = queue_class(queue)
    return f"{QUEUES[kind][1]}{' of MXU' + number if number else ''}" if kind in QUEUES else queue


def cause(name: str) -> Cause:
    """A cause's presentation; one that reports do not know shows under its own name."""
    if name in FIXED:
        label, css, order = FIXED[name]
        return Cause(label, css, order, DOCS.get(name, ""))
    for prefix, text, base in (("wait_", "waiting for {}", 0), ("fifo_full_", "queue full: {}", 30)):
        if name.startswith(prefix):
            queue = name.removeprefix(prefix)
            entry = QUEUES.get(queue_class(queue)[0])
            css = "full" if base else (entry[2] if entry else "other")
            order = base + (entry[3] if entry else 20)
            return Cause(text.format(unit_label(queue)), css, order, DOC_OF[prefix].format(queue))
    return Cause(name.replace("_", " "), "other", 50, "")


DOC_OF = {
    "wait_": "waiting for a token that queue {} signals",
    "fifo_full_": "SEQ waits for a free place in the FIFO of queue {}",
}


def in_order(names: Iterable[str]) -> list[str]:
    """Causes in the order of a stacked bar."""
    return sorted(set(names), key=lambda name: (cause(name).order, name))
