"""Transposes in VMEM: the cross-lane unit copies a tile so that what is innermost in the results is innermost in it.

The vector unit reads or writes a vector of strided elements a few at a time; the cross-lane unit takes up to a row of
lanes at once along whichever dimension is contiguous on each side.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box
from systolith.compiler.ops.expression import Load
from systolith.compiler.ops.expression_builder import GroupPlan
from systolith.compiler.tile.arrays import dense_like, nesting, view
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.compiler.vpu.emit import StreamSpec, addressed, vector_cycles
from systolith.compiler.vpu.shuffles import shuffle, shuffle_cycles
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.pattern import MAX_LOOPS
from systolith.isa.program import Origin

MOST_PARTS = 4
"""Elements with more parts are copied as they lie."""

PARTS_SHARE = 8
"""Groups that are not in a block compute with elements of up to this part of the lanes; in blocks others wait for the
cross-lane unit.
"""

RESULTS_SHARE = 2
"""Results alone are put together of elements of up to this part of the lanes: a row would fill no more of a vector."""

FEWEST = 64
"""Elements of an array whose parts are worth turning, at least."""

TILES = 16
"""A group with transposes is split into so many tiles: a tile passes through one unit more."""


@dataclass(frozen=True)
class Turns:
    """The transposes of a group that the cross-lane unit makes.

    Attributes:
        order: dimensions of the iteration space in the order in which they are split into tiles: both those of which
            neighbours lie together, before or after, come last, the larger one first.
        nests: for each leaf that is turned, numbers that are larger the further out a dimension is to lie, negative for
            one that is to lie in reverse.
        whole: the leaf that the group only copies, transposed.
        cycles: of the unit that has more to do.
        outs: for each result that is computed in another order, as for `nests`, by its number.
        least: sizes of tiles, so that both copies of what is read in reverse have full rows.
    """

    order: tuple[int, ...] = ()
    nests: Mapping[Instruction, tuple[int, ...]] = field(default_factory=dict)
    whole: Load | None = None
    cycles: int = 0
    outs: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    least: tuple[int, ...] | None = None
    _kept: dict[Instruction, tuple[Array, Array]] = field(default_factory=dict)

    @property
    def copied(self) -> list[Instruction]:
        """Leaves of which there are turned copies."""
        return [] if self.whole else list(self.nests)

    @property
    def any(self) -> bool:
        """Whether there is something to turn."""
        return bool(self.nests or self.outs)

    def targets(self, ctx: TileBuilder, targets: Sequence[Array]) -> list[Array]:
        """Where to compute results that are to come to `targets`."""
        found = list(targets)
        for n, nest in self.outs.items():
            found[n] = _nested(ctx, targets[n], nest)
        return found

    def as_made(self, targets: Sequence[Array]) -> list[Array]:
        """The same for costs."""
        found = list(targets)
        for n, nest in self.outs.items():
            found[n] = replace(_like(targets[n], targets[n].dims, nest), origin=targets[n].origin)
        return found

    def with_results(self, chip: Chip, targets: Sequence[Array], outer: Sequence[int]) -> Turns:
        """Results, too, are computed with their dimensions nested in an order, the outermost first."""
        nest = tuple(len(outer) - outer.index(d) if d in outer else len(outer) + 1 for d in range(len(targets[0].dims)))
        made = replace(self, outs=dict.fromkeys(range(len(targets)), nest))
        pairs = zip(made.as_made(targets), targets, strict=True)
        return replace(made, cycles=self.cycles + sum(shuffle_cycles(chip, *pair) for pair in pairs))

    def finish(self, ctx: TileBuilder, made: Sequence[Array], targets: Sequence[Array], origin: Origin) -> None:
        """Append the turning of results that were computed in `made`."""
        for n in self.outs:
            shuffle(ctx, made[n], targets[n], origin)

    def emit(
        self,
        ctx: TileBuilder,
        plan: GroupPlan,
        box: Box,
        leaves: Mapping[Instruction, Array],
        out: Array,
        origin: Origin,
    ) -> dict[Instruction, Array] | None:
        """Append the turning of what a box reads; gives the leaves as they lie then, None if that was all."""
        if self.whole is not None:
            array = leaves[self.whole.leaf]
            spec = addressed(array, self.whole.map.shifted(box.origin), 0, box)
            shuffle(ctx, _moved(array, box, spec), view(out, box), origin)
            return None
        return self.turned(ctx, plan, box, leaves, origin)

    def turned(
        self, ctx: TileBuilder, plan: GroupPlan, box: Box, leaves: Mapping[Instruction, Array], origin: Origin
    ) -> dict[Instruction, Array]:
        """The same for what is not only copied."""
        found = dict(leaves)
        for leaf, nest in self.nests.items():
            reached = plan.footprint(leaf, box)
            if not prod(reached.dims):
                continue  # the box lies in another part of a concatenation
            part = view(leaves[leaf], reached)
            if leaf not in self._kept or self._kept[leaf][0] != part:
                self._kept[leaf] = part, _nested(ctx, part, nest)
                shuffle(ctx, *self._kept[leaf], origin)
            found[leaf] = self._kept[leaf][1]
        return found


def turns(
    chip: Chip,
    plan: GroupPlan,
    box: Box,
    arrays: Mapping[Instruction, Array],
    outs: Sequence[Array],
    most: int = MOST_PARTS,
) -> Turns:
    """The arrays of a group to transpose: those that save cycles of both units together.

    `most`: parts that an element may have to be taken apart, if the group computes something.
    """
    whole = _only_load(plan, box, outs)
    apart = _parts_apart(chip, plan, box, arrays, outs, most if whole is None else MOST_PARTS, whole is None)
    if apart.any:
        return apart
    axes = [d for d in nesting(outs[0].strides) if box.dims[d] > 1]
    outer = nesting(outs[0].strides)
    nests = {
        load.leaf: nest
        for load in plan.loads
        if axes and (nest := _nest(plan, load, arrays[load.leaf], outer, axes[-1], whole is not None)) is not None
    }
    if not nests:
        return Turns()
    straight = {leaf: _like(arrays[leaf], arrays[leaf].dims, nest) for leaf, nest in nests.items()}
    if whole:
        copied = _whole_cycles(chip, plan, whole, box, arrays, outs[0])
    else:
        copied = sum(_turn_cycles(chip, arrays[leaf], plan.footprint(leaf, box), nest) for leaf, nest in nests.items())
    before = vector_cycles(chip, plan, box, arrays, outs)
    after = 0 if whole else vector_cycles(chip, plan, box, {**arrays, **straight}, outs)
    if max(copied, after) + min(copied, after) // TILES >= before:
        return Turns()
    near = {innermost(plan, leaf, arrays[leaf]) for leaf in nests}
    others = [d for d in range(len(box.dims)) if d != axes[-1]]
    across = {max(others, key=lambda d: box.dims[d])} if others and axes[-1] in near else set()
    inner = {axes[-1]} | near | across
    order = sorted(range(len(box.dims)), key=lambda d: (d in inner, -box.dims[d] if d in inner else d))
    least = [min(n, chip.vpu.lanes) if across and d in inner else 1 for d, n in enumerate(box.dims)]
    return Turns(tuple(order), nests, whole, max(copied, after), least=tuple(least))


def turns_along(
    chip: Chip,
    plan: GroupPlan,
    box: Box,
    arrays: Mapping[Instruction, Array],
    outer: Sequence[int],
    leaves: Collection[Instruction],
) -> Turns:
    """Turns of those of `leaves` of which other neighbours lie together than along the last dimension of `outer`, which
    has the dimensions of the iteration space from the outermost one; of a reduction, whose lanes are to hold that one.
    """
    nests = {
        load.leaf: nest
        for load in plan.loads
        if load.leaf in leaves and (nest := _nest(plan, load, arrays[load.leaf], outer, outer[-1], False)) is not None
    }
    copied = sum(_turn_cycles(chip, arrays[leaf], plan.footprint(leaf, box), nest) for leaf, nest in nests.items())
    return Turns(tuple(outer), nests, None, copied)


def turned_arrays(
    plan: GroupPlan, box: Box, arrays: Mapping[Instruction, Array], turn: Turns
) -> dict[Instruction, Array]:
    """The arrays of what a box reads, once turned."""
    found = dict(arrays)
    for leaf, nest in turn.nests.items():
        read = plan.footprint(leaf, box)
        found[leaf] = replace(_like(arrays[leaf], read.dims, nest), origin=read.origin)
    return found


def _whole_cycles(
    chip: Chip, plan: GroupPlan, load: Load, box: Box, arrays: Mapping[Instruction, Array], out: Array
) -> int:
    """Cycles of the cross-lane unit for a group that only copies."""
    array, read = arrays[load.leaf], plan.footprint(load.leaf, box)
    staged = replace(_like(array, read.dims, array.strides), origin=read.origin)
    moved = _moved(staged, box, addressed(staged, load.map.shifted(box.origin), 0, box))
    return shuffle_cycles(chip, moved, _like(out, box.dims, out.strides))


def _turn_cycles(chip: Chip, array: Array, read: Box, nest: tuple[int, ...]) -> int:
    """Cycles of the cross-lane unit for a copy of a part of an array, nested otherwise."""
    if not read.elements:
        return 0
    near = nesting(array.strides)[-1]
    step = abs(array.strides[near]) // array.dtype.size
    between = tuple((n - 1) * step + 1 if d == near else n for d, n in enumerate(read.dims))
    lies = _like(array, between, array.strides)
    strides = tuple(s * step if d == near else s for d, s in enumerate(lies.strides))
    return shuffle_cycles(chip, replace(lies, dims=read.dims, strides=strides), _like(array, read.dims, nest))


def _parts_apart(
    chip: Chip,
    plan: GroupPlan,
    box: Box,
    arrays: Mapping[Instruction, Array],
    outs: Sequence[Array],
    most: int,
    computes: bool,
) -> Turns:
    """The arrays whose elements have parts side by side, `most` at most, to be read and written one part after the
    other; `computes`: whether the group does more than copy.
    """
    nests = {
        leaf: nest for leaf in plan.leaves if (nest := _outermost(arrays[leaf], arrays[leaf].dims, most)) is not None
    }
    choices = {most}
    if computes and not nests:
        most = chip.vpu.lanes // RESULTS_SHARE
        sizes = [[box.dims[d] for d in _parts(out, box.dims, most)] for out in outs]
        choices = {prod(one[: n + 1]) for one in sizes for n in range(len(one))}
    ways = [
        (parts, {n: nest for n, out in enumerate(outs) if (nest := _outermost(out, box.dims, parts)) is not None})
        for parts in sorted(choices)
    ]
    ways = [(parts, turned) for parts, turned in ways if nests or turned]
    if not ways:
        return Turns()
    best, least = Turns(), vector_cycles(chip, plan, box, arrays, outs)
    if least <= _moved_cycles(chip, arrays, outs):
        return best
    for parts, turned in ways:
        made, cycles = _apart(chip, plan, box, arrays, outs, nests, turned, parts)
        if cycles < least:
            best, least = made, cycles
    return best


def _apart(
    chip: Chip,
    plan: GroupPlan,
    box: Box,
    arrays: Mapping[Instruction, Array],
    outs: Sequence[Array],
    nests: Mapping[Instruction, tuple[int, ...]],
    turned: Mapping[int, tuple[int, ...]],
    most: int,
) -> tuple[Turns, int]:
    """Leaves and results nested so that parts of elements, `most` at most, lie apart; with the cycles of both units."""
    found, places, copied = dict(arrays), list(outs), 0
    for leaf, nest in nests.items():
        array, dims = arrays[leaf], plan.footprint(leaf, box).dims
        found[leaf] = replace(_like(array, array.dims, nest), origin=array.origin)
        sides = _like(array, dims, _depths(array)), _like(array, dims, nest)
        copied += shuffle_cycles(chip, *sides) if prod(dims) else 0
    for n, nest in turned.items():
        out = outs[n]
        places[n] = replace(_like(out, out.dims, nest), origin=out.origin)
        copied += shuffle_cycles(chip, _like(out, box.dims, nest), _like(out, box.dims, _depths(out)))
    after = vector_cycles(chip, plan, box, found, places)
    last = {d for n in turned for d in _parts(outs[n], box.dims, most)}
    for load in plan.loads:
        if load.leaf in nests:
            parts = _parts(arrays[load.leaf], arrays[load.leaf].dims, most)
            last |= {d for p in parts for d, c in enumerate(load.map.dims[p].coefs) if c}
    order = sorted(range(len(box.dims)), key=lambda d: d in last)
    together = max(copied, after) + min(copied, after) // TILES
    return Turns(tuple(order), nests, None, max(copied, after), turned), together


def _moved_cycles(chip: Chip, arrays: Mapping[Instruction, Array], outs: Sequence[Array]) -> int:
    """Cycles in which HBM moves what a group reads and makes there."""
    moved = [a for a in (*arrays.values(), *outs) if a.buf.space == Space.HBM]
    return transfer_cycles(sum(prod(a.dims) * a.dtype.size for a in moved), chip)


def _parts(array: Array, dims: Sequence[int], most: int) -> list[int]:
    """The dimensions along which the parts of an element lie side by side: the innermost ones, of `most` together."""
    found: list[int] = []
    step = array.dtype.size
    for d in reversed(nesting(array.strides)):
        if dims[d] > 1:
            if array.strides[d] != step or step // array.dtype.size * dims[d] > most:
                break
            found.append(d)
            step *= dims[d]
    return found


def _outermost(array: Array, dims: Sequence[int], most: int) -> tuple[int, ...] | None:
    """How an array is to be nested so that the parts of its elements lie apart; None: there are none."""
    parts = _parts(array, dims, most)
    if not parts or array.buf.space not in (Space.HBM, Space.VMEM) or len(dims) > MAX_LOOPS:
        return None
    if prod(dims) < FEWEST * prod(dims[d] for d in parts):
        return None
    return tuple(n + len(dims) * (d in parts) for d, n in enumerate(_depths(array)))


def _depths(array: Array) -> tuple[int, ...]:
    """For each dimension of an array a number that is larger the further out it lies."""
    outer = nesting(array.strides)
    return tuple(len(outer) - outer.index(d) for d in range(len(outer)))


def _nested(ctx: TileBuilder, array: Array, nest: tuple[int, ...]) -> Array:
    """A new array in VMEM for the same elements, nested as `nest`."""
    made = ctx.array(f"{array.buf.name}.t", array.dtype, array.dims, array.origin)
    return replace(_like(made, array.dims, nest), origin=array.origin)


def _like(array: Array, dims: tuple[int, ...], nest: Sequence[int]) -> Array:
    """A dense array of other dims, nested as `nest`, from the start of an array's buffer; in reverse along dimensions
    of negative numbers.
    """
    steps = dense_like(dims, nest, array.dtype.size)
    last = sum(s * (n - 1) for s, n, way in zip(steps, dims, nest, strict=True) if way < 0)
    strides = tuple(-s if way < 0 else s for s, way in zip(steps, nest, strict=True))
    return Array(array.buf, array.dtype, dims, strides, (0,) * len(dims), last)


def _moved(array: Array, box: Box, spec: StreamSpec) -> Array:
    """What a box of the iteration space reads of an array, as an array of the box's dims."""
    return replace(array, dims=box.dims, strides=spec.access.strides, origin=box.origin, offset=spec.offset)


