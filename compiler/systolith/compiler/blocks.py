"""Lowering of blocked groups: the group on some indices of its blocked dimension, one block after another.

Of a block every operand and result is a view of the whole one; values in between lie in VMEM.  The number of indices is
the largest with which a block leaves room for the next one's operands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from systolith.compiler.affine import Box
from systolith.compiler.block_dims import blocked_along, blocked_dims, resized
from systolith.compiler.blocking import outline
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.fusion import group_computation
from systolith.compiler.group import group_roots
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.lowering import view
from systolith.compiler.multi_output import fuse_outputs
from systolith.compiler.placement import Placement, place_computation, result_leaves
from systolith.compiler.tile.ir import Array, Block, If, TileOp, While
from systolith.isa.chip import Chip

if TYPE_CHECKING:
    from systolith.compiler.walk import Walk

T = TypeVar("T")

Stage = list[TileOp | While | If]
"""Operations of one group of one block."""

BLOCK_SHARE = 0.5
"""Part of the free VMEM that the values of one block may take: the rest is for what runs ahead, and for tiles."""

OPERANDS_SHARE = 0.25
"""Part of the free VMEM that operands of a block may take which are loaded once for several groups."""

PIPELINE_PART = 1.5
"""The values of all blocks in the pipeline may take so many times the part of the free VMEM that tiles may take: where
memory is tight, smaller tiles go with smaller blocks."""

BLOCKS_WANTED = 16
"""Blocks to have at least, so that transfers of one overlap the computation of another."""


@lru_cache(maxsize=256)
def block(group: Instruction, size: int, chip: Chip) -> tuple[Computation, list[Decision]]:
    """The grouped computation of a block of `size` indices, and what was decided about its groups' results.

    One index of it may be too much, too: then it runs in blocks of another dimension.
    """
    small = resized(group.computation("calls"), _dims(group), size)
    if size == 1:
        outline(small, chip.vmem.bytes)
    group_computation(small)
    return small, fuse_outputs(small, chip)


@lru_cache(maxsize=64)
def _dims(group: Instruction) -> dict[Instruction, int | None]:
    computation = group.computation("calls")
    return blocked_dims(computation, list(zip(group_roots(computation), blocked_along(group), strict=True)))


def lower_blocks(walk: Walk, group: Instruction, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower a blocked group; `operands` and `results` are its arrays."""
    computation, dims = group.computation("calls"), _dims(group)
    whole = group_roots(computation)[0].dims[blocked_along(group)[0]]
    size, depth, decision = _choose(walk, group, whole)
    walk.ctx.explain.append(decision)
    inputs = [
        a if dims.get(p) is not None else walk.near(a) for p, a in zip(computation.parameters, operands, strict=True)
    ]
    stages: list[list[Stage]] = []
    for start in range(0, whole, size):
        here = min(size, whole - start)
        small, decided = block(group, here, walk.ctx.chip)
        walk.ctx.explain += decided
        _plan(walk.placement, group, small, walk.ctx.chip.vmem.bytes)
        parts = [_part(a, dims.get(p), start, here) for p, a in zip(computation.parameters, inputs, strict=True)]
        places = [_part(a, d, start, here) for a, d in zip(results, blocked_along(group), strict=True)]
        walk.homes |= dict(zip(result_leaves(small), places, strict=True))
        several = _read_again(small, walk.ctx.chip.vmem.bytes - walk.placement.live.get(group, 0))
        stages.append(joined(_lowered(walk, small, parts, several), depth))
    walk.ctx.block.items += [item for stage in skewed(stages) for item in stage]


