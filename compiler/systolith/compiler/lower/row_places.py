"""Where results of groups are made that an update puts into an array: the window that it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.lower.dma_ops import update_window
from systolith.compiler.lower.scalars import load_scalar
from systolith.compiler.lower.values import Value
from systolith.compiler.memory.residency import Leaf
from systolith.compiler.memory.update_places import UpdatePlace
from systolith.compiler.ops.group import Group
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Block, VReg


@dataclass(frozen=True)
class RowPlace:
    """A place whose array and indices are known.

    Attributes:
        update: the group that would put the result there.
        array: that it changes.
        view: the same part of it, if the group that makes the result reads that.
        starts: the indices that are parameters of the update's body, each with the value that it is and where that is.
    """

    update: Group
    array: Array
    view: Array | None
    starts: Mapping[Instruction, tuple[Instruction, Array]]


@dataclass
class RowPlaces:
    """The places of the computations that have been lowered.

    Attributes:
        places: by result.
        made: updates whose results are made where they go: nothing is left to do.
    """

    places: dict[Leaf, UpdatePlace] = field(default_factory=dict)
    made: set[Instruction] = field(default_factory=set)
    _registers: dict[Instruction, tuple[Block, VReg]] = field(default_factory=dict)

    def place(self, leaf: Leaf, values: Mapping[Instruction, Value]) -> RowPlace | None:
        """The place of a result, if it has one and what that takes is among `values`."""
        place = self.places.get(leaf)
        if place is None:
            return None
        update = place.update
        given = dict(zip(update.body.parameters, update.operands, strict=True))
        base, _, *starts = update.root.operands
        known = {p: (given[p], values.get(given[p])) for p in (base, *starts) if p in given}
        arrays = {p: (i, array) for p, (i, array) in known.items() if isinstance(array, Array)}
        view = values.get(place.view) if place.view is not None else None
        if len(arrays) < len(known) or (place.view is not None and not isinstance(view, Array)):
            return None
        _, array = arrays.pop(base)
        return RowPlace(update, array, view if isinstance(view, Array) else None, arrays)

    def window(self, ctx: TileBuilder, place: RowPlace) -> Array:
        """The part of the array; then the update has nothing left to do."""
        self.made.add(place.update)
        if place.view is not None:
            return place.view
        starts = {p: self._register(ctx, i, array) for p, (i, array) in place.starts.items()}
        return update_window(ctx, place.update, place.array, starts)

    def _register(self, ctx: TileBuilder, i: Instruction, array: Array) -> VReg:
        """A scalar in a register, read once in a block: SEQ waits for it."""
        block, register = self._registers.get(i, (None, None))
        if block is not ctx.block or register is None:
            register = load_scalar(ctx, array, "start index")
            self._registers[i] = ctx.block, register
        return register
