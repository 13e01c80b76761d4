"""Transposes in VMEM: the cross-lane unit copies a tile so that what is innermost in the results is innermost in it.

The vector unit reads or writes a vector of strided elements a few at a time; the cross-lane unit takes up to a row of
lanes at once along whichever dimension is contiguous on each side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box
from systolith.compiler.ops.expression import Load
from systolith.compiler.ops.expression_builder import GroupPlan
from systolith.compiler.tile.arrays import dense_like, nesting, view
from systolith.compiler.tile.ir import Array, Ref, TileOp
from systolith.compiler.tile.patterns import merged, stream
from systolith.compiler.vpu.emit import Context, addressed, vector_cycles
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.pattern import MAX_LOOPS
from systolith.isa.program import Origin
from systolith.isa.timing import shuffle_cost

TILES = 16
"""A group with transposes is split into so many tiles: a tile passes through one unit more."""


def shuffle(ctx: Context, src: Array, dst: Array, origin: Origin) -> None:
    """Append a copy by the cross-lane unit between arrays of the same dims in VMEM."""
    one, other = _streams(src, dst)
    ctx.append(TileOp("xlu.shuffle", {"src": one, "dst": other}, origin))


def shuffle_cycles(chip: Chip, src: Array, dst: Array) -> int:
    """Cycles of the cross-lane unit for what `shuffle` appends."""
    one, other = _streams(src, dst)
    return shuffle_cost(one.pattern, other.pattern, chip).occupancy


def _streams(src: Array, dst: Array) -> tuple[Ref, Ref]:
    loops = merged(range(len(src.dims)), src.dims, (src.strides, dst.strides))
    return stream(src, loops), stream(dst, loops)


@dataclass(frozen=True)
class Turns:
    """The transposes of a group that the cross-lane unit makes.

    Attributes:
        order: dimensions of the iteration space in the order in which they are split into tiles: both those of which
            neighbours lie together, before or after, come last, the larger one first.
        nests: for each leaf that is turned, numbers that are larger the further out a dimension is to lie.
        whole: the leaf that the group only copies, transposed.
        cycles: of the unit that has more to do.
    """

    order: tuple[int, ...] = ()
    nests: Mapping[Instruction, tuple[int, ...]] = field(default_factory=dict)
    whole: Load | None = None
    cycles: int = 0
    _kept: dict[Instruction, tuple[Array, Array]] = field(default_factory=dict)

    @property
    def copied(self) -> list[Instruction]:
        """Leaves of which there are turned copies."""
        return [] if self.whole else list(self.nests)

    def emit(
        self, ctx: Context, plan: GroupPlan, box: Box, leaves: Mapping[Instruction, Array], out: Array, origin: Origin
    ) -> dict[Instruction, Array] | None:
        """Append the turning of what a box reads; gives the leaves as they lie then, None if that was all."""
        if self.whole is not None:
            array = leaves[self.whole.leaf]
            spec = addressed(array, self.whole.map.shifted(box.origin), 0, box)
            source = replace(array, dims=box.dims, strides=spec.access.strides, origin=box.origin, offset=spec.offset)
            shuffle(ctx, source, view(out, box), origin)
            return None
        found = dict(leaves)
        for leaf, nest in self.nests.items():
            part = view(leaves[leaf], plan.footprint(leaf, box))
            if leaf not in self._kept or self._kept[leaf][0] != part:
                buf = ctx.vmem(f"{part.buf.name}.t", prod(part.dims) * part.dtype.size)
                turned = _like(replace(part, buf=buf), part.dims, nest)
                self._kept[leaf] = part, replace(turned, origin=part.origin)
                shuffle(ctx, *self._kept[leaf], origin)
            found[leaf] = self._kept[leaf][1]
        return found


def turns(chip: Chip, plan: GroupPlan, box: Box, arrays: Mapping[Instruction, Array], outs: Sequence[Array]) -> Turns:
    """The arrays of a group to transpose: those that save cycles of both units together."""
    axes = [d for d in nesting(outs[0].strides) if box.dims[d] > 1]
    nests = {
        load.leaf: nest
        for load in plan.loads
        if axes and (nest := _nest(plan, load, arrays[load.leaf], nesting(outs[0].strides), axes[-1])) is not None
    }
    if not nests:
        return Turns()
    straight = {leaf: _like(arrays[leaf], arrays[leaf].dims, nest) for leaf, nest in nests.items()}
    copied = 0
    for leaf, array in straight.items():
        dims = plan.footprint(leaf, box).dims
        sides = _like(arrays[leaf], dims, arrays[leaf].strides), _like(array, dims, array.strides)
        copied += shuffle_cycles(chip, *sides)
    whole = _only_load(plan, box, outs)
    before = vector_cycles(chip, plan, box, arrays, outs)
    after = 0 if whole else vector_cycles(chip, plan, box, {**arrays, **straight}, outs)
    if max(copied, after) + min(copied, after) // TILES >= before:
        return Turns()
    inner = {axes[-1]} | {innermost(plan, leaf, arrays[leaf]) for leaf in nests}
    order = sorted(range(len(box.dims)), key=lambda d: (d in inner, -box.dims[d] if d in inner else d))
    return Turns(tuple(order), nests, whole, max(copied, after))


def _like(array: Array, dims: tuple[int, ...], nest: Sequence[int]) -> Array:
    """A dense array of other dims, nested as `nest`, from the start of an array's buffer."""
    return Array(array.buf, array.dtype, dims, dense_like(dims, nest, array.dtype.size), (0,) * len(dims))


def _axes(load: Load) -> list[int] | None:
    """The iteration dimension that each dimension of a load's leaf follows, -1: none; None: not one by one."""
    found = [[d for d, c in enumerate(e.coefs) if c] for e in load.map.dims]
    used = [d for axes in found for d in axes]
    if not load.map.total or any(len(axes) > 1 for axes in found) or len(set(used)) < len(used):
        return None
    return [axes[0] if axes else -1 for axes in found]


def _nest(plan: GroupPlan, load: Load, array: Array, outer: Sequence[int], lane: int) -> tuple[int, ...] | None:
    """How a leaf is to be nested so that it follows the results; None: it does, or cannot."""
    axes = _axes(load)
    if axes is None or lane not in axes or sum(other.leaf is load.leaf for other in plan.loads) > 1:
        return None
    if array.buf.space not in (Space.HBM, Space.VMEM) or len(axes) > MAX_LOOPS:
        return None
    if innermost(plan, load.leaf, array) in (lane, -1):
        return None
    return tuple(len(outer) - (outer.index(d) if d >= 0 else -1) for d in axes)


def innermost(plan: GroupPlan, leaf: Instruction, array: Array) -> int:
    """The iteration dimension along which neighbours of a leaf in memory lie; -1: none, or not known."""
    loads = [n for n in plan.loads if n.leaf is leaf]
    axes = _axes(loads[0]) if len(loads) == 1 else None
    near = [d for d in nesting(array.strides) if array.dims[d] > 1]
    return axes[near[-1]] if axes is not None and near else -1


def _only_load(plan: GroupPlan, box: Box, outs: Sequence[Array]) -> Load | None:
    """The load that a group only stores."""
    (first, *more) = plan.nodes
    if more or not isinstance(first, Load) or outs[0].dtype is not first.leaf.shape.dtype:
        return None
    return first if plan.footprint(first.leaf, box).elements == box.elements else None
