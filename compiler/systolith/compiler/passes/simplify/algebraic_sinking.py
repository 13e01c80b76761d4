"""Reshapes and transposes move below elementwise operations: one movement of the result for one of each operand."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter

_MOVES = ("reshape", "transpose")


def below_moves(r: Rewriter, i: Instruction) -> Instruction | None:
    """The operation on operands before they moved, and then the move; None where they move differently."""
    if not any(o.opcode in _MOVES for o in i.operands):
        return None
    if i.opcode not in ELEMENTWISE or not i.shape.is_array or not i.shape.rank:
        return None
    if i.shape.is_dynamic or any(o.shape.is_dynamic for o in i.operands):
        return None
    arrays = [o for o in i.operands if not is_scalar(o)]
    if not arrays or any(o.opcode not in _MOVES for o in arrays) or len({_move(o) for o in arrays}) != 1:
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
