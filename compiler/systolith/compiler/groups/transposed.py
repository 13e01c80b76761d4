"""Transposes within groups: which are stored, since their users would read them across rows."""

from __future__ import annotations

from collections.abc import Collection

from systolith.compiler.hlo.ir import Instruction

LARGE = 1 << 14
"""Elements from which on a transposed array that is repeated is stored: each repetition would read it across rows."""

FEW_LANES = 32
"""Elements of a row up to which a transposed array is stored before it is reduced: the vector unit would read no more
at once.
"""


def why_stored(i: Instruction, need: Collection[Instruction], repeated: bool, large: float) -> str:
    """Why a transposed value is stored; empty: it need not be.

    `need`: the groups that compute with it; `repeated`: whether they spread it; `large`: bytes of a value that would go
    to HBM.
    """
    if i.opcode != "transpose" or i.shape.size < LARGE or not moves_innermost(i):
        return ""
    if repeated:
        return "transposed, and repeated along a dimension"
    if i.operands[0].dims[-1] <= FEW_LANES and any(g.opcode == "reduce" for g in need):
        return "transposed from short rows for a reduction"
    return "transposed for several groups" if len(need) > 1 and i.shape.bytes < large else ""


def moves_innermost(i: Instruction) -> bool:
    """Whether it is a transpose that puts another dimension innermost."""
    order = [d for d in i.ints("dimensions") if i.operands[0].dims[d] > 1] if i.opcode == "transpose" else []
    return bool(order) and order[-1] != max(order)
