"""Programs that were made before: chips that differ in times often get the same operations at the same addresses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from systolith.compiler.emit.assemble import Emitted
from systolith.compiler.memory.vmem import MemoryPlan
from systolith.compiler.tile.ir import Arg, Block, Buf, If, Item, Loop, Ref, TileModule, TileOp, While
from systolith.isa.chip import Chip
from systolith.isa.chip_reads import Reads, holds, recording
from systolith.isa.kernel import Kernel
from systolith.isa.program import Program

KEPT = 2
"""Programs that are kept: those that are the same come one after another."""


@dataclass(frozen=True)
class _Made:
    """A program, what it was made of, and what of its chip was read for that."""

    tile: TileModule
    plan: MemoryPlan
    reads: Reads
    emitted: Emitted


class KnownPrograms:
    """The last programs that were made of one module."""

    def __init__(self) -> None:
        self._made: deque[_Made] = deque(maxlen=KEPT)

    def get(self, tile: TileModule, plan: MemoryPlan, chip: Chip, make: Callable[[Chip], Emitted]) -> Emitted:
        """What `make` gives for a recording of the chip (without probes and groups), or what it gave for the same.

        Args:
            tile: what the program is made of.
            plan: addresses.
            chip: that it is for.
            make: assembles it.
        """
        for made in tuple(self._made):
            if holds(made.reads, chip) and _are_same(made, tile, plan):
                now = dict(zip(made.tile.block.ops(), tile.block.ops(), strict=True))
                # Those that count loops are of no module.
                ops = [None if op is None else now.get(op, op) for op in made.emitted.ops]
                return made.emitted._replace(program=_for(chip, made.emitted), ops=ops)
        recorded, reads = recording(chip)
        emitted = make(recorded)
        self._made.append(_Made(tile, plan, reads, emitted))
        return emitted._replace(program=_for(chip, emitted))


def _for(chip: Chip, emitted: Emitted) -> Program:
    """The program as one for a chip, which shares its code."""
    return replace(emitted.program, chip=chip.name, chip_digest=chip.digest(), target=chip)


def _are_same(made: _Made, tile: TileModule, plan: MemoryPlan) -> bool:
    """Whether operations, addresses and tables are those of a program that was made."""
    same = made.tile.name == tile.name and made.plan.high_water == plan.high_water
    if not same or [b.decl for b in made.tile.buffers] != [b.decl for b in tile.buffers]:
        return False
    comparison = _Comparison(_Places(made.tile, made.plan), _Places(tile, plan))
    return comparison.blocks(made.tile.block, tile.block)


class _Places(dict[Buf, tuple[int, ...]]):
    """Where buffers lie, as instructions say it."""

    def __init__(self, tile: TileModule, plan: MemoryPlan) -> None:
        super().__init__()
        self._number = {buf: n for n, buf in enumerate(tile.buffers)}
        self._address = plan.address

    def __missing__(self, buf: Buf) -> tuple[int, ...]:
        place = int(buf.space), self._address.get(buf, -1), self._number.get(buf, -1), buf.unit
        self[buf] = place
        return place


class _Comparison:
    """Compares operations, but for names of buffers.

    Args:
        ours, theirs: where the buffers of either side lie.
    """

    def __init__(self, ours: Mapping[Buf, tuple[int, ...]], theirs: Mapping[Buf, tuple[int, ...]]) -> None:
        self._ours, self._theirs = ours, theirs
        self._same: dict[int, int] = {}  # identities of objects of either side that are the same

    def blocks(self, ours: Block, theirs: Block) -> bool:
        """Whether all operations are the same."""
        if len(ours.items) != len(theirs.items):
            return False
        return all(map(self._items, ours.items, theirs.items))

    def _items(self, a: Item, b: Item) -> bool:
        if type(a) is not type(b):
            return False
        if isinstance(a, TileOp):
            assert isinstance(b, TileOp)
            if a.op != b.op or a.unit != b.unit or len(a.args) != len(b.args):
                return False
            return self._equal(a.origin, b.origin) and (a.args is b.args or self._arguments(a.args, b.args))
        assert not isinstance(b, TileOp)
        if [*_said(a)] != [*_said(b)] or len(a.regions) != len(b.regions):
            return False
        return all(map(self.blocks, a.regions, b.regions))

    def _arguments(self, ours: Mapping[str, Arg], theirs: Mapping[str, Arg]) -> bool:
        for (name, a), (other, b) in zip(ours.items(), theirs.items(), strict=True):
            if name != other or not (a is b or self._values(a, b)):
                return False
        return True

    def _values(self, a: Arg, b: Arg) -> bool:
        if type(a) is not type(b):
            return False
        if isinstance(a, Ref):
            assert isinstance(b, Ref)
            return self._known(a, b) or self._refs(a, b)
        if isinstance(a, tuple):
            assert isinstance(b, tuple)
            return len(a) == len(b) and all(map(self._values, a, b))
        return self._equal(a, b) if isinstance(a, Kernel) else a == b

    def _refs(self, a: Ref, b: Ref) -> bool:
        if a.offset != b.offset or a.dynamic != b.dynamic or a.bias != b.bias or a.moves != b.moves:
            return False
        same = self._buffers(a.buf, b.buf) and self._buffers(a.index, b.index) and self._equal(a.pattern, b.pattern)
        if same:
            self._same[id(a)] = id(b)
        return same

    def _buffers(self, a: Buf | None, b: Buf | None) -> bool:
        if a is None or b is None:
            return a is b
        return self._ours[a] == self._theirs[b]

    def _known(self, a: object, b: object) -> bool:
        return a is b or self._same.get(id(a)) == id(b)

    def _equal(self, a: object, b: object) -> bool:
        """Whether two are equal; those that are need not be compared again."""
        if self._known(a, b):
            return True
        if a != b:
            return False
        self._same[id(a)] = id(b)
        return True


def _said(region: Item) -> Iterator[object]:
    """What a region says, but for its blocks."""
    assert isinstance(region, If | Loop | While)
    yield from (region.name, region.operand)
    if isinstance(region, Loop):
        yield from (region.var, region.source)
    elif isinstance(region, While):
        yield region.trip_count
