"""A cursor over HLO text: white space and comments, punctuation, names, numbers, strings, balanced text, shapes."""

from __future__ import annotations

import re
from typing import NoReturn

from systolith.compiler.hlo.errors import HloError, SourceMap
from systolith.compiler.hlo.shape import OPAQUE, TOKEN, Layout, Shape, ShapeKind, tuple_of
from systolith.isa.dtypes import DTYPES

_TRIVIA = re.compile(r"(?:\s+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_NAME = re.compile(r"%?([A-Za-z_][\w.\-]*)")
_WORD = re.compile(r"[A-Za-z_][\w.\-]*")
_INT = re.compile(r"-?\d{1,19}(?![\d.])")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\]\n]*)\](?:\{([^{}\n]*)\})?")
_DIM = re.compile(r"\s*(<=)?(\d{1,19})\s*\Z")
_LAYOUT = re.compile(r"\s*(\d+(?:\s*,\s*\d+)*)?\s*((?::.*)?)\Z")
_BALANCE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}()\[\],\n]')
_CLOSER = {"{": "}", "(": ")", "[": "]"}
_UNSUPPORTED = frozenset("s1 s2 u1 u2 f4e2m1fn f8e3m4 f8e4m3 f8e4m3b11fnuz f8e8m0fnu".split())
MAX_NESTING = 64


class Cursor:
    """A position in a text, always at the start of a token or at the end.

    Args:
        text: HLO text.
        file: its name, for messages.
    """

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.pos = 0
        self.map = SourceMap(text, file)
        self._shapes: dict[str, Shape] = {}
        self.skip()

    def skip(self) -> None:
        """Move over white space and comments."""
        match = _TRIVIA.match(self.text, self.pos)
        if match:
            self.pos = match.end()

    @property
    def ended(self) -> bool:
        return self.pos >= len(self.text)

    def error(self, message: str, at: int | None = None) -> HloError:
        """An error at an offset (here, if none is given)."""
        return HloError(message, self.map.place(self.pos if at is None else at))

    def fail(self, expected: str) -> NoReturn:
        """Raise: `expected` was expected, and what is there instead."""
        if self.ended:
            raise self.error(f"expected {expected}, but the text ends here")
        token = re.compile(r"[\w.%\-]+|\S").match(self.text, self.pos)
        raise self.error(f"expected {expected}, got {token.group()[:40] if token else ''!r}")

    def at(self, literal: str) -> bool:
        return self.text.startswith(literal, self.pos)

    def accept(self, literal: str) -> bool:
        """Move over `literal` if it is next."""
        if not self.text.startswith(literal, self.pos):
            return False
        self.pos += len(literal)
        self.skip()
        return True

    def expect(self, literal: str, where: str) -> None:
        """Move over `literal`, or fail saying where it was expected."""
        if not self.accept(literal):
            self.fail(f"{literal!r} {where}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Move over a match of `pattern` if there is one here."""
        found = pattern.match(self.text, self.pos)
        if found:
            self.pos = found.end()
            self.skip()
        return found

    def word(self, what: str) -> str:
        """A word such as an opcode or an attribute's name."""
        found = self.match(_WORD)
        return found.group() if found else self.fail(what)

    def accept_word(self, word: str) -> bool:
        """Move over `word` if it is next, and not only the start of a longer one."""
        found = _WORD.match(self.text, self.pos)
        if not found or found.group() != word:
            return False
        self.pos = found.end()
        self.skip()
        return True

    def name(self, what: str) -> str:
        """A name, its `%` (if any) left out."""
        found = self.match(_NAME)
        return found.group(1) if found else self.fail(what)

    def integer(self, what: str) -> int:
        found = self.match(_INT)
        return int(found.group()) if found else self.fail(what)

    def string(self, what: str) -> str:
        """A quoted string, escapes left as they are."""
        found = self.match(_STRING)
        return found.group(1) if found else self.fail(what)

    def balanced(self) -> str:
        """Text up to a comma or a closing bracket at depth 0, or the end of the line there; brackets balance."""
        start = self.pos
        stack: list[str] = []
        end = len(self.text)
        for token in _BALANCE.finditer(self.text, start):
            symbol = token.group()
            if symbol in _CLOSER:
                stack.append(_CLOSER[symbol])
            elif stack and symbol == stack[-1]:
                stack.pop()
            elif not stack and symbol in "})],\n":
                end = token.start()
                break
            elif symbol in "})]":
                raise self.error(f"expected {stack[-1]!r}, got {symbol!r}", token.start())
        if stack:
            raise self.error(f"expected {stack[-1]!r} to close what starts here, but the text ends", start)
        value = self.text[start:end].rstrip()
        self.pos = end
        self.skip()
        return value

    def at_shape(self) -> bool:
        """Whether a shape is next."""
        return self.at("(") or _ARRAY.match(self.text, self.pos) is not None

    def shape(self, what: str = "a shape", depth: int = 0) -> Shape:
        """A shape: `f32[2,3]{1,0}`, `(s32[], token[])`, ..."""
        if self.at("("):
            return self._tuple_shape(what, depth)
        start = self.pos
        found = self.match(_ARRAY)
        if not found:
            self.fail(f"{what} such as f32[2,3]")
        text = found.group()
        known = self._shapes.get(text)
        if known is None:
            known = self._shapes[text] = self._array_shape(found, start)
        return known

    def _tuple_shape(self, what: str, depth: int) -> Shape:
        if depth >= MAX_NESTING:
            raise self.error(f"tuples nest deeper than {MAX_NESTING}")
        self.expect("(", f"to start {what}")
        elements: list[Shape] = []
        while not self.accept(")"):
            if elements:
                self.expect(",", f"or ')' in {what}")
            elements.append(self.shape(what, depth + 1))
        return tuple_of(elements)

    def _array_shape(self, found: re.Match[str], start: int) -> Shape:
        name, dims_text, layout_text = found.groups()
        if name in ("token", "opaque") and not dims_text:
            return TOKEN if name == "token" else OPAQUE
        if name not in DTYPES:
            if name in _UNSUPPORTED:
                raise self.error(f"element type {name!r} is not supported; supported: {', '.join(DTYPES)}", start)
            raise self.error(f"unknown element type {name!r}; known: {', '.join(DTYPES)}", start)
        dims, dynamic = self._dims(dims_text, start + len(name) + 1)
        layout = self._layout(layout_text, len(dims), start) if layout_text is not None else None
        return Shape(ShapeKind.ARRAY, DTYPES[name], dims, layout, dynamic)

    def _dims(self, text: str, start: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
        dims: list[int] = []
        dynamic: list[bool] = []
        for part in text.split(",") if text.strip() else ():
            found = _DIM.match(part)
            if part.strip() == "?":
                raise self.error("a dimension without a bound ('?') is not supported; give a bound: <=N", start)
            if not found or int(found.group(2)) >= 2**63:
                raise self.error(f"expected sizes such as 8 or <=8 in a shape, got {part.strip()[:40]!r}", start)
            dims.append(int(found.group(2)))
            dynamic.append(found.group(1) is not None)
        return tuple(dims), tuple(dynamic) if any(dynamic) else ()

    def _layout(self, text: str, rank: int, start: int) -> Layout:
        found = _LAYOUT.match(text)
        order = tuple(int(p) for p in (found.group(1) or "").split(",") if p.strip()) if found else ()
        if not found or sorted(order) != list(range(rank)):
            raise self.error(f"expected a layout that is a permutation of 0 to {rank - 1}, got {{{text[:60]}}}", start)
        return Layout(order, found.group(2))
