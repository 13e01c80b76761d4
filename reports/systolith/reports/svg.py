"""SVG by hand: shapes whose colours come from the page's style sheet, so that charts follow light, dark and print."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10

CHAR = 0.56  # mean width of a character of the page's font, of its size


class Svg:
    """A drawing of `width` x `height` user units; scales with the page.

    Args:
        width, height: user units.
        label: its subject, for readers of the page who cannot see it.
    """

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width = width
        self.height = height
        self._parts: list[str] = []
        self._label = label

    def rect(self, x: float, y: float, w: float, h: float, css: str, tip: str = "", opacity: float = 1.0) -> None:
        fade = "" if opacity >= 1 else f' fill-opacity="{opacity:.2f}"'
        self._shape("rect", f'x="{x:.1f}" y="{y:.1f}" width="{max(w, 0):.2f}" height="{h:.1f}"{fade}', css, tip)

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str, tip: str = "") -> None:
        self._shape("line", f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"', css, tip)

    def circle(self, x: float, y: float, r: float, css: str, tip: str = "") -> None:
        self._shape("circle", f'cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"', css, tip)

    def path(self, points: list[tuple[float, float]], css: str, close: bool = False, tip: str = "") -> None:
        steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self._shape("path", f'd="M{steps}{"Z" if close else ""}"', css, tip)

    def text(self, x: float, y: float, text: str, css: str = "t", anchor: str = "start", turn: float = 0) -> None:
        rotate = f' transform="rotate({turn:.1f} {x:.1f} {y:.1f})"' if turn else ""
        self._parts.append(
            f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{rotate}>{escape(text)}</text>'
        )

    def _shape(self, tag: str, attributes: str, css: str, tip: str) -> None:
        inner = f"><title>{escape(tip)}</title></{tag}>" if tip else "/>"
        self._parts.append(f'<{tag} class="{css}" {attributes}{inner}')

    def __str__(self) -> str:
        head = f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(self._label)}">'
        return head + "".join(self._parts) + "</svg>"


def text_width(text: str, size: float) -> float:
    """Estimated width of a text, in user units."""
    return CHAR * size * len(text)


def ticks(limit: float, about: int = 6) -> list[float]:
    """Round values from 0 to at most `limit`, about so many."""
    if limit <= 0:
        return [0.0]
    raw = limit / about
    power = 10.0 ** floor(log10(raw))
    step = next(m for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999) * power
    return [i * step for i in range(int(limit / step + 1e-9) + 1)]


def decades(lo: float, hi: float) -> list[int]:
    """Powers of ten from the one at or below `lo` to the one at or above `hi`."""
    return list(range(floor(log10(lo)), ceil(log10(hi)) + 1))


def shorten(text: str, limit: int) -> str:
    """The text with its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[-tail:]}"
