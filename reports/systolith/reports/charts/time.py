"""Charts over simulated time: HBM traffic against the bandwidth, and the activity of the units."""

from __future__ import annotations

from systolith.reports.causes import queue_class, unit_label
from systolith.reports.numbers import count, decimal, percent, si, size
from systolith.reports.run_data import Group, Timeline
from systolith.reports.svg import CHAR, Svg, shorten, ticks

WIDTH, LEFT, RIGHT = 1000, 120, 24
SPAN = WIDTH - LEFT - RIGHT
FONT = 12.0
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


def traffic(data: Timeline, clock_hz: float, limit: float) -> str:
    """Bytes a cycle read, and written on top of it; `limit` is the bandwidth in bytes a cycle."""
    top, bottom = 24.0, 190.0
    cycles = data.edges[-1]
    svg = Svg(WIDTH, bottom + 40, "HBM traffic over time")
    parts = list(zip(data.edges, data.edges[1:], data.read, data.written, strict=False))
    # Granted bytes of a part cannot exceed the bandwidth, but whole granules of a part's last chunk may seem to.
    peak = max([limit, *((r + w) / (end - start) for start, end, r, w in parts)]) * 1.02
    axis(svg, cycles, clock_hz, top, bottom)
    for tick in ticks(peak, 4):
        y = bottom - (bottom - top) * tick / peak
        svg.line(LEFT, y, WIDTH - RIGHT, y, "grid")
        svg.text(LEFT - 8, y + 4, decimal(tick) if tick else "0", "t small", "end")
    svg.text(16, (top + bottom) / 2, "bytes/cycle", "t small", "middle", -90)
    for start, end, read, written in parts:
        tip = (
            f"cycles {count(start)} to {count(end)}: read {size(read)}, written {size(written)}, "
            f"{percent((read + written) / (end - start) / limit)} of the bandwidth"
        )
        x, w = LEFT + SPAN * start / cycles, SPAN * (end - start) / cycles
        base = bottom
        for amount, css in ((read, "f-read"), (written, "f-written")):
            tall = (bottom - top) * amount / (end - start) / peak
            if tall >= 0.05:
                svg.rect(x, base - tall, w, tall, css, tip)
            base -= tall
    y = bottom - (bottom - top) * limit / peak
    svg.line(LEFT, y, WIDTH - RIGHT, y, "limit")
    text = f"bandwidth {decimal(limit)} bytes/cycle = {si(limit * clock_hz, 'B/s')}"
    svg.text(WIDTH - RIGHT, y - 6, text, "t small", "end")
    return str(svg)


def timeline(data: Timeline, groups: list[Group], clock_hz: float) -> str:
    """A strip a queue, the darker the busier it is in that part; above them, the groups."""
    row, bar = 26, 18
    cycles = data.edges[-1]
    top = 34.0
    bottom = top + row * len(data.busy)
    svg = Svg(WIDTH, bottom + 40, "What the units did over time")
    axis(svg, cycles, clock_hz, 4, bottom)
    _ribbon(svg, groups, cycles)
    for r, (unit, series) in enumerate(data.busy.items()):
        y = top + row * r
        svg.text(LEFT - 10, y + 14, unit_label(unit), "t", "end")
        svg.rect(LEFT, y, SPAN, bar, "frame")
        css = STRIP.get(queue_class(unit)[0], "f-other")
        for start, end, busy in zip(data.edges, data.edges[1:], series, strict=False):
            if busy:
                x, w = LEFT + SPAN * start / cycles, SPAN * (end - start) / cycles
                share = min(1.0, busy / (end - start))
                tip = f"{unit_label(unit)}, cycles {count(start)} to {count(end)}: {percent(share)} occupied"
                svg.rect(x, y, w, bar, css, tip, 0.12 + 0.88 * share)
    return str(svg)


def _ribbon(svg: Svg, groups: list[Group], cycles: int) -> None:
    """The run shared out: a group's part is the cycles charged to it, in the order in which the groups end."""
    shown = sorted((g for g in groups if g.cycles), key=lambda g: (g.last_retire, g.first_start))
    if shown:
        svg.text(LEFT - 10, 19, "groups", "t", "end")
    at = 0
    for number, group in enumerate(shown):
        x, w = LEFT + SPAN * at / cycles, SPAN * group.cycles / cycles
        when = f"first start {count(group.first_start)}, last retire {count(group.last_retire)}"
        tip = f"{group.title}: {count(group.cycles)} cycles charged to it; {when}"
        svg.rect(x, 6, w, 18, f"f-group{number % 2}", tip)
        room = int((w - 8) / (CHAR * (FONT - 1)))
        if room >= 5:
            svg.text(x + 4, 19, shorten(group.title, room), "t faint on")
        at += group.cycles
