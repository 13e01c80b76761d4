"""HLO text to a `Module`.

The grammar is that of `xla/hlo/parser/hlo_parser.cc`: a module with a header or without, or one instruction alone;
names with or without `%`; shapes of operands and results stated or left out; operands and computations written in
place.  Names, attributes and literals are checked here, the rules of shapes by `verifier.py`.
"""

from __future__ import annotations

import re
from collections.abc import Container
from difflib import get_close_matches

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module, Style
from systolith.compiler.hlo.lexer import MAX_NESTING, NAME
from systolith.compiler.hlo.opcodes import NEEDS_SHAPE, is_known, operand_limits, suggestion
from systolith.compiler.hlo.rules.shapes import infer
from systolith.compiler.hlo.shape import ARRAY, TOKEN, Shape, at_shape, parse_shape
from systolith.compiler.hlo.text import opcode_attributes as known
from systolith.compiler.hlo.text.async_sugar import AsyncForms
from systolith.compiler.hlo.text.codecs import CODECS, AttributeCursor
from systolith.compiler.hlo.text.literals import parse_constant
from systolith.compiler.hlo.text.stack_frames import parse_stack_frames
from systolith.isa.checked import checked

# The usual forms of an instruction's head and operands; others are read token by token.
_HEAD = re.compile(
    rf"(ROOT )?(%?)({NAME}) = ({ARRAY}|\((?:{ARRAY}(?:, (?:/\*index=\d+\*/)?{ARRAY})*)?\)) ([a-z][a-z0-9\-]*)\(",
    re.ASCII,
)
_OPERANDS = re.compile(rf"(%?{NAME}(?:, (?:/\*index=\d+\*/)?%?{NAME})*)?\)", re.ASCII)
_INDEX = re.compile(r"/\*index=\d+\*/")
_ALONE = re.compile(rf"(?:ROOT[ \t\r\n]+)?%?{NAME}[ \t\r\n]*=", re.ASCII)
_KEY = re.compile(rf",[ ]({NAME})=", re.ASCII)
_BODY = re.compile(rf"%?{NAME}(?:[ \t\r\n]|/\*.*?\*/)*\{{", re.ASCII)


@checked
def parse_hlo(text: str, name: str = "<string>", left_out: bool = False) -> Module:
    """Parse HLO text.

    Args:
        text: a module, with its header or without; or one instruction, whose operands become parameters.
        name: name of the file, for messages.
        left_out: take constants whose values are left out (`{...}`): they have no `literal`, and no value.

    Raises:
        HloError: the text is not HLO; names the place and the expected token.
    """
    return _Parser(text, name, left_out).module()


