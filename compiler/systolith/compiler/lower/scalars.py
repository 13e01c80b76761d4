"""Scalars that the sequencer reads and computes."""

from __future__ import annotations

from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.induction import Progression, progression
from systolith.compiler.tile.ir import Array, Block, Ref, TileOp, VReg
from systolith.isa.pattern import Pattern

RECENT = 4
"""Scalars that are not read again: each takes a register until its last use, of which there are few."""


def load_scalar(ctx: TileBuilder, array: Array, what: str, expected: int = -1) -> VReg:
    """A register with the value of an array of one element (integer or pred), extended to 32 bits.

    One that was read lately for the same group and in the same block, and not written since, is in a register: a group
    reads what it takes, so that this lies there as long as checks look at it.  The state of a loop lies there anyway:
    other groups of its body do not read it again.  What loops count is computed from their induction variables.
    `expected`: the value in runs without data.
    """
    if (moved := progression(ctx.inductions, array)) is not None:
        register = number_of(ctx, moved, what)
        moved.loop.values[register] = moved
        return register
    group = "" if array.buf.memory in ctx.lasting else ctx.origin(what).group
    key = (array.buf.memory, array.offset, array.dynamic, array.dtype, group)
    if key in ctx.scalars and (known := _still(ctx, array, *ctx.scalars[key])) is not None:
        return known
    register = _read(ctx, array, what, expected)
    ctx.scalars.pop(key, None)
    ctx.scalars[key] = register, ctx.block, len(ctx.block.items)
    if len(ctx.scalars) > RECENT:
        ctx.scalars.pop(next(iter(ctx.scalars)))
    return register


def number_of(ctx: TileBuilder, moved: Progression, what: str) -> VReg:
    """A register with what a number is in an iteration of the loop that changes it."""
    steps = moved.loop.var if moved.step == 1 else alu(ctx, "mul", moved.loop.var, moved.step, what)
    return alu(ctx, "add", steps, moved.first, what)


def _still(ctx: TileBuilder, array: Array, register: VReg, block: Block, place: int) -> VReg | None:
    """The register that was written before a place of a block, if it has what the array has now."""
    items = ctx.block.items
    if block is not ctx.block or not 0 < place <= len(items):
        return None
    last, since = items[place - 1], items[place:]
    if not (isinstance(last, TileOp) and last.args.get("rd") == register):
        return None
    ops = [op for op in since if isinstance(op, TileOp)]
    changed = len(ops) < len(since) or any(
        ref.buf is not None and ref.buf.memory is array.buf.memory for op in ops for ref in op.written
    )
    return None if changed else register


def _read(ctx: TileBuilder, array: Array, what: str, expected: int) -> VReg:
    word = ctx.smem(f"{array.buf.name}.word")
    pattern = Pattern(array.dtype, (1,), (0,))
    src = Ref(array.buf, pattern, array.offset, array.dynamic)
    ctx.append(TileOp("dma.load", {"src": src, "dst": Ref(word, pattern)}, ctx.origin(f"load {what}")))
    register = ctx.vreg()
    origin = ctx.origin(f"read {what}", expected=expected)
    ctx.append(TileOp("lds", {"rd": register, "ra": 0, "imm": Ref(word, pattern)}, origin))
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
