"""Figures of runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, PercentFormatter

from systolith.reports.causes import FAMILIES, family, unit_label
from systolith.reports.charts.data import Activity, Compared, Memory, Power, Roofline, Stalls, Traffic, Use
from systolith.reports.charts.labels import Box
from systolith.reports.figures.style import (
    BLUE,
    DARK,
    GREEN,
    GREY,
    ORANGE,
    PALETTE,
    PURPLE,
    SKY,
    TEXT,
    VERMILLION,
    PaperFigure,
    boxes,
    circles,
    paper_figure,
    places,
    row_axes,
    styled,
)
from systolith.reports.headline import BOUNDS
from systolith.reports.numbers import percent, si, size
from systolith.reports.svg import shorten

LEAST = 0.002  # of a run: shorter parts of a bar cannot be seen
NAMED = 6  # groups with a number in the roofline
KEY = 23  # characters of a name in a key of two columns
COLOURS = dict(zip((f.label for f in FAMILIES), PALETTE, strict=True))
ROOFS = {"MXU": BLUE, "HBM": VERMILLION, "VPU": GREEN, "transcendental": PURPLE}
BOUND_COLOURS = dict(zip(BOUNDS, (BLUE, VERMILLION, PURPLE, ORANGE, SKY, DARK, GREY), strict=True))
MIB = 1 << 20


def roofline(data: Roofline, subject: str) -> PaperFigure:
    """FLOP/s over FLOP/byte, a circle a group."""
    named = data.points[:NAMED]
    rows = (len(named) + 1) // 2
    caption = (
        f"Roofline of {subject}. A circle is a fusion group, its area proportional to the cycles charged to it, its"
        " colour the roof that bounds it. FLOP as XLA counts them; bytes are a group's inputs and outputs once, so"
        f" groups above the HBM roof keep data in VMEM. Roofs: {si(data.mxu, 'FLOP/s')} of all MXUs,"
        f" {si(data.vpu, 'FLOP/s')} of the VPU's ALU slots, {si(data.bandwidth, 'B/s')} of HBM."
    )
    if named:
        caption += " Most cycles: " + "; ".join(f"({n}) {p.name}" for n, p in enumerate(named, 1)) + "."
    if data.undrawn:
        caption += f" Groups without flops, bytes or cycles of their own, not drawn: {data.undrawn}."
    with styled():
        figure = paper_figure(2.6 + 0.13 * rows, caption)
        axes = figure.add_subplot()
        axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity (FLOP/byte)", ylabel="achieved FLOP/s")
        axes.grid(visible=True)
        _roofs(axes, data)
        most = max((p.cycles for p in data.points), default=1)
        areas = [4 + 90 * p.cycles / most for p in data.points]
        axes.scatter(
            [p.intensity for p in data.points], [p.achieved for p in data.points], areas,
            [ROOFS[p.roof] for p in data.points], alpha=0.65, linewidths=0.4, edgecolors="white", zorder=3,
        )  # fmt: skip
        present = [name for name in ROOFS if any(p.roof == name for p in data.points)]
        handles = [Patch(color=ROOFS[name], label=name) for name in present]
        if handles:
            axes.legend(
                handles=[Patch(alpha=0, label="bound by"), *handles], loc="lower center", bbox_to_anchor=(0.5, 1),
                ncols=1 + len(handles), handlelength=0.8, handleheight=0.8, columnspacing=0.8, borderpad=0,
            )  # fmt: skip
        _key(figure, [f"{n}  {shorten(p.name, KEY)}" for n, p in enumerate(named, 1)], rows)
        figure.draw_without_rendering()
        radii = [area**0.5 / 2 for area in areas]
        _numbers(axes, data, radii, len(named), _roof_names(axes, data, radii))
        return figure


def _roofs(axes: Axes, data: Roofline) -> None:
    xs = [p.intensity for p in data.points] + [data.ridge, data.vpu / data.bandwidth]
    ys = [p.achieved for p in data.points] + [data.vpu]
    left, right, low = min(xs) / 2, max(xs) * 8, min(ys) / 2
    start = max(left, low / data.bandwidth)
    axes.set_xlim(left, right)
    axes.set_ylim(low, data.mxu * 3)
    axes.plot([start, data.ridge], [start * data.bandwidth, data.mxu], color=VERMILLION)
    axes.plot([data.ridge, right], [data.mxu] * 2, color=BLUE)
    axes.plot([max(left, data.vpu / data.bandwidth), right], [data.vpu] * 2, color=GREEN, linestyle="--")


def _roof_names(axes: Axes, data: Roofline, radii: list[float]) -> list[Box]:
    """Name the roofs where no point is, if there is such a place; where the names are."""
    figure, right = axes.figure, axes.get_xlim()[1]
    start = max(axes.get_xlim()[0], axes.get_ylim()[0] / data.bandwidth)
    along = [start ** (1 - part) * data.ridge**part for part in (0.5, 0.35, 0.65, 0.2, 0.8)]
    tries: dict[str, list[tuple[tuple[float, float], float]]] = {
        "MXU peak": [((right, data.mxu), 2), ((right, data.mxu), -2)],
        "VPU, all ALU slots": [((right, data.vpu), 2), ((right, data.vpu), -2)],
        "HBM": [((x, x * data.bandwidth), 3) for x in along],
    }
    taken = circles(axes, [(p.intensity, p.achieved) for p in data.points], radii)
    for name, spots in tries.items():
        found: list[tuple[Annotation, Box]] = []
        for at, up in spots:
            text = axes.annotate(name, at, (-abs(up), up), textcoords="offset points", ha="right",
                                 va="bottom" if up > 0 else "top")  # fmt: skip
            found.append((text, *boxes([text], figure)))  # type: ignore[arg-type]
        free = next((f for f in found if not any(f[1].hits(box) for box in taken)), found[0])
        taken.append(free[1])
        for text, _ in found:
            if text is not free[0]:
                text.remove()
    return taken[-len(tries) :]


def _numbers(axes: Axes, data: Roofline, radii: list[float], named: int, texts: Sequence[Box]) -> None:
    """Number the first points, beside them where there is room, else on them."""
    points = [(p.intensity, p.achieved) for p in data.points]
    found = places(axes, points, radii, [0.62 * TEXT] * named, texts)
    for number, (point, spot) in enumerate(zip(points, found, strict=False), 1):
        x, y, far = spot or (-0.3 * TEXT, -0.35 * TEXT, False)
        line = {"arrowstyle": "-", "linewidth": 0.4, "shrinkA": 0.0, "shrinkB": 0.0} if far else None
        axes.annotate(str(number), point, (x, y), textcoords="offset points", zorder=4, arrowprops=line)


def _key(figure: PaperFigure, lines: list[str], rows: int) -> None:
    """Lines below the axes, in two columns."""
    left, right = "\n".join(lines[:rows]), "\n".join(lines[rows:])
    handles = [Patch(alpha=0, label=text) for text in (left, right) if text]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=2, handlelength=0, handletextpad=0,
                      columnspacing=1.0, borderpad=0.2)  # fmt: skip


def stalls(data: Stalls, subject: str) -> PaperFigure:
    """A stacked bar a unit."""
    present = [f for f in FAMILIES if any(family(c) is f for s in data.stacks for c, _ in s.parts)]
    caption = (
        f"Where the cycles of each unit went: {subject}, {data.cycles:,} cycles. Every cycle of every queue has one"
        " cause, so that each bar is the whole run. " + " ".join(f"{f.label}: {f.text}." for f in present)
    )
    with styled():
        figure = paper_figure(0.75 + 0.19 * len(data.stacks) + 0.13 * ((len(present) + 2) // 3), caption)
        axes = row_axes(figure, [stack.unit for stack in data.stacks])
        for row, stack in enumerate(data.stacks):
            at = 0.0
            for f in FAMILIES:
                cycles = sum(n for c, n in stack.parts if family(c) is f)
                axes.barh(row, 100 * cycles / data.cycles, left=at, height=0.72, color=COLOURS[f.label], linewidth=0)
                at += 100 * cycles / data.cycles
        axes.set_xlim(0, 100)
        axes.set_xlabel("share of the run's cycles")
        axes.xaxis.set_major_formatter(PercentFormatter(decimals=0))
        _legend(figure, [(f.label, COLOURS[f.label]) for f in present])
        return figure


def _legend(figure: PaperFigure, entries: list[tuple[str, str]]) -> None:
    handles = [Patch(color=colour, label=label) for label, colour in entries]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=0.8, handleheight=0.8,
                  columnspacing=1.0, borderpad=0.2)  # fmt: skip


def utilisation(data: Sequence[Use], subject: str) -> PaperFigure:
    """A bar a peak."""
    counted = " ".join(f"{use.label}: {use.counted}." for use in data)
    with styled():
        figure = paper_figure(0.5 + 0.19 * len(data), f"Use of the units: {subject}, over the whole run. {counted}")
        axes = row_axes(figure, [use.label for use in data])
        axes.barh(range(len(data)), [100 * use.fraction for use in data], height=0.72, color=BLUE)
        for row, use in enumerate(data):
            axes.annotate(
                percent(use.fraction), (100 * use.fraction, row), (2, 0), textcoords="offset points", va="center"
            )
        axes.set_xlim(0, 116)
        axes.set_xticks(range(0, 101, 20))
        axes.set_xlabel("share of the peak")
        axes.xaxis.set_major_formatter(PercentFormatter(decimals=0))
        return figure


def traffic(data: Traffic, subject: str) -> PaperFigure:
    """Bytes a cycle read and written."""
    caption = (
        f"HBM traffic over time: {subject}. Bytes moved, in whole granules, each transfer's spread evenly over its time"
        f" (so where transfers overlap the sum may be above the bandwidth for a while), in {len(data.read)} equal parts"
        f" of the run; the line is the bandwidth, {data.limit:.4g} bytes a cycle"
        f" ({si(data.limit * data.clock_hz, 'B/s')})."
    )
    with styled():
        figure = paper_figure(1.6, caption)
        axes = figure.add_subplot()
        reads, writes = zip(*data.rates, strict=True)
        bottom = [0.0] * len(reads)
        for label, values, colour in (("read", reads, BLUE), ("written", writes, ORANGE)):
            top = [b + v for b, v in zip(bottom, values, strict=True)]
            axes.stairs(top, data.edges, baseline=bottom, fill=True, color=colour, label=label, linewidth=0)
            bottom = top
        axes.axhline(data.limit, color=VERMILLION, linestyle="--", label="bandwidth")
        axes.set_ylim(0, max(data.limit, *bottom) * 1.05)
        axes.set_ylabel("bytes/cycle")
        _time(axes, data.edges[-1], data.clock_hz)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, handlelength=1.2, borderpad=0)
        return figure


def timeline(data: Activity, subject: str) -> PaperFigure:
    """A strip a queue, the darker the busier; the groups above."""
    units = [unit_label(queue) for queue in data.strips]
    widest = sorted(data.groups, key=lambda g: -g.cycles)[:NAMED]
    numbers = {g: n for n, g in enumerate(sorted(widest, key=lambda g: g.start), 1)}
    rows = (len(numbers) + 1) // 2
    caption = (
        f"The units over time: {subject}. The darker, the larger the occupied share of that part of the run (white:"
        f" none, darkest: all), in {len(data.edges) - 1} equal parts. Above, the run shared out among the fusion"
        " groups: to each the cycles in which the oldest unfinished instruction is one of its own, in the order in"
        " which they end."
    )
    if numbers:
        caption += " Most cycles: " + "; ".join(f"({n}) {g.name}" for g, n in numbers.items()) + "."
    with styled():
        figure = paper_figure(0.75 + 0.19 * (len(units) + 1) + 0.13 * rows, caption)
        axes = row_axes(figure, ["groups", *units])
        axes.grid(visible=False)
        for number, group in enumerate(data.groups):
            axes.barh(0, group.cycles, left=group.start, height=0.8, color=(SKY, GREY)[number % 2], linewidth=0)
            if group in numbers and group.cycles > 0.02 * data.edges[-1]:
                axes.text(group.start + group.cycles / 2, 0.04, str(numbers[group]), ha="center", va="center")
        for row, shares in enumerate(data.strips.values(), 1):
            axes.pcolormesh(
                data.edges, [row - 0.4, row + 0.4], np.array([shares]), cmap="Blues", vmin=0, vmax=1, linewidth=0.05,
                edgecolors="face",
            )  # fmt: skip
        _time(axes, data.edges[-1], data.clock_hz)
        _key(figure, [f"{n}  {shorten(g.name, KEY)}" for g, n in numbers.items()], rows)
        return figure


def memory(data: Memory, subject: str) -> PaperFigure:
    """A panel a memory."""
    caption = (
        f"Memory over time: {subject}. Bytes of buffers from the start of the first instruction that uses them to the"
        " end of the last, as the compiler placed them; parameters and constants lie in HBM throughout, results from"
        " their first use on. "
        + " ".join(
            f"{held.memory}: at most {size(max(held.most))} of {size(held.capacity)},"
            f" {percent(max(held.most) / held.capacity)}."
            for held in data.held
        )
    )
    with styled():
        figure = paper_figure(0.45 + 0.85 * len(data.held), caption)
        panels = figure.subplots(len(data.held), 1, sharex=True, squeeze=False)[:, 0]
        for axes, held, colour in zip(panels, data.held, (PURPLE, BLUE), strict=False):
            axes.stairs([n / MIB for n in held.most], data.edges, fill=True, color=colour, linewidth=0)
            axes.set_ylim(0, 1.08 * max(1, *held.most) / MIB)
            axes.set_ylabel(f"{held.memory} (MiB)")
            axes.grid(axis="y")
        _time(panels[-1], data.edges[-1], data.clock_hz)
        return figure


def _time(axes: Axes, cycles: int, clock_hz: float) -> None:
    """Cycles below, in thousands where there are many."""
    scale, unit = (1e6, "Mcycles") if cycles >= 2e6 else (1e3, "kcycles") if cycles >= 2e3 else (1.0, "cycles")
    axes.set_xlim(0, cycles)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / scale:g}"))
    axes.set_xlabel(f"{unit} ({si(cycles / clock_hz, 's')} in all)")


def power(data: Power, subject: str) -> PaperFigure:
    """Watts over time."""
    caption = (
        f"Power over time: {subject}. The energy of each instruction flows evenly from its start to its end, that of"
        f" the clock, leakage and the host always, in {len(data.watts)} equal parts of the run; the line is the"
        f" average, {si(data.average, 'W')}. Energies are those that the chip states."
    )
    with styled():
        figure = paper_figure(1.6, caption)
        axes = figure.add_subplot()
        axes.stairs(data.watts, data.edges, fill=True, color=ORANGE, linewidth=0)
        axes.axhline(data.average, color=VERMILLION, linestyle="--", label="average")
        axes.set_ylim(0, 1.08 * max([data.average, *data.watts]) or 1.0)
        axes.set_ylabel("power (W)")
        axes.grid(axis="y")
        _time(axes, data.edges[-1], data.clock_hz)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), handlelength=1.6, borderpad=0)
        return figure


def comparison(data: Sequence[Compared]) -> PaperFigure:
    """A bar a run, shared out by the bounds of its groups."""
    order = (*BOUNDS, "none")
    present = [
        bound for bound in order if any(b == bound and s >= LEAST * run.seconds for run in data for b, s in run.shares)
    ]
    labels = {b: BOUNDS[b][0] if b in BOUNDS else "no group" for b in present}
    colours = BOUND_COLOURS | {"none": "#888888"}
    longest = max(run.seconds for run in data)
    scale, unit = next(
        (10.0**e, u) for e, u in ((0, "s"), (-3, "ms"), (-6, "µs"), (-9, "ns")) if longest >= 10.0**e or e < -6
    )
    caption = (
        f"Simulated time of {len(data)} runs; at the right the ratio to the first, {data[0].name}. Colours share a run"
        " out among its fusion groups by what bounds them: the unit that is occupied for at least 70 % of a group's"
        " cycles, else latencies and dependencies."
    )
    with styled():
        figure = paper_figure(0.75 + 0.19 * len(data) + 0.13 * ((len(present) + 1) // 2), caption)
        axes = row_axes(figure, [shorten(run.name, 24) for run in data])
        for row, run in enumerate(data):
            at = 0.0
            for bound, seconds in sorted(run.shares, key=lambda s: order.index(s[0])):
                axes.barh(row, seconds / scale, left=at, height=0.72, color=colours[bound], linewidth=0)
                at += seconds / scale
            axes.annotate(f"{run.ratio:.2f}x", (at, row), (2, 0), textcoords="offset points", va="center")
        axes.set_xlim(0, 1.18 * longest / scale)
        axes.set_xlabel(f"simulated time ({unit})")
        handles = [Patch(color=colours[b], label=labels[b]) for b in present]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=0.8, handleheight=0.8,
                      columnspacing=1.0, borderpad=0.2)  # fmt: skip
        return figure