class _Parser(AttributeCursor):
    """One pass over the text; operands stand above their users, computations anywhere."""

    def __init__(self, text: str, file: str, left_out: bool) -> None:
        super().__init__(text, file)
        self.left_out = left_out
        self.order: list[Computation] = []
        self.unnamed: list[Computation] = []
        self.computations: dict[str, Computation] = {}
        self.promised: dict[str, tuple[Computation, int]] = {}
        self.here = Computation("")
        self.names: dict[str, Instruction] = {}
        self.shapes: dict[str, Shape] = {}
        self.taken: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.depth = 0
        self.alone: Computation | None = None
        self.forms = AsyncForms(self)
        self.percent = self.signatures = self.operand_shapes = self.operand_comments = False

    def module(self) -> Module:
        if self.ended:
            raise self.error("expected an HLO module, but the text is empty")
        module = Module("")
        if self.accept_word("HloModule"):
            module.name = self.name("the module's name")
            self._attributes(module.attributes, "a module", known.MODULE)
            module.preamble = parse_stack_frames(self)
            module.entry = self._computations()
        elif _BODY.match(self.text, self.pos) or self.at("ENTRY"):
            module.entry = self._computations()
            module.name = f"module_{module.entry.name}"
        elif _ALONE.match(self.text, self.pos) or at_shape(self):
            module.name = "_"
            module.attributes["is_scheduled"] = True
            module.entry = self._instruction_alone()
        else:
            self.fail("'HloModule' at the start of an HLO module")
        for name, (_, start) in self.promised.items():
            raise self.error(f"computation {name!r} is not defined{_hint(name, self.computations)}", start)
        for computation in self.unnamed:
            computation.name = self._free(computation.name, self.computations)
            self.computations[computation.name] = computation
        module.computations = self.order
        module.style = Style(
            self.percent, self.signatures, self.operand_shapes, self.operand_comments, self.forms.sugar
        )
        return module

    def _computations(self) -> Computation:
        """All computations; the one that is marked ENTRY, or else the last."""
        entry: Computation | None = None
        last: Computation | None = None
        while not self.ended:
            start = self.pos
            is_entry = self.accept_word("ENTRY")
            last = self._computation()
            if is_entry and entry is not None:
                raise self.error(f"{entry.name!r} is marked ENTRY already; a module has exactly one", start)
            entry = last if is_entry else entry
        if last is None:
            self.fail("a computation")
        return entry or last

    def _instruction_alone(self) -> Computation:
        """`f32[2] add(f32[2] x, f32[2])`, with a name or not: its operands become parameters."""
        self.alone = self.here = self.computations["_"] = entry = Computation("_", line=1)
        named = not at_shape(self)
        root = self._instruction() if named else self._right_side("_", self.pos)
        if not self.ended:
            self.fail("the end of the text after one instruction; a module starts with HloModule")
        entry.root = root
        self.order.append(entry)
        return entry

    def _computation(self) -> Computation:
        start = self.pos
        self.percent |= self.at("%")
        name = self.name("a computation such as ENTRY main {")
        if name in self.computations:
            raise self.error(f"computation {name!r} is there already", start)
        computation, _ = self.promised.pop(name, (Computation(name), start))
        self.computations[name] = computation
        computation.line = self.map.line(start)
        result = self._signature()
        self._body(computation, start)
        if result is not None and not computation.result.shape.same(result):
            stated, actual = result, computation.result.shape
            raise self.error(f"the signature of {name!r} states result {stated}, its root has {actual}", start)
        self._attributes(computation.attributes, "a computation", known.COMPUTATION)
        self.order.append(computation)
        return computation

    def _signature(self) -> Shape | None:
        """The result's shape in `(x: f32[2], y: s32[]) -> f32[2]`; as in XLA the parameters are not looked at."""
        if not self.at("("):
            return None
        self.signatures = True
        self.expect("(", "to start a signature")
        count = 0
        while not self.accept(")"):
            if count:
                self.expect(",", "or ')' in a signature")
            self.name("the name of a parameter")
            self.accept(":")
            parse_shape(self, "the shape of a parameter")
            count += 1
        self.expect("->", "after the parameters of a signature")
        return parse_shape(self, "the shape of the result")

    def _body(self, computation: Computation, start: int) -> None:
        """`{ instructions }`."""
        outer = self.here, self.names
        self.here, self.names = computation, {}
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.error(f"computations nest deeper than {MAX_NESTING}", start)
        self.expect("{", f"to start computation {computation.name!r}")
        while not self.accept("}"):
            if self.ended:
                self.fail(f"'}}' to end computation {computation.name!r}")
            self._instruction()
        if not computation.instructions:
            raise self.error(f"computation {computation.name!r} has no instructions", start)
        self.depth -= 1
        self.here, self.names = outer

    def _instruction(self) -> Instruction:
        """`ROOT name = shape opcode(operands), attributes`."""
        start = self.pos
        found = _HEAD.match(self.text, start)
        shape: Shape | None
        if found:
            is_root, name = bool(found[1]), found[3]
            self.percent |= bool(found[2])
            shape = self._cached_shape(found)
            at_opcode, opcode = found.start(5), found[5]
            self.pos = found.end()
        else:
            is_root = self.accept_word("ROOT")
            self.percent |= self.at("%")
            name = self.name("an instruction such as x = f32[2] add(a, b)")
            self.expect("=", f"after the name {name!r}")
            shape, at_opcode, opcode = self._shape_and_opcode()
        if name in self.names:
            raise self.error(f"instruction {name!r} is there already, on line {self.names[name].line}", start)
        if is_root and self.here.root is not None:
            raise self.error(f"computation {self.here.name!r} has a ROOT already, {self.here.root.name!r}", start)
        made = self._finish(name, opcode, shape, start, at_opcode)
        if is_root:
            self.here.root = made
        return made

    def _cached_shape(self, found: re.Match[str]) -> Shape:
        text = found[4]
        shape = self.shapes.get(text)
        if shape is None:
            self.pos = found.start(4)
            shape = self.shapes[text] = parse_shape(self, "the shape of an instruction")
        return shape

    def _shape_and_opcode(self) -> tuple[Shape | None, int, str]:
        """`f32[2] add(`; the shape may be left out."""
        shape = parse_shape(self, "the shape of an instruction") if at_shape(self) else None
        at_opcode = self.pos
        opcode = self.word("an opcode")
        if not self.at("("):
            self.fail(f"'(' after {opcode}")
        self.pos += 1
        return shape, at_opcode, opcode

    def _right_side(self, name: str, start: int, attributes: bool = True) -> Instruction:
        """An instruction without its name."""
        shape, at_opcode, opcode = self._shape_and_opcode()
        return self._finish(name, opcode, shape, start, at_opcode, attributes)

    def _finish(
        self, name: str, opcode: str, shape: Shape | None, start: int, at_opcode: int, attributes: bool = True
    ) -> Instruction:
        """The instruction whose arguments start here; operands written in place go before it."""
        if not is_known(opcode):
            raise self.error(f"XLA has no operation {opcode!r}{suggestion(opcode)}", at_opcode)
        if shape is None and opcode in NEEDS_SHAPE:
            raise self.error(f"{opcode} needs its shape stated: {name} = f32[2] {opcode}(...)", at_opcode)
        made = Instruction(name, opcode, shape or TOKEN, line=self.map.line(start))
        self._arguments(made)
        fewest, most = operand_limits(opcode)
        count = len(made.operands)
        if count < fewest or (most is not None and count > most):
            wanted = str(fewest) if most == fewest else f"{fewest} or more" if most is None else f"{fewest} to {most}"
            raise self.error(f"{opcode} takes {wanted} operands, got {count}", at_opcode)
        if self.forms.concerns(opcode):
            made = self.forms.read(made, at_opcode)
        else:
            if attributes and self.at(","):
                self._attributes(made.attributes, opcode, known.allowed(opcode))
            self._check_required(made, at_opcode)
        if shape is None:
            made.shape = self._inferred(made, at_opcode)
        name = made.name = name or self._free(f"{opcode}.anon", self.taken)
        self.taken.add(name)
        self.names[name] = made
        self.here.instructions.append(made)
        return made

    def _inferred(self, made: Instruction, at: int) -> Shape:
        try:
            return infer(made)
        except HloError as problem:
            raise self.error(f"{made.opcode} states no shape, and it cannot be told: {problem.message}", at) from None

    def _arguments(self, made: Instruction) -> None:
        """Parse the operands between the brackets behind an opcode, and the closing one."""
        found = _OPERANDS.match(self.text, self.pos)
        if made.opcode == "parameter":
            self._number(made)
        elif made.opcode == "constant":
            self.skip()
            made.literal = parse_constant(self, made.shape, self.left_out)
            self.expect(")", "after the value of a constant")
        elif found and self.here is not self.alone:
            if found[1]:
                listed = found[1]
                if "/" in listed:
                    self.operand_comments = True
                    listed = _INDEX.sub("", listed)
                names = listed.replace("%", "").split(", ")
                try:
                    made.operands = list(map(self.names.__getitem__, names))
                except KeyError:
                    self._operands(made)
                    return
            self.pos = found.end()
            self.skip()
        else:
            self._operands(made)

    def _number(self, made: Instruction) -> None:
        self.skip()
        start = self.pos
        number = self.integer("the number of a parameter")
        if number < 0:
            raise self.error(f"the number of a parameter is 0 or more, got {number}", start)
        made.number = number
        self.expect(")", "after the number of a parameter")

    def _operands(self, made: Instruction) -> None:
        self.skip()
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.error(f"operands nest deeper than {MAX_NESTING}")
        while not self.accept(")"):
            if made.operands:
                self.operand_comments |= self.at(", /*index=")
                self.expect(",", f"or ')' in the operands of {made.opcode}")
            made.operands.append(self._operand())
        self.depth -= 1

    def _operand(self) -> Instruction:
        """A name, with its shape or not; or an instruction written in place."""
        start = self.pos
        stated = parse_shape(self, "the shape of an operand") if at_shape(self) else None
        at = self.pos
        if stated is not None and self.here is self.alone and (self.at(",") or self.at(")")):
            return self._parameter("", stated)
        name = self.name("the name of an operand")
        if self.at("(") and not self.text.startswith("%", at):
            self.pos = start
            return self._right_side("", start, attributes=False)
        operand = self.names.get(name)
        if operand is None:
            if stated is not None and self.here is self.alone:
                return self._parameter(name, stated)
            raise self.error(f"operand {name!r} is not defined above in this computation{_hint(name, self.names)}", at)
        if stated is not None:
            self.operand_shapes = True
            if not stated.same(operand.shape):
                raise self.error(f"operand {name!r} is stated as {stated}, but it has shape {operand.shape}", at)
        return operand

    def _parameter(self, name: str, shape: Shape) -> Instruction:
        """An operand of an instruction that stands alone."""
        number = self.numbers["parameter"] = self.numbers.get("parameter", -1) + 1
        made = Instruction(name or f"_{number}", "parameter", shape, number=number, line=self.map.line(self.pos))
        self.names[made.name] = made
        self.here.instructions.append(made)
        return made

    def instruction(self, what: str) -> Instruction:
        start = self.pos
        name = self.name(what)
        if name not in self.names:
            hint = _hint(name, self.names)
            raise self.error(f"instruction {name!r} is not defined above in this computation{hint}", start)
        return self.names[name]

    def computation(self) -> Computation:
        start = self.pos
        if self.at("{"):
            made = Computation("_", line=self.map.line(start))
            self._body(made, start)
            self.add(made)
            return made
        name = self.name("the name of a computation")
        if name in self.computations:
            return self.computations[name]
        # XLA wants callees above their callers; texts that passes or people write may have them below.
        return self.promised.setdefault(name, (Computation(name), start))[0]

    def add(self, computation: Computation) -> None:
        """A computation that has no name in the text; its own is made unique when all are known."""
        self.unnamed.append(computation)
        self.order.append(computation)

    def _free(self, stem: str, taken: Container[str]) -> str:
        """`stem`, or `stem.N` with the first N from that of the last time that is not taken, as in XLA."""
        number = self.numbers.get(stem, 0)
        while (name := f"{stem}.{number}" if number else stem) in taken:
            number += 1
        self.numbers[stem] = number
        return name

    def _attributes(self, into: dict[str, Attribute], of: str, allowed: frozenset[str]) -> None:
        """`, key=value, key=value`."""
        while True:
            found = _KEY.match(self.text, self.pos)
            if found:
                key, start = found[1], found.start(1)
                self.pos = found.end()
                if self.text[self.pos : self.pos + 1] in " /\n\r\t":
                    self.skip()
            elif self.accept(","):
                start = self.pos
                key = self.word("an attribute such as dimensions={0}")
                self.expect("=", f"after the attribute {key!r}")
            else:
                return
            if key in into:
                raise self.error(f"attribute {key!r} is there twice", start)
            if key not in allowed:
                raise self.error(known.unknown(key, of, allowed), start)
            into[key] = CODECS[key].parse(self)  # type: ignore[assignment]

    def read_attributes(self, into: dict[str, Attribute], of: str, allowed: frozenset[str]) -> None:
        """The attributes of an instruction, for `AsyncForms`."""
        self._attributes(into, of, allowed)

    def _check_required(self, made: Instruction, at: int) -> None:
        required = known.REQUIRED.get(made.opcode, frozenset[str]())
        if made.opcode == "broadcast" and made.operands[0].shape.rank:
            required = frozenset({"dimensions"})
        elif made.opcode == "conditional":
            required = self._branches(made, at)
        if missing := required - made.attributes.keys():
            raise self.error(f"{made.opcode} has no attribute {min(missing)!r}, which it needs", at)

    def _branches(self, made: Instruction, at: int) -> frozenset[str]:
        """The attributes that a conditional needs: by a predicate two computations, by an index a list."""
        index = made.operands[0].shape
        if not index.is_array or index.rank or index.dtype.name not in ("pred", "s32"):
            raise self.error(f"the first operand of a conditional is a scalar pred or s32, got {index}", at)
        if index.dtype.name == "pred":
            return frozenset({"true_computation", "false_computation"})
        return frozenset({"branch_computations"})


def _hint(name: str, names: dict[str, Instruction] | dict[str, Computation]) -> str:
    near = get_close_matches(name, list(names)[-1000:], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
