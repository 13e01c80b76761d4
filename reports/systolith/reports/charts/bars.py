"""Stacked bars of where units' cycles went, and bars of how full the memories are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from systolith.reports.causes import cause
from systolith.reports.charts.data import Compared, Stalls
from systolith.reports.headline import BOUNDS
from systolith.reports.numbers import count, percent, ratio, si
from systolith.reports.svg import Svg, shorten

WIDTH, LEFT, RIGHT, ROW, BAR = 1000, 120, 70, 30, 20


def stacked(data: Stalls) -> str:
    """A bar a unit, the run's cycles wide, its causes in order; the busy share at the right."""
    span = WIDTH - LEFT - RIGHT
    height = ROW * len(data.stacks) + 30
    svg = Svg(WIDTH, height, "Where each unit's cycles went")
    for tick in range(0, 101, 20):
        x = LEFT + span * tick / 100
        svg.line(x, 4, x, ROW * len(data.stacks) + 4, "grid")
        svg.text(x, height - 8, f"{tick} %", "t small", "middle")
    for row, bar in enumerate(data.stacks):
        y, x = ROW * row + 8, float(LEFT)
        svg.text(LEFT - 10, y + 15, bar.unit, "t", "end")
        for name, cycles in bar.parts:
            width = span * cycles / data.cycles
            shown = cause(name)
            tip = f"{bar.unit}: {shown.label}, {count(cycles)} cycles, {percent(cycles / data.cycles)}"
            svg.rect(x, y, width, BAR, f"f-{shown.css}", f"{tip}\n{shown.text}" if shown.text else tip)
            x += width
        svg.text(WIDTH - RIGHT + 10, y + 15, percent(bar.busy / data.cycles), "t num")
    return str(svg)


def compared_chart(runs: Sequence[Compared]) -> str:
    """A bar a run, as long as its simulated time, shared out by what bounds its groups; the ratio at the right."""
    left, right = 260, 150
    span, longest = WIDTH - left - right, max(run.seconds for run in runs)
    svg = Svg(WIDTH, ROW * len(runs) + 8, "Simulated time of the runs")
    for row, run in enumerate(runs):
        y, x = ROW * row + 6, float(left)
        svg.text(left - 10, y + 15, shorten(run.name, 34), "t", "end")
        for bound, seconds in run.shares:
            label, css = BOUNDS.get(bound, ("no group", "other"))
            width = span * seconds / longest
            svg.rect(x, y, width, BAR, f"f-{css}", f"{run.name}: {label}, {si(seconds, 's')}")
            x += width
        svg.text(x + 8, y + 15, f"{si(run.seconds, 's')}, {ratio(run.ratio, 1.0)}", "t num")
    return str(svg)


class Fill(NamedTuple):
    """A memory: label, parts (label, amount, colour class), capacity, and the text at the right."""

    label: str
    parts: tuple[tuple[str, int, str], ...]
    capacity: int
    text: str


def fills(memories: Sequence[Fill]) -> str:
    """A bar a memory, full width its capacity."""
    left, right = 150, 260
    span = WIDTH - left - right
    svg = Svg(WIDTH, ROW * len(memories) + 8, "Memory high-water marks")
    for row, memory in enumerate(memories):
        y, x = ROW * row + 6, float(left)
        svg.text(left - 10, y + 15, memory.label, "t", "end")
        svg.rect(left, y, span, BAR, "frame")
        for label, amount, css in memory.parts:
            # A part that is not empty is visible, however small.
            width = max(span * amount / memory.capacity, 1.5) if amount else 0
            svg.rect(x, y, min(width, left + span - x), BAR, f"f-{css}", f"{memory.label}: {label}, {count(amount)}")
            x += width
        svg.text(left + span + 10, y + 15, memory.text, "t num")
    return str(svg)