def _axes(load: Load) -> list[int] | None:
    """The iteration dimension that each dimension of a load's leaf follows, -1: none; None: not one by one."""
    found = [[d for d, c in enumerate(e.coefs) if c] for e in load.map.dims]
    used = [d for axes in found for d in axes]
    if not load.map.total or any(len(axes) > 1 for axes in found) or len(set(used)) < len(used):
        return None
    return [axes[0] if axes else -1 for axes in found]


def _nest(
    plan: GroupPlan, load: Load, array: Array, outer: Sequence[int], lane: int, whole: bool
) -> tuple[int, ...] | None:
    """How a leaf is to be nested so that it follows the results, whose innermost dimension is `lane`; None: it does, or
    cannot.  Neighbours with others between them follow in a copy of the whole group only.
    """
    axes = _axes(load)
    if axes is None or lane not in axes or sum(other.leaf is load.leaf for other in plan.loads) > 1:
        return None
    if array.buf.space not in (Space.HBM, Space.VMEM) or len(axes) > MAX_LOOPS:
        return None
    step = load.map.dims[axes.index(lane)].coefs[lane]
    near = innermost(plan, load.leaf, array)
    apart = array.strides[axes.index(lane)] > array.dtype.size
    if near == -1 or (near == lane and ((step == 1 and not apart) or (step > 1 and not whole))):
        return None
    nest = [len(outer) - (outer.index(d) if d >= 0 else -1) for d in axes]
    return tuple(-n if step < 0 and d == lane else n for n, d in zip(nest, axes, strict=True))


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
    axes = _axes(first)
    return first if axes is not None and all(n == 1 or d in axes for d, n in enumerate(box.dims)) else None
