"""Errors of the HLO front end: message, place, and the source line with a caret."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from textwrap import indent

from systolith.isa.errors import SystolithError, cut, excerpt


@dataclass(frozen=True)
class Place:
    """A place in an HLO text.

    Attributes:
        file: name of the text as given to the parser.
        line: line number, from 1.
        column: column, from 1; 0 where only the line is known.
        source: the source line, empty where the text is not at hand.
        made_by: `file:line` of the program that the text was made of, empty if it is not known.
    """

    file: str
    line: int
    column: int = 0
    source: str = ""
    made_by: str = ""

    def __str__(self) -> str:
        here = f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"
        return f"{here} ({self.made_by})" if self.made_by else here


class HloError(SystolithError, ValueError):
    """Bad HLO: `str()` is one line, `detail` adds the source line and a caret.

    Attributes:
        message: the fault and, where it helps, the expected text.
        place: where, or None for a module that has no text.
    """

    def __init__(self, message: str, place: Place | None = None) -> None:
        self.message = message = cut(message)
        self.place = place
        super().__init__(f"{place}: {message}" if place else message)

    @property
    def line(self) -> int:
        """Line in the text, 0 if none is known."""
        return self.place.line if self.place else 0

    @property
    def excerpt(self) -> str:
        """The source line (a window of a very long one) and, below it, a caret; empty if the text is not at hand."""
        if self.place is None or not self.place.source:
            return ""
        return indent(excerpt(self.place.source, max(self.place.column - 1, 0)), "  ", lambda _: True)

    @property
    def detail(self) -> str:
        """The one-line message, and below it the excerpt."""
        return f"{self}\n{self.excerpt}" if self.excerpt else str(self)


class Line(int):
    """A line number (from 1) that knows its text.

    Attributes:
        map: of the text.
        made_by: as of `Place`.
    """

    map: SourceMap
    made_by: str = ""

    @property
    def place(self) -> Place:
        """The first character of the line that is not white space."""
        source = self.map.source(self)
        return Place(
            self.map.file, int(self), len(source) - len(source.lstrip()) + 1 if source else 0, source, self.made_by
        )


class SourceMap:
    """Line numbers of offsets in a text."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self._starts = [0]
        find = text.find("\n")
        while find >= 0:
            self._starts.append(find + 1)
            find = text.find("\n", find + 1)

    def line(self, offset: int) -> Line:
        """The line that holds `offset`."""
        line = Line(bisect_right(self._starts, offset))
        line.map = self
        return line

    def source(self, line: int) -> str:
        """The text of a line (from 1), without its newline; empty when there is no such line."""
        if not 1 <= line <= len(self._starts):
            return ""
        start = self._starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)]

    def place(self, offset: int) -> Place:
        """The place of an offset; the end of the text is placed after its last character that is not white space."""
        if offset >= len(self.text):
            offset = len(self.text.rstrip())
        line = int(self.line(offset))
        return Place(self.file, line, offset - self._starts[line - 1] + 1, self.source(line))
