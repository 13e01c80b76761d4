"""The numbers behind every chart of a run: what the HTML report and the figures for papers both draw.

Each function takes a timed run and gives plain numbers, with units in the attributes' descriptions; how they look is
for `charts` (SVG of the page) and `figures` (matplotlib) to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from systolith.reports.attribution import Attribution
from systolith.reports.causes import in_order, occupied, queue_class, unit_label
from systolith.reports.roofline import Peaks, bandwidth_fraction, group_roof, mxu_use
from systolith.reports.run_data import RunData


@dataclass(frozen=True)
class Point:
    """A fusion group under the roofs.

    Attributes:
        name: of the group, for people.
        intensity: FLOP/byte.
        achieved: FLOP/s during the cycles charged to it.
        cycles: charged to it.
        roof: the lowest roof over it.
        bound_by: the resource of its bound.
        fraction: its bound over its cycles.
        sentence: why it takes so long.
    """

    name: str
    intensity: float
    achieved: float
    cycles: int
    roof: str
    bound_by: str
    fraction: float | None
    sentence: str


@dataclass(frozen=True)
class Roofline:
    """Roofs and the groups below them.

    Attributes:
        mxu, vpu: FLOP/s.
        bandwidth: of HBM, bytes/s.
        points: the group of most cycles first.
        undrawn: groups without flops, bytes or cycles of their own.
    """

    mxu: float
    vpu: float
    bandwidth: float
    points: tuple[Point, ...]
    undrawn: int

    @property
    def ridge(self) -> float:
        """FLOP/byte at which the MXUs, not HBM, are the roof."""
        return self.mxu / self.bandwidth


def roofline(run: RunData, chip: Peaks, why: Mapping[str, Attribution]) -> Roofline:
    """Every group that has flops, bytes and cycles."""
    points = [
        Point(
            g.title,
            roof.intensity,
            roof.achieved,
            g.cycles,
            roof.roof,
            roof.bound_by,
            roof.fraction,
            why[g.name].sentence,
        )
        for g in run.groups
        if (roof := group_roof(g, chip)).intensity and roof.achieved
    ]
    points.sort(key=lambda point: -point.cycles)
    return Roofline(chip.mxu_flops, chip.vpu_flops, chip.bandwidth, tuple(points), len(run.groups) - len(points))


@dataclass(frozen=True)
class Stack:
    """Where a unit's cycles went: (cause, cycles) in the order in which they are drawn, and how many it is busy."""

    unit: str
    parts: tuple[tuple[str, int], ...]
    busy: int


@dataclass(frozen=True)
class Stalls:
    """A stack for each unit; each adds up to `cycles`."""

    cycles: int
    stacks: tuple[Stack, ...]


def stalls(run: RunData) -> Stalls:
    """Causes of every queue, those without cycles left out."""
    return Stalls(
        run.total,
        tuple(
            Stack(unit_label(unit), tuple((c, causes[c]) for c in in_order(causes) if causes[c]), occupied(causes))
            for unit, causes in run.units.items()
        ),
    )


@dataclass(frozen=True)
class Use:
    """A share of a peak, 0 to 1, and what is counted."""

    label: str
    fraction: float
    counted: str


def utilisation(run: RunData, chip: Peaks) -> tuple[Use, ...]:
    """Three figures of the MXUs that are often taken for one another, and the use of the other units."""
    mxu = mxu_use(run, chip)
    found = [
        Use("useful MACs", mxu.useful, "multiply-accumulates of the operation over the peak of the arrays"),
        Use("array active", mxu.active or 0.0, "cycles in which a row of operands enters an array"),
        Use("MXU busy", mxu.busy, "cycles in which a stream instruction occupies a unit"),
        Use("HBM bandwidth", bandwidth_fraction(run, chip), "bytes moved over those that the bandwidth allows"),
    ]
    rest = {q: causes for q, causes in run.units.items() if queue_class(q)[0] not in ("s", "w")}
    for queue, causes in rest.items():
        counted = "cycles in which it works on an instruction; waiting for HBM does not count"
        found.append(Use(f"{unit_label(queue)} busy", occupied(causes) / run.total, counted))
    return tuple(use for use in found if use.label != "array active" or mxu.active is not None)


