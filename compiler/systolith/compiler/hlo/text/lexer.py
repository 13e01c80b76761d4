"""A cursor over HLO text: white space and comments, punctuation, names, numbers, strings, balanced text, shapes.

Source of what a token is: `xla/hlo/parser/hlo_lexer.cc`; of a shape: `ParseShape` and `ParseLayout` of `hlo_parser.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.errors import HloError, SourceMap
from systolith.compiler.hlo.shape import (
    MAX_ELEMENTS,
    MAX_RANK,
    OPAQUE,
    TOKEN,
    UNBOUNDED,
    Layout,
    Shape,
    ShapeKind,
    buffer_of,
    tuple_of,
)
from systolith.compiler.hlo.text.escapes import unescape

if TYPE_CHECKING:
    from systolith.compiler.hlo.ir import Computation, Instruction

_TRIVIA = re.compile(r"(?:[ \t\r\n]+|/\*.*?\*/|//[^\r\n]*)*", re.DOTALL)
_TOKEN = re.compile(r"[\w.%\-]+|\S")
NAME = r"[A-Za-z_][\w.\-]*"
_NAME = re.compile(rf"%({NAME})|({NAME}):?", re.ASCII)
_WORD = re.compile(NAME, re.ASCII)
_INT = re.compile(r"-?\d+(?![\d.])", re.ASCII)
_NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf|nan)", re.ASCII)
_INTS = re.compile(r"\{((?:-?\d{1,18}(?:,[ ]?-?\d{1,18})*)?)\}", re.ASCII)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"' + r"|'((?:[^'\\]|\\.)*)'")
ARRAY = r"[a-z][a-z0-9]*\[[\d,]*\](?:\{\d[\d,]*(?::[\w(),*]+)?\})?"
_ARRAY = re.compile(ARRAY, re.ASCII)
_ARRAY_PARTS = re.compile(r"([a-z][a-z0-9]*)\[([\d,]*)\](?:\{([\d,]*)(.*)\})?", re.ASCII)
_TYPE = re.compile(r"[a-z][a-z0-9]*(?=(?:[ \t\r\n]|/\*.*?\*/|//[^\r\n]*)*\[)", re.ASCII | re.DOTALL)
_BUFFER = re.compile(r"b(?=[ \t\r\n]*\()")
_OPENS_LAYOUT = re.compile(r"\{(?=[ \t\r\n]*[\d:\-])", re.ASCII)
_BALANCE = re.compile(r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'|[{}()\[\],\n]")
_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]')
_CLOSER = {"{": "}", "(": ")", "[": "]"}
MAX_NESTING = 64
"""Deepest nesting of tuples, literals, operands and computations."""

_DIM_LEVEL = r"[DCSH]\+?~?"
_TILE = r"(?:\d+|\*)"
_LAYOUT_PARTS = re.compile(
    rf"""(?:D\({_DIM_LEVEL}(?:,{_DIM_LEVEL})*\))?
    (?:T(?:\((?:{_TILE}(?:,{_TILE})*)?\))+)?
    (?:L\(-?\d+\))?(?:\#\((?P<index>\w+)\))?(?:\*\((?P<pointer>\w+)\))?(?:E\(-?\d+\))?(?:S\(-?\d+\))?
    (?:SC(?:\(\d+:(?:\d+(?:,\d+)*)?\))+)?(?:M\(-?\d+\))?\Z""",
    re.ASCII | re.VERBOSE,
)


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
        self.shapes: dict[str, Shape] = {}
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

    def computation(self) -> Computation:
        """The computation that is named or written here; a parser of modules knows them."""
        self.fail("no name of a computation, since there is no module here,")

    def instruction(self, what: str) -> Instruction:
        """The instruction that is named here; a parser of modules knows them."""
        self.fail("no name of an instruction, since there is no module here,")

    def at_shape(self) -> bool:
        """Whether a shape is next."""
        if self.at("("):
            return True
        found = _TYPE.match(self.text, self.pos) or _BUFFER.match(self.text, self.pos)
        return found is not None

    def shape(self, what: str = "a shape", depth: int = 0) -> Shape:
        """A shape: `f32[2,3]{1,0}`, `(s32[], token[])`, `b(f32[2])`, ..."""
        found = _ARRAY.match(self.text, self.pos)
        if found:
            text = found.group()
            known = self.shapes.get(text) or self._plain_array(text)
            start = self.pos
            self.pos = found.end()
            self.skip()
            if known is not None and (text.endswith("}") or not _OPENS_LAYOUT.match(self.text, self.pos)):
                self.shapes[text] = known
                return known
            self.pos = start
            return self._array(what)
        if self.at("("):
            return self._tuple(what, depth)
        if self.match(_BUFFER):
            return self._buffer(what, depth)
        return self._array(what)

    def _plain_array(self, text: str) -> Shape | None:
        """An array of static sizes, its layout without white space; None where `_array` has to look at it."""
        found = _ARRAY_PARTS.fullmatch(text)
        if not found or found[1] not in ELEMENT_TYPES or len(text) > 200:
            return None
        try:
            dims = tuple(map(int, found[2].split(","))) if found[2] else ()
            order = tuple(map(int, found[3].split(","))) if found[3] else ()
        except ValueError:
            return None
        if (
            len(dims) > MAX_RANK
            or any(n >= 1 << 63 for n in dims)
            or (found[3] is not None and sorted(order) != list(range(len(dims))))
        ):
            return None
        if found[4] and not _LAYOUT_PARTS.match(found[4], 1):
            return None
        layout = Layout(order, found[4]) if found[3] is not None and (order or found[4]) else None
        return Shape(ShapeKind.ARRAY, ELEMENT_TYPES[found[1]], dims, layout)

    def _tuple(self, what: str, depth: int) -> Shape:
        if depth >= MAX_NESTING:
            raise self.error(f"shapes nest deeper than {MAX_NESTING}")
        self.expect("(", f"to start {what}")
        elements: list[Shape] = []
        while not self.accept(")"):
            if elements:
                self.expect(",", f"or ')' in {what}")
            if len(elements) == MAX_ELEMENTS:
                raise self.error(f"a tuple has at most {MAX_ELEMENTS} elements")
            elements.append(self.shape(what, depth + 1))
        return tuple_of(elements)

    def _buffer(self, what: str, depth: int) -> Shape:
        if depth >= MAX_NESTING:
            raise self.error(f"shapes nest deeper than {MAX_NESTING}")
        self.expect("(", "to start the array of a buffer")
        start = self.pos
        inner = self.shape(what, depth + 1)
        if not inner.is_array:
            raise self.error(f"a buffer holds an array, not {inner}", start)
        self.expect(")", "to end the array of a buffer")
        return buffer_of(inner)

    def _array(self, what: str) -> Shape:
        """An array by the whole grammar."""
        start = self.pos
        found = self.match(_TYPE)
        if not found:
            self.fail(f"{what} such as f32[2,3]")
        name = found.group()
        if name not in ELEMENT_TYPES and name not in ("token", "opaque"):
            raise self.error(f"unknown element type {name!r}; known: {', '.join(ELEMENT_TYPES)}", start)
        self.expect("[", "to start the sizes of a shape")
        dims: list[int] = []
        dynamic: list[bool] = []
        while not self.accept("]"):
            if dims:
                self.expect(",", "or ']' in the sizes of a shape")
            size, flag = self._size()
            dims.append(size)
            dynamic.append(flag)
        if len(dims) > MAX_RANK:
            raise self.error(f"an array has at most {MAX_RANK} dimensions, this one {len(dims)}", start)
        layout = self._layout(len(dims)) if _OPENS_LAYOUT.match(self.text, self.pos) else None
        if name not in ELEMENT_TYPES:
            if dims or layout:
                raise self.error(f"{name}[] has neither sizes nor a layout", start)
            return TOKEN if name == "token" else OPAQUE
        flags = tuple(dynamic) if any(dynamic) else ()
        return Shape(ShapeKind.ARRAY, ELEMENT_TYPES[name], tuple(dims), layout, flags)

    def _size(self) -> tuple[int, bool]:
        if self.accept("?"):
            return UNBOUNDED, True
        bounded = self.accept("<=")
        start = self.pos
        size = self.integer("a size such as 8, <=8 or ? in a shape")
        if size < 0:
            raise self.error("a size in a shape is from 0 to 2**63 - 1", start)
        return size, bounded

    def _layout(self, rank: int) -> Layout | None:
        start = self.pos
        self.expect("{", "to start a layout")
        order: list[int] = []
        while not self.at("}") and not self.at(":"):
            if order:
                self.expect(",", "or '}' in a layout")
            order.append(self.integer("a dimension number in a layout"))
        if sorted(order) != list(range(rank)):
            shown = ",".join(map(str, order[:20]))
            raise self.error(f"expected a layout that is a permutation of 0 to {rank - 1}, got {{{shown}}}", start)
        at = self.pos
        text = self._layout_text() if self.accept(":") else ""
        parts = _LAYOUT_PARTS.match(text)
        if not parts:
            raise self.error(
                f"expected a layout's D(...)T(...)L(...)#(...)*(...)E(...)S(...)SC(...)M(...), got {text[:40]!r}", at
            )
        for key in ("index", "pointer"):
            if parts[key] is not None and parts[key] not in ("u1", "u2", "u4", "u8", "u16", "u32", "u64"):
                raise self.error(
                    f"expected an unsigned integer type for the {key}es of a layout, got {parts[key]!r}", at
                )
        self.expect("}", "to end a layout")
        return Layout(tuple(order), f":{text}" if text else "") if order or text else None

    def _layout_text(self) -> str:
        """What stands up to the layout's end, without white space and comments."""
        parts: list[str] = []
        while not self.at("}"):
            found = self.match(_TOKEN)
            if not found:
                self.fail("'}' to end a layout")
            parts.append(found.group())
        return "".join(parts)
