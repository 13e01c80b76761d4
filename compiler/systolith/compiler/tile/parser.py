"""Tile IR from text (see `printer.py`)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from systolith.compiler.errors import CompileError
from systolith.compiler.tile.ir import Arg, Block, Buf, If, Ref, TileOp, VReg, While
from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Space
from systolith.isa.kernel import Kernel, MicroOp, Section
from systolith.isa.pattern import Coord, Pattern
from systolith.isa.program import BufferDecl, Origin, Role

RECORDS = {c.__name__: c for c in (Pattern, Coord, Kernel, Section, MicroOp, Origin, BufferDecl, Ref)}
BUFFER = re.compile(r"%(\S+) = (\w+) (\d+) align (\d+)(?: unit (\d+))?(?: (BufferDecl\(.*\)))?")
ENTRY = re.compile(r"([pko]\d+) = (.*)")
OPERATION = re.compile(r"([\w.]+)(?:\[(\d+)\])? (.*?) ?; (o\d+)")
LOOP = re.compile(r'while %v(-?\d+) "(.*)"(?: trip (\d+))? \{')
BRANCH = re.compile(r'if %v(-?\d+) "(.*)" \{')
NAME = re.compile(r"%v(-?\d+)\b(?![\w.~])|%([^\s,()]+)")


def parse_tile_ir(text: str) -> Block:
    """The block that a text describes.

    Raises:
        CompileError: a line is not tile IR; gives its number.
    """
    return _Parser(text).run()


class _Parser:
    def __init__(self, text: str) -> None:
        self.lines = list(enumerate(text.splitlines(), 1))
        self.at = 0
        self.names: dict[str, object] = {}

    def run(self) -> Block:
        for number, line in self._head():
            try:
                self._declare(line)
            except (ValueError, SyntaxError, KeyError, TypeError) as problem:
                raise _bad(number, line, str(problem)) from None
        block, end = self._block()
        if end:
            raise _bad(self.at, end, "closes nothing")
        return block

    def _head(self) -> Iterator[tuple[int, str]]:
        while self.at < len(self.lines):
            number, line = self.lines[self.at]
            if not (BUFFER.fullmatch(line) or ENTRY.fullmatch(line)):
                return
            self.at += 1
            yield number, line

    def _declare(self, line: str) -> None:
        found = BUFFER.fullmatch(line)
        if found:
            name, space, size, align, unit, decl = found.groups()
            entry = self._value(decl) if decl else None
            buf = Buf(name, Space[space], int(size), int(align), entry, int(unit or 0))
            self.names[f"%{name}"] = buf
            return
        entry_match = ENTRY.fullmatch(line)
        assert entry_match is not None
        self.names[entry_match[1]] = self._value(entry_match[2])

    def _block(self) -> tuple[Block, str]:
        """Items up to a line that starts with a brace, which is given too (empty at the end of the text)."""
        block = Block()
        while self.at < len(self.lines):
            number, line = self.lines[self.at]
            self.at += 1
            text = line.strip()
            if text.startswith("}"):
                return block, text
            if text:
                try:
                    block.items.append(self._item(text))
                except (ValueError, SyntaxError, KeyError, TypeError) as problem:
                    raise _bad(number, line, str(problem)) from None
        return block, ""

    def _item(self, text: str) -> TileOp | While | If:
        loop, branch = LOOP.fullmatch(text), BRANCH.fullmatch(text)
        if loop:
            condition, middle = self._block()
            if middle != "} do {":
                raise ValueError("a while has '} do {' between condition and body")
            body, _ = self._block()
            trip = int(loop[3]) if loop[3] else None
            return While(condition, VReg(int(loop[1])), body, loop[2], trip)
        if branch:
            branches = []
            end = "} {"
            while end == "} {":
                block, end = self._block()
                branches.append(block)
            return If(VReg(int(branch[1])), branches, branch[2])
        operation = OPERATION.fullmatch(text)
        if not operation:
            raise ValueError("not an operation")
        op, unit, args, origin = operation.groups()
        where = self.names[origin]
        assert isinstance(where, Origin)
        return TileOp(op, self._arguments(args), where, int(unit or 0))

    def _arguments(self, text: str) -> dict[str, Arg]:
        call = ast.parse(f"f({self._pythonic(_commas(text))})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("arguments are written name=value")
        return {k.arg or "": self._build(k.value) for k in call.keywords}

    def _value(self, text: str) -> Any:
        return self._build(ast.parse(self._pythonic(text), mode="eval").body)

    def _pythonic(self, text: str) -> str:
        """Names of buffers and registers as calls that `_build` knows."""
        return NAME.sub(lambda m: f"V({m[1]})" if m[1] else f"B({m[2]!r})", text)

    def _build(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node.func.id, node)
        if isinstance(node, ast.Tuple):
            return tuple(self._build(e) for e in node.elts)
        if isinstance(node, ast.Name):
            return self.names[node.id]
        return ast.literal_eval(node)

    def _call(self, name: str, node: ast.Call) -> Any:
        args = [self._build(a) for a in node.args]
        if name == "V":
            return VReg(args[0])
        if name == "B":
            return self.names[f"%{args[0]}"]
        keywords = {k.arg or "": self._build(k.value) for k in node.keywords}
        if name == "Pattern":
            args[0] = DTYPES[args[0]]
        if name == "BufferDecl":
            args[1] = Role(args[1])
        return RECORDS[name](*args, **keywords)


def _commas(text: str) -> str:
    """`a=1 b=(2, 3)` with commas between the arguments."""
    return re.sub(r"(?<=[^\s,]) (?=\w+=(?!=))", ", ", text) if text else ""


def _bad(number: int, line: str, problem: str) -> CompileError:
    return CompileError(f"tile IR line {number}: {line.strip()[:100]!r}: {problem}")