def _lowered(walk: Walk, small: Computation, parts: Sequence[Array], several: Collection[Instruction]) -> list[Stage]:
    """The operations of a block in stages, one for each of its groups; operands in `several` are loaded first.

    What a group computes once the cross-lane unit is done belongs to the next stage: the vector unit computes for
    another block meanwhile.
    """
    outer, walk.ctx.block = walk.ctx.block, Block()
    parts = [_staged(walk, a, p in several) for p, a in zip(small.parameters, parts, strict=True)]
    ends: list[int] = []
    walk.computation(small, parts, lambda i, value: ends.append(len(walk.ctx.block.items)))
    items, walk.ctx.block = walk.ctx.block.items, outer
    across = [n + 1 for n, item in enumerate(items) if isinstance(item, TileOp) and item.op == "xlu.reduce"]
    cuts = [max((n for n in across if a < n <= b), default=b) for a, b in pairwise([0, *ends])]
    stages = [items[a:b] for a, b in pairwise([0, *cuts]) if a < b]
    rest = items[cuts[-1] :] if cuts else []
    return [*stages, rest] if rest else stages


def joined(stages: Sequence[Stage], depth: int) -> list[Stage]:
    """Neighbouring stages put together, so that there are at most `depth`."""
    each = -(-len(stages) // depth)
    return [[item for stage in stages[i : i + each] for item in stage] for i in range(0, len(stages), each)]


def skewed(blocks: Sequence[Sequence[T]]) -> Iterator[T]:
    """The stages of blocks as a software pipeline has them: stage k of block b in step b + k, later blocks first."""
    depth = max(len(stages) for stages in blocks)
    for step in range(len(blocks) + depth - 1):
        for b in reversed(range(max(0, step - depth + 1), min(step + 1, len(blocks)))):
            if step - b < len(blocks[b]):
                yield blocks[b][step - b]


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


def _staged(walk: Walk, part: Array, several: bool) -> Array:
    """An operand of a block, loaded once if it is to be read more than once."""
    return walk.ctx.stage_in(part, Box(part.origin, part.dims), "load block") if several else part


def _choose(walk: Walk, group: Instruction, whole: int) -> tuple[int, int, Decision]:
    """The largest block with which every stage of the pipeline has room; else one index, and fewer stages.

    Returns:
        Indices of a block, stages at most, and why.
    """
    chip = walk.ctx.chip
    rejected: list[Alternative] = []
    for size in _sizes(whole):
        small, _ = block(group, size, chip)
        depth = sum(i.opcode == "fusion" for i in small.instructions)
        trial = _plan(Placement(live=walk.placement.live, share=walk.placement.share), group, small, chip.vmem.bytes)
        live = trial.live.get(group, 0)
        # In the pipeline there is a block in each stage.
        values = sum(trial.live[i] - live for i in small.instructions if i.opcode == "fusion")
        spilled = any(leaf not in result_leaves(small) for leaf in trial.spilled)
        room = int((chip.vmem.bytes - live) * PIPELINE_PART * walk.placement.share)
        numbers = {"blocks": -(-whole // size), "bytes in flight": values, "bytes free": room}
        if not spilled and values <= room:
            why = f"the largest of at least {min(BLOCKS_WANTED, whole)} blocks that fits"
            break
        why = "values of one block go to HBM" if spilled else "the pipeline's values do not fit"
        rejected.append(Alternative(f"blocks of {size}", why, numbers))
    else:
        rejected.pop()
        depth = 1 if spilled else -(-depth * room // values)
        numbers["stages"] = depth
    chosen = f"blocks of {size} of {whole} along dimension {blocked_along(group)[0]}"
    return size, depth, Decision("blocks", group.name, chosen, why, numbers, tuple(rejected))


def _sizes(whole: int) -> Iterator[int]:
    pieces = min(BLOCKS_WANTED, whole)
    last = 0
    while True:
        size = -(-whole // pieces)
        if size != last:
            yield size
        if size == 1:
            return
        last, pieces = size, pieces * 2


def _plan(placement: Placement, group: Instruction, small: Computation, vmem: int) -> Placement:
    """Place the values of a block beside what is alive around the group."""
    live = placement.live.get(group, 0)
    limit = live + int((vmem - live) * BLOCK_SHARE)
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
