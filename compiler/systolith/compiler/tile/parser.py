"""Tile IR from text (see `printer.py`)."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

from systolith.compiler.errors import CompileError
from systolith.compiler.tile.ir import (
    Arg,
    Array,
    Block,
    Buf,
    Entry,
    GroupRecord,
    If,
    Item,
    Loop,
    Ref,
    TileModule,
    TileOp,
    VReg,
    While,
)
from systolith.isa.checked import matches
from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Space
from systolith.isa.kernel import Kernel, MicroOp, Section
from systolith.isa.pattern import Coord, Pattern
from systolith.isa.program import BufferDecl, GroupInfo, Origin, Role

T = TypeVar("T")

RECORDS: dict[str, type] = {
    c.__name__: c for c in (Array, Pattern, Coord, Kernel, Section, MicroOp, Origin, BufferDecl, GroupInfo, Ref, Entry)
}
NAMED: dict[str, tuple[str, Callable[[str], Any]]] = {
    "Pattern": ("dtype", DTYPES.__getitem__),
    "Array": ("dtype", DTYPES.__getitem__),
    "BufferDecl": ("role", Role),
}
"""Fields that are written by name, and what makes the value of it."""

HEAD = re.compile(r'module "(.*?)"(?: chip "(.*)" "(\w+)")?')
BUFFER = re.compile(
    r"%(\S+) = (\w+) (\d+) align (\d+)(?: unit (\d+))?( whole)?(?: (BufferDecl\(.*\)))?(?: stack (\(.*\)))?"
)
ENTRY = re.compile(r"([pkog]\d+) = (.*)")
GROUP = re.compile(r"group (GroupInfo\(.*\))")
OPERATION = re.compile(r"([\w.]+)(?:\[(\d+)\])? (.*?) ?; (o\d+)(?: begin (g\d+))?(?: end (g\d+))?")
LOOP = re.compile(r'loop \$(\d+) count (?:(\d+)|\$(\d+)) "(.*?)"( source)?(?: holds (.*))? \{')
WHILE = re.compile(r'while \$(\d+) "(.*)"(?: trip (\d+))? \{')
BRANCH = re.compile(r'if \$(\d+) "(.*)" \{')
NAME = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\$(\d+)|%([^\s,()]+)""")
GAP = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?<=[^\s,]) (?=\w+=(?!=))""")
"""Text in quotes, or the space between two arguments."""

DEEPEST = 256
"""Regions around an operation: no module has more."""

PROBLEMS = (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError)
"""Exceptions that Python raises for text that is malformed."""


def parse_tile_ir(text: str, name: str = "tile IR") -> TileModule:
    """The module that a text describes.

    Args:
        text: as `print_tile_ir` writes it.
        name: of the text, for errors.

    Raises:
        CompileError: a line is not tile IR; gives its number.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # those about syntax are a SyntaxError then
        return _Parser(text, name).run()


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self.name = name
        lines = enumerate(text.split("\n"), 1)
        self.lines = [(number, line) for number, line in lines if line.strip() and not line.strip().startswith("//")]
        self.at = self.depth = 0
        self.names: dict[str, object] = {}
        self.begins: dict[str, TileOp] = {}
        self.ends: dict[str, TileOp] = {}
        self.module = TileModule("", Block())

    def run(self) -> TileModule:
        for number, line in self._head():
            try:
                self._declare(line)
            except PROBLEMS as problem:
                raise self._bad(number, line, problem) from None
        self.module.block, end = self._block()
        if end:
            raise self._bad(self.lines[self.at - 1][0], end, ValueError("closes nothing"))
        for name, record in self.names.items():
            if isinstance(record, _Record):
                self.module.records.append(self._finished(name, record))
        return self.module

    def _head(self) -> Iterator[tuple[int, str]]:
        while self.at < len(self.lines):
            number, line = self.lines[self.at]
            if not any(form.fullmatch(line) for form in (BUFFER, ENTRY, GROUP, HEAD)):
                return
            self.at += 1
            yield number, line

    def _declare(self, line: str) -> None:
        if head := HEAD.fullmatch(line):
            self.module.name, self.module.chip, self.module.chip_digest = head[1], head[2] or "", head[3] or ""
        elif found := BUFFER.fullmatch(line):
            self._buffer(found)
        elif group := GROUP.fullmatch(line):
            self.module.groups.append(self._record(group[1], GroupInfo))
        elif entry := ENTRY.fullmatch(line):
            self._define(entry[1], self._value(entry[2]))

    def _define(self, name: str, value: object) -> None:
        if name in self.names:
            raise ValueError(f"{name} is there already")
        self.names[name] = value

    def _buffer(self, found: re.Match[str]) -> None:
        name, space, size, align, unit, whole, text, stack = found.groups()
        decl = self._record(text, BufferDecl) if text else None
        parts = self._value(stack) if stack else ()
        if (decl is not None) != (Space[space] in (Space.HBM, Space.HOST) and not parts):
            raise ValueError("a buffer has a BufferDecl if it is in HBM or a host queue and no stack, and only then")
        if not all(isinstance(part, Buf) and part.decl and part.bytes * len(parts) == int(size) for part in parts):
            raise ValueError("a stack is one of buffers of the table, all of as many bytes")
        buf = Buf(name, Space[space], int(size), int(align), decl, int(unit or 0), parts=parts)
        self._define(f"%{name}", buf)
        if whole:
            self.module.whole.add(buf)
        if decl is not None:
            if decl.alias >= 0:
                if decl.alias >= len(self.module.buffers):
                    raise ValueError(f"alias {decl.alias}: must be an earlier buffer")
                buf.shares = self.module.buffers[decl.alias]
            self.module.buffers.append(buf)

    def _block(self) -> tuple[Block, str]:
        """Items up to a line that starts with a brace, which is given too (empty at the end of the text)."""
        block = Block()
        while self.at < len(self.lines):
            number, line = self.lines[self.at]
            self.at += 1
            text = line.strip()
            if text.startswith("}"):
                return block, text
            try:
                item = self._item(text)
            except PROBLEMS as problem:
                raise self._bad(number, line, problem) from None
            block.items.append(item)
            self.module.lines[item] = number
        return block, ""

    def _inner(self) -> tuple[Block, str]:
        """A region of what the line before begins, and the line that ends it."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"regions are nested deeper than {DEEPEST}")
        block, end = self._block()
        self.depth -= 1
        return block, end

    def _item(self, text: str) -> Item:
        counted, loop, branch = LOOP.fullmatch(text), WHILE.fullmatch(text), BRANCH.fullmatch(text)
        if counted:
            body, end = self._inner()
            if end != "}":
                raise ValueError("its body does not end with '}'")
            var, count, register, name, source, held = counted.groups()
            times = int(count) if count else VReg(int(register))
            buffers = tuple(cast(Buf, self.names[buf]) for buf in held.split(", ")) if held else ()
            return Loop(VReg(int(var)), times, body, name, source is not None, buffers)
        if loop:
            condition, middle = self._inner()
            if middle != "} do {":
                raise ValueError("a while has '} do {' between condition and body")
            body, end = self._inner()
            if end != "}":
                raise ValueError("its body does not end with '}'")
            trip = int(loop[3]) if loop[3] else None
            return While(condition, VReg(int(loop[1])), body, loop[2], trip)
        if branch:
            branches = []
            end = "} {"
            while end == "} {":
                block, end = self._inner()
                branches.append(block)
            if end != "}":
                raise ValueError("its last branch does not end with '}'")
            return If(VReg(int(branch[1])), branches, branch[2])
        return self._operation(text)

    def _operation(self, text: str) -> TileOp:
        operation = OPERATION.fullmatch(text)
        if not operation:
            raise ValueError("not an operation")
        name, unit, args, origin, begin, end = operation.groups()
        where = self.names[origin]
        if not isinstance(where, Origin):
            raise ValueError(f"{origin} is no origin")
        op = TileOp(name, self._arguments(args), where, int(unit or 0))
        for marked, places in ((begin, self.begins), (end, self.ends)):
            if marked and not isinstance(self.names[marked], _Record):
                raise ValueError(f"{marked} is no group record")
            if marked and places.setdefault(marked, op) is not op:
                raise ValueError(f"{marked} begins or ends twice")
        return op

    def _finished(self, name: str, record: _Record) -> GroupRecord:
        if name not in self.begins or name not in self.ends:
            raise CompileError(f"{self.name}: {name}: no operation begins it, or none ends it")
        return GroupRecord(record.name, self.begins[name], self.ends[name], record.inputs, record.outputs)

    def _arguments(self, text: str) -> dict[str, Arg]:
        call = ast.parse(f"f({_pythonic(_commas(text))})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("arguments are written name=value")
        return {k.arg or "": self._build(k.value) for k in call.keywords}

    def _value(self, text: str) -> Any:
        return self._build(ast.parse(_pythonic(text), mode="eval").body)

    def _record(self, text: str, kind: type[T]) -> T:
        value = self._value(text)
        if not isinstance(value, kind):
            raise ValueError(f"{text[:40]}: more than a {kind.__name__}")
        return value

    def _build(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node.func.id, node)
        if isinstance(node, ast.Tuple):
            return tuple(self._build(e) for e in node.elts)
        if isinstance(node, ast.Name):
            return self.names[node.id]
        value = ast.literal_eval(node)
        if not isinstance(value, int | str | bytes | None) or isinstance(value, bool):
            raise ValueError(f"{ast.unparse(node)}: not a number, text or name")
        return value

    def _call(self, name: str, node: ast.Call) -> Any:
        args = [self._build(a) for a in node.args]
        if name == "V":
            return VReg(args[0])
        if name == "B":
            return self.names[f"%{args[0]}"]
        keywords = {k.arg or "": self._build(k.value) for k in node.keywords}
        if name == "GroupRecord":
            return _Record(*args)
        hints = _fields(RECORDS[name])
        given = dict(zip(hints, args, strict=False)) | keywords
        if len(given) != len(args) + len(keywords):
            raise ValueError(f"{name}: too many arguments")
        if name in NAMED:
            field, make = NAMED[name]
            given[field] = make(given[field])
        for field, value in given.items():
            if field not in hints or not matches(value, hints[field]):
                raise ValueError(f"{name}: {field} = {value!r}")
        return RECORDS[name](**given)

    def _bad(self, number: int, line: str, problem: BaseException) -> CompileError:
        what = f"no {problem}" if isinstance(problem, KeyError) else str(problem) or type(problem).__name__
        return CompileError(f"{self.name} line {number}: {line.strip()[:100]!r}: {' '.join(what.split())}")


Located = tuple[tuple[str, Array], ...]


class _Record:
    """A group record whose operations are still to come."""

    def __init__(self, name: object, inputs: object, outputs: object) -> None:
        self.name, self.inputs, self.outputs = str(name), _located(inputs), _located(outputs)


def _located(arrays: object) -> Located:
    """Arrays with the names of their values."""
    pairs = arrays if isinstance(arrays, tuple) else (None,)
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], Array)):
            raise ValueError("a group record has a name, and two tuples of pairs of a name and an Array")
    return cast(Located, pairs)


@cache
def _fields(record: type) -> dict[str, Any]:
    """The fields of a record, with their types."""
    return get_type_hints(record)


def _pythonic(text: str) -> str:
    """Names of buffers and registers, outside of strings, as calls that `_build` knows."""
    return NAME.sub(lambda m: m[0] if m[1] else f"V({m[2]})" if m[2] else f"B({m[3]!r})", text)


def _commas(text: str) -> str:
    """`a=1 b=(2, 3)` with commas between the arguments."""
    return GAP.sub(lambda m: m[1] or ", ", text) if text else ""
