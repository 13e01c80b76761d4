"""Lowering of blocked groups: the group on some indices of its blocked dimension, one block after another.

Of a block every operand and result is a view of the whole one; values in between lie in VMEM.  Several blocks are in
the making at a time, their operations in one order (`schedule/pipeline.py`).  How many indices a block has is the
choice of an estimate: one block of each size is lowered and put in order with copies of itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.groups.fingerprint import group_key
from systolith.compiler.groups.splitting import split
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.trampoline import trampoline
from systolith.compiler.index.affine import Box
from systolith.compiler.lower.block_copies import Template
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.memory.residency import VALUES_SHARE, Placement, place_computation, result_leaves
from systolith.compiler.ops.expression_builder import group_roots
from systolith.compiler.ops.group import Group, Tiling, Unit, accumulation
from systolith.compiler.ops.table import Family, family
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.schedule.operation_times import Stage, copies, timed
from systolith.compiler.schedule.pipeline import interleave, periodic
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.builder import Sums
from systolith.compiler.tile.ir import Array, Block, Item
from systolith.compiler.tiling.block_sizes import FEWEST, FEWEST_OF_PRODUCTS, SIZES, Blocking, sizes
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space

BLOCK_SHARE = 0.5
"""Part of the free VMEM that the values of one block may take: the rest is for what runs ahead, and for tiles."""

OPERANDS_SHARE = 0.25
"""Part of the free VMEM that operands of a block may take which are loaded once for several groups."""

PIPELINE_PART = 2.0
"""The blocks in the making may take so many times the part of the free VMEM that tiles may take: where memory is tight,
smaller tiles go with smaller blocks."""

AT_ONCE = 4
"""Blocks in the making at most; more keep no unit busier."""

TURNS = 2
"""Blocks whose sums lie beside each other, at most: one is summed while the results of the one before it are taken."""

LEAST_COPIED = 2
"""Blocks of full size beyond which those after the second are copies of it."""

ALIKE = 0.01
"""Sizes whose estimates differ by less than this are alike; then that of the most blocks in the making is chosen, which
leaves room for what the estimate does not see, and of those the largest, of the fewest operations."""


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


MANY = 8
"""Blocks that overlap well enough without being divided into tiles themselves."""


def lower_blocks(lowering: Lowering, group: Group, inputs: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower a blocked group; `inputs` (see `cached_operands`) and `results` are its arrays."""
    ctx = lowering.ctx
    picked, ctx.picked = ctx.picked, ""
    homes, results = results, _on_chip(lowering, group, results)
    found, rejected = _blockings(lowering, group, inputs, results)
    number, why = ctx.choose("blocks", lambda: [c.signature for c in found], picked)
    best = found[number]
    ctx.explain.append(_decision(group, best, found, rejected, why))
    if rejected and ctx.region is not None:
        lowering.cramped.add(ctx.region)
    stages = _all_stages(lowering, group, inputs, results, best.size)
    order = interleave(stages, best.at_once)
    order = periodic(stages, best.at_once, order, {results[n].buf for n in _tiling(group).accumulated})
    ctx.block.items += [op.item for _, op in order.ops]
    for array, home in zip(results, homes, strict=True):
        ctx.stage_out(array, home, Box(home.origin, home.dims))
    ctx.plans = found


def _on_chip(lowering: Lowering, group: Group, results: Sequence[Array]) -> list[Array]:
    """The results of a group, those in HBM that blocks accumulate in VMEM."""
    found = list(results)
    for n in _tiling(group).accumulated:
        found[n] = lowering.ctx.out_tile(results[n], Box(results[n].origin, results[n].dims))
    return found


