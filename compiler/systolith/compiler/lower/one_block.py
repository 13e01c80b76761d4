"""One block of a group: the group on some indices of its blocked dimension, and where its values lie.

Of a block every operand and result is a view of the whole one; values in between lie in VMEM.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.trampoline import trampoline
from systolith.compiler.index.affine import Box
from systolith.compiler.lower.block_copies import Template
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.lower.values import Value
from systolith.compiler.memory.residency import VALUES_SHARE, Placement, leaves_read, place_computation, result_leaves
from systolith.compiler.memory.shares import Shares
from systolith.compiler.ops.expression_builder import group_roots
from systolith.compiler.ops.group import Group, Tiling, Unit, accumulation
from systolith.compiler.schedule.operation_times import Stage, timed
from systolith.compiler.schedule.pipeline import Order, interleave, periodic
from systolith.compiler.schedule.shared_places import sharing
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.builder import Sums
from systolith.compiler.tile.ir import Array, Block, Item
from systolith.compiler.tiling.block_sizes import Form, sizes
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space

BLOCK_SHARE = 0.5
"""Part of the free VMEM that the values of one block may take: the rest is for what runs ahead, and for tiles."""

OPERANDS_SHARE = 0.25
"""Part of the free VMEM that operands of a block may take which are loaded once for several groups."""

PIPELINE_PART = 2.0
"""The blocks in the making may take so many times the part of the free VMEM that tiles may take: where memory is tight,
smaller tiles go with smaller blocks."""

PRODUCTS_PART = 1.5
"""The same for blocks that sum products: what they load takes large places, which are hard to find beside whole values.
A training step of ResNet-50 would be lowered three times with 2."""

TURNS = 2
"""Blocks whose sums lie beside each other, at most: one is summed while the results of the one before it are taken."""

MANY = 8
"""Blocks that overlap well enough without being divided into tiles themselves."""


def one_block(
    lowering: Lowering,
    group: Group,
    inputs: Sequence[Array],
    results: Sequence[Array],
    start: int,
    form: Form,
    template: Template | None = None,
) -> list[list[Stage]]:
    """The stages of the block of a form from `start` on, one for each of its groups.

    Where one of its groups is in blocks itself, these: what comes before is in their first, what comes after in the
    last.  `template`: of which it is to be the block.
    """
    size = form.size
    dims, vmem = lowering.bodies.dims(group), lowering.ctx.chip.vmem.bytes
    small, decided = lowering.bodies.of(group, form)
    lowering.ctx.explain += decided
    plan_block(lowering, group, size, small, results)
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
    made_in = list(zip(result_leaves(small), places, strict=True))
    lowering.homes |= {leaf: place for leaf, place in made_in if leaf in lowering.placement.spilled}
    several = read_again(small, vmem - lowering.placement.live.get(group, 0))
    outer, lowering.ctx.block = lowering.ctx.block, Block()
    around, lowering.ctx.tiled = lowering.ctx.tiled, _overlap(lowering, group, small, size)
    parts = [_staged(lowering, a, p in several) for p, a in zip(small.parameters, parts, strict=True)]
    nests, lowering.nests = lowering.nests, []
    unit, lowering.ctx.own_unit = lowering.ctx.own_unit, lowering.ctx.unit - 1 if form.apart else None
    ends = [0]

    def made(i: Instruction, value: Value) -> None:
        lowering.store(i, value, made_in)
        ends.append(len(lowering.ctx.block.items))

    trampoline(lowering.computation(small, parts, made))
    items, lowering.ctx.block, lowering.ctx.tiled = lowering.ctx.block.items, outer, around
    nests, lowering.nests = lowering.nests, nests
    if lowering.ctx.own_unit is not None:  # where a block ends the next one begins: all units have as many products
        lowering.ctx.unit = (lowering.ctx.own_unit + 1) % lowering.ctx.chip.mxu.count
    lowering.ctx.own_unit = unit
    chip = lowering.ctx.chip
    if len(nests) == 1:
        ((first, blocks, _),) = nests
        before, after = timed([items[:first], items[first + len(in_turn(blocks)) :]], chip)
        none, last = Stage(()), len(blocks) - 1
        return [[before if n == 0 else none, *block, after if n == last else none] for n, block in enumerate(blocks)]
    for first, blocks, most in nests:
        order = order_of(blocks, most, chip)
        items[first : first + len(order.ops)] = sharing(blocks, order.ops, order.places, room_for(lowering, group))
    return [timed([items[a:b] for a, b in pairwise(ends) if a < b], chip)]


def _gone_on(group: Group, inputs: Sequence[Array], results: Sequence[Array]) -> list[Array]:
    """The operands of a block after the first: what is accumulated so far is where its results are."""
    roots, parameters = group_roots(group.body), group.body.parameters
    so_far = {roots[n].operands[0]: results[n] for n in tiling_of(group).accumulated}
    return [so_far.get(p, a) for p, a in zip(parameters, inputs, strict=True)]


def _overlap(lowering: Lowering, group: Group, small: Computation, size: int) -> bool:
    """Whether blocks of a size overlap well enough without tiles: many do, whose rows fill vectors.

    Those with products have the tiles of these.
    """
    return not products_in(small) and blocked_size(group) >= MANY * size and not is_narrow(lowering, group)


def read_again(small: Computation, free: int) -> list[Instruction]:
    """The operands of a block that several of its groups read, the smallest first, as far as there is room."""
    users = small.users()
    room = free * OPERANDS_SHARE
    found = []
    for p in sorted(small.parameters, key=lambda p: p.shape.bytes):
        if readers(users, p) > 1 and p.shape.bytes <= room:
            found.append(p)
            room -= p.shape.bytes
    return found


def readers(users: Mapping[Instruction, Sequence[Instruction]], value: Instruction) -> int:
    """How often a value is read, as it is or as a view of it."""
    return sum(readers(users, u) if u.opcode in ("bitcast", "reshape") else 1 for u in users[value])


def _staged(lowering: Lowering, part: Array, several: bool) -> Array:
    """An operand of a block, loaded once if it is to be read more than once."""
    return lowering.ctx.stage_in(part, Box(part.origin, part.dims), "load block") if several else part


def plan_block(lowering: Lowering, group: Group, size: int, small: Computation, results: Sequence[Array]) -> Placement:
    """Place the values of a block of `size` indices beside what is alive around the group.

    What else in the block reads of a result in HBM stays in VMEM, too, if no other value has to leave for that.
    """
    placement, vmem = lowering.placement, lowering.ctx.chip.vmem.bytes
    live = placement.live.get(group, 0)
    limit = live + int((vmem - live) * (BLOCK_SHARE if size < blocked_size(group) else VALUES_SHARE))
    around = live + sum(p.shape.bytes for p in read_again(small, vmem - live))
    leaves, read = result_leaves(small), leaves_read(small)
    kept = {leaf for leaf, a in zip(leaves, results, strict=True) if leaf in read and a.buf.space is Space.HBM}
    shares = Shares((), _share(lowering, group))
    trial = Placement(set(leaves) - kept, shares=shares)
    place_computation(trial, small, vmem, limit, around)
    if kept and not trial.spilled.issubset(leaves):
        trial = Placement(set(leaves), shares=shares)
        place_computation(trial, small, vmem, limit, around)
    placement.spilled = (placement.spilled - set(leaves)) | trial.spilled
    placement.live |= trial.live
    placement.budget |= trial.budget
    return placement


def _part(whole: Array, d: int | None, start: int, size: int) -> Array:
    """Some indices of one dimension of an array, as an array of its own."""
    if d is None:
        return whole
    origin = tuple(start if k == d else 0 for k in range(len(whole.dims)))
    part = view(whole, Box(origin, (*whole.dims[:d], size, *whole.dims[d + 1 :])))
    return replace(part, origin=(0,) * len(whole.dims))


def in_turn(blocks: Sequence[Sequence[Stage]]) -> list[Item]:
    """The operations of blocks, one block after another."""
    return [op.item for block in blocks for stage in block for op in stage.ops]


def order_of(blocks: Sequence[Sequence[Stage]], most: int, chip: Chip) -> Order:
    """The order in which the operations of blocks are to run."""
    depth = chip.fifo.depth
    return periodic(blocks, most, interleave(blocks, most, depth), depth)


def first_rows(sums: Sequence[Sums], chip: Chip) -> list[int]:
    """The first accumulator rows of blocks, in turn: of as many as have room beside each other, `TURNS` at most.

    Blocks that begin with the same rows are alike, so that loops can be made of them.  `sums`: of one block.
    """
    taken: dict[int, int] = defaultdict(int)
    for s in sums:
        taken[s.unit] += s.rows
    rows = max(taken.values(), default=chip.mxu.acc_rows)
    return [n * rows for n in range(max(1, min(chip.mxu.acc_rows // rows, TURNS)))]


def room_for(lowering: Lowering, group: Group) -> int:
    """Bytes of VMEM that blocks in the making may take, beside what they accumulate."""
    roots = group_roots(group.body)
    live = lowering.placement.live.get(group, 0) + sum(roots[n].shape.bytes for n in tiling_of(group).accumulated)
    part = PRODUCTS_PART if group.sums_products else PIPELINE_PART
    return int((lowering.ctx.chip.vmem.bytes - live) * part * _share(lowering, group))


def is_narrow(lowering: Lowering, group: Group) -> bool:
    """Whether rows of blocks are shorter than vectors: then all at once, values going to HBM, may be faster."""
    blocked = [(i, d) for i, d in lowering.bodies.dims(group).items() if d is not None and i.shape.is_array]
    largest, d = max(blocked, key=lambda each: prod(each[0].dims))
    return next(sizes(largest.dims[d])) * prod(largest.dims[d + 1 :]) < lowering.ctx.chip.vpu.lanes


def _share(lowering: Lowering, group: Group) -> float:
    """Part of the free VMEM that the tiles of a group may take; in a block of another, that one's."""
    return lowering.placement.shares.of(lowering.ctx.region or group)


def products_in(small: Computation) -> int:
    """Groups of the matrix units in a block."""
    return sum(isinstance(i, Group) and i.unit is Unit.MXU for i in small.instructions)


def blocked_size(group: Group) -> int:
    """Indices of the blocked dimension."""
    root, d = group_roots(group.body)[0], tiling_of(group).dims[0]
    return (accumulation(root, d)[0][0] if 0 in tiling_of(group).accumulated else root).dims[d]


def _along(group: Group) -> list[int | None]:
    """The blocked dimension of each result; None: it is accumulated."""
    return [None if n in tiling_of(group).accumulated else d for n, d in enumerate(tiling_of(group).dims)]


def tiling_of(group: Group) -> Tiling:
    """How a blocked group runs in blocks."""
    assert group.tiling is not None
    return group.tiling
