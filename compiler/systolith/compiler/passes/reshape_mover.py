"""Reshapes and transposes move below elementwise operations: one movement of the result for one of each operand."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter, rewrite

MOVES = ("reshape", "transpose")


@dataclass(frozen=True)
class MoveReshapes:
    """Move reshapes and transposes that all operands of an elementwise operation have below it."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: below_moves(r, i, MOVES))


def below_moves(r: Rewriter, i: Instruction, opcodes: tuple[str, ...]) -> Instruction | None:
    """The operation on what the operands were before they moved, and then the move; None where they move differently.

    Args:
        r: what makes the instructions.
        i: an instruction.
        opcodes: which moves.
    """
    if i.opcode not in ELEMENTWISE or not i.shape.is_array or not i.shape.rank:
        return None
    if i.shape.is_dynamic or any(o.shape.is_dynamic for o in i.operands):
        return None
    arrays = [o for o in i.operands if not is_scalar(o)]
    if not arrays or any(o.opcode not in opcodes for o in arrays) or len({_move(o) for o in arrays}) != 1:
        return None
    first = arrays[0]
    dims = first.operands[0].dims
    operands = []
    for o in i.operands:
        if o in arrays or o.shape.rank == 0:
            operands.append(o.operands[0] if o in arrays else o)
        else:
            operands.append(r.emit("broadcast", o.operands[0], shape=array(o.shape.dtype, dims), dimensions=()))
    value = r.like(i, operands, array(i.shape.dtype, dims), f"{i.name}.s")
    if first.opcode == "transpose":
        return r.emit("transpose", value, shape=i.shape, dimensions=first.ints("dimensions"))
    return r.emit("reshape", value, shape=i.shape)


def _move(i: Instruction) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    return i.opcode, i.operands[0].dims, i.ints("dimensions", ()) if i.opcode == "transpose" else ()


def is_scalar(i: Instruction) -> bool:
    """Whether it is a scalar, or one repeated."""
    return i.shape.is_array and (i.shape.rank == 0 or (i.opcode == "broadcast" and i.operands[0].shape.rank == 0))
