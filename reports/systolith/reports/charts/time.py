"""Charts over simulated time: HBM traffic against the bandwidth, and the activity of the units."""

from __future__ import annotations

from itertools import pairwise

from systolith.reports.causes import queue_class, unit_label
from systolith.reports.charts.data import Activity, Memory, Power, Span, Traffic
from systolith.reports.numbers import count, decimal, percent, si, size
from systolith.reports.svg import Svg, shorten, ticks

WIDTH, LEFT, RIGHT = 1000, 120, 24
SPAN = WIDTH - LEFT - RIGHT
FONT = 12.0
WIDE = 0.64  # of a character of the widest usual font, of its size
STRIP = {
    "s": "f-busy", "w": "f-shift", "ld": "f-read", "st": "f-written", "vpu": "f-vpu", "xlu": "f-xlu", "seq": "f-fetch",
}  # fmt: skip


def axis(svg: Svg, cycles: int, clock_hz: float, top: float, bottom: float) -> None:
    """A time axis below `bottom`: cycles, and the same in seconds; grid lines from `top`."""
    steps = ticks(cycles, 8)
    for i, tick in enumerate(steps):
        x = LEFT + SPAN * tick / cycles
        svg.line(x, top, x, bottom, "grid")
        svg.text(x, bottom + 16, count(round(tick)), "t small", "middle")
        svg.text(x, bottom + 31, si(tick / clock_hz, "s") if i else "0", "t faint", "middle")
    svg.text(LEFT - 10, bottom + 16, "cycles", "t small", "end")
    svg.text(LEFT - 10, bottom + 31, "time", "t faint", "end")


def traffic(data: Traffic) -> str:
    """Bytes a cycle read, and written on top of it, below the bandwidth."""
    top, bottom = 24.0, 190.0
    cycles, rates = data.edges[-1], data.rates
    svg = Svg(WIDTH, bottom + 40, "HBM traffic over time")
    # Granted bytes of a part cannot exceed the bandwidth, but whole granules of a part's last chunk may seem to.
    peak = max([data.limit, *(r + w for r, w in rates)]) * 1.02
    axis(svg, cycles, data.clock_hz, top, bottom)
    for tick in ticks(peak, 4):
        y = bottom - (bottom - top) * tick / peak
        svg.line(LEFT, y, WIDTH - RIGHT, y, "grid")
        svg.text(LEFT - 8, y + 4, decimal(tick) if tick else "0", "t small", "end")
    svg.text(16, (top + bottom) / 2, "bytes/cycle", "t small", "middle", -90)
    for (start, end), (read, written) in zip(pairwise(data.edges), rates, strict=True):
        tip = (
            f"cycles {count(start)} to {count(end)}: read {size(read * (end - start))}, written "
            f"{size(written * (end - start))}, {percent((read + written) / data.limit)} of the bandwidth"
        )
        x, w = LEFT + SPAN * start / cycles, SPAN * (end - start) / cycles
        base = bottom
        for rate, css in ((read, "f-read"), (written, "f-written")):
            tall = (bottom - top) * rate / peak
            if tall >= 0.05:
                svg.rect(x, base - tall, w, tall, css, tip)
            base -= tall
    y = bottom - (bottom - top) * data.limit / peak
    svg.line(LEFT, y, WIDTH - RIGHT, y, "limit")
    text = f"bandwidth {decimal(data.limit)} bytes/cycle = {si(data.limit * data.clock_hz, 'B/s')}"
    svg.text(WIDTH - RIGHT, y - 6, text, "t small", "end")
    return str(svg)


