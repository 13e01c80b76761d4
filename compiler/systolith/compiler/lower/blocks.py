"""Lowering of blocked groups: the group on some indices of its blocked dimension, one block after another.

Of a block every operand and result is a view of the whole one; values in between lie in VMEM.  Several blocks are in
the making at a time, their operations in one order (`schedule/pipeline.py`).  How many indices a block has is the
choice of an estimate: one block of each size is lowered and put in order with copies of itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
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
from systolith.compiler.lower.block_copies import Template, can_be_copied
from systolith.compiler.lower.lowered import Nest
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.lower.values import Value
from systolith.compiler.memory.residency import VALUES_SHARE, Placement, leaves_read, place_computation, result_leaves
from systolith.compiler.memory.shares import Shares
from systolith.compiler.ops.expression_builder import group_roots
from systolith.compiler.ops.group import Group, Tiling, Unit, accumulation
from systolith.compiler.ops.table import Family, family
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.schedule.operation_times import Stage, copies, timed
from systolith.compiler.schedule.pipeline import Order, interleave, periodic
from systolith.compiler.schedule.shared_places import sharing
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

PRODUCTS_PART = 1.5
"""The same for blocks that sum products: what they load takes large places, which are hard to find beside whole values.
A training step of ResNet-50 would be lowered three times with 2."""

AT_ONCE = 4
"""Blocks in the making at most; more keep no unit busier."""

TURNS = 2
"""Blocks whose sums lie beside each other, at most: one is summed while the results of the one before it are taken."""

LOOKED_AT = 16
"""Blocks that are put in order for an estimate; others take as long as those in the middle."""

NESTED_LOOKED_AT = 3
"""Blocks in blocks that are; others take as long as the last of them."""

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


LOADED_AGAIN = "would be loaded for each of its groups"
"""Why large blocks are not wanted that would fit."""

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
    decided = len(ctx.explain)
    ctx.explain.append(_decision(group, best, found, rejected, why))
    if ctx.region is not None and any(not a.why.endswith(LOADED_AGAIN) for a in rejected):
        lowering.cramped.add(ctx.region)
    blocks = _all_blocks(lowering, group, inputs, results, best)
    if ctx.region not in (None, group) and not _tiling(group).accumulated:
        lowering.nests.append(Nest(len(ctx.block.items), blocks, best.at_once))
        ctx.block.items += _in_turn(blocks)
    else:
        order = _order(blocks, best.at_once, ctx.chip)
        ctx.explain[decided] = _decision(group, replace(best, cycles=order.cycles), found, rejected, why)
        ctx.block.items += sharing(blocks, order.ops, order.places, _room(lowering, group))
    for array, home in zip(results, homes, strict=True):
        ctx.stage_out(array, home, Box(home.origin, home.dims))
    ctx.plans = found


def _in_turn(blocks: Sequence[Sequence[Stage]]) -> list[Item]:
    """The operations of blocks, one block after another."""
    return [op.item for block in blocks for stage in block for op in stage.ops]


def _order(blocks: Sequence[Sequence[Stage]], most: int, chip: Chip) -> Order:
    """The order in which the operations of blocks are to run."""
    depth = chip.fifo.depth
    return periodic(blocks, most, interleave(blocks, most, depth), depth)


def _on_chip(lowering: Lowering, group: Group, results: Sequence[Array]) -> list[Array]:
    """The results of a group, those in HBM that blocks accumulate in VMEM."""
    found = list(results)
    for n in _tiling(group).accumulated:
        found[n] = lowering.ctx.out_tile(results[n], Box(results[n].origin, results[n].dims))
    return found


def _all_blocks(
    lowering: Lowering, group: Group, inputs: Sequence[Array], results: Sequence[Array], way: Blocking
) -> list[Sequence[Stage]]:
    """The stages of every block: of the first, which loads what is loaded once, of others and of their copies.

    A block is copied where the matrix units and accumulators that come next are those that came next when another one
    was lowered.
    """
    ctx, whole, size = lowering.ctx, _whole(group), way.size
    full = whole // size
    ctx.begin_sums()
    before = len(ctx.sums)
    made = [_block(lowering, group, inputs, results, 0, min(size, whole), way.apart)]
    rows = _first_rows(ctx.sums[before:], ctx.chip)
    known: dict[Hashable, Template] = {}
    copied = full > LEAST_COPIED and can_be_copied(made[0])
    for n, start in enumerate(range(size, whole, size), 1):
        ctx.begin_sums(rows[n % len(rows)])
        state = ctx.state
        if copied and n < full and state not in known:
            template = Template(ctx, n, shared={copy.buf for copy in lowering.cache.values()})
            template.lowered(_block(lowering, group, inputs, results, start, size, way.apart, template))
            copied = template.copies
            if copied:
                known[state] = template
            else:
                ctx.proceed(state)
        if copied and n < full:
            made.append(known[state].copy(n))
        else:
            made.append(_block(lowering, group, inputs, results, start, min(size, whole - start), way.apart))
    return [inner for block in made for inner in block]


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
    root, d = group_roots(group.body)[0], _tiling(group).dims[0]
    return (accumulation(root, d)[0][0] if 0 in _tiling(group).accumulated else root).dims[d]


def _tiling(group: Group) -> Tiling:
    assert group.tiling is not None
    return group.tiling


def _along(group: Group) -> list[int | None]:
    """The blocked dimension of each result; None: it is accumulated."""
    return [None if n in _tiling(group).accumulated else d for n, d in enumerate(_tiling(group).dims)]


def _block(
    lowering: Lowering,
    group: Group,
    inputs: Sequence[Array],
    results: Sequence[Array],
    start: int,
    size: int,
    apart: bool,
    template: Template | None = None,
) -> list[list[Stage]]:
    """The stages of the block of so many indices from `start` on, one for each of its groups.

    Where one of its groups is in blocks itself, these: what comes before is in their first, what comes after in the
    last.  `apart`: whether each of its products has a matrix unit of its own.  `template`: of which it is to be the
    block.
    """
    dims, vmem = lowering.bodies.dims(group), lowering.ctx.chip.vmem.bytes
    small, decided = lowering.bodies.of(group, size)
    lowering.ctx.explain += decided
    _plan(lowering, group, size, small, results)
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
    several = _read_again(small, vmem - lowering.placement.live.get(group, 0))
    outer, lowering.ctx.block = lowering.ctx.block, Block()
    around, lowering.ctx.tiled = lowering.ctx.tiled, _overlap(lowering, group, small, size)
    parts = [_staged(lowering, a, p in several) for p, a in zip(small.parameters, parts, strict=True)]
    nests, lowering.nests = lowering.nests, []
    unit, lowering.ctx.own_unit = lowering.ctx.own_unit, -1 if apart else None
    ends = [0]

    def made(i: Instruction, value: Value) -> None:
        lowering.store(i, value, made_in)
        ends.append(len(lowering.ctx.block.items))

    trampoline(lowering.computation(small, parts, made))
    items, lowering.ctx.block, lowering.ctx.tiled = lowering.ctx.block.items, outer, around
    nests, lowering.nests = lowering.nests, nests
    lowering.ctx.own_unit = unit
    chip = lowering.ctx.chip
    if len(nests) == 1:
        ((first, blocks, _),) = nests
        before, after = timed([items[:first], items[first + len(_in_turn(blocks)) :]], chip)
        none, last = Stage(()), len(blocks) - 1
        return [[before if n == 0 else none, *block, after if n == last else none] for n, block in enumerate(blocks)]
    for first, blocks, most in nests:
        order = _order(blocks, most, chip)
        items[first : first + len(order.ops)] = sharing(blocks, order.ops, order.places, _room(lowering, group))
    return [timed([items[a:b] for a, b in pairwise(ends) if a < b], chip)]


def _gone_on(group: Group, inputs: Sequence[Array], results: Sequence[Array]) -> list[Array]:
    """The operands of a block after the first: what is accumulated so far is where its results are."""
    roots, parameters = group_roots(group.body), group.body.parameters
    so_far = {roots[n].operands[0]: results[n] for n in _tiling(group).accumulated}
    return [so_far.get(p, a) for p, a in zip(parameters, inputs, strict=True)]


def _overlap(lowering: Lowering, group: Group, small: Computation, size: int) -> bool:
    """Whether blocks of a size overlap well enough without tiles: many do, whose rows fill vectors.

    Those with products have the tiles of these.
    """
    return not _products(small) and _whole(group) >= MANY * size and not _is_narrow(lowering, group)


def _products(small: Computation) -> int:
    """Groups of the matrix units in a block."""
    return sum(isinstance(i, Group) and i.unit is Unit.MXU for i in small.instructions)


def _read_again(small: Computation, free: int) -> list[Instruction]:
    """The operands of a block that several of its groups read, the smallest first, as far as there is room."""
    users = small.users()
    room = free * OPERANDS_SHARE
    found = []
    for p in sorted(small.parameters, key=lambda p: p.shape.bytes):
        if _readers(users, p) > 1 and p.shape.bytes <= room:
            found.append(p)
            room -= p.shape.bytes
    return found


def _readers(users: Mapping[Instruction, Sequence[Instruction]], value: Instruction) -> int:
    """How often a value is read, as it is or as a view of it."""
    return sum(_readers(users, u) if u.opcode in ("bitcast", "reshape") else 1 for u in users[value])


def _loaded_again(lowering: Lowering, group: Group, inputs: Sequence[Array], small: Computation) -> Instruction | None:
    """An operand that has no room in VMEM whole, so that each of the groups in a block that read it loads it; None:
    there is none.
    """
    dims, users = lowering.bodies.dims(group), small.users()
    kept = _read_again(small, lowering.ctx.chip.vmem.bytes - lowering.placement.live.get(group, 0))
    for p, part, array in zip(group.body.parameters, small.parameters, inputs, strict=True):
        if dims.get(p) is not None and array.buf.space is Space.HBM and _readers(users, part) > 1 and part not in kept:
            return part
    return None


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
    room = _room(lowering, group)
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
    best = min(found, key=lambda c: c.cycles)
    if lowering.ctx.chip.mxu.count > 1 and _products(lowering.bodies.of(group, best.size)[0]) > 1:
        trial, why = _tried(lowering, group, inputs, results, best.size, room, apart=True)
        found += [trial] if trial is not None and not why and trial.cycles < best.cycles else []
    alike = min(c.cycles for c in found) * (1 + ALIKE)
    found.sort(key=lambda c: (0, -c.at_once, -c.size) if c.cycles <= alike else (c.cycles,))
    lowering.blockings[key] = found, rejected
    return found, rejected


def _room(lowering: Lowering, group: Group) -> int:
    """Bytes of VMEM that blocks in the making may take, beside what they accumulate."""
    roots = group_roots(group.body)
    live = lowering.placement.live.get(group, 0) + sum(roots[n].shape.bytes for n in _tiling(group).accumulated)
    part = PRODUCTS_PART if group.sums_products else PIPELINE_PART
    return int((lowering.ctx.chip.vmem.bytes - live) * part * _share(lowering, group))


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
    apart: bool = False,
) -> tuple[Blocking | None, str]:
    """Estimate of blocks of a size, from one lowered on trial (None: it was not), and why they do not fit."""
    blocks = -(-_whole(group) // size)
    sub, (small, _) = lowering.apart(group), lowering.bodies.of(group, size)
    spilled = _plan(sub, group, size, small, results).spilled - set(result_leaves(small))
    if 1 < size < _whole(group):
        if spilled:
            return None, "values of one block go to HBM"
        if again := _loaded_again(lowering, group, inputs, small):
            return None, f"{again.name} {LOADED_AGAIN}"
    try:
        block = _block(sub, group, inputs, results, 0, size, apart)
        rows = _first_rows(sub.ctx.sums, lowering.ctx.chip)
        if sub.oversized:
            split(sub.oversized, Names([small.name]))
            return _tried(lowering, group, inputs, results, size, room, apart)
    except DoesNotFitError:
        if size == 1:
            raise
        return None, "no tiles of a block fit"
    outside = {a.buf for a in (*inputs, *results)}
    some = min(blocks, LOOKED_AT if len(block) == 1 else NESTED_LOOKED_AT)
    every = copies(block, some, lowering.ctx.chip, sub.ctx.unit, rows, outside)
    for at_once in range(min(AT_ONCE, len(every)), 0, -1):
        order = interleave(every, at_once, lowering.ctx.chip.fifo.depth)
        taken = order.peak(outside)
        if taken <= room:
            break
    fits = at_once >= min(2, blocks) and taken <= room
    cycles = _cycles(order, len(block), some, blocks)
    return Blocking(size, blocks, taken, at_once, cycles, apart), "" if fits else f"two do not fit in {room:,} bytes"


def _cycles(order: Order, parts: int, some: int, blocks: int) -> int:
    """Cycles of so many blocks, of which some are in order, each as `parts`; others take as long as those in the
    middle, around which others are in the making.
    """
    if some == blocks:
        return order.cycles
    first, last = (some // 4, 3 * some // 4) if parts == 1 else (some - 2, some - 1)
    start, end = (order.done[(n + 1) * parts - 1] for n in (first, last))
    return order.cycles + (blocks - some) * (end - start) // (last - first)


def _decision(
    group: Group, best: Blocking, found: Sequence[Blocking], rejected: Sequence[Alternative], why: str
) -> Decision:
    others = [
        Alternative(c.signature, "slower" if c.cycles > best.cycles else "hardly faster", c.numbers)
        for c in found
        if c.signature != best.signature
    ]
    why = f"{why}; of {_whole(group)} along dimension {_tiling(group).dims[0]}"
    return Decision("blocks", group.name, best.signature, why, best.numbers, (*others, *rejected))


def _plan(lowering: Lowering, group: Group, size: int, small: Computation, results: Sequence[Array]) -> Placement:
    """Place the values of a block of `size` indices beside what is alive around the group.

    What else in the block reads of a result in HBM stays in VMEM, too, if no other value has to leave for that.
    """
    placement, vmem = lowering.placement, lowering.ctx.chip.vmem.bytes
    live = placement.live.get(group, 0)
    limit = live + int((vmem - live) * (BLOCK_SHARE if size < _whole(group) else VALUES_SHARE))
    around = live + sum(p.shape.bytes for p in _read_again(small, vmem - live))
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


def _share(lowering: Lowering, group: Group) -> float:
    """Part of the free VMEM that the tiles of a group may take; in a block of another, that one's."""
    return lowering.placement.shares.of(lowering.ctx.region or group)


def _part(whole: Array, d: int | None, start: int, size: int) -> Array:
    """Some indices of one dimension of an array, as an array of its own."""
    if d is None:
        return whole
    origin = tuple(start if k == d else 0 for k in range(len(whole.dims)))
    part = view(whole, Box(origin, (*whole.dims[:d], size, *whole.dims[d + 1 :])))
    return replace(part, origin=(0,) * len(whole.dims))
