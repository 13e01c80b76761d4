"""Lexing of assembly: a cursor over the tokens of one line, and errors with a caret."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from systolith.isa.errors import AsmError, excerpt

LONGEST_NUMBER = 60
LARGEST_FLOAT = 2.0**128 - 2.0**103  # smaller values round to an f32
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|[0-9]+)")
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\n]+)
  | (?P<comment>\#.*)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<number>-?(?:0[xX][0-9a-fA-F]+|inf\b|nan\b|[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)?)(?![\w.]))
  | (?P<name>\.?[A-Za-z_$][\w$]*(?:\.[\w$]+)*)
  | (?P<sign>->|[()\[\]:,=@!+*/-])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """A token: its kind (a group of the expression above; `end` after the last), text, and column from 0."""

    kind: str
    text: str
    column: int


class Line:
    """The tokens of a source line, read from the left; `constants` are names that stand for integers.

    A line that goes on (`unfinished`) comes together with those that follow; `number` is that of the first.  Every
    failure is an AsmError with the line's number and a caret.
    """

    def __init__(self, text: str, number: int, constants: Mapping[str, int] | None = None) -> None:
        self.text = text
        self.number = number
        self.constants = constants or {}
        self.tokens: list[Token] = []
        self.at = 0
        self._lex(0)

    def extend(self, text: str) -> None:
        """Add the source line that follows an unfinished one."""
        self.tokens.pop()
        start = len(self.text) + 1
        self.text += f"\n{text}"
        self._lex(start)

    def _lex(self, at: int) -> None:
        while at < len(self.text):
            m = _TOKEN.match(self.text, at)
            if m is None:
                self.fail(f"unexpected {self.text[at]!r}", at)
            if m.lastgroup == "number" and m.end() - at > LONGEST_NUMBER:
                self.fail(f"a number of {m.end() - at} characters", at)
            if m.lastgroup not in ("space", "comment"):
                self.tokens.append(Token(str(m.lastgroup), m.group(), at))
            at = m.end()
        self.tokens.append(Token("end", "", max(len(self.text.rstrip()), self.tokens[-1].column if self.tokens else 0)))

    def fail(self, what: str, column: int | None = None) -> NoReturn:
        """Raise an error at a column, or at the next token."""
        at = self.peek.column if column is None else column
        before, start = self.text[:at].count("\n"), self.text.rfind("\n", 0, at) + 1
        number, column, source = self.number + before, at - start, self.text.split("\n")[before]
        raise AsmError(f"line {number}, column {column + 1}: {what}", number, excerpt(source, column))

    @property
    def peek(self) -> Token:
        return self.tokens[self.at]

    @property
    def done(self) -> bool:
        return self.peek.kind == "end"

    @property
    def unfinished(self) -> bool:
        """Whether it ends with a comma, so that the next line belongs to it."""
        return len(self.tokens) > 1 and self.tokens[-2].text == ","

    def next(self) -> Token:
        token = self.peek
        if token.kind != "end":
            self.at += 1
        return token

    def take(self, sign: str) -> bool:
        """Step over a sign or name, if it is next."""
        if self.peek.text == sign and self.peek.kind in ("sign", "name"):
            self.at += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            self.fail(f"expected {sign!r}")

    def keyword(self) -> str | None:
        """`name =`, stepped over, if that is next."""
        if self.peek.kind == "name" and self.tokens[self.at + 1].text == "=":
            self.at += 2
            return self.tokens[self.at - 2].text
        return None

    def name(self, what: str) -> str:
        """A name, or a string."""
        token = self.peek
        if token.kind not in ("name", "string"):
            self.fail(f"expected {what}")
        self.at += 1
        return self._unquoted(token) if token.kind == "string" else token.text

    def _unquoted(self, token: Token) -> str:
        try:
            text = str(json.loads(token.text))
            text.encode()
        except ValueError:  # half of a surrogate pair, too
            self.fail("bad escape, or a control character, in quotes", token.column)
        return text

    def integer(self, what: str) -> int:
        """A sum of products of integers and constants: `3`, `rows * 4`, `base + n/2 - 1`; quotients are exact."""
        column, total = self.peek.column, self._product(what)
        while True:
            if self.take("+"):
                total += self._product(what)
            elif self.take("-"):
                total -= self._product(what)
            elif self.peek.kind == "number" and self.peek.text[0] == "-":  # `n -1` and `n-1` are differences
                total += self._product(what)
            else:
                return self._bounded(total, column)

    def _bounded(self, value: int, column: int) -> int:
        if not -(2**63) <= value < 2**63:
            self.fail("an integer of more than 64 bits", column)
        return value

    def _product(self, what: str) -> int:
        value = self._integer(what)
        while self.peek.text in ("*", "/"):
            column, sign = self.peek.column, self.next().text
            factor = self._integer(what)
            if sign == "*":
                value = self._bounded(value * factor, column)
            elif factor == 0 or value % factor:
                self.fail(f"{value} / {factor}: must leave no remainder", column)
            else:
                value //= factor
        return value

    def _integer(self, what: str) -> int:
        sign = -1 if self.take("-") else 1
        token = self.peek
        if token.kind == "name" and token.text in self.constants:
            value = self.constants[token.text]
        elif token.kind == "number" and _INTEGER.fullmatch(token.text):
            value = int(token.text, 0) if "x" in token.text.lower() else int(token.text)
        else:
            undefined = f"; {token.text} is not defined" if token.kind == "name" else ""
            self.fail(f"expected {what}, an integer{undefined}")
        self.at += 1
        return self._bounded(sign * value, token.column)

    def image(self, what: str) -> int:
        """A 32-bit image: an integer (negative: two's complement), or an f32 written with a point or exponent."""
        token = self.peek
        if token.kind == "number" and not _INTEGER.fullmatch(token.text):
            self.at += 1
            value = float(token.text)
            if abs(value) >= LARGEST_FLOAT and not token.text.endswith("inf"):
                self.fail(f"{what} {token.text}: beyond f32", token.column)
            return int(struct.unpack("<I", struct.pack("<f", value))[0])
        number = self.integer(what)
        if not -(2**31) <= number < 2**32:
            self.fail(f"{what} {number}: must have 32 bits", token.column)
        return number % 2**32

    def finish(self) -> None:
        if not self.done:
            self.fail(f"unexpected {self.peek.text!r}")