def timeline(data: Activity) -> str:
    """A strip a queue, the darker the busier it is in that part; above them, the groups."""
    row, bar = 26, 18
    cycles = data.edges[-1]
    top = 34.0
    bottom = top + row * len(data.strips)
    svg = Svg(WIDTH, bottom + 40, "What the units did over time")
    axis(svg, cycles, data.clock_hz, 4, bottom)
    _ribbon(svg, data.groups, cycles)
    for r, (unit, shares) in enumerate(data.strips.items()):
        y = top + row * r
        svg.text(LEFT - 10, y + 14, unit_label(unit), "t", "end")
        svg.rect(LEFT, y, SPAN, bar, "frame")
        css = STRIP.get(queue_class(unit)[0], "f-other")
        for (start, end), share in zip(pairwise(data.edges), shares, strict=True):
            if share:
                x, w = LEFT + SPAN * start / cycles, SPAN * (end - start) / cycles
                tip = f"{unit_label(unit)}, cycles {count(start)} to {count(end)}: {percent(share)} occupied"
                svg.rect(x, y, w, bar, css, tip, 0.12 + 0.88 * share)
    return str(svg)


def memory(data: Memory) -> str:
    """For each memory the bytes that it holds over time, its own scale from 0 to the most."""
    tall, gap = 110.0, 34.0
    cycles = data.edges[-1]
    bottom = (tall + gap) * len(data.held)
    svg = Svg(WIDTH, bottom + 40, "What the memories hold over time")
    axis(svg, cycles, data.clock_hz, 4, bottom)
    for n, held in enumerate(data.held):
        floor = (tall + gap) * (n + 1)
        peak = max(held.most) or 1
        svg.text(LEFT - 10, floor - tall / 2, held.memory, "t", "end")
        svg.text(LEFT - 8, floor - tall + 4, size(peak), "t small", "end")
        for (start, end), most in zip(pairwise(data.edges), held.most, strict=True):
            x, w = LEFT + SPAN * start / cycles, SPAN * (end - start) / cycles
            tip = (
                f"cycles {count(start)} to {count(end)}: {size(most)}, {percent(most / held.capacity)} of {held.memory}"
            )
            svg.rect(x, floor - tall * most / peak, w, tall * most / peak, f"f-{MEMORIES[held.memory]}", tip)
        svg.text(
            WIDTH - RIGHT, floor - tall - 6, f"{percent(peak / held.capacity)} of its size at most", "t small", "end"
        )
    return str(svg)


def power(data: Power) -> str:
    """Watts over time, and their average."""
    top, bottom = 24.0, 150.0
    cycles, peak = data.edges[-1], max([data.average, *data.watts]) * 1.05 or 1.0
    svg = Svg(WIDTH, bottom + 40, "Power over time")
    axis(svg, cycles, data.clock_hz, top, bottom)
    for tick in ticks(peak, 4):
        y = bottom - (bottom - top) * tick / peak
        svg.line(LEFT, y, WIDTH - RIGHT, y, "grid")
        svg.text(LEFT - 8, y + 4, f"{decimal(tick)} W" if tick else "0", "t small", "end")
    for (start, end), watts in zip(pairwise(data.edges), data.watts, strict=True):
        x, w = LEFT + SPAN * start / cycles, SPAN * (end - start) / cycles
        tall = (bottom - top) * watts / peak
        svg.rect(x, bottom - tall, w, tall, "f-written", f"cycles {count(start)} to {count(end)}: {si(watts, 'W')}")
    y = bottom - (bottom - top) * data.average / peak
    svg.line(LEFT, y, WIDTH - RIGHT, y, "limit")
    svg.text(WIDTH - RIGHT, top - 8, f"{si(data.average, 'W')} on average", "t small", "end")
    return str(svg)


MEMORIES = {"VMEM": "vpu", "HBM": "read"}


def _ribbon(svg: Svg, groups: tuple[Span, ...], cycles: int) -> None:
    """The run shared out: a group's part is the cycles charged to it."""
    if groups:
        svg.text(LEFT - 10, 19, "groups", "t", "end")
    for number, group in enumerate(groups):
        x, w = LEFT + SPAN * group.start / cycles, SPAN * group.cycles / cycles
        when = f"first start {count(group.first_start)}, last retire {count(group.last_retire)}"
        tip = f"{group.name}: {count(group.cycles)} cycles charged to it; {when}"
        svg.rect(x, 6, w, 18, f"f-group{number % 2}", tip)
        room = int((w - 8) / (WIDE * (FONT - 1)))
        if room >= 5:
            svg.text(x + 4, 19, shorten(group.name, room), "t faint on")
