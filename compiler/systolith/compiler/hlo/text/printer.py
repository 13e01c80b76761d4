"""A `Module` to HLO text; text that XLA printed, once parsed, prints back the same."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module, Style
from systolith.compiler.hlo.shape import with_index_comments
from systolith.compiler.hlo.text.async_sugar import short_form
from systolith.compiler.hlo.text.codecs import codec
from systolith.compiler.hlo.text.literals import LEFT_OUT, show_literal
from systolith.compiler.hlo.text.opcode_attributes import COMMON
from systolith.isa.checked import checked

PLAIN = Style()
_ASYNC = ("async-start", "async-update", "async-done")


@checked
def print_hlo(module: Module, style: Style | None = None) -> str:
    """The module as text.

    Args:
        module: the one to print.
        style: how; the module's own if None.
    """
    style = style or module.style
    header = f"HloModule {module.name}{_attributes(module.attributes, style)}\n\n"
    hidden = _hidden(module) if style.short_async else set[Computation]()
    parts = [header + module.preamble]
    for computation in module.computations:
        if computation not in hidden:
            parts.append(print_computation(computation, style, computation is module.entry) + "\n\n")
    return "".join(parts)


def print_computation(computation: Computation, style: Style = PLAIN, entry: bool = False) -> str:
    """A computation as text, without a newline at the end."""
    mark = "%" if style.percent else ""
    head = f"{'ENTRY ' if entry else ''}{mark}{computation.name} "
    if style.signatures:
        parameters = ", ".join(f"{p.name}: {p.shape}" for p in computation.parameters)
        head += f"({parameters}) -> {computation.result.shape} "
    root = computation.result
    lines = [f"  {'ROOT ' if i is root else ''}{print_instruction(i, style)}\n" for i in computation.instructions]
    return f"{head}{{\n{''.join(lines)}}}{_attributes(computation.attributes, style)}"


def print_instruction(instruction: Instruction, style: Style = PLAIN) -> str:
    """An instruction as one line of text, without `ROOT`."""
    mark = "%" if style.percent else ""
    opcode, attributes = instruction.opcode, instruction.attributes
    if style.short_async and opcode in _ASYNC and (operation := _operation(instruction)) is not None:
        if opcode == "async-start":
            attributes = _short_attributes(attributes, operation)
        opcode = operation.opcode + opcode.removeprefix("async")
    head = f"{mark}{instruction.name} = {instruction.shape.text()} {opcode}"
    return f"{head}({_arguments(instruction, mark, style)}){_attributes(attributes, style)}"


_OF_CALL = frozenset({"metadata", "backend_config"})
"""Attributes that the short form of an asynchronous call has of the call only, not of its operation."""


def _operation(instruction: Instruction) -> Instruction | None:
    """The operation of an asynchronous instruction, where the short form may print it."""
    while instruction.opcode != "async-start":
        if len(instruction.operands) != 1 or instruction.operands[0].opcode not in _ASYNC:
            return None
        instruction = instruction.operands[0]
    return short_form(instruction)


def _hidden(module: Module) -> set[Computation]:
    """Computations that the short form of an asynchronous call says all of."""
    starts = [i for i in module.instructions() if i.opcode == "async-start"]
    return {i.computation("calls") for i in starts if short_form(i) is not None}


def _short_attributes(attributes: dict[str, Attribute], operation: Instruction) -> dict[str, Attribute]:
    """Attributes of the call, of its operation, and those that every instruction has, in XLA's order."""
    own = {key: value for key, value in attributes.items() if key not in COMMON and key != "calls"}
    inner = {key: value for key, value in operation.attributes.items() if key not in _OF_CALL}
    return own | inner | {key: value for key, value in attributes.items() if key in COMMON}


def _arguments(instruction: Instruction, mark: str, style: Style) -> str:
    if instruction.number is not None:
        return str(instruction.number)
    if instruction.opcode == "constant" and instruction.literal is None:
        return LEFT_OUT
    if instruction.literal is not None:
        return show_literal(instruction.literal, instruction.shape)
    names = [mark + o.name for o in instruction.operands]
    if style.operand_shapes:
        names = [f"{o.shape.text()} {name}" for o, name in zip(instruction.operands, names, strict=True)]
    return with_index_comments(names) if style.operand_comments else ", ".join(names)


def _attributes(attributes: dict[str, Attribute], style: Style) -> str:
    return "".join(f", {key}={codec(key).show(value, style)}" for key, value in attributes.items())
