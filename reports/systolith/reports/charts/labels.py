"""Places for the labels of points, so that none covers another label, a point or a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FAR = (4 / 3, 3, 5)
"""Heights of a label that one with a line to its point may be away from that point's edge, in order."""


class Box(NamedTuple):
    """An axis-aligned box: left, top, right, bottom; y grows downwards."""

    x1: float
    y1: float
    x2: float
    y2: float

    def hits(self, other: Box) -> bool:
        return self.x1 < other.x2 and other.x1 < self.x2 and self.y1 < other.y2 and other.y1 < self.y2


class Mark(NamedTuple):
    """A point that is to be labelled: its centre, its radius, the width of its label."""

    x: float
    y: float
    r: float
    width: float


class Spot(NamedTuple):
    """A label's left end and base line, and whether it is so far away that a line leads to it."""

    x: float
    y: float
    far: bool


def place(
    marks: Sequence[Mark], taken: Sequence[Box], frame: Box, font: float, texts: Sequence[Box] = ()
) -> list[Spot | None]:
    """A spot for each label, the first ones first: right, left, above, below and between; None where none is free.

    Args:
        marks: points with labels.
        taken: where no label may be.
        frame: labels stay inside it.
        font: height of a label.
        texts: where no label may be, nor a line to one.
    """
    taken, labels = [*taken, *texts], list(texts)
    found: list[Spot | None] = []
    for x, y, r, w in marks:
        near = r + 5 * font / 12
        up, down = y - near, y + near
        tries = [
            Spot(x + near, y + font / 3, False), Spot(x - near - w, y + font / 3, False),
            Spot(x - w / 2, up, False), Spot(x - w / 2, down + 0.75 * font, False),
            Spot(x + near, up, False), Spot(x + near, down + font / 2, False),
            Spot(x - near - w, up, False), Spot(x - near - w, down + font / 2, False),
        ]  # fmt: skip
        for far in (r + lines * font for lines in FAR):
            tries += [
                Spot(x - w / 2, y - far - 0.83 * font, True), Spot(x - w / 2, y + far + 1.5 * font, True),
                Spot(x + far, y - far, True), Spot(x + far, y + far + font / 2, True),
                Spot(x - far - w, y - far, True), Spot(x - far - w, y + far + font / 2, True),
            ]  # fmt: skip
        spot = next(
            (s for s in tries if _free(_box(s, w, font), taken, frame) and not _crosses(s, x, y, w, labels)), None
        )
        if spot is not None:
            labels.append(_box(spot, w, font))
            taken += [labels[-1], _leader(spot, x, y, w)]
        found.append(spot)
    return found


def _box(spot: Spot, width: float, font: float) -> Box:
    return Box(spot.x, spot.y - font + 1, spot.x + width, spot.y + font / 4)


def _leader(spot: Spot, x: float, y: float, width: float) -> Box:
    """Around the line from a point to its label; of no size at the point where there is none."""
    end = min(max(spot.x, x), spot.x + width) if spot.far else x
    to = spot.y if spot.far else y
    return Box(min(x, end) - 1, min(y, to), max(x, end) + 1, max(y, to))


def _crosses(spot: Spot, x: float, y: float, width: float, labels: Sequence[Box]) -> bool:
    """Whether the line from a point to its label would cross another label."""
    return any(_leader(spot, x, y, width).hits(label) for label in labels)


def _free(box: Box, taken: Sequence[Box], frame: Box) -> bool:
    inside = box.x1 > frame.x1 and box.x2 < frame.x2 and box.y1 > frame.y1 and box.y2 < frame.y2
    return inside and not any(box.hits(other) for other in taken)
