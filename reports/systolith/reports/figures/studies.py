"""Figures of many design points."""

from __future__ import annotations

from itertools import pairwise
from textwrap import fill

from matplotlib.ticker import FuncFormatter

from systolith.reports.charts.study import Elasticities, Pareto, Sensitivity
from systolith.reports.figures.style import (
    BLUE,
    GREY,
    ORANGE,
    TEXT,
    VERMILLION,
    PaperFigure,
    paper_figure,
    places,
    row_axes,
    styled,
)
from systolith.reports.svg import shorten, text_width

LABELS = 8  # names along a front
WIDE, HIGH = 60, 32  # characters of a line of an axis' name: a formula may be long


def pareto(data: Pareto, subject: str = "") -> PaperFigure:
    """Design points, and the front as steps."""
    front, of = data.front, f" of {subject}" if subject else ""
    caption = (
        f"{data.y} over {data.x} of {len(data.points)} design points{of}, both the smaller the better. On the line the"
        f" {len(front)} points of the Pareto front: no other is as good in one and better in the other."
    )
    if data.undrawn:
        caption += f" Without numbers, not drawn: {data.undrawn}."
    if names := [p.label for p in front if p.label]:
        caption += f" On the front, from the left, by {data.label}: " + "; ".join(names) + "."
    with styled():
        figure = paper_figure(2.3, caption)
        axes = figure.add_subplot()
        rest = [p for p in data.points if not p.front]
        axes.scatter([p.x for p in rest], [p.y for p in rest], 9, GREY, linewidths=0, label="other points")
        axes.step([p.x for p in front], [p.y for p in front], where="post", color=VERMILLION)
        axes.scatter(
            [p.x for p in front], [p.y for p in front], 14, VERMILLION, linewidths=0, zorder=3, label="Pareto front"
        )
        axes.margins(0.12)
        axes.set(xlabel=fill(data.x, WIDE), ylabel=fill(data.y, HIGH))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda x, _: _short(x)))
        axes.grid(visible=True)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, handlelength=0.8, borderpad=0)
        named = [p for p in front if p.label]
        # The ends and those evenly between them first: of labels without room the others are left out.
        named = sorted(named, key=lambda p: named.index(p) % max(1, len(named) // LABELS))
        names = [shorten(p.label, 20) for p in named]
        others = [p for p in data.points if p not in named]
        steps = [(a.x + (b.x - a.x) * i / 16, a.y) for a, b in pairwise(front) for i in range(17)]
        steps += [(b.x, a.y + (b.y - a.y) * i / 16) for a, b in pairwise(front) for i in range(17)]
        spots = [*((p.x, p.y) for p in (*named, *others)), *steps]
        widths = [1.2 * text_width(name, TEXT) for name in names]  # of a wider font than the page's
        found = places(axes, spots, [2.0] * len(named) + [1.5] * (len(others) + len(steps)), widths)
        for name, point, spot in zip(names, spots, found, strict=False):
            if spot is not None:
                line = {"arrowstyle": "-", "linewidth": 0.4, "shrinkA": 0.0, "shrinkB": 0.0} if spot[2] else None
                axes.annotate(name, point, spot[:2], textcoords="offset points", arrowprops=line)
        return figure


def sensitivity(data: Sensitivity) -> PaperFigure:
    """A bar a parameter, from the smallest to the largest metric, around the baseline."""
    caption = (
        f"{data.metric} when one parameter changes and the others stay, over that of the baseline ({data.base:,.6g}):"
        " from the smallest to the largest that was found, with the parameter's values there."
    )
    if data.undrawn:
        caption += f" Rows without a number, left out: {data.undrawn}."
    lows, highs = [min(s.low, 1.0) for s in data.swings], [max(s.high, 1.0) for s in data.swings]
    with styled():
        figure = paper_figure(0.5 + 0.2 * len(data.swings), caption)
        axes = row_axes(figure, [shorten(s.parameter, 24) for s in data.swings])
        span = max(max(highs) - min(lows), 1e-9)
        axes.set_xlim(min(lows) - 0.2 * span, max(highs) + 0.2 * span)
        for row, swing in enumerate(data.swings):
            for end, at, colour, side in (
                (min(swing.low, 1.0), swing.low_at, BLUE, "right"),
                (max(swing.high, 1.0), swing.high_at, ORANGE, "left"),
            ):
                axes.barh(row, end - 1, left=1, height=0.68, color=colour, linewidth=0)
                if end != 1:
                    away = (-2, 0) if side == "right" else (2, 0)
                    axes.annotate(shorten(at, 12), (end, row), away, textcoords="offset points", ha=side, va="center")
        axes.axvline(1, color="black", linewidth=0.6)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}x"))
        axes.set_xlabel(f"{data.metric} over the baseline's")
        return figure


def elasticities(data: Elasticities) -> PaperFigure:
    """A bar a parameter, to the left where the metric falls as the parameter grows."""
    caption = (
        f"Elasticity of {data.metric}: by how many percent it changes for one percent more of a parameter, the others"
        " as they are; least squares of logarithms over all points."
    )
    with styled():
        figure = paper_figure(0.5 + 0.2 * len(data.bars), caption)
        axes = row_axes(figure, [shorten(name, 24) for name, _ in data.bars])
        most = max(max(abs(value) for _, value in data.bars), 1e-9)
        axes.set_xlim(-1.3 * most, 1.3 * most)
        for row, (_, value) in enumerate(data.bars):
            axes.barh(row, value, height=0.68, color=BLUE if value < 0 else ORANGE, linewidth=0)
            away, side = ((-2, 0), "right") if value < 0 else ((2, 0), "left")
            axes.annotate(f"{value:+.2f}", (value, row), away, textcoords="offset points", ha=side, va="center")
        axes.axvline(0, color="black", linewidth=0.6)
        axes.set_xlabel("elasticity (% for 1 % of the parameter)")
        return figure


def _short(value: float) -> str:
    """A number of an axis: 1200000 -> '1.2M'."""
    for scale, prefix in (
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (0.1, ""),
        (1e-3, "m"),
        (1e-6, "µ"),
        (1e-9, "n"),
    ):
        if abs(value) >= scale:
            return f"{value / (scale if prefix else 1):.6g}{prefix}"
    return f"{value:g}"
