"""Scalars in registers: one is read again only if it may have changed."""

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.lower.scalars import RECENT, load_scalar
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Block, While
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import S32


def test_a_scalar_is_read_again_only_after_a_write() -> None:
    ctx = TileBuilder(load_chip("tiny"))
    i, j = ctx.array("i", S32, ()), ctx.array("j", S32, ())
    first = load_scalar(ctx, i, "index")
    ctx.copy(i, j, "read")
    assert load_scalar(ctx, i, "index") == first
    ctx.copy(j, i, "write")
    assert load_scalar(ctx, i, "index") != first


def test_a_scalar_is_read_again_after_and_in_a_loop() -> None:
    ctx = TileBuilder(load_chip("tiny"))
    i = ctx.array("i", S32, ())
    first = load_scalar(ctx, i, "index")
    outer, ctx.block = ctx.block, Block()
    inside = load_scalar(ctx, i, "index")
    body, ctx.block = ctx.block, outer
    assert inside != first
    ctx.append_region(While(Block(), first, body, "loop", 3))
    assert load_scalar(ctx, i, "index") not in (first, inside)


def test_few_scalars_stay_in_registers() -> None:
    ctx = TileBuilder(load_chip("tiny"))
    all_of = [ctx.array("i", S32, ()) for _ in range(RECENT + 1)]
    registers = [load_scalar(ctx, i, "index") for i in all_of]
    assert load_scalar(ctx, all_of[-1], "index") == registers[-1]
    assert load_scalar(ctx, all_of[0], "index") != registers[0]


def test_groups_of_a_loop_share_what_they_read_of_its_state_only() -> None:
    ctx = TileBuilder(load_chip("tiny"))
    state, other = ctx.array("state", S32, ()), ctx.array("other", S32, ())
    ctx.lasting = {state.buf}
    first, second = (Instruction(name, "fusion", array(S32)) for name in ("first", "second"))
    ctx.group = first
    known = [load_scalar(ctx, a, "index") for a in (state, other)]
    ctx.group = second
    assert load_scalar(ctx, state, "index") == known[0]
    assert load_scalar(ctx, other, "index") != known[1]
