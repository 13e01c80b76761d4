"""The look of the figures: one column of a paper wide, text of 7 points, a palette for colour-blind readers too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from systolith.reports.charts.labels import Box, Mark, place

COLUMN = 3.3  # inches
TEXT = 7.0  # points

# Okabe and Ito, "Color Universal Design" (2008), their black as a dark grey, and a light one.
BLUE, SKY, VERMILLION, ORANGE = "#0072B2", "#56B4E9", "#D55E00", "#E69F00"
GREEN, PURPLE, YELLOW, GREY = "#009E73", "#CC79A7", "#F0E442", "#C8C8C8"
DARK = "#404040"
PALETTE = (BLUE, SKY, VERMILLION, DARK, ORANGE, GREEN, PURPLE, YELLOW, GREY)

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # matplotlib brings it: the same figure on every machine
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "legend.fontsize": TEXT,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.0,
    "pdf.fonttype": 42,  # text stays text: publishers refuse Type 3 fonts
    "svg.fonttype": "none",
    "svg.hashsalt": "systolith",  # the same figure, the same file
    "savefig.dpi": 300,
}


class PaperFigure(Figure):
    """A matplotlib figure with the text that belongs below it.

    Attributes:
        caption: what is drawn and what is counted, in sentences.
    """

    caption: str = ""


@contextmanager
def styled() -> Iterator[None]:
    """Draw, or save, in this style; the settings of the process stay as they are."""
    with style.context(["default", STYLE]):
        yield


def paper_figure(height: float, caption: str) -> PaperFigure:
    """An empty figure, a column wide and `height` inches tall."""
    figure = PaperFigure(figsize=(COLUMN, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02)  # type: ignore[union-attr,call-arg]
    figure.caption = caption
    return figure


def row_axes(figure: Figure, labels: list[str]) -> Axes:
    """Axes with a named row for each label, the first one on top."""
    axes = figure.add_subplot()
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    return axes


def boxes(artists: Iterable[Artist], figure: Figure) -> list[Box]:
    """Where artists are, in points of the page, y downwards."""
    scale = 72 / figure.dpi
    found = (artist.get_window_extent() for artist in artists)
    return [Box(b.x0 * scale, -b.y1 * scale, b.x1 * scale, -b.y0 * scale) for b in found]


def circles(axes: Axes, points: Sequence[tuple[float, float]], radii: Sequence[float]) -> list[Box]:
    """Where circles are, in points of the page, y downwards; radii are in these, too."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    scale = 72 / figure.dpi
    spots = axes.transData.transform(np.reshape(points, (-1, 2))) * (scale, -scale)  # there may be none
    return [Box(x - r, y - r, x + r, y + r) for (x, y), r in zip(spots, radii, strict=True)]


def places(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    radii: Sequence[float],
    widths: Sequence[float],
    texts: Sequence[Box] = (),
) -> list[tuple[float, float, bool] | None]:
    """Places for the labels of the first points, once the figure has been laid out.

    Args:
        axes: where they are.
        points: all of them, in data.
        radii: of their marks, in points of the page.
        widths: of the labels, in points of the page; as many as there are labels.
        texts: where no label may be, nor a line to one (`boxes`).

    Returns:
        for each label its offset from the point, in points of the page, and whether a line should lead there; None
        where no place is free.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    marked = circles(axes, points, radii)
    marks = [Mark((b.x1 + b.x2) / 2, (b.y1 + b.y2) / 2, r, w) for b, r, w in zip(marked, radii, widths, strict=False)]
    (inside,) = boxes([axes.patch], figure)
    found = zip(marks, place(marks, marked, inside, TEXT, texts), strict=True)
    return [(spot.x - m.x, m.y - spot.y, spot.far) if spot else None for m, spot in found]
