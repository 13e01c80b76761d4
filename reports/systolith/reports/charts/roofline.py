"""The roofline: FLOP/s over FLOPs a byte, both logarithmic, a point a fusion group."""

from __future__ import annotations

from dataclasses import dataclass
from math import atan2, cos, degrees, log10, sin, sqrt

from systolith.reports.charts.data import Point, Roofline
from systolith.reports.charts.labels import Box, Mark, place
from systolith.reports.numbers import count, percent, si
from systolith.reports.svg import Svg, decades, shorten, text_width

WIDTH, HEIGHT = 1000, 470
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 16, 50
LABELS, FONT = 8, 12.0
COLOUR = {"MXU": "mxu", "VPU": "vpu", "transcendental": "trans", "HBM": "hbm"}


@dataclass(frozen=True)
class Axes:
    """Logarithmic axes: exponents of their ends."""

    x_lo: int
    x_hi: int
    y_lo: int
    y_hi: int

    def x(self, intensity: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(intensity) - self.x_lo) / (self.x_hi - self.x_lo)

    def y(self, rate: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log10(rate) - self.y_lo) / (self.y_hi - self.y_lo)


def axes(data: Roofline) -> Axes:
    """Whole decades around the points and the ridges."""
    xs = [*(p.intensity for p in data.points), data.ridge, data.vpu / data.bandwidth]
    ys = [*(p.achieved for p in data.points), data.vpu, data.mxu * 1.5]
    across, up = decades(min(xs) / 1.3, max(xs) * 1.3), decades(min(ys) / 1.3, max(ys))
    return Axes(across[0], across[-1], up[0], up[-1])


def roofline(data: Roofline) -> str:
    """The chart; areas of points are proportional to their cycles, the largest are labelled."""
    ax = axes(data)
    svg = Svg(WIDTH, HEIGHT, "Roofline")
    _grid(svg, ax)
    taken = _roofs(svg, ax, data)
    most = max((p.cycles for p in data.points), default=1)
    placed: list[tuple[Point, float, float, float]] = []
    for point in data.points:
        x, y = ax.x(point.intensity), ax.y(point.achieved)
        radius = 3.5 + 13.5 * sqrt(point.cycles / most)
        placed.append((point, x, y, radius))
        tip = (
            f"{point.name}\n{count(point.cycles)} cycles, {si(point.achieved, 'FLOP/s')}, "
            f"{point.intensity:.3g} FLOP/byte\n{percent(point.fraction)} of its bound ({point.roof})\n"
            f"{point.sentence}"
        )
        svg.circle(x, y, radius, f"point p-{COLOUR[point.roof]}", tip)
    _labels(svg, placed, taken)
    return str(svg)


def _grid(svg: Svg, ax: Axes) -> None:
    for exponent in range(ax.x_lo, ax.x_hi + 1):
        x = ax.x(10.0**exponent)
        svg.line(x, TOP, x, HEIGHT - BOTTOM, "grid")
        svg.text(x, HEIGHT - BOTTOM + 18, f"{10.0**exponent:g}", "t small", "middle")
    for exponent in range(ax.y_lo, ax.y_hi + 1):
        y = ax.y(10.0**exponent)
        svg.line(LEFT, y, WIDTH - RIGHT, y, "grid")
        svg.text(LEFT - 8, y + 4, si(10.0**exponent, "").replace(".00", "").replace(".0", "").strip(), "t small", "end")
    svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "arithmetic intensity, FLOP/byte", "t", "middle")
    svg.text(18, (TOP + HEIGHT - BOTTOM) / 2, "achieved FLOP/s", "t", "middle", -90)


def _roofs(svg: Svg, ax: Axes, data: Roofline) -> list[Box]:
    """Draw the roofs; boxes of their labels."""
    x_lo, y_lo = 10.0**ax.x_lo, 10.0**ax.y_lo
    start = max(x_lo, y_lo / data.bandwidth)
    slope = [(ax.x(start), ax.y(start * data.bandwidth)), (ax.x(data.ridge), ax.y(data.mxu))]
    svg.path(slope, "roof r-hbm")
    taken = []
    flat = (("MXU peak", data.mxu, "mxu"), ("VPU, all ALU slots", data.vpu, "vpu"))
    for name, rate, css in flat:
        y = ax.y(rate)
        svg.line(ax.x(max(rate / data.bandwidth, x_lo)), y, WIDTH - RIGHT, y, f"roof r-{css}")
        text = f"{name} {si(rate, 'FLOP/s')}"
        svg.text(WIDTH - RIGHT - 6, y - 6, text, "t small", "end")
        taken.append(Box(WIDTH - RIGHT - 6 - text_width(text, FONT), y - 18, WIDTH - RIGHT, y + 3))
    (x1, y1), (x2, y2) = slope
    text = f"HBM {si(data.bandwidth, 'B/s')}"
    # Along the line, a third of the way down, above it; seven boxes approximate its area.
    angle = atan2(y2 - y1, x2 - x1)
    cx, cy = x1 + (x2 - x1) * 0.42, y1 + (y2 - y1) * 0.42
    px, py = cx + 8 * sin(angle), cy - 8 * cos(angle)
    svg.text(px, py, text, "t small", "middle", degrees(angle))
    for i in range(-3, 4):
        ox, oy = px + i * 14 * cos(angle), py + i * 14 * sin(angle)
        taken.append(Box(ox - 9, oy - 9, ox + 9, oy + 9))
    for i in range(41):
        lx, ly = x1 + (x2 - x1) * i / 40, y1 + (y2 - y1) * i / 40
        taken.append(Box(lx - 2, ly - 4, lx + 2, ly + 4))
    return taken


def _labels(svg: Svg, placed: list[tuple[Point, float, float, float]], taken: list[Box]) -> None:
    """Label the largest points where a place is free."""
    taken = taken + [Box(x - r, y - r, x + r, y + r) for _, x, y, r in placed[:60]]
    names = [shorten(point.name, 34) for point, *_ in placed[:LABELS]]
    marks = [Mark(x, y, r, text_width(name, FONT)) for (_, x, y, r), name in zip(placed, names, strict=False)]
    places = place(marks, taken, Box(LEFT, TOP - 8, WIDTH - RIGHT, HEIGHT - BOTTOM), FONT)
    for name, mark, spot in zip(names, marks, places, strict=True):
        if spot is None:
            continue
        if spot.far:
            below = spot.y > mark.y
            end = spot.y + (1 - FONT if below else 3)
            svg.line(mark.x, mark.y + (mark.r if below else -mark.r), max(spot.x, mark.x), end, "leader")
        svg.text(spot.x, spot.y, name, "t small halo")
