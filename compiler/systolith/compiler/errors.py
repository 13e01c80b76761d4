"""Errors of the compiler: one line: the operation, its shape, its line in the HLO text, what can be done."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Instruction
from systolith.isa.errors import SystolithError


class CompileError(SystolithError):
    """The module cannot be compiled for this chip.

    Attributes:
        refusals: everything that is refused, a line each; the message is the first, and how many more there are.
    """

    def __init__(self, message: str, *others: str) -> None:
        super().__init__(f"{message} (and {len(others)} more; --all lists them)" if others else message)
        self.refusals = (message, *others)


class DoesNotFitError(CompileError):
    """The choices need more memory, scalar registers or tokens than the chip has.  Others may fit."""


class HbmError(CompileError):
    """The program needs more HBM than the chip has."""


class LimitError(CompileError):
    """A group asks for more than one instruction can hold; smaller groups may not (`groups/splitting.py`).

    Attributes:
        at: the operation that asks for it, if it is known.
    """

    def __init__(self, message: str, at: Instruction | None = None) -> None:
        super().__init__(message)
        self.at = at


def compile_error(instruction: Instruction, message: str, kind: type[CompileError] = CompileError) -> CompileError:
    """An error about an instruction: place, opcode, name, shape, then `message` (what is wrong; what to do)."""
    where = f"{instruction.place}: " if instruction.place else ""
    return kind(f"{where}{instruction.opcode} {instruction.name!r} ({instruction.shape}): {message}")
