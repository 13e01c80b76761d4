"""Headline figures of a run, as every report shows them: label, value, a note on its base."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from systolith.reports.attribution import Attribution
from systolith.reports.numbers import NONE, count, decimal, percent, si, size
from systolith.reports.roofline import Peaks, bandwidth_fraction, module_bound, mxu_use
from systolith.reports.run_data import RunData


@dataclass(frozen=True)
class Figure:
    """A headline figure.

    Attributes:
        key: for tests and comparisons.
        label, text, note: as shown.
        value: the number itself, for ratios; None where there is none.
        emphasis: shown first and larger.
    """

    key: str
    label: str
    text: str
    note: str
    value: float | None
    emphasis: bool = False


def figures(run: RunData, chip: Peaks) -> list[Figure]:
    """The headline figures of a timed run."""
    use, bandwidth = mxu_use(run, chip), bandwidth_fraction(run, chip)
    moved = run.hbm_bytes.read + run.hbm_bytes.written
    seconds = run.seconds or run.total / chip.clock_hz
    wall = run.wall_seconds
    active = "not measured" if use.active is None else percent(use.active)
    return [
        Figure("cycles", "Cycles", count(run.total), f"{si(chip.clock_hz, 'Hz')} core clock", run.total, True),
        Figure("seconds", "Simulated time", si(seconds, "s"), f"{run.instructions:,} instructions", seconds, True),
        _launch(run, chip),
        *_held(run),
        _bound(run, module_bound(run, chip)),
        Figure("mxu_busy", "MXU busy", percent(use.busy), "a stream instruction occupies the unit", use.busy),
        Figure("mxu_active", "Array active", active, "a row of operands enters the array", use.active),
        Figure(
            "mxu_useful",
            "Useful MACs",
            percent(use.useful),
            f"of peak; {count(run.macs)} multiply-accumulates, {si(2 * run.macs / seconds, 'FLOP/s')}",
            use.useful,
        ),
        Figure(
            "hbm_bytes",
            "HBM traffic",
            size(moved),
            f"{size(run.hbm_bytes.read)} read, {size(run.hbm_bytes.written)} written",
            moved,
        ),
        Figure(
            "bandwidth",
            "HBM bandwidth used",
            percent(bandwidth),
            f"{si(moved / seconds, 'B/s')} of {si(chip.bandwidth, 'B/s')}, over the whole run",
            bandwidth,
        ),
        energy_figure(run),
        Figure(
            "wall",
            "Host time",
            si(wall.simulate, "s"),
            f"to simulate; {si(wall.compile, 's')} to compile",
            wall.simulate,
        ),
    ]


def _launch(run: RunData, chip: Peaks) -> Figure:
    """The cost of calling the program, which its own cycles do not have."""
    if run.launch is None:
        return Figure("launch", "Launch", NONE, "not in the record", None)
    share = percent(run.launch / (run.launch + run.total))
    note = f"{si(run.launch / chip.clock_hz, 's')} beside the run, {share} of both: the call by the host, once a run"
    return Figure("launch", "Launch", f"{count(run.launch)} cycles", note, run.launch)


def _held(run: RunData) -> Iterator[Figure]:
    """How long full infeed queues held the host, in runs whose host has times."""
    if not run.host_held:
        return
    most = max(run.host_held.values())
    each = ", ".join(f"{count(cycles)} of queue {name or 'default'}" for name, cycles in run.host_held.items())
    note = f"{percent(most / run.total)} of the run: the host had bytes for a full infeed queue; {each}"
    yield Figure("host_held", "Host held", f"{count(most)} cycles", note, most)


def energy_figure(run: RunData) -> Figure:
    """The energy of a run; whether its chip has energies at all."""
    e = run.energy
    if e is None:
        return Figure("energy", "Energy", NONE, f"no energy figures in chip {run.chip}", None)
    parts = sorted([*e.by_unit.items(), ("idle", e.idle_fj), ("leakage", e.leakage_fj)], key=lambda p: -p[1])[:3]
    most = ", ".join(f"{name} {percent(amount / max(1, e.total_fj), 0)}" for name, amount in parts)
    power = f"{si(e.average_watts, 'W')} on average, {si(e.peak_watts, 'W')} at most"
    note = f"{power}, {decimal(e.tops_per_watt)} TOPS/W; {most}"
    return Figure("energy", "Energy", si(e.total_fj * 1e-15, "J"), note, e.total_fj * 1e-15)


def power_figures(run: RunData) -> list[Figure]:
    """What the note of the energy says, and the energy of each part, as figures of their own; none without energies."""
    e = run.energy
    if e is None:
        return []
    parts = {**e.by_unit, "idle": e.idle_fj, "leakage": e.leakage_fj}
    return [
        Figure("average_watts", "Average power", si(e.average_watts, "W"), "over the run", e.average_watts),
        Figure("peak_watts", "Peak power", si(e.peak_watts, "W"), "in a part of the timeline", e.peak_watts),
        Figure("tops_per_watt", "TOPS/W", decimal(e.tops_per_watt), "of useful products", e.tops_per_watt),
        *(
            Figure(f"energy_{part}", f"Energy: {part}", si(n * 1e-15, "J"), percent(n / max(1, e.total_fj)), n * 1e-15)
            for part, n in parts.items()
            if n
        ),
    ]


def _bound(run: RunData, least: dict[str, float]) -> Figure:
    """The least cycles of the module, and what each resource alone would take."""
    cycles, by = max(least.values()), max(least, key=lambda resource: least[resource])
    each = ", ".join(f"{resource} {count(round(n))}" for resource, n in least.items())
    what = "no program takes less" if run.bound else "useful MACs at peak, parameters and results once"
    note = f"{percent(cycles / run.total)} of the run, set by {by}; {what}: {each}"
    return Figure("bound", "Bound", f"{count(round(cycles))} cycles", note, cycles, True)


BOUNDS = {
    "compute": ("matrix units", "busy"),
    "memory": ("HBM and DMA", "bandwidth"),
    "vector": ("vector and cross-lane units", "vpu"),
    "control": ("instruction issue", "fetch"),
    "latency": ("latencies and dependencies", "latency"),
    "host": ("host", "host"),
    "nothing": ("hidden or empty", "idle"),
}


@dataclass(frozen=True)
class Share:
    """Cycles of the run in groups that one class of resource bounds."""

    bound: str
    label: str
    css: str
    cycles: int
    fraction: float


def shares(run: RunData, why: dict[str, Attribution]) -> list[Share]:
    """Bounds of the run: cycles of its groups by class, and those in no group; the largest first."""
    total = dict.fromkeys(BOUNDS, 0)
    for group in run.groups:
        total[why[group.name].bound] += group.cycles
    found = [Share(b, *BOUNDS[b], n, n / run.total) for b, n in total.items() if n]
    rest = run.total - sum(total.values())
    if rest:
        found.append(Share("none", "no group", "other", rest, rest / run.total))
    return sorted(found, key=lambda share: -share.cycles)


def verdict(run: RunData, why: dict[str, Attribution]) -> str:
    """The run in two sentences: the bound of most of it, and where to look first."""
    parts = shares(run, why)
    if not run.groups or not parts:
        return "The run has no record of groups, so nothing says which work its cycles went to."
    top = max(run.groups, key=lambda group: group.cycles)
    first, *others = [(percent(s.fraction, 0), s.label) for s in parts[:3]]
    bounds = ", ".join([f"{first[0]} are bound by {first[1]}", *(f"{share} by {label}" for share, label in others)])
    expensive = f"The most expensive group is {top.title} with {percent(top.cycles / run.total)}"
    return f"Of the run's cycles, {bounds}. {expensive}: {why[top.name].sentence}"
