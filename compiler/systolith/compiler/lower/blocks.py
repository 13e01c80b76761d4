"""Lowering of blocked groups: the group on some indices of its blocked dimension, one block after another.

`one_block.py` lowers a block, `block_choice.py` says what blocks are like.  Several are in the making at a time, their
operations in one order (`schedule/pipeline.py`); most are copies of the first ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from systolith.compiler.index.affine import Box
from systolith.compiler.lower.block_choice import LOADED_AGAIN, blockings, decision
from systolith.compiler.lower.block_copies import Template, can_be_copied
from systolith.compiler.lower.lowered import Nest
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.lower.one_block import (
    OPERANDS_SHARE,
    blocked_size,
    first_rows,
    in_turn,
    one_block,
    order_of,
    room_for,
    tiling_of,
)
from systolith.compiler.ops.group import Group
from systolith.compiler.schedule.operation_times import Stage
from systolith.compiler.schedule.shared_places import sharing
from systolith.compiler.tile.ir import Array
from systolith.compiler.tiling.block_sizes import WHOLE, Blocking
from systolith.isa.instruction import Space

LEAST_COPIED = 2
"""Blocks of full size beyond which those after the second are copies of it."""


def cached_operands(lowering: Lowering, group: Group, operands: Sequence[Array]) -> list[Array]:
    """The operands of a blocked group; what every block needs whole is brought to VMEM as far as there is room."""
    dims, parameters = lowering.bodies.dims(group), group.body.parameters
    live = lowering.placement.live
    room = (lowering.ctx.chip.vmem.bytes - live.get(group, 0)) * OPERANDS_SHARE
    found = []
    for p, array in zip(parameters, operands, strict=True):
        cached = array if dims.get(p) is not None else lowering.cached(array)
        if cached is array and dims.get(p) is None and array.buf.space is Space.HBM and p.shape.bytes <= room:
            cached = lowering.ctx.stage_in(array, Box(array.origin, array.dims), "load for all blocks")
            live[group] = live.get(group, 0) + p.shape.bytes
            room -= p.shape.bytes
        found.append(cached)
    return found


def lower_blocks(lowering: Lowering, group: Group, inputs: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower a blocked group; `inputs` (see `cached_operands`) and `results` are its arrays."""
    ctx = lowering.ctx
    picked, ctx.picked = ctx.picked, ""
    homes, results = results, _on_chip(lowering, group, results)
    found, rejected = blockings(lowering, group, inputs, results)
    number, why = ctx.choose("blocks", lambda: [c.signature for c in found], picked)
    best = found[number]
    decided = len(ctx.explain)
    ctx.explain.append(decision(group, best, found, rejected, why))
    if ctx.region is not None and any(
        not a.why.endswith(LOADED_AGAIN) and not a.what.endswith(WHOLE) for a in rejected
    ):
        lowering.cramped.add(ctx.region)
    blocks = _all_blocks(lowering, group, inputs, results, best)
    if ctx.region not in (None, group) and not tiling_of(group).accumulated:
        lowering.nests.append(Nest(len(ctx.block.items), blocks, best.at_once))
        ctx.block.items += in_turn(blocks)
    else:
        order = order_of(blocks, best.at_once, ctx.chip)
        ctx.explain[decided] = decision(group, replace(best, cycles=order.cycles), found, rejected, why)
        ctx.block.items += sharing(blocks, order.ops, order.places, room_for(lowering, group))
    for array, home in zip(results, homes, strict=True):
        ctx.stage_out(array, home, Box(home.origin, home.dims))
    ctx.plans = found


def _on_chip(lowering: Lowering, group: Group, results: Sequence[Array]) -> list[Array]:
    """The results of a group, those in HBM that blocks accumulate in VMEM."""
    found = list(results)
    for n in tiling_of(group).accumulated:
        found[n] = lowering.ctx.out_tile(results[n], Box(results[n].origin, results[n].dims))
    return found


def _all_blocks(
    lowering: Lowering, group: Group, inputs: Sequence[Array], results: Sequence[Array], way: Blocking
) -> list[Sequence[Stage]]:
    """The stages of every block: of the first, which loads what is loaded once, of others and of their copies.

    A block is copied where the matrix units and accumulators that come next are those that came next when another one
    was lowered.
    """
    ctx, whole, form = lowering.ctx, blocked_size(group), way.form
    size = form.size
    full = whole // size
    ctx.begin_sums()
    before = len(ctx.sums)
    made = [one_block(lowering, group, inputs, results, 0, form)]
    rows = first_rows(ctx.sums[before:], ctx.chip)
    known: dict[Hashable, Template] = {}
    copied = full > LEAST_COPIED and can_be_copied(made[0])
    for n, start in enumerate(range(size, whole, size), 1):
        ctx.begin_sums(rows[n % len(rows)])
        state = ctx.state
        if copied and n < full and state not in known:
            template = Template(ctx, n, shared={copy.buf for copy in lowering.cache.values()})
            template.lowered(one_block(lowering, group, inputs, results, start, form, template))
            copied = template.copies
            if copied:
                known[state] = template
            else:
                ctx.proceed(state)
        if copied and n < full:
            made.append(known[state].copy(n))
        else:
            part = replace(form, size=min(size, whole - start))
            made.append(one_block(lowering, group, inputs, results, start, part))
    return [inner for block in made for inner in block]
