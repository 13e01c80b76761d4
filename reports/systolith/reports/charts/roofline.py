"""The roofline: FLOP/s over FLOPs a byte, both logarithmic, a point a fusion group."""

from __future__ import annotations

from dataclasses import dataclass
from math import atan2, cos, degrees, log10, sin, sqrt
from typing import NamedTuple

from systolith.reports.numbers import count, percent, si
from systolith.reports.roofline import GroupRoof, Peaks
from systolith.reports.svg import Svg, decades, shorten, text_width

WIDTH, HEIGHT = 1000, 470
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 16, 50
LABELS, FONT = 8, 12.0
COLOUR = {"MXU": "mxu", "VPU": "vpu", "transcendental": "trans", "HBM": "hbm"}


class Point(NamedTuple):
    """A group that has both coordinates."""

    name: str
    roof: GroupRoof
    intensity: float
    achieved: float
    sentence: str


class Box(NamedTuple):
    """An axis-aligned box: left, top, right, bottom."""

    x1: float
    y1: float
    x2: float
    y2: float

    def hits(self, other: Box) -> bool:
        return self.x1 < other.x2 and other.x1 < self.x2 and self.y1 < other.y2 and other.y1 < self.y2


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


def axes(points: list[Point], chip: Peaks) -> Axes:
    """Whole decades around the points and the ridges."""
    ridges = [chip.mxu_flops / chip.bandwidth, chip.vpu_flops / chip.bandwidth]
    xs = [p.intensity for p in points] + ridges
    ys = [p.achieved for p in points] + [chip.vpu_flops, chip.mxu_flops * 1.5]
    across, up = decades(min(xs) / 1.3, max(xs) * 1.3), decades(min(ys) / 1.3, max(ys))
    return Axes(across[0], across[-1], up[0], up[-1])


def roofline(points: list[Point], chip: Peaks) -> str:
    """The chart; areas of points are proportional to their cycles, the largest are labelled."""
    ax = axes(points, chip)
    svg = Svg(WIDTH, HEIGHT, "Roofline")
    _grid(svg, ax)
    taken = _roofs(svg, ax, chip)
    most = max((p.roof.cycles for p in points), default=1)
    ordered = sorted(points, key=lambda p: p.roof.cycles, reverse=True)
    placed: list[tuple[Point, float, float, float]] = []
    for point in ordered:
        x, y = ax.x(point.intensity), ax.y(point.achieved)
        radius = 3.5 + 13.5 * sqrt(point.roof.cycles / most)
        placed.append((point, x, y, radius))
        tip = (
            f"{point.name}\n{count(point.roof.cycles)} cycles, {si(point.achieved, 'FLOP/s')}, "
            f"{point.intensity:.3g} FLOP/byte\n{percent(point.roof.fraction)} of its bound ({point.roof.roof})\n"
            f"{point.sentence}"
        )
        svg.circle(x, y, radius, f"point p-{COLOUR[point.roof.roof]}", tip)
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


def _roofs(svg: Svg, ax: Axes, chip: Peaks) -> list[Box]:
    """Draw the roofs; boxes of their labels."""
    x_lo, y_lo = 10.0**ax.x_lo, 10.0**ax.y_lo
    ridge = chip.mxu_flops / chip.bandwidth
    start = max(x_lo, y_lo / chip.bandwidth)
    slope = [(ax.x(start), ax.y(start * chip.bandwidth)), (ax.x(ridge), ax.y(chip.mxu_flops))]
    svg.path(slope, "roof r-hbm")
    taken = []
    flat = (("MXU peak", chip.mxu_flops, "mxu"), ("VPU, all ALU slots", chip.vpu_flops, "vpu"))
    for name, rate, css in flat:
        y = ax.y(rate)
        svg.line(ax.x(max(rate / chip.bandwidth, x_lo)), y, WIDTH - RIGHT, y, f"roof r-{css}")
        text = f"{name} {si(rate, 'FLOP/s')}"
        svg.text(WIDTH - RIGHT - 6, y - 6, text, "t small", "end")
        taken.append(Box(WIDTH - RIGHT - 6 - text_width(text, FONT), y - 18, WIDTH - RIGHT, y + 3))
    (x1, y1), (x2, y2) = slope
    text = f"HBM {si(chip.bandwidth, 'B/s')}"
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
    """Label the largest points where a place is free: right, left, above, below and between."""
    taken = taken + [Box(x - r, y - r, x + r, y + r) for _, x, y, r in placed[:60]]
    for point, x, y, r in placed[:LABELS]:
        name = shorten(point.name, 34)
        w = text_width(name, FONT)
        near, far = r + 5, r + 16
        tries = [
            (x + near, y + 4), (x - near - w, y + 4), (x - w / 2, y - near), (x - w / 2, y + near + 9),
            (x + near, y - near), (x + near, y + near + 6), (x - near - w, y - near), (x - near - w, y + near + 6),
            (x - w / 2, y - far - 10), (x - w / 2, y + far + 18), (x + far, y - far), (x + far, y + far + 6),
        ]  # fmt: skip
        for tx, ty in tries:
            box = Box(tx, ty - FONT + 1, tx + w, ty + 3)
            inside = box.x1 > LEFT and box.x2 < WIDTH - RIGHT and box.y1 > TOP - 8 and box.y2 < HEIGHT - BOTTOM
            if inside and not any(box.hits(other) for other in taken):
                if ty <= y - far or ty >= y + far + 6:
                    below = ty > y
                    svg.line(x, y + (r if below else -r), max(tx, x), ty + (1 - FONT if below else 3), "leader")
                svg.text(tx, ty, name, "t small halo")
                taken.append(box)
                break
