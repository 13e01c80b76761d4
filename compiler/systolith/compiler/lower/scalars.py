"""Scalars that the sequencer reads and computes."""

from __future__ import annotations

from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Ref, TileOp, VReg
from systolith.isa.pattern import Pattern


def load_scalar(ctx: TileBuilder, array: Array, what: str) -> VReg:
    """A register with the value of an array of one element (integer or pred), extended to 32 bits."""
    word = ctx.smem(f"{array.buf.name}.word")
    pattern = Pattern(array.dtype, (1,), (0,))
    src = Ref(array.buf, pattern, array.offset, array.dynamic)
    ctx.append(TileOp("dma.load", {"src": src, "dst": Ref(word, pattern)}, ctx.origin(f"load {what}")))
    register = ctx.vreg()
    ctx.append(TileOp("lds", {"rd": register, "ra": 0, "imm": Ref(word, pattern)}, ctx.origin(f"read {what}")))
    missing = 32 - 8 * array.dtype.size
    if missing <= 0:
        return register
    raised = alu(ctx, "shl", register, missing, what)
    return alu(ctx, "sra" if array.dtype.kind == "signed" else "shr", raised, missing, what)


def alu(ctx: TileBuilder, op: str, a: VReg, b: VReg | int, what: str) -> VReg:
    """A register with `a op b`."""
    result = ctx.vreg()
    ctx.append(TileOp(op, {"rd": result, "ra": a, "b": b}, ctx.origin(what)))
    return result
