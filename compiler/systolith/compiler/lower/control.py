"""Control flow: while, conditional, and scalars that SEQ reads."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from systolith.compiler.groups.counted_scalars import counted_states
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.trampoline import Steps
from systolith.compiler.hlo.trip_count import trip_count
from systolith.compiler.lower.double_buffering import double_buffered
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.lower.scalars import alu, load_scalar
from systolith.compiler.lower.values import Value, carry, flatten, shaped
from systolith.compiler.memory.aliasing import carried_in_place
from systolith.compiler.memory.residency import CACHED_SHARE, Aliases, kept_by
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.ops.table import RUNNING, family
from systolith.compiler.tile.induction import Induction
from systolith.compiler.tile.ir import Array, Block, Buf, If, Loop, Ref, TileOp, VReg, While, nest
from systolith.isa.instruction import Space
from systolith.isa.opcodes import MAX_LOOP_NEST
from systolith.isa.program import Role

COUNTED = 8
"""Loops of known trip count that are nested at most as deep count it in a register; there are few of these."""

LARGEST = 4096
"""Operations of a loop whose iterations overlap at most: of a longer one the wait at its end is a small part."""

SMALL = 512
"""What a loop loads into at most this part of VMEM has it for itself while the loop runs: a small load that waits for
what was there holds up those behind it.
"""

HELD = 8
"""All of it is at most this part of VMEM once."""

MOST_TURNS = 2**31 - 1
"""The largest number that `li` takes."""


def lower_while(lowering: Lowering, i: Instruction, operands: list[Value]) -> Steps[Value]:
    """Lower a `while`: values that change in fixed places, those that do not where they are."""
    ctx = lowering.ctx
    body = i.computation("body")
    before, budget = flatten(operands[0]), ctx.budget
    kept = kept_by(i)
    state: list[Array] = []
    for k, (array, shape) in enumerate(zip(before, i.shape.arrays, strict=True)):
        if kept[k] or array.buf.parts:  # stacks are updated in place
            state.append(array)
            continue
        place = lowering.result((i, k), shape)
        if array.buf.memory is not place.buf.memory and array.buf.space is not Space.NONE:
            ctx.move(array, place, "initial value")
        state.append(place)
    outer_cache = dict(lowering.cache)
    _bring_invariants(lowering, body, state, budget)
    for leaf, k in carried_in_place(body).items():  # other arrays: an index that is counted there is not the next one
        lowering.homes[leaf] = replace(state[k])
    count = trip_count(i)
    if lowering.depth > COUNTED or (count is not None and count > MOST_TURNS):
        count = None
    test, register = (yield _test(lowering, i, state)) if count is None else (Block(), ctx.vreg())
    outer = ctx.lasting
    ctx.lasting = outer | {array.buf.memory for array in state}
    var = ctx.vreg()
    counted = [(state[k], *values) for k, values in counted_states(i, count).items()] if count else []
    ctx.inductions.append(Induction(var, count or 0, counted))

    def run() -> Steps[Value]:
        value: Value = yield lowering.computation(body, [shaped(iter(state), i.shape)])
        ctx.group, ctx.budget = i, budget
        carry(ctx, flatten(value), state)
        return value

    block, _ = yield lowering.region(run())
    ctx.inductions.pop()
    ctx.lasting = outer
    if count is None:
        ctx.append_region(While(test, register, block, i.name))
    else:
        _append_counted(lowering, i, Loop(var, count, block, i.name, source=True), register, state)
    lowering.cache = outer_cache
    return shaped(iter(state), i.shape)


def _append_counted(lowering: Lowering, i: Instruction, loop: Loop, register: VReg, state: list[Array]) -> None:
    """Append a loop of known trip count: nothing to compute, nothing that depends on data.

    Args:
        lowering: of the loop.
        i: the `while`.
        loop: it.
        register: counts down where it is not the machine's.
        state: of the `while`.
    """
    ctx, body, count = lowering.ctx, loop.body, loop.count
    assert isinstance(count, int)

    def begins(counter: VReg, first: int) -> TileOp:
        return TileOp("li", {"rd": counter, "imm": first}, ctx.origin("trip count"))

    def counts(counter: VReg, step: int) -> TileOp:
        return TileOp("add", {"rd": counter, "ra": counter, "b": step}, ctx.origin("count"))

    ops = list(body.ops())
    if lowering.depth == 1 and len(ops) == len(body.items):
        before = {buf for op in ctx.block.ops() for buf in op.buffers}
        outside = before | {array.buf for array in (*state, *lowering.cache.values())}
        buffered = double_buffered(lowering, [*ops, counts(loop.var, 1)], count, outside, i.name)
        if buffered is not None:
            ctx.block.items += [begins(loop.var, 0), *buffered]
            return
    if nest(body) < MAX_LOOP_NEST and len(ops) <= LARGEST:
        ctx.append_region(replace(loop, held=_small_loads(body, ctx.chip.vmem.bytes)))
        return
    ctx.block.items += [begins(loop.var, 0), begins(register, count)]
    body.items += [counts(loop.var, 1), counts(register, -1)]
    ctx.append_region(While(Block(), register, body, i.name, count))


def _small_loads(body: Block, vmem: int) -> tuple[Buf, ...]:
    """Buffers that a body loads from HBM, and does not use before, each a small part of VMEM, and all of them one."""
    found: dict[Buf, None] = {}
    used: set[Buf] = set()
    room = vmem // HELD
    for item in body.items:
        if isinstance(item, TileOp) and item.op == "dma.load":
            src, dst = (cast(Ref, item.args[name]).buf for name in ("src", "dst"))
            from_hbm = src is not None and src.space is Space.HBM and dst is not None and dst.space is Space.VMEM
            if from_hbm and dst is not None and dst not in used and dst.bytes <= min(vmem // SMALL, room):
                room -= dst.bytes
                found[dst] = None
        used |= {buf for op in Block([item]).ops() for buf in op.buffers}
    return tuple(found)


def _test(lowering: Lowering, i: Instruction, state: list[Array]) -> Steps[tuple[Block, VReg]]:
    """The condition's operations, and the register with its result."""
    ctx, condition = lowering.ctx, i.computation("condition")
    test, predicate = yield lowering.region(lowering.computation(condition, [shaped(iter(state), i.shape)]))
    assert isinstance(predicate, Array)
    outer, ctx.block = ctx.block, test
    ctx.group = i
    register = load_scalar(ctx, predicate, "condition")
    ctx.block = outer
    return test, register


