"""The roofline: FLOP/s over FLOPs a byte, both logarithmic, a point a fusion group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan2, cos, degrees, log10, sin, sqrt
from typing import TypeVar

from systolith.reports.charts.data import Point, Roofline
from systolith.reports.charts.labels import Box, Mark, place
from systolith.reports.numbers import count, percent, si
from systolith.reports.svg import Svg, decades, shorten, text_width

WIDTH, HEIGHT = 1000, 470
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 16, 50
LABELS, FONT = 8, 12.0
ALONG = (0.42, 0.3, 0.55, 0.2, 0.68)
"""Parts of the roof of HBM from its left end where its name may be, in order."""

T = TypeVar("T")
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
            f"{point.intensity:.3g} FLOP/byte\n{percent(point.fraction)} of its bound ({point.bound_by})\n"
            f"{point.sentence}"
        )
        svg.circle(x, y, radius, f"point p-{COLOUR[point.roof]}", tip)
    points = [Box(x - r, y - r, x + r, y + r) for _, x, y, r in placed]
    _labels(svg, placed, taken + points, _roof_names(svg, ax, data, points))
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
    """Draw the roofs; boxes that cover them."""
    x_lo, taken = 10.0**ax.x_lo, list[Box]()
    (x1, y1), (x2, y2) = slope = _slope(ax, data)
    svg.path(slope, "roof r-hbm")
    for i in range(41):
        lx, ly = x1 + (x2 - x1) * i / 40, y1 + (y2 - y1) * i / 40
        taken.append(Box(lx - 2, ly - 4, lx + 2, ly + 4))
    for rate, css in ((data.mxu, "mxu"), (data.vpu, "vpu")):
        start, y = ax.x(max(rate / data.bandwidth, x_lo)), ax.y(rate)
        svg.line(start, y, WIDTH - RIGHT, y, f"roof r-{css}")
        taken.append(Box(start, y - 2, WIDTH - RIGHT, y + 2))
    return taken


def _slope(ax: Axes, data: Roofline) -> list[tuple[float, float]]:
    """The ends of the roof of HBM."""
    start = max(10.0**ax.x_lo, 10.0**ax.y_lo / data.bandwidth)
    return [(ax.x(start), ax.y(start * data.bandwidth)), (ax.x(data.ridge), ax.y(data.mxu))]


def _roof_names(svg: Svg, ax: Axes, data: Roofline, points: list[Box]) -> list[Box]:
    """Name the roofs, where no point is if there is such a place; boxes of the names."""
    taken: list[Box] = []
    for name, rate in (("MXU peak", data.mxu), ("VPU, all ALU slots", data.vpu)):
        text, y, right = f"{name} {si(rate, 'FLOP/s')}", ax.y(rate), WIDTH - RIGHT - 6
        above, below = (
            (base, [Box(right - text_width(text, FONT), base - 12, WIDTH - RIGHT, base + 4)])
            for base in (y - 6, y + 16)
        )
        base, box = _free((above, below), points)
        svg.text(right, base, text, "t small halo", "end")
        taken += box
    (x1, y1), (x2, y2) = _slope(ax, data)
    angle, text = atan2(y2 - y1, x2 - x1), f"HBM {si(data.bandwidth, 'B/s')}"

    def along(part: float) -> tuple[tuple[float, float], list[Box]]:
        """A place above the line; seven boxes approximate its area."""
        px, py = x1 + (x2 - x1) * part + 8 * sin(angle), y1 + (y2 - y1) * part - 8 * cos(angle)
        at = [(px + i * 14 * cos(angle), py + i * 14 * sin(angle)) for i in range(-3, 4)]
        return (px, py), [Box(ox - 9, oy - 9, ox + 9, oy + 9) for ox, oy in at]

    (px, py), boxes = _free([along(part) for part in ALONG], points)
    svg.text(px, py, text, "t small halo", "middle", degrees(angle))
    return taken + boxes


def _free(places: Sequence[tuple[T, list[Box]]], points: list[Box]) -> tuple[T, list[Box]]:
    """The first place that covers no point; the first of all if each does."""
    return next((p for p in places if not any(b.hits(point) for b in p[1] for point in points)), places[0])


def _labels(svg: Svg, placed: list[tuple[Point, float, float, float]], taken: list[Box], texts: list[Box]) -> None:
    """Label the largest points where a place is free."""
    names = [shorten(point.name, 34) for point, *_ in placed[:LABELS]]
    marks = [Mark(x, y, r, text_width(name, FONT)) for (_, x, y, r), name in zip(placed, names, strict=False)]
    places = place(marks, taken, Box(LEFT, TOP - 8, WIDTH - RIGHT, HEIGHT - BOTTOM), FONT, texts)
    for name, mark, spot in zip(names, marks, places, strict=True):
        if spot is None:
            continue
        if spot.far:
            below = spot.y > mark.y
            end = spot.y + (1 - FONT if below else 3)
            svg.line(
                mark.x,
                mark.y + (mark.r if below else -mark.r),
                min(max(spot.x, mark.x), spot.x + mark.width),
                end,
                "leader",
            )
        svg.text(spot.x, spot.y, name, "t small halo")
