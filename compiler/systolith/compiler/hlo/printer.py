"""A `Module` to HLO text; printing what was parsed gives the text back."""

from __future__ import annotations

from systolith.compiler.hlo.attributes import Attribute
from systolith.compiler.hlo.codecs import codec
from systolith.compiler.hlo.ir import Computation, Instruction, Module, Style
from systolith.compiler.hlo.literals import show_literal
from systolith.compiler.hlo.shape import with_index_comments

PLAIN = Style()


def print_hlo(module: Module, style: Style | None = None) -> str:
    """The module as text.

    Args:
        module: what to print.
        style: with or without `%` and signatures; the module's own if None.
    """
    style = style or module.style
    header = f"HloModule {module.name}{_attributes(module.attributes, style)}\n\n"
    parts = [header + module.preamble]
    for computation in module.computations:
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
    attributes = _attributes(instruction.attributes, style)
    head = f"{mark}{instruction.name} = {instruction.shape.text()} {instruction.opcode}"
    return f"{head}({_arguments(instruction, mark)}){attributes}"


def _arguments(instruction: Instruction, mark: str) -> str:
    if instruction.number is not None:
        return str(instruction.number)
    if instruction.literal is not None:
        return show_literal(instruction.literal, instruction.shape)
    names = [mark + o.name for o in instruction.operands]
    return with_index_comments(names) if mark else ", ".join(names)


def _attributes(attributes: dict[str, Attribute], style: Style) -> str:
    return "".join(f", {key}={codec(key).show(value, style)}" for key, value in attributes.items())
