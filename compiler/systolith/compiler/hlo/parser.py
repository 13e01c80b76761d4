"""HLO text to a `Module`.

The grammar is XLA's printed form, as JAX and XLA dumps show it: with or without `%`, with or without signatures, with
operand shapes repeated or not.  Opcodes must be XLA's; attributes that are not known are kept as text.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from systolith.compiler.hlo.attributes import Attribute, ComputationName
from systolith.compiler.hlo.codecs import codec
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction, Module, Style
from systolith.compiler.hlo.lexer import Cursor
from systolith.compiler.hlo.literals import parse_literal
from systolith.compiler.hlo.opcodes import operand_limits
from systolith.compiler.hlo.shape import Shape

_TABLES = re.compile(r"(?:(?:FileNames|FunctionNames|FileLocations|StackFrames)[ \t]*\n(?:\d+ [^\n]*\n)*\n*)+")
_BARE_NAME = re.compile(r"%?([A-Za-z_][\w.\-]*)\s*(?=[,)])")


def parse_hlo(text: str, name: str = "<string>") -> Module:
    """Parse the text of an HLO module.

    Args:
        text: the text; only its syntax, names and literals are checked here, shapes by `verifier.verify`.
        name: name of the file, for messages.

    Raises:
        HloError: the text is no HLO module; says where and what was expected.
    """
    return _Parser(text, name).module()


class _Parser:
    """One pass over the text; computations named before they stand are resolved at the end."""

    def __init__(self, text: str, file: str) -> None:
        self.cursor = Cursor(text, file)
        self.computations: dict[str, Computation] = {}
        self.references: list[tuple[Instruction, str, int]] = []
        self.names: dict[str, Instruction] = {}
        self.percent = False
        self.signatures = False

    def module(self) -> Module:
        cursor = self.cursor
        if cursor.ended:
            raise cursor.error("expected an HLO module, but the text is empty")
        if not cursor.accept_word("HloModule"):
            cursor.fail("'HloModule' at the start of an HLO module")
        module = Module(cursor.name("the module's name"), source=cursor.map)
        self._attributes(module.attributes)
        if tables := _TABLES.match(cursor.text, cursor.pos):
            module.preamble = tables.group()
            cursor.pos = tables.end()
            cursor.skip()
        entries = self._computations()
        self._resolve()
        module.computations = list(self.computations.values())
        module.entry = self._entry(entries)
        module.style = Style(self.percent, self.signatures)
        return module

    def _entry(self, entries: list[Computation]) -> Computation:
        if len(entries) == 1:
            return entries[0]
        if not entries and len(self.computations) == 1:
            return next(iter(self.computations.values()))
        count = f"{len(entries)} computations are" if entries else "no computation is"
        raise self.cursor.error(f"{count} marked ENTRY; a module has exactly one")

    def _computations(self) -> list[Computation]:
        entries: list[Computation] = []
        while not self.cursor.ended:
            is_entry = self.cursor.accept_word("ENTRY")
            computation = self._computation()
            if is_entry:
                entries.append(computation)
        if not self.computations:
            self.cursor.fail("a computation")
        return entries

    def _computation(self) -> Computation:
        cursor = self.cursor
        start = cursor.pos
        self.percent |= cursor.at("%")
        name = cursor.name("a computation such as ENTRY main {")
        if name in self.computations:
            raise cursor.error(f"computation {name!r} is there already", start)
        computation = Computation(name, line=cursor.map.line(start))
        signature = self._signature()
        cursor.expect("{", f"to start computation {name!r}")
        self.names = {}
        while not cursor.accept("}"):
            if cursor.ended:
                cursor.fail(f"'}}' to end computation {name!r}")
            self._instruction(computation)
        if not computation.instructions:
            raise cursor.error(f"computation {name!r} has no instructions", start)
        if signature is not None:
            self._check_signature(computation, signature, start)
        self._attributes(computation.attributes)
        self.computations[name] = computation
        return computation

    def _signature(self) -> tuple[list[Shape], Shape] | None:
        cursor = self.cursor
        if not cursor.at("("):
            return None
        self.signatures = True
        cursor.expect("(", "to start a signature")
        parameters: list[Shape] = []
        while not cursor.accept(")"):
            if parameters:
                cursor.expect(",", "or ')' in a signature")
            cursor.name("the name of a parameter")
            cursor.expect(":", "after the name of a parameter")
            parameters.append(cursor.shape("the shape of a parameter"))
        cursor.expect("->", "after the parameters of a signature")
        return parameters, cursor.shape("the shape of the result")

    def _check_signature(self, computation: Computation, signature: tuple[list[Shape], Shape], start: int) -> None:
        parameters, result = signature
        found = [p.shape for p in computation.parameters]
        if len(found) != len(parameters) or not all(a.same(b) for a, b in zip(found, parameters, strict=True)):
            stated, actual = (", ".join(map(str, shapes)) for shapes in (parameters, found))
            raise self.cursor.error(
                f"the signature of {computation.name!r} states parameters ({stated}), its body has ({actual})", start
            )
        if not computation.result.shape.same(result):
            raise self.cursor.error(
                f"the signature of {computation.name!r} states result {result}, "
                f"its root has {computation.result.shape}",
                start,
            )

    def _instruction(self, computation: Computation) -> None:
        cursor = self.cursor
        start = cursor.pos
        is_root = cursor.accept_word("ROOT")
        self.percent |= cursor.at("%")
        name = cursor.name("an instruction such as x = f32[2] add(a, b)")
        if name in self.names:
            before = self.names[name].line
            raise cursor.error(f"instruction {name!r} is there already, on line {before}", start)
        cursor.expect("=", f"after the name {name!r}")
        shape = cursor.shape(f"the shape of {name!r}")
        at_opcode = cursor.pos
        opcode = cursor.word("an opcode")
        instruction = Instruction(name, opcode, shape, line=cursor.map.line(start))
        cursor.expect("(", f"after {opcode}")
        self._arguments(instruction)
        self._check_operand_count(instruction, at_opcode)
        if cursor.at(","):
            self._attributes(instruction.attributes, instruction)
        if is_root and computation.root is not None:
            raise cursor.error(f"computation {computation.name!r} has a ROOT already, {computation.root.name!r}", start)
        if is_root:
            computation.root = instruction
        self.names[name] = instruction
        computation.instructions.append(instruction)

    def _arguments(self, instruction: Instruction) -> None:
        cursor = self.cursor
        if instruction.opcode == "parameter":
            instruction.number = cursor.integer("the number of a parameter")
            cursor.expect(")", "after the number of a parameter")
        elif instruction.opcode == "constant":
            instruction.literal = parse_literal(cursor, instruction.shape)
            cursor.expect(")", "after the value of a constant")
        else:
            self._operands(instruction)

    def _operands(self, instruction: Instruction) -> None:
        cursor = self.cursor
        operands = instruction.operands
        while not cursor.accept(")"):
            if operands:
                cursor.expect(",", f"or ')' in the operands of {instruction.opcode}")
            start = cursor.pos
            stated: Shape | None = None
            found = cursor.match(_BARE_NAME)
            if found:
                name = found.group(1)
            else:
                stated = cursor.shape("the shape of an operand") if cursor.at_shape() else None
                start = cursor.pos
                name = cursor.name("the name of an operand")
            operand = self.names.get(name)
            if operand is None:
                raise self._undefined(name, start)
            if stated is not None and not stated.same(operand.shape):
                raise cursor.error(f"operand {name!r} is stated as {stated}, but it has shape {operand.shape}", start)
            operands.append(operand)

    def _undefined(self, name: str, start: int) -> HloError:
        near = get_close_matches(name, self.names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return self.cursor.error(f"operand {name!r} is not defined above in this computation{hint}", start)

    def _check_operand_count(self, instruction: Instruction, start: int) -> None:
        fewest, most = operand_limits(instruction.opcode)
        count = len(instruction.operands)
        if count < fewest or (most is not None and count > most):
            wanted = str(fewest) if most == fewest else f"{fewest} or more" if most is None else f"{fewest} to {most}"
            raise self.cursor.error(f"{instruction.opcode} takes {wanted} operands, got {count}", start)

    def _attributes(self, into: dict[str, Attribute], instruction: Instruction | None = None) -> None:
        """`, key=value, key=value`."""
        cursor = self.cursor
        while cursor.accept(","):
            start = cursor.pos
            key = cursor.word("an attribute such as dimensions={0}")
            if key in into:
                raise cursor.error(f"attribute {key!r} is there twice", start)
            cursor.expect("=", f"after the attribute {key!r}")
            value = codec(key).parse(cursor)
            into[key] = value  # type: ignore[assignment]
            if instruction is not None and _names_computations(value):
                self.references.append((instruction, key, start))

    def _resolve(self) -> None:
        for instruction, key, start in self.references:
            value = instruction.attributes[key]
            if isinstance(value, ComputationName):
                instruction.attributes[key] = self._find(value, start)
            elif isinstance(value, tuple):
                instruction.attributes[key] = tuple(self._find(str(name), start) for name in value)

    def _find(self, name: str, start: int) -> Computation:
        if name not in self.computations:
            near = get_close_matches(name, self.computations, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise self.cursor.error(f"computation {name!r} is not defined{hint}", start)
        return self.computations[name]


def _names_computations(value: object) -> bool:
    if isinstance(value, ComputationName):
        return True
    return isinstance(value, tuple) and any(isinstance(item, ComputationName) for item in value)
