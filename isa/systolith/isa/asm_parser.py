"""The assembler: text to Program.  The syntax is described in `asm.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from systolith.isa.asm_kernel import KernelParser
from systolith.isa.asm_lex import Line
from systolith.isa.chip_schema import SCHEMA, value_of
from systolith.isa.dtypes import DTYPES, ELEMENT_TYPES, DType
from systolith.isa.encode import encode_instruction
from systolith.isa.errors import BinaryError, EncodingError
from systolith.isa.instruction import Instruction, Operand, Reg, Space, Stream, Value
from systolith.isa.json_values import read_json
from systolith.isa.kernel import NSCALARS
from systolith.isa.opcodes import OPCODES, Field, FieldKind
from systolith.isa.pattern import UNBOUNDED, Coord, Pattern
from systolith.isa.program import BufferDecl, GroupInfo, Origin, Probe, Program, Role, TokenDecl

if TYPE_CHECKING:
    from systolith.isa.chip import Chip

T = TypeVar("T")
_REGISTER = re.compile(r"r([0-9]{1,9})")
SPACES = {s.name.lower(): s for s in Space}
DEFAULTS: dict[str, Value] = {
    "transpose": 0,
    "part": 0,
    "integer": 0,
    "accumulate": 0,
    "serial": 0,
    "inner": 0,
    "scalars": (0,) * NSCALARS,
    "streams": (),
}


class Parser:
    """Reads a program line by line; labels are resolved at the end."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.directives: Mapping[str, Callable[[Parser, Line], None]] = DIRECTIVES
        self.program = Program.on(chip, "program")
        self.names: dict[str, dict[str, int]] = {k: {} for k in ("pattern", "kernel", "buffer", "token", "label")}
        self.constants = {n: value_of(chip, n) for n, d in SCHEMA.items() if d.type is int}
        self.registers: dict[str, Reg] = {}
        self.uses: list[tuple[int, str, str, Line, int]] = []  # instruction, field, label, where
        self.begun: Line | None = None  # a line that goes on
        self.kernel: KernelParser | None = None
        self.pattern: dict[str, Any] | None = None

    def feed(self, text: str, number: int) -> None:
        """One line of source; nothing is done with one that goes on until the rest is there."""
        if self.begun is None:
            line = Line(text, number, self.constants)
        else:
            line, self.begun = self.begun, None
            line.extend(text)
        if line.unfinished:
            self.begun = line
        elif not line.done:
            self._line(line)

    def _line(self, line: Line) -> None:
        if self.kernel is not None:
            kernel = self.kernel.feed(line)
            if kernel is not None:
                self._define(line, "kernel", kernel.name, self.program.kernels, kernel)
                self.kernel = None
            return
        if self.pattern is not None and line.take("coord"):
            self.pattern["coords"].append(self._coord(line, len(self.pattern["counts"])))
            return
        self._end_pattern(line)
        directive = self.directives.get(line.peek.text)
        if directive is not None:
            line.next()
            directive(self, line)
        elif line.peek.text.startswith("."):
            line.fail(f"{line.peek.text}: no such directive")
        else:
            self._statement(line)

    def finish(self, number: int) -> Program:
        """The program, labels resolved."""
        end = Line("", number)
        if self.begun is not None:
            self.begun.fail("ends with a comma: must go on", len(self.begun.text))
        self._end_pattern(end)
        if self.kernel is not None:
            self.kernel.head.fail(f"kernel {self.kernel.name}: has no .end", 0)
        for index, field, label, line, column in self.uses:
            if label not in self.names["label"]:
                line.fail(f"{label}: no such label", column)
            self.program.code[index].args[field] = self.names["label"][label]
        if self.program.debug and len(self.program.debug) != len(self.program.code):
            end.fail("either every instruction names its origin (!N), or none")
        return self.program

    def _define(self, line: Line, kind: str, name: str, table: list[Any], value: Any) -> None:
        if name in self.names[kind]:
            line.fail(f"{kind} {name}: defined before", 0)
        self.names[kind][name] = len(table)
        table.append(value)

    def _number(self, line: Line, kind: str) -> int:
        """A name that is defined, or a number."""
        if line.peek.kind == "number":
            return line.integer(f"a {kind}")
        column, name = line.peek.column, line.name(f"a {kind}")
        if name not in self.names[kind]:
            line.fail(f"{name}: no such {kind}", column)
        return self.names[kind][name]

    # Directives

    def _program(self, line: Line) -> None:
        self.program.name = line.name("the program's name")
        line.finish()

    def _chip(self, line: Line) -> None:
        column = line.peek.column
        name, digest = line.name("a chip"), line.name("its digest")
        if digest != self.chip.digest():
            line.fail(f"chip {name} {digest}: this is {self.chip.name} {self.chip.digest()}", column)
        line.finish()

    def _high_water(self, line: Line) -> None:
        self.program.vmem_high_water = line.integer("bytes")
        line.finish()

    def _equ(self, line: Line) -> None:
        """A name for an integer or for a register."""
        name = line.name("a name")
        if name in self.constants or name in self.registers or _REGISTER.fullmatch(name):
            line.fail(f"{name}: defined before", 0)
        value = self._operand(line)
        line.finish()
        if isinstance(value, Reg):
            self.registers[name] = value
        else:
            self.constants[name] = value

    def _token(self, line: Line) -> None:
        name, producer = line.name("a token's name"), line.name("the producer's queue")
        line.expect("->")
        self._define(line, "token", name, self.program.tokens, TokenDecl(producer, line.name("the consumer's queue")))
        line.finish()

    def _buffer(self, line: Line) -> None:
        name = line.name("a buffer's name")
        column, role = line.peek.column, line.name("a role")
        if role not in list(Role):
            line.fail(f"role {role}: must be one of {', '.join(Role)}", column)
        dtype = self._dtype(line, ELEMENT_TYPES)
        dims = self._list(line, "[", "]", lambda: line.integer("a dimension"))
        settings: dict[str, Any] = {"name": name, "number": -1, "alias": -1, "sizes": (), "data": b"", "bytes": None}
        settings |= {"config": "", "offset": 0, "stack": 1}
        while (key := line.keyword()) is not None:
            if key not in settings:
                line.fail(f"{key}: unknown setting of a buffer")
            if key == "data":
                settings[key] = self._hex(line)
            elif key in ("name", "config"):
                settings[key] = line.name(f"a {key}")
            elif key == "sizes":
                settings[key] = self._list(line, "[", "]", lambda: line.integer("a number"))
            else:
                settings[key] = self._number(line, "buffer") if key == "alias" else line.integer(key)
        if settings["bytes"] is None:
            settings["bytes"] = ELEMENT_TYPES[dtype].size
            for d in dims:
                settings["bytes"] *= d
        line.finish()
        decl = BufferDecl(role=Role(role), dtype=dtype, dims=dims, **settings)
        self._define(line, "buffer", name, self.program.buffers, decl)

    def _hex(self, line: Line) -> bytes:
        column, text = line.peek.column, line.name("bytes in hexadecimal, in quotes")
        while line.take(","):
            text += line.name("bytes in hexadecimal, in quotes")
        try:
            return bytes.fromhex(text)
        except ValueError:
            line.fail("expected bytes in hexadecimal, in quotes", column)

    def _dtype(self, line: Line, known: Mapping[str, DType] = DTYPES) -> str:
        column, name = line.peek.column, line.name("an element type")
        if name not in known:
            line.fail(f"{name}: no such element type", column)
        return name

    def _pattern_head(self, line: Line) -> None:
        name, dtype = line.name("a pattern's name"), DTYPES[self._dtype(line)]
        self.pattern = {"name": name, "dtype": dtype, "counts": (), "strides": (), "coords": [], "line": line}
        while (key := line.keyword()) is not None:
            if key in ("counts", "strides"):
                self.pattern[key] = self._list(line, "(", ")", lambda: line.integer("an integer"))
            elif key == "fill":
                self.pattern[key] = line.image("fill")
            elif key == "indirect":
                self.pattern[key] = line.integer("a loop")
            else:
                line.fail(f"{key}: unknown setting of a pattern")
        line.finish()

    def _coord(self, line: Line, loops: int) -> Coord:
        values: dict[str, Any] = {"coefs": (0,) * loops, "lo": UNBOUNDED[0], "hi": UNBOUNDED[1]}
        while (key := line.keyword()) is not None:
            if key == "coefs":
                values[key] = self._list(line, "(", ")", lambda: line.integer("an integer"))
            elif key in ("offset", "lo", "hi", "div", "stride", "bias"):
                values[key] = line.integer(key)
            else:
                line.fail(f"{key}: unknown setting of a coordinate")
        line.finish()
        return Coord(**values)

    def _end_pattern(self, line: Line) -> None:
        if self.pattern is None:
            return
        values, self.pattern = self.pattern, None
        name, at = values.pop("name"), values.pop("line")
        try:
            pattern = Pattern(**{**values, "coords": tuple(values["coords"])})
        except ValueError as e:
            at.fail(str(e), 0)
        self._define(at, "pattern", name, self.program.patterns, pattern)

    def _kernel_head(self, line: Line) -> None:
        self.kernel = KernelParser(line, self.chip)

    def _origin(self, line: Line) -> None:
        hlo, group, what = (line.name("text in quotes") for _ in range(3))
        macs = line.integer("multiply-accumulates")
        expected = -1 if line.done else line.integer("an expected word")
        self.program.origins.append(Origin(hlo, group, what, macs, expected))
        line.finish()

    def _json(self, line: Line, kind: type[T]) -> T:
        column, text = line.peek.column, line.name("JSON in quotes")
        line.finish()
        try:
            return read_json(text, kind)
        except BinaryError as e:
            line.fail(str(e), column)

    def _group(self, line: Line) -> None:
        self.program.groups.append(self._json(line, GroupInfo))

    def _probe(self, line: Line) -> None:
        self.program.probes.append(self._json(line, Probe))

    # Instructions

    def _statement(self, line: Line) -> None:
        while line.peek.kind == "name" and line.tokens[line.at + 1].text == ":":
            label = line.next().text
            line.next()
            if label in self.names["label"]:
                line.fail(f"label {label}: defined before", 0)
            self.names["label"][label] = len(self.program.code)
        if line.done:
            return
        fence = line.take("fence")
        column, name = line.peek.column, line.name("an instruction")
        op = OPCODES.get(name)
        if op is None:
            line.fail(f"{name}: no such instruction", column)
        unit = line.integer("a unit") if line.take("@") else 0
        args = self._args(line, op.fields)
        waits = self._tokens(line, "wait")
        signals = self._tokens(line, "signal")
        if line.take("!"):
            self.program.debug.append(line.integer("an origin"))
        line.finish()
        instr = Instruction(name, args, unit, waits, signals, fence)
        try:
            encode_instruction(instr)
        except EncodingError as e:
            line.fail(str(e), column)
        self.program.code.append(instr)

    def _tokens(self, line: Line, verb: str) -> tuple[int, ...]:
        if not line.take(verb):
            return ()
        tokens = [self._number(line, "token")]
        while line.take(","):
            tokens.append(self._number(line, "token"))
        return tuple(tokens)

    def _args(self, line: Line, fields: tuple[Field, ...]) -> dict[str, Value]:
        """Arguments by position, then by name; those in DEFAULTS may be left out."""
        given: dict[str, Value] = {}
        waiting = list(fields)
        while not line.done and line.peek.text not in ("wait", "signal", "!"):
            column, key = line.peek.column, line.keyword()
            match = [f for f in waiting if key in (None, f.name)]
            if not match:
                line.fail(
                    f"{key or line.peek.text}: unexpected; still open: {', '.join(f.name for f in waiting)}", column
                )
            given[match[0].name] = self._value(line, match[0])
            waiting.remove(match[0])
            if not line.take(","):
                break
        missing = [f.name for f in waiting if f.name not in DEFAULTS]
        if missing:
            line.fail(f"missing: {', '.join(missing)}")
        return {f.name: given.get(f.name, DEFAULTS.get(f.name, 0)) for f in fields}

    def _value(self, line: Line, f: Field) -> Value:
        match f.kind:
            case FieldKind.STREAM:
                return self._stream(line)
            case FieldKind.STREAMS:
                return self._list(line, "(", ")", lambda: self._stream(line))
            case FieldKind.COUNTS:
                return self._list(line, "(", ")", lambda: line.integer("a count"))
            case FieldKind.SCALARS:
                return self._list(line, "(", ")", lambda: self._operand(line, image=True))
            case FieldKind.CHOICE:
                return line.name(f.name)
            case FieldKind.REG | FieldKind.OPERAND:
                return self._operand(line)
            case FieldKind.SINT | FieldKind.UINT | FieldKind.TARGET:
                return self._integer(line, f)

    def _integer(self, line: Line, f: Field) -> int:
        if f.name == "kernel":
            return self._number(line, "kernel")
        if f.name in ("target", "end") and line.peek.kind != "number":
            token = line.peek
            self.uses.append((len(self.program.code), f.name, line.name("a label"), line, token.column))
            return 0
        return line.integer(f.name)

    def _list(self, line: Line, opening: str, closing: str, item: Callable[[], Any]) -> tuple[Any, ...]:
        line.expect(opening)
        items: list[Any] = []
        while not line.take(closing):
            items.append(item())
            if not line.take(",") and line.peek.text != closing:
                line.fail(f"expected ',' or {closing!r}")
        return tuple(items)

    def _operand(self, line: Line, image: bool = False) -> Operand:
        m = _REGISTER.fullmatch(line.peek.text)
        if m is not None or line.peek.text in self.registers:
            name = line.next().text
            return Reg(int(m[1])) if m else self.registers[name]
        return line.image("an operand") if image else line.integer("an operand or register")

    def _stream(self, line: Line) -> Stream:
        """space(buffer, entry)[base]:pattern, then bias=(a, b) and index=a, as far as they are not 0."""
        column, name = line.peek.column, line.name("a space")
        if name not in SPACES:
            line.fail(f"{name}: no such space: {', '.join(SPACES)}", column)
        space, buffer, base = SPACES[name], 0, 0
        values: dict[str, Any] = {}
        if line.take("("):
            buffer = self._number(line, "buffer") if space is Space.HBM else line.integer(f"the number of {name}")
            if line.take(","):
                column = line.peek.column
                values["entry"] = self._operand(line)
                if not isinstance(values["entry"], Reg):
                    line.fail("an entry of a stack: must be a register", column)
            line.expect(")")
        if line.take("["):
            values["base"] = self._operand(line)
            line.expect("]")
        else:
            values["base"] = base
        line.expect(":")
        pattern = self._number(line, "pattern")
        while line.peek.text in ("bias", "index"):
            key = line.keyword()
            if key == "bias":
                values[key] = self._list(line, "(", ")", lambda: self._operand(line))
            elif key == "index":
                values[key] = self._operand(line)
            else:
                line.fail("expected bias=(a, b) or index=a")
        if len(values.get("bias", (0, 0))) != 2:
            line.fail("bias: must be two operands")
        return Stream(space, pattern, buffer=buffer, **values)


DIRECTIVES: dict[str, Callable[[Parser, Line], None]] = {
    ".program": Parser._program,
    ".chip": Parser._chip,
    ".vmem_high_water": Parser._high_water,
    ".equ": Parser._equ,
    ".token": Parser._token,
    ".buffer": Parser._buffer,
    ".pattern": Parser._pattern_head,
    ".kernel": Parser._kernel_head,
    ".origin": Parser._origin,
    ".group": Parser._group,
    ".probe": Parser._probe,
}