@dataclass(frozen=True)
class Traffic:
    """HBM traffic over time.

    Attributes:
        edges: cycles, one more than there are parts.
        read, written: bytes in each part.
        limit: bandwidth in bytes a cycle.
        clock_hz: cycles a second.
    """

    edges: tuple[int, ...]
    read: tuple[float, ...]
    written: tuple[float, ...]
    limit: float
    clock_hz: float

    @property
    def rates(self) -> list[tuple[float, float]]:
        """Bytes a cycle read and written in each part."""
        widths = [end - start for start, end in pairwise(self.edges)]
        return [(r / n, w / n) for r, w, n in zip(self.read, self.written, widths, strict=True)]


def traffic(run: RunData, chip: Peaks) -> Traffic:
    """Traffic of a run that has a record over time."""
    time = run.timeline
    return Traffic(tuple(time.edges), tuple(time.read), tuple(time.written), chip.hbm, chip.clock_hz)


@dataclass(frozen=True)
class Span:
    """A group's part of the run: cycles charged to it, those of the groups that end before it in front of them."""

    name: str
    start: int
    cycles: int
    first_start: int
    last_retire: int


@dataclass(frozen=True)
class Activity:
    """The units over time.

    Attributes:
        edges: cycles, one more than there are parts.
        strips: for each queue the occupied share of each part, 0 to 1.
        groups: in the order in which they end.
        clock_hz: cycles a second.
    """

    edges: tuple[int, ...]
    strips: dict[str, tuple[float, ...]]
    groups: tuple[Span, ...]
    clock_hz: float


def activity(run: RunData, chip: Peaks) -> Activity:
    """Activity of a run that has a record over time."""
    time = run.timeline
    widths = [end - start for start, end in pairwise(time.edges)]
    strips = {
        queue: tuple(min(1.0, busy / n) for busy, n in zip(series, widths, strict=True))
        for queue, series in time.busy.items()
    }
    spans, at = [], 0
    for g in sorted((g for g in run.groups if g.cycles), key=lambda g: (g.last_retire, g.first_start)):
        spans.append(Span(g.title, at, g.cycles, g.first_start, g.last_retire))
        at += g.cycles
    return Activity(tuple(time.edges), strips, tuple(spans), chip.clock_hz)


@dataclass(frozen=True)
class Held:
    """Bytes of a memory that hold something, over time.

    Attributes:
        memory: VMEM or HBM.
        most: bytes held at most in each part.
        capacity: bytes.
    """

    memory: str
    most: tuple[int, ...]
    capacity: int


@dataclass(frozen=True)
class Memory:
    """Memories over time: `edges` in cycles, one more than there are parts; memories without a record are left out."""

    edges: tuple[int, ...]
    held: tuple[Held, ...]
    clock_hz: float


def memory(run: RunData, chip: Peaks) -> Memory:
    """Bytes held in VMEM and HBM over time."""
    time = run.timeline
    series = (("VMEM", time.vmem, chip.vmem), ("HBM", time.hbm, chip.hbm_bytes))
    held = (Held(name, tuple(most), capacity) for name, most, capacity in series if most)
    return Memory(tuple(time.edges), tuple(held), chip.clock_hz)


@dataclass(frozen=True)
class Power:
    """Power over time: `edges` in cycles, one more than there are parts; watts in each part and on average."""

    edges: tuple[int, ...]
    watts: tuple[float, ...]
    average: float
    clock_hz: float


def power(run: RunData, chip: Peaks) -> Power | None:
    """Power of a run; None on a chip without energies."""
    if run.energy is None or not run.energy.timeline.edges:
        return None
    time = run.energy.timeline
    return Power(tuple(time.edges), tuple(time.watts), run.energy.average_watts, chip.clock_hz)


@dataclass(frozen=True)
class Compared:
    """A run beside others.

    Attributes:
        name: of the run.
        seconds: simulated time.
        ratio: its time over the baseline's.
        shares: (bound, seconds) of its groups' cycles by what bounds them, in a fixed order.
    """

    name: str
    seconds: float
    ratio: float
    shares: tuple[tuple[str, float], ...]


def compared(
    runs: Sequence[RunData], names: Sequence[str], chips: Sequence[Peaks], shares: Sequence[Mapping[str, int]]
) -> tuple[Compared, ...]:
    """Simulated times of runs, the first one the baseline; `shares`: of each run its cycles by bound."""
    seconds = [run.total / chip.clock_hz for run, chip in zip(runs, chips, strict=True)]
    return tuple(
        Compared(name, s, s / seconds[0], tuple((bound, n / chip.clock_hz) for bound, n in by.items()))
        for name, s, chip, by in zip(names, seconds, chips, shares, strict=True)
    )
