"""The short form of asynchronous operations: `slice-start(x), slice={[0:4]}` for an `async-start` of a computation.

In memory there is only the long form: `async-start` with `calls`, a computation of parameters and one operation, and
`async-update` and `async-done` without.  Printing gives the short form where the text had it.
Source: `hlo_parser.cc` (`kAsyncStart`), `CanExpandIntoSingleInstruction` of `hlo_computation.cc`.
"""

from __future__ import annotations

from typing import Protocol

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction
from systolith.compiler.hlo.opcodes import async_parts
from systolith.compiler.hlo.text.opcode_attributes import COMMON, REQUIRED, allowed

_OF_START = COMMON | {"async_execution_thread", "output_to_operand_aliasing", "async_group_id"}


class _Reader(Protocol):
    """The interface of this module to the parser."""

    def error(self, message: str, at: int | None = None) -> HloError: ...
    def add(self, computation: Computation) -> None: ...
    def read_attributes(self, into: dict[str, Attribute], of: str, allowed: frozenset[str]) -> None: ...


class AsyncForms:
    """Reads asynchronous instructions.

    Attributes:
        sugar: whether the text has a short form.
    """

    def __init__(self, reader: _Reader) -> None:
        self.reader = reader
        self.sugar = False
        self.starts: dict[Computation, Instruction] = {}
        self.ends: dict[Instruction, Computation] = {}

    @staticmethod
    def concerns(opcode: str) -> bool:
        """Whether the opcode is one of the long form or the short one."""
        return async_parts(opcode) is not None

    def read(self, made: Instruction, at: int) -> Instruction:
        """Complete an instruction of which opcode, shape and operands are read, and give it the long form's opcode."""
        parts = async_parts(made.opcode)
        assert parts is not None
        spelled, (wrapped, made.opcode) = made.opcode, parts
        self.sugar |= bool(wrapped)
        if made.opcode == "async-start":
            self._start(made, wrapped, spelled, at)
        else:
            self._continue(made, wrapped, spelled, at)
        return made

    def _start(self, made: Instruction, wrapped: str, spelled: str, at: int) -> None:
        elements = made.shape.elements
        if not made.shape.is_tuple or len(elements) < 2 or not elements[0].is_tuple:
            raise self.reader.error(f"{spelled} has the shape ((operands), result, state...), got {made.shape}", at)
        if not wrapped:
            self.reader.read_attributes(made.attributes, spelled, allowed("async-start"))
            if "calls" not in made.attributes:
                raise self.reader.error(f"{spelled} has no attribute 'calls', which it needs", at)
        else:
            found: dict[str, Attribute] = {}
            self.reader.read_attributes(found, spelled, allowed(wrapped) | _OF_START)
            if missing := REQUIRED.get(wrapped, frozenset()) - found.keys():
                raise self.reader.error(f"{spelled} has no attribute {min(missing)!r}, which it needs", at)
            made.attributes = {key: value for key, value in found.items() if key in _OF_START}
            inner = {key: value for key, value in found.items() if key not in _OF_START}
            made.attributes["calls"] = self._wrapper(made, wrapped, inner)
        callee = made.computation("calls")
        if callee in self.starts:
            raise self.reader.error(
                f"computation {callee.name!r} is called by {self.starts[callee].name!r} already", at
            )
        self.starts[callee] = made
        self.ends[made] = callee

    def _wrapper(self, made: Instruction, opcode: str, attributes: dict[str, Attribute]) -> Computation:
        """The computation of the operation alone."""
        computation = Computation("async_wrapped", line=made.line)
        for number, operand in enumerate(made.operands):
            name = computation.fresh_name("async_param")
            parameter = Instruction(name, "parameter", operand.shape, number=number, line=made.line)
            computation.instructions.append(parameter)
        operands = list(computation.instructions)
        root = Instruction("async_op", opcode, made.shape.elements[1], operands, attributes, line=made.line)
        computation.instructions.append(root)
        computation.root = root
        if "async_execution_thread" in made.attributes:
            computation.attributes["execution_thread"] = made.attributes["async_execution_thread"]
        self.reader.add(computation)
        return computation

    def _continue(self, made: Instruction, wrapped: str, spelled: str, at: int) -> None:
        callee = self.ends.get(made.operands[0]) if len(made.operands) == 1 else None
        if callee is None:
            raise self.reader.error(f"{spelled} takes one operand, an async-start or an async-update", at)
        if wrapped and callee.instructions and callee.result.opcode != wrapped:
            raise self.reader.error(f"{spelled} ends an asynchronous {callee.result.opcode!r}", at)
        if made.opcode == "async-update":
            self.ends[made] = callee
            if not made.shape.same(made.operands[0].shape):
                raise self.reader.error(
                    f"{spelled} has its operand's shape {made.operands[0].shape}, not {made.shape}", at
                )
        self.reader.read_attributes(made.attributes, spelled, allowed(made.opcode))
        if made.attributes.pop("calls", callee) is not callee:
            raise self.reader.error(f"{spelled} ends a call of {callee.name!r}", at)
        thread = self.starts[callee].attributes.get("async_execution_thread", "main")
        if (own := made.attributes.pop("async_execution_thread", thread)) != thread:
            raise self.reader.error(f"{spelled} ends a call in thread {thread!r}, not {own!r}", at)


def short_form(start: Instruction) -> Instruction | None:
    """The operation that an `async-start` may be written as, or None where it is more than one.

    The short form has no word for the operation's own `metadata` and `backend_config`.
    """
    root = start.computation("calls").result
    if start.computation("calls").instructions != [*root.operands, root] or len(set(root.operands)) != len(
        root.operands
    ):
        return None
    plain = all(p.opcode == "parameter" and p.number == n and not p.attributes for n, p in enumerate(root.operands))
    return root if plain and root.opcode != "parameter" else None