def _bring_invariants(lowering: Lowering, body: Computation, state: list[Array], budget: int) -> None:
    """Load what the loop only reads once, before it, if there is room (somewhat more than for tiles) for all of it.

    Where there is not, what is streamed anyway is better off without the rest in its way.  Of what has views, each
    iteration reads another part.
    """
    aliases = Aliases(body)
    (parameter,) = body.parameters
    used = {leaf for j in body.instructions if family(j) in RUNNING for o in j.operands for leaf in aliases.leaves[o]}
    named = (j for j in body.instructions if isinstance(j, Group) and j.unit is Unit.VIEW)
    used -= {leaf for view in named for leaf in aliases.leaves[view]}
    wanted = {
        array.buf: array
        for k, array in enumerate(state)
        if (parameter, k) in used
        and array.buf.decl is not None
        and array.buf.decl.role in (Role.PARAMETER, Role.CONSTANT)
        and array.buf not in lowering.cache
        and array.buf.bytes
    }
    room = budget * 5 // 4
    if sum(buf.bytes for buf in wanted) > room:
        room = lowering.ctx.chip.vmem.bytes // CACHED_SHARE
    for array in sorted(wanted.values(), key=lambda a: a.buf.bytes):
        if array.buf.bytes <= room:
            lowering.bring(array)
            room -= array.buf.bytes


def lower_conditional(lowering: Lowering, i: Instruction, operands: list[Value]) -> Steps[Value]:
    """Lower a `conditional`: results in fixed places, one region a branch."""
    ctx, budget = lowering.ctx, lowering.ctx.budget
    index = operands[0]
    assert isinstance(index, Array)
    if "true_computation" in i.attributes:
        branches = [i.computation("true_computation"), i.computation("false_computation")]
    else:
        branches = i.called
    register = load_scalar(ctx, index, "branch index")
    if index.dtype.name == "pred":
        # pred: true is branch 0.
        register = alu(ctx, "xor", register, 1, "branch index")
    places = lowering.results(i)
    blocks = []
    for branch, argument in zip(branches, operands[1:], strict=True):

        def run(branch: Computation = branch, argument: Value = argument) -> Steps[Value]:
            aliases = Aliases(branch)
            leaves = aliases.leaves[branch.result]
            for leaf, place in zip(leaves, places, strict=True):
                if isinstance(leaf[0], Group) and leaves.count(leaf) == 1:
                    lowering.homes[leaf] = place
            value: Value = yield lowering.computation(branch, [argument])
            ctx.group, ctx.budget = i, budget
            for array, place in zip(flatten(value), places, strict=True):
                if array.buf.memory is not place.buf.memory:
                    ctx.move(array, place, "branch result")
            return value

        block, _ = yield lowering.region(run())
        blocks.append(block)
    ctx.append_region(If(register, blocks, i.name))
    return shaped(iter(places), i.shape)
