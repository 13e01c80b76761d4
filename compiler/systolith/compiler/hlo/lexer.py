"""A cursor over HLO text: white space and comments, punctuation, names, numbers, strings, balanced text.

Source of the tokens: `xla/hlo/parser/hlo_lexer.cc`.  Shapes are read by `shape.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from systolith.compiler.hlo.errors import HloError, SourceMap
from systolith.compiler.hlo.escapes import unescape

_TRIVIA = re.compile(r"(?:[ \t\r\n]+|/\*.*?\*/|//[^\r\n]*)*", re.DOTALL)
_TOKEN = re.compile(r"[\w.%\-]+|\S")
NAME = r"[A-Za-z_][\w.\-]*"
_NAME = re.compile(rf"%({NAME})|({NAME}):?", re.ASCII)
_WORD = re.compile(NAME, re.ASCII)
_INT = re.compile(r"-?\d+(?![\d.])", re.ASCII)
_NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf|nan)", re.ASCII)
_INTS = re.compile(r"\{((?:-?\d{1,18}(?:,[ ]?-?\d{1,18})*)?)\}", re.ASCII)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"' + r"|'((?:[^'\\]|\\.)*)'")
_BALANCE = re.compile(r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'|[{}()\[\],\n]")
_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]')
_CLOSER = {"{": "}", "(": ")", "[": "]"}
MAX_NESTING = 64
"""Deepest nesting of tuples, literals, operands and computations."""


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
        """Raise an error that names `expected` and the token found instead."""
        if self.ended:
            raise self.error(f"expected {expected}, but the text ends here")
        token = _TOKEN.match(self.text, self.pos)
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

    def token(self, what: str) -> str:
        """A word, or a character that is in none."""
        found = self.match(_TOKEN)
        return found.group() if found else self.fail(what)

    def word(self, what: str) -> str:
        """A word such as an opcode or an attribute's name."""
        found = self.match(_WORD)
        return found.group() if found else self.fail(what)

    def one_of(self, words: Sequence[str], any_case: bool = False) -> str:
        """The word of `words` that is next; `any_case`: however the text capitalises it."""
        start = self.pos
        word = self.word(f"one of {', '.join(words)}")
        found = next((w for w in words if w == word or (any_case and w.lower() == word.lower())), None)
        if found is None:
            raise self.error(f"expected one of {', '.join(words)}, got {word!r}", start)
        return found

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
        return found.group(1) or found.group(2) if found else self.fail(what)

    def integer(self, what: str) -> int:
        """An integer of 64 bits; as in XLA, 2**63 and more stand for the negative number of the same bits."""
        found = _INT.match(self.text, self.pos)
        if not found:
            self.fail(what)
        digits = found.group()
        value = int(digits) if len(digits) <= 20 else 1 << 64
        if not -(1 << 63) <= value < 1 << 64:
            raise self.error(f"{digits[:40]} does not fit 64 bits")
        self.pos = found.end()
        self.skip()
        return value if value < 1 << 63 else value - (1 << 64)

    def number(self, what: str) -> str:
        """A number, whole or not, as it is written."""
        found = self.match(_NUMBER)
        return found.group() if found else self.fail(what)

    def integers(self, what: str) -> tuple[int, ...]:
        """`{1,2}`."""
        if found := self.match(_INTS):
            return tuple(map(int, found.group(1).split(","))) if found.group(1) else ()
        self.expect("{", f"to start a list of {what}")
        items: list[int] = []
        while not self.accept("}"):
            if items:
                self.expect(",", f"or '}}' in a list of {what}")
            items.append(self.integer("an integer"))
        return tuple(items)

    def string(self, what: str) -> str:
        """A quoted string, its escapes undone."""
        start = self.pos
        found = self.match(_STRING)
        if not found:
            self.fail(what)
        try:
            return unescape(found.group(1) if found.group(2) is None else found.group(2))
        except ValueError as problem:
            raise self.error(str(problem), start) from None

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
        if not value:
            self.fail("a value")
        self.pos = end
        self.skip()
        return value

    def json(self) -> str:
        """Text in braces, of which only the braces and strings are looked at."""
        start = self.pos
        depth = 0
        for token in _JSON.finditer(self.text, start):
            depth += {"{": 1, "}": -1}.get(token.group(), 0)
            if not depth:
                self.pos = token.end()
                self.skip()
                return self.text[start : token.end()]
        raise self.error("expected '}' to close what starts here, but the text ends", start)