def _all_stages(
    lowering: Lowering, group: Group, inputs: Sequence[Array], results: Sequence[Array], size: int
) -> list[Sequence[Stage]]:
    """The stages of every block: of the first, which loads what is loaded once, of the second and of its copies."""
    whole, chip = _whole(group), lowering.ctx.chip
    starts = range(0, whole, size)
    full = whole // size
    lowering.ctx.begin_sums()
    before = len(lowering.ctx.sums)
    made: list[Sequence[Stage]] = [timed(_stages(lowering, group, inputs, results, 0, min(size, whole)), chip)]
    rows = _first_rows(lowering.ctx.sums[before:], chip)
    if full > LEAST_COPIED and not any(stage.products for stage in made[0]):
        template = Template(lowering.ctx, shared={copy.buf for copy in lowering.cache.values()})
        template.stages = timed(_stages(lowering, group, inputs, results, size, size, template), chip)
        if template.copies:
            made += [template.copy(n) for n in range(full - 1)]
    for start in starts[len(made) :]:
        lowering.ctx.begin_sums(rows[start // size % len(rows)])
        made.append(timed(_stages(lowering, group, inputs, results, start, min(size, whole - start)), chip))
    return made


def _first_rows(sums: Sequence[Sums], chip: Chip) -> list[int]:
    """The first accumulator rows of blocks, in turn: of as many as have room beside each other, `TURNS` at most.

    Blocks that begin with the same rows are alike, so that loops can be made of them.  `sums`: of one block.
    """
    taken: dict[int, int] = defaultdict(int)
    for s in sums:
        taken[s.unit] += s.rows
    rows = max(taken.values(), default=chip.mxu.acc_rows)
    return [n * rows for n in range(max(1, min(chip.mxu.acc_rows // rows, TURNS)))]


def _whole(group: Group) -> int:
    """Indices of the blocked dimension."""
    root = group_roots(group.body)[0]
    return (accumulation(root) if 0 in _tiling(group).accumulated else root).dims[_tiling(group).dims[0]]


def _tiling(group: Group) -> Tiling:
    assert group.tiling is not None
    return group.tiling


def _along(group: Group) -> list[int | None]:
    """The blocked dimension of each result; None: it is accumulated."""
    return [None if n in _tiling(group).accumulated else d for n, d in enumerate(_tiling(group).dims)]


def _stages(
    lowering: Lowering,
    group: Group,
    inputs: Sequence[Array],
    results: Sequence[Array],
    start: int,
    size: int,
    template: Template | None = None,
) -> list[list[Item]]:
    """The operations of the block of so many indices from `start` on, a list for each of its groups.

    `template`: of which it is to be the block.
    """
    dims, vmem = lowering.bodies.dims(group), lowering.ctx.chip.vmem.bytes
    small, decided = lowering.bodies.of(group, size)
    lowering.ctx.explain += decided
    _plan(lowering.placement, group, size, small, vmem)
    parameters = group.body.parameters
    if start:
        inputs = _gone_on(group, inputs, results)
    parts = [_part(a, dims.get(p), start, size) for p, a in zip(parameters, inputs, strict=True)]
    along = _along(group)
    places = [_part(a, d, start, size) for a, d in zip(results, along, strict=True)]
    if template is not None:
        parts = [
            template.part(a, part, dims.get(p), size) for p, a, part in zip(parameters, inputs, parts, strict=True)
        ]
        places = [template.part(a, part, d, size) for a, part, d in zip(results, places, along, strict=True)]
    lowering.homes |= dict(zip(result_leaves(small), places, strict=True))
    several = _read_again(small, vmem - lowering.placement.live.get(group, 0))
    outer, lowering.ctx.block = lowering.ctx.block, Block()
    around, lowering.ctx.tiled = lowering.ctx.tiled, _overlap(lowering, group, small, size)
    parts = [_staged(lowering, a, p in several) for p, a in zip(small.parameters, parts, strict=True)]
    ends: list[int] = []
    trampoline(lowering.computation(small, parts, lambda i, value: ends.append(len(lowering.ctx.block.items))))
    items, lowering.ctx.block, lowering.ctx.tiled = lowering.ctx.block.items, outer, around
    return [items[a:b] for a, b in pairwise([0, *ends]) if a < b]


def _gone_on(group: Group, inputs: Sequence[Array], results: Sequence[Array]) -> list[Array]:
    """The operands of a block after the first: what is accumulated so far is where its results are."""
    roots, parameters = group_roots(group.body), group.body.parameters
    so_far = {roots[n].operands[0]: results[n] for n in _tiling(group).accumulated}
    return [so_far.get(p, a) for p, a in zip(parameters, inputs, strict=True)]


def _overlap(lowering: Lowering, group: Group, small: Computation, size: int) -> bool:
    """Whether blocks of a size overlap well enough without tiles: many do, whose rows fill vectors.

    Those with products have the tiles of these.
    """
    products = any(isinstance(i, Group) and i.unit is Unit.MXU for i in small.instructions)
    return not products and _whole(group) >= MANY * size and not _is_narrow(lowering, group)


def _read_again(small: Computation, free: int) -> list[Instruction]:
    """The operands of a block that several of its groups read, the smallest first, as far as there is room."""
    users = small.users()
    room = free * OPERANDS_SHARE
    found = []
    for p in sorted(small.parameters, key=lambda p: p.shape.bytes):
        if len(users[p]) > 1 and p.shape.bytes <= room:
            found.append(p)
            room -= p.shape.bytes
    return found


def _staged(lowering: Lowering, part: Array, several: bool) -> Array:
    """An operand of a block, loaded once if it is to be read more than once."""
    return lowering.ctx.stage_in(part, Box(part.origin, part.dims), "load block") if several else part


# The choice.


def _blockings(
    lowering: Lowering, group: Group, inputs: Sequence[Array], results: Sequence[Array]
) -> tuple[list[Blocking], list[Alternative]]:
    """The sizes that a block can have, the best first, and those that do not fit; one that does not fit if none does.

    Groups that are alike are estimated once.
    """
    live = lowering.placement.live.get(group, 0)
    room = int((lowering.ctx.chip.vmem.bytes - live) * PIPELINE_PART * lowering.placement.share)
    key = group_key(lowering.ctx, group, inputs, results, room)
    if key in lowering.blockings:
        return lowering.blockings[key]
    found: list[Blocking] = []
    rejected: list[Alternative] = []
    undivided = [_whole(group)] if _is_narrow(lowering, group) or _fits(lowering, group) else []
    products = any(family(i) is Family.CONTRACTION for i in group.body.instructions)
    for size in (*undivided, *sizes(_whole(group), FEWEST_OF_PRODUCTS if products else FEWEST)):
        trial, why = _tried(lowering, group, inputs, results, size, room)
        if trial is not None and (not why or (size == 1 and not found)):
            found.append(trial)
        elif why:
            rejected.append(Alternative(f"blocks of {size}", why, trial.numbers if trial else {}))
        if len(found) == SIZES + len(undivided):
            break
    alike = min(c.cycles for c in found) * (1 + ALIKE)
    found.sort(key=lambda c: (0, -c.at_once, -c.size) if c.cycles <= alike else (c.cycles,))
    lowering.blockings[key] = found, rejected
    return found, rejected


def _fits(lowering: Lowering, group: Group) -> bool:
    """Whether the group may run all at once in VMEM."""
    used = sum(i.shape.bytes for i in (*group.operands, group))
    return used <= (lowering.ctx.chip.vmem.bytes - lowering.placement.live.get(group, 0)) * BLOCK_SHARE


def _is_narrow(lowering: Lowering, group: Group) -> bool:
    """Whether rows of blocks are shorter than vectors: then all at once, values going to HBM, may be faster."""
    blocked = [(i, d) for i, d in lowering.bodies.dims(group).items() if d is not None and i.shape.is_array]
    largest, d = max(blocked, key=lambda each: prod(each[0].dims))
    return next(sizes(largest.dims[d])) * prod(largest.dims[d + 1 :]) < lowering.ctx.chip.vpu.lanes


def _tried(
    lowering: Lowering,
    group: Group,
    inputs: Sequence[Array],
    results: Sequence[Array],
    size: int,
    room: int,
) -> tuple[Blocking | None, str]:
    """Estimate of blocks of a size, from one lowered on trial (None: it was not), and why they do not fit."""
    vmem, blocks = lowering.ctx.chip.vmem.bytes, -(-_whole(group) // size)
    sub, (small, _) = lowering.apart(group), lowering.bodies.of(group, size)
    spilled = _plan(sub.placement, group, size, small, vmem).spilled - set(result_leaves(small))
    if spilled and 1 < size < _whole(group):
        return None, "values of one block go to HBM"
    try:
        stages = timed(_stages(sub, group, inputs, results, 0, size), lowering.ctx.chip)
        rows = _first_rows(sub.ctx.sums, lowering.ctx.chip)
        if sub.oversized:
            split(sub.oversized, Names([small.name]))
            return _tried(lowering, group, inputs, results, size, room)
    except DoesNotFitError:
        if size == 1:
            raise
        return None, "no tiles of a block fit"
    outside = {a.buf for a in (*inputs, *results)}
    for at_once in range(min(AT_ONCE, blocks), 0, -1):
        order = interleave(copies(stages, blocks, lowering.ctx.chip, sub.ctx.unit, rows), at_once)
        taken = order.peak(outside)
        if taken <= room:
            break
    fits = at_once >= min(2, blocks) and taken <= room
    return Blocking(size, blocks, taken, at_once, order.cycles), "" if fits else f"two do not fit in {room:,} bytes"


def _decision(
    group: Group, best: Blocking, found: Sequence[Blocking], rejected: Sequence[Alternative], why: str
) -> Decision:
    others = [
        Alternative(c.signature, "slower" if c.cycles > best.cycles else "hardly faster", c.numbers)
        for c in found
        if c is not best
    ]
    why = f"{why}; of {_whole(group)} along dimension {_tiling(group).dims[0]}"
    return Decision("blocks", group.name, best.signature, why, best.numbers, (*others, *rejected))


def _plan(placement: Placement, group: Group, size: int, small: Computation, vmem: int) -> Placement:
    """Place the values of a block of `size` indices beside what is alive around the group."""
    live = placement.live.get(group, 0)
    limit = live + int((vmem - live) * (BLOCK_SHARE if size < _whole(group) else VALUES_SHARE))
    placement.spilled |= set(result_leaves(small))
    place_computation(placement, small, vmem, limit, live + sum(p.shape.bytes for p in _read_again(small, vmem - live)))
    return placement


def _part(whole: Array, d: int | None, start: int, size: int) -> Array:
    """Some indices of one dimension of an array, as an array of its own."""
    if d is None:
        return whole
    origin = tuple(start if k == d else 0 for k in range(len(whole.dims)))
    part = view(whole, Box(origin, (*whole.dims[:d], size, *whole.dims[d + 1 :])))
    return replace(part, origin=(0,) * len(whole.dims))
