"""Which blocks a group is computed in: of each form that blocks can have, one is lowered on trial.

Copies of that are put in order, and the cycles of the order decide.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.groups.fingerprint import group_key
from systolith.compiler.groups.splitting import split
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.lower.one_block import (
    BLOCK_SHARE,
    blocked_size,
    first_rows,
    is_narrow,
    one_block,
    plan_block,
    products_in,
    read_again,
    readers,
    room_for,
    tiling_of,
)
from systolith.compiler.memory.residency import result_leaves
from systolith.compiler.ops.group import Group
from systolith.compiler.ops.table import Family, family
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.schedule.operation_times import Stage, copies
from systolith.compiler.schedule.pipeline import Order, interleave
from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.tiling.block_sizes import FEWEST, FEWEST_OF_PRODUCTS, SIZES, Blocking, Form, sizes
from systolith.isa.instruction import Space

AT_ONCE = 4
"""Blocks in the making at most, unless they leave every unit idle."""

MORE_AT_ONCE = 6
"""Blocks in the making at most, where `AT_ONCE` leave every unit idle."""

IDLE = 1.1
"""Cycles of an order, as a ratio to those of its busiest unit, from which all units count as idle for some time.
The gradient of attention of 512 positions took 459,000 cycles instead of 616,000 with more blocks in the making; a
softmax, whose loads take 92 % of its cycles, 4,932 instead of 4,784.
"""

LOOKED_AT = 16
"""Blocks that are put in order for an estimate; others take as long as those in the middle."""

NESTED_LOOKED_AT = 3
"""Blocks in blocks that are; others take as long as the last of them."""

ALIKE = 0.01
"""Sizes whose estimates differ by less than this are alike; then that of the most blocks in the making is chosen, which
leaves room for what the estimate does not see, and of those the largest, of the fewest operations."""


LOADED_AGAIN = "would be loaded for each of its groups"
"""Why large blocks are not wanted that would fit."""


def blockings(
    lowering: Lowering, group: Group, inputs: Sequence[Array], results: Sequence[Array]
) -> tuple[list[Blocking], list[Alternative]]:
    """The sizes that a block can have, the best first, and those that do not fit; one that does not fit if none does.

    Groups that are alike are estimated once.
    """
    room = room_for(lowering, group)
    key = group_key(lowering.ctx, group, inputs, results, room)
    if key in lowering.blockings:
        return lowering.blockings[key]
    found: list[Blocking] = []
    last: list[Blocking] = []
    rejected: list[Alternative] = []
    undivided = [blocked_size(group)] if is_narrow(lowering, group) or _fits(lowering, group) else []
    products = any(family(i) is Family.CONTRACTION for i in group.body.instructions)
    for size in (*undivided, *sizes(blocked_size(group), FEWEST_OF_PRODUCTS if products else FEWEST)):
        for form in _forms(lowering, group, size):
            trial, why = _tried(lowering, group, inputs, results, form, room)
            if trial is not None and not why:
                found.append(trial)
            else:
                rejected.append(Alternative(str(form), why, trial.numbers if trial else {}))
            if trial is not None and why and size == 1 and (not form.whole or trial.bytes <= room):
                last.append(trial)
        if len(found) >= SIZES + len(undivided):
            break
    if not found:  # one at a time
        found = last
        rejected = [a for a in rejected if a.what not in {c.signature for c in last}]
    best = min(found, key=lambda c: c.cycles)
    if lowering.ctx.chip.mxu.count > 1 and products_in(lowering.bodies.of(group, best.form)[0]) > 1:
        trial, why = _tried(lowering, group, inputs, results, replace(best.form, apart=True), room)
        found += [trial] if trial is not None and not why and trial.cycles < best.cycles else []
    alike = min(c.cycles for c in found) * (1 + ALIKE)
    found.sort(key=lambda c: (0, -c.at_once, -c.form.size) if c.cycles <= alike else (c.cycles,))
    lowering.blockings[key] = found, rejected
    return found, rejected


def decision(
    group: Group, best: Blocking, found: Sequence[Blocking], rejected: Sequence[Alternative], why: str
) -> Decision:
    """What `explain` says of the best blocks of a group."""
    others = [
        Alternative(c.signature, "slower" if c.cycles > best.cycles else "hardly faster", c.numbers)
        for c in found
        if c.signature != best.signature
    ]
    why = f"{why}; of {blocked_size(group)} along dimension {tiling_of(group).dims[0]}"
    return Decision("blocks", group.name, best.signature, why, best.numbers, (*others, *rejected))


def _forms(lowering: Lowering, group: Group, size: int) -> list[Form]:
    """What blocks of a size can be like; whether products have matrix units of their own is tried for the best one."""
    small, _ = lowering.bodies.of(group, Form(size))
    nested = size == 1 and any(isinstance(i, Group) and i.tiling is not None for i in small.instructions)
    return [Form(size), Form(size, whole=True)] if nested else [Form(size)]


def _tried(
    lowering: Lowering,
    group: Group,
    inputs: Sequence[Array],
    results: Sequence[Array],
    form: Form,
    room: int,
) -> tuple[Blocking | None, str]:
    """Estimate of blocks of a form, from one lowered on trial (None: it was not), and why they do not fit."""
    size = form.size
    blocks = -(-blocked_size(group) // size)
    sub, (small, _) = lowering.apart(group), lowering.bodies.of(group, form)
    spilled = plan_block(sub, group, size, small, results).spilled - set(result_leaves(small))
    if 1 < size < blocked_size(group) or form.whole:
        if spilled:
            return None, "values of one block go to HBM"
        if again := _loaded_again(lowering, group, inputs, small):
            return None, f"{again.name} {LOADED_AGAIN}"
    try:
        block = one_block(sub, group, inputs, results, 0, form)
        rows = first_rows(sub.ctx.sums, lowering.ctx.chip)
        if sub.oversized:
            split(sub.oversized, Names([small.name]))
            return _tried(lowering, group, inputs, results, form, room)
    except DoesNotFitError:
        if size == 1 and not form.whole:
            raise
        return None, "no tiles of a block fit"
    outside = {a.buf for a in (*inputs, *results)}
    some = min(blocks, LOOKED_AT if len(block) == 1 else NESTED_LOOKED_AT)
    every = copies(block, some, lowering.ctx.chip, sub.ctx.unit, rows, outside)
    order, at_once = order_of_some(every, outside, room, lowering.ctx.chip.fifo.depth)
    taken = order.peak(outside)
    fits = at_once >= min(2, blocks) and taken <= room
    cycles = _cycles(order, len(block), some, blocks)
    return Blocking(form, blocks, taken, at_once, cycles), "" if fits else f"two do not fit in {room:,} bytes"


def _loaded_again(lowering: Lowering, group: Group, inputs: Sequence[Array], small: Computation) -> Instruction | None:
    """An operand that has no room in VMEM whole, so that each of the groups in a block that read it loads it; None:
    there is none.
    """
    dims, users = lowering.bodies.dims(group), small.users()
    kept = read_again(small, lowering.ctx.chip.vmem.bytes - lowering.placement.live.get(group, 0))
    for p, part, array in zip(group.body.parameters, small.parameters, inputs, strict=True):
        if dims.get(p) is not None and array.buf.space is Space.HBM and readers(users, part) > 1 and part not in kept:
            return part
    return None


def _fits(lowering: Lowering, group: Group) -> bool:
    """Whether the group may run all at once in VMEM."""
    used = sum(i.shape.bytes for i in (*group.operands, group))
    return used <= (lowering.ctx.chip.vmem.bytes - lowering.placement.live.get(group, 0)) * BLOCK_SHARE


def order_of_some(
    blocks: Sequence[Sequence[Stage]], outside: Collection[Buf], room: int, depth: int
) -> tuple[Order, int]:
    """The order of as many blocks in the making at a time as have room, one at least, and how many."""
    at_once = min(AT_ONCE, len(blocks))
    order = interleave(blocks, at_once, depth)
    while at_once > 1 and order.peak(outside) > room:
        at_once -= 1
        order = interleave(blocks, at_once, depth)
    if at_once < AT_ONCE or order.cycles <= IDLE * order.busiest:
        return order, at_once
    for more in range(min(MORE_AT_ONCE, len(blocks)), AT_ONCE, -1):
        other = interleave(blocks, more, depth)
        if other.peak(outside) <= room:
            return (other, more) if other.cycles * (1 + ALIKE) < order.cycles else (order, at_once)
    return order, at_once


def _cycles(order: Order, parts: int, some: int, blocks: int) -> int:
    """Cycles of so many blocks, of which some are in order, each as `parts`; others take as long as those in the
    middle, around which others are in the making.
    """
    if some == blocks:
        return order.cycles
    first, last = (some // 4, 3 * some // 4) if parts == 1 else (some - 2, some - 1)
    start, end = (order.done[(n + 1) * parts - 1] for n in (first, last))
    return order.cycles + (blocks - some) * (end - start) // (last - first)
