"""What the compiler can lower: checked on canonical HLO, before any work is done on it."""

from __future__ import annotations

from collections.abc import Iterator

from systolith.compiler.elementwise import is_elementwise
from systolith.compiler.errors import compile_error
from systolith.compiler.fusion import DOTS, REDUCTIONS
from systolith.compiler.group import DATA_MOVEMENT
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.moves import MOVES
from systolith.compiler.passes.wide_integers import obstacle
from systolith.isa.chip import Chip
from systolith.isa.dtypes import Kind

CONTROL = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "while", "conditional", "bitcast", "map"})
LOWERED = CONTROL | DOTS | REDUCTIONS | DATA_MOVEMENT | MOVES.keys()
"""Opcodes with a lowering, besides the elementwise ones."""


def check_legality(module: Module, chip: Chip) -> None:
    """Refuse what has no lowering.

    Raises:
        CompileError: an operation without a lowering, an element type that the chip does not have, a dynamic dimension;
            names the instruction, its shape and its line, and what to do.
    """
    for instruction in _running(module.entry):
        _check_opcode(instruction, module)
        _check_shape(instruction, module, chip)


def _running(computation: Computation) -> Iterator[Instruction]:
    """Instructions of a computation and of the branches and bodies that it runs."""
    for i in computation.instructions:
        yield i
        if i.opcode in ("while", "conditional"):
            for called in i.called:
                yield from _running(called)


def _check_opcode(i: Instruction, module: Module) -> None:
    if i.opcode == "constant" and i.literal is None:
        raise compile_error(i, "its values are left out of the text ('{...}'); print it with large constants", module)
    if i.opcode in LOWERED or is_elementwise(i):
        return
    if i.opcode == "custom-call":
        target = i.word("custom_call_target")
        raise compile_error(
            i, f"no lowering is registered for custom-call target {target!r}; compute it in HLO", module
        )
    raise compile_error(
        i, f"the compiler has no lowering for {i.opcode}; express it by other operations (docs/operations.md)", module
    )


def _check_shape(i: Instruction, module: Module, chip: Chip) -> None:
    for leaf in i.shape.leaves():
        if not leaf.is_array:
            raise compile_error(i, f"a {leaf.kind} has no place on the chip; remove it from the module", module)
        if any(leaf.dynamic):
            raise compile_error(i, "dynamic dimensions have no lowering; pad to the bound", module)
        if leaf.dtype.kind is Kind.COMPLEX:
            raise compile_error(i, f"{leaf.dtype} has no lowering; use two f32 arrays", module)
        if leaf.dtype.bits == 64 and not chip.features.wide:
            raise compile_error(
                obstacle(module) or i,
                f"chip {chip.name!r} has no 64-bit types (features.wide), and this has no form on pairs of u32;"
                " convert to 32 bits before",
                module,
            )
