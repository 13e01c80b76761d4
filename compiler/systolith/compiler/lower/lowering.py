"""The lowering of grouped HLO: where each value lies, and a rule for each group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from systolith.compiler.errors import DoesNotFitError, LimitError, compile_error
from systolith.compiler.explain import Alternative
from systolith.compiler.groups.counted_scalars import note_scalars
from systolith.compiler.groups.fingerprint import group_key
from systolith.compiler.groups.splitting import Oversized
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.trampoline import Steps, trampoline
from systolith.compiler.index.affine import Box
from systolith.compiler.lower.alike import source_of
from systolith.compiler.lower.block_bodies import BlockBodies
from systolith.compiler.lower.group_copies import GroupCopies
from systolith.compiler.lower.group_template import Note
from systolith.compiler.lower.lowered import LoweredGroup, Nest
from systolith.compiler.lower.routines import is_routine
from systolith.compiler.lower.row_places import RowPlaces
from systolith.compiler.lower.values import Value, carry, element, flatten, shaped
from systolith.compiler.memory.aliasing import Donation, Uses
from systolith.compiler.memory.residency import (
    CACHED_SHARE,
    Leaf,
    Placement,
    is_allocation,
    is_stack,
    is_unstack,
)
from systolith.compiler.memory.shares import Shares
from systolith.compiler.memory.update_places import update_places
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.options import Plan, Tuner
from systolith.compiler.passes.dynamic.entry_sizes import EntrySizes
from systolith.compiler.schedule.group_loops import NO_LOOPS, Choice, GroupLoops
from systolith.compiler.schedule.repetition import SMALLEST
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.induction import NOWHERE, is_computed
from systolith.compiler.tile.ir import Array, Block, Buf, Dynamic, Loop, TileOp, VReg
from systolith.compiler.tile.views import recast
from systolith.compiler.tiling.block_sizes import Blocking
from systolith.isa.instruction import Space
from systolith.isa.program import Program, Role

KEPT_SHARE = 16
"""Part of VMEM that whole copies of parameters and constants take together beyond the group that made them."""

COPY_SHARE = 8
"""Part of VMEM through which results are copied that were not made in their buffers."""


@dataclass(frozen=True)
class LoweringRules:
    """The lowerings, by what they lower.

    Attributes:
        groups: a group, by its unit, from and to arrays.
        control: an instruction that runs computations, or moves arrays to or from the host, by its opcode.
        view: gives the part of an operand that a group names.
        operands: brings what all blocks of a blocked group read to VMEM.
        blocks: a blocked group.
        alone: a group in a program of its own, with a plan of this signature; see `options.Alone`.
    """

    groups: Mapping[Unit, Callable[[TileBuilder, Group, Sequence[Array], Sequence[Array]], None]]
    control: Mapping[str, Callable[[Lowering, Instruction, list[Value]], Steps[Value]]]
    view: Callable[[TileBuilder, Group, Sequence[Array]], Array]
    operands: Callable[[Lowering, Group, Sequence[Array]], list[Array]]
    blocks: Callable[[Lowering, Group, Sequence[Array], Sequence[Array]], None]
    alone: Callable[[Lowering, Group, Sequence[Array], Sequence[Array], str], tuple[Program | None, Sequence[Plan]]]


@dataclass
class Lowering:
    """Lowers computations.

    Attributes:
        rules: what lowers what.
        ctx: where to.
        placement: which values lie where.
        bodies: of blocks.
        records: one for each group.
        homes: arrays that leaves must be made in.
        owners: which leaf a buffer of a whole value holds.
        spilled: leaves that no result buffer holds and that lie in HBM all the same.
        cache: whole copies in VMEM of parameters and constants, by their buffer; of the region being lowered.
        oversized: groups that were left out because no instruction can hold them: then what was lowered is of no use.
        depth: loops and conditionals around what is lowered.
        cramped: groups that could have other blocks, or in blocks have groups that could, if there were more room.
        copies: of groups; None: each is lowered by itself.
        loops: parts of the free VMEM that the buffers of loops may take.
        rolled: the groups that have loops, by the induction variables.
        blockings: what sizes blocks can have, and those that do not fit, by what groups are alike in.
        configs: of infeeds and outfeeds, by opcode: those of the module, in the order of their queues.
        nests: of the block that is being lowered.
        ways: how groups have their loops, by what that depends on.
    """

    rules: LoweringRules
    ctx: TileBuilder
    placement: Placement
    bodies: BlockBodies
    records: list[LoweredGroup] = field(default_factory=list)
    homes: dict[Leaf, Array] = field(default_factory=dict)
    cache: dict[Buf, Array] = field(default_factory=dict)
    owners: dict[Buf, Leaf] = field(default_factory=dict)
    spilled: set[Leaf] = field(default_factory=set)
    oversized: list[Oversized] = field(default_factory=list)
    depth: int = 0
    copies: GroupCopies | None = None
    loops: Shares = NO_LOOPS
    rolled: dict[VReg, Group] = field(default_factory=dict)
    cramped: set[Instruction] = field(default_factory=set)
    blockings: dict[str, tuple[list[Blocking], list[Alternative]]] = field(default_factory=dict)
    configs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nests: list[Nest] = field(default_factory=list)
    ways: dict[Hashable, Choice] = field(default_factory=dict)
    _constants: dict[Instruction, Array] = field(default_factory=dict)
    _recent: dict[Buf, int] = field(default_factory=dict)
    _updates: dict[Leaf, int] = field(default_factory=dict)
    _rows: RowPlaces = field(default_factory=RowPlaces)
    _seen: set[Computation] = field(default_factory=set)
    _views: dict[Dynamic | None, str] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """Bytes of VMEM that no whole value ever takes."""
        return self.ctx.chip.vmem.bytes - max(self.placement.live.values(), default=0)

    def room(self, group: Group) -> int:
        """Bytes of VMEM that no whole value takes while a group runs; ever, for one in blocks."""
        if group.unit is None:
            return self.free
        return self.ctx.chip.vmem.bytes - self.placement.live.get(group, 0)

    def lacks_room(self, values: float) -> bool:
        """Whether groups could have other blocks if values took no more than so much of VMEM."""
        room, live = self.ctx.chip.vmem.bytes * values, self.placement.live
        return any(live.get(group, 0) > room for group in self.cramped)

    def apart(self, group: Instruction, picked: str = "") -> Lowering:
        """A lowering of one group, to try something, that leaves nothing here; `picked`: the plan it is to have."""
        placement = Placement(live=dict(self.placement.live), shares=self.placement.shares)
        ctx = self.ctx.apart(group, picked)
        return Lowering(
            self.rules,
            ctx,
            placement,
            self.bodies,
            cache=dict(self.cache),
            blockings=self.blockings,
            loops=self.loops,
        )

    # The entry.

    def entry(
        self, computation: Computation, results: list[tuple[Leaf, Array]], donation: Donation, sizes: EntrySizes
    ) -> None:
        """Lower the entry: parameters from the buffer table, results to `results` (leaf, its array), in order."""
        given: list[Array] = []
        values: list[Value] = []
        for p in computation.parameters:
            shapes = p.shape.arrays
            arrays = []
            for n, s in enumerate(shapes, len(given)):
                found = sizes.of_parameter(n, s.rank)
                arrays.append(self.ctx.table(p.name, Role.PARAMETER, s.dtype, s.dims, n, sizes=found))
            given += arrays
            values.append(shaped(iter(arrays), p.shape))
        for result, parameter in donation.shared.items():
            results[result][1].buf.shares = given[parameter].buf
        self.ctx.donated = {given[parameter].buf for parameter in donation.donors}
        early = [pair for n, pair in enumerate(results) if n not in donation.late]
        self.homes |= {leaf: results[n][1] for leaf, n in donation.homes.items()}
        in_hbm = self.placement.spilled - donation.barred
        self.homes |= {leaf: array for leaf, array in early if leaf in in_hbm and leaf not in self.homes}

        final = flatten(trampoline(self.computation(computation, values, lambda i, made: self.store(i, made, early))))
        if donation.late:
            self._for_result(computation.result)
            late = [(final[n], results[n][1]) for n in sorted(donation.late)]
            late = [(recast(array, target.dims, target.dtype), target) for array, target in late]
            carry(self.ctx, *zip(*late, strict=True))

    def store(self, i: Instruction, value: Value, results: Sequence[tuple[Leaf, Array]]) -> None:
        """Copy what an instruction made, where it was made elsewhere, to the results that it is."""
        for k, array in enumerate(flatten(value)):
            for leaf, target in results:
                if leaf == (i, k) and array.buf.memory is not target.buf.memory:
                    self._for_result(i)
                    self.ctx.move(recast(array, target.dims, target.dtype), target, "store result")

    def _for_result(self, instruction: Instruction) -> None:
        """Attribute the operations that follow to copies of the results of an instruction."""
        self.ctx.group, self.ctx.budget = instruction, self.ctx.chip.vmem.bytes // COPY_SHARE

    # Any computation.

    def computation(
        self,
        computation: Computation,
        parameters: Sequence[Value],
        made: Callable[[Instruction, Value], None] | None = None,
    ) -> Steps[Value]:
        """Lower a computation into the current block; `made` is called after each instruction that makes arrays."""
        if computation not in self._seen:
            self._seen.add(computation)
            if any(isinstance(i, Group) and i.unit is Unit.DMA for i in computation.instructions):
                self._updates |= Uses(computation).updates()
                self._rows.places |= update_places(computation)
        values: dict[Instruction, Value] = {}
        numbered = dict(zip(computation.parameters, parameters, strict=True))
        given = [i for i in computation.instructions if i.opcode == "get-tuple-element" and i.operands[0] in numbered]
        values |= {i: element(numbered[i.operands[0]], i) for i in given}
        for i in computation.instructions:
            if i.opcode in ("tuple", "after-all"):  # a token is a tuple of nothing
                values[i] = tuple(values[o] for o in i.operands)
                continue
            if i.opcode == "get-tuple-element":
                values[i] = element(values[i.operands[0]], i)
                continue
            operands = [values[o] for o in i.operands]
            if isinstance(i, Group):
                self._place(i, values)
            if i.opcode in self.rules.control:
                values[i] = yield self._control(i, operands)
            else:
                values[i] = self._instruction(computation, i, operands, numbered)
            if made is not None and i.opcode != "bitcast":
                made(i, values[i])
        return values[computation.result]

    def _place(self, i: Group, values: Mapping[Instruction, Value]) -> None:
        """Let results of a group that an update puts into an array in HBM, in place, be made there."""
        for k, shape in enumerate(i.shape.arrays):
            if (i, k) in self.homes or (i, k) not in self.placement.spilled:
                continue
            found = self._rows.place((i, k), values)
            if found is None or not self._is_updated(found.update, found.array):
                continue
            self.ctx.group = found.update
            self.homes[i, k] = recast(self._rows.window(self.ctx, found), shape.dims, shape.dtype)

    def _is_updated(self, update: Group, array: Array) -> bool:
        """Whether an update of an array is made where that lies, in HBM."""
        if array.buf.space is not Space.HBM:
            return False
        home = self.homes.get((update, 0))
        if home is None:
            return bool(self._updated(update, [array] * len(update.operands)))
        return home.buf.memory is array.buf.memory

    def _instruction(
        self, within: Computation, i: Instruction, operands: list[Value], parameters: dict[Instruction, Value]
    ) -> Value:
        if i.opcode == "parameter":
            return parameters[i]
        if i.opcode == "constant":
            return self._constant(i)
        if i.opcode == "bitcast":
            (source,) = operands
            assert isinstance(source, Array)
            return recast(source, i.dims, i.shape.dtype)
        self.ctx.group = i
        self.ctx.budget = self.placement.budget.get(i, 0)
        if isinstance(i, Group):
            return self._group(within, i, operands)
        if is_allocation(i):
            return self.ctx.nowhere(i.name, i.shape.dtype, i.dims)
        if is_stack(i):
            return self.ctx.stack(i.name, i.shape.dtype, i.dims, [a for o in operands for a in flatten(o)])
        if is_unstack(i):
            return operands[1]
        raise compile_error(i, "not an operation of grouped HLO")

    def _control(self, i: Instruction, operands: list[Value]) -> Steps[Value]:
        self.ctx.group, self.ctx.budget = i, self.placement.budget.get(i, 0)
        self.depth += 1
        value: Value = yield self.rules.control[i.opcode](self, i, operands)
        self.depth -= 1
        return value

    def _constant(self, i: Instruction) -> Value:
        if i not in self._constants:
            self._constants[i] = self.ctx.constant(i)
        return self._constants[i]

    def results(self, i: Instruction) -> list[Array]:
        """Where the results of an instruction are to lie."""
        return [self.result((i, k), shape) for k, shape in enumerate(i.shape.arrays)]

    def result(self, leaf: Leaf, shape: Shape) -> Array:
        """Where one result is to lie."""
        if leaf in self.homes:
            return recast(self.homes[leaf], shape.dims, shape.dtype)
        if leaf in self.placement.spilled:
            self.spilled.add(leaf)
            return self.ctx.table(leaf[0].name, Role.TEMP, shape.dtype, shape.dims)
        array = self.ctx.value(leaf[0].name, shape.dtype, shape.dims)
        self.owners[array.buf] = leaf
        return array

    def _group(self, within: Computation, i: Group, operands: list[Value]) -> Value:
        inputs = [a for o in operands for a in flatten(o)]
        if i.unit is Unit.VIEW:
            return self._view(i, inputs)
        outputs = self._updated(i, inputs) or self.results(i)
        if i in self._rows.made:
            self._record(i, [], inputs, outputs)
            return shaped(iter(outputs), i.shape)
        start = len(self.ctx.block.items)
        if is_routine(i.root):  # it says itself where its operands are to be
            cached = inputs
        elif i.unit:
            fed = i.fed_to_root if i.unit is Unit.MXU else frozenset()
            of = [
                i.root.name if p in fed else ""
                for p, o in zip(i.body.parameters, operands, strict=True)
                for _ in flatten(o)
            ]
            cached = [self.cached(a, hlo) for a, hlo in zip(inputs, of, strict=True)]
        else:
            cached = self.rules.operands(self, i, inputs)
        self._forget_copies({a.buf for a in inputs})
        tuner = self.ctx.options.tuner if i.unit in (Unit.MXU, None) else None
        if i.unit is None and self.ctx.region is None:
            self.ctx.begin_sums()
        try:
            self.ctx.picked = self._picked(tuner, i, cached, outputs) if tuner else ""
            self._lower(i, cached, outputs, start)
        except LimitError as problem:
            if i.tiling:  # its own groups have been split as far as they can be
                raise DoesNotFitError(str(problem)) from problem
            self.oversized.append(Oversized(within, i, problem))
            del self.ctx.block.items[start:]
        items = self.ctx.block.items[start:]
        self.rolled |= {item.var: i for item in items if isinstance(item, Loop)}
        ops = [op for op in items if isinstance(op, TileOp)]
        self._record(i, ops, inputs, outputs)
        note_scalars(self.ctx.inductions, i, inputs, outputs)
        return shaped(iter(outputs), i.shape)

    def _view(self, i: Group, inputs: list[Array]) -> Array:
        """The array that a view is, whose offset is in a register."""
        start = len(self.ctx.block.items)
        array = self.rules.view(self.ctx, i, inputs)
        if array.dynamic is not None:
            self._views[array.dynamic] = i.name
        ops = [op for op in self.ctx.block.items[start:] if isinstance(op, TileOp)]
        self._record(i, ops, inputs, [])
        return array

    def _record(self, i: Group, ops: list[TileOp], inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        names = [self._views.get(a.dynamic, o.name) for a, o in zip(inputs, i.operands, strict=True)]
        made = tuple((i.name, array) for array in outputs)
        # Where a scalar lies that nothing reads, something else may lie by now.
        loops = self.ctx.inductions
        given = [replace(a, dynamic=NOWHERE) if is_computed(loops, a) else a for a in inputs]
        self.records.append(LoweredGroup(i, ops, tuple(zip(names, given, strict=True)), made))

    def _lower(self, i: Group, inputs: list[Array], outputs: list[Array], start: int) -> None:
        """Lower a group, or copy what was lowered for another one that is alike, and make loops in it.

        `start`: the first item of the block that will be of the group.
        """

        def lower() -> Note:
            """As `GroupCopies.lower` asks for."""
            bodies, before = self.bodies, (len(self.oversized), len(self.spilled), len(self.cache))
            if self.bodies.chip is not self.ctx.chip:
                self.bodies = BlockBodies(self.ctx.chip)
            try:
                if i.unit:
                    self.rules.groups[i.unit](self.ctx, i, inputs, outputs)
                else:
                    self._blocks(i, inputs, outputs)
            finally:
                self.bodies = bodies
            only = (len(self.oversized), len(self.spilled), len(self.cache)) == before
            return i in self.cramped if only else None

        options, copies = self.ctx.options, self.copies
        given = any(a.buf in self.cache for a in inputs)
        asked = options.tuner is not None or options.plan is not None
        source = source_of(self.ctx, i, inputs, outputs) if self.ctx.region is None else None
        if source is None or i.unit is Unit.DMA or given or asked:
            copies = None
        for_loops = self.room(i) * self.loops.of(i)

        def emission(what: Hashable, emit: Callable[[], None]) -> None:
            # What is read of the chip for a copy is on record, so nothing may be known that was read before.
            alike = (source.key, what) if source is not None and copies is None else None

            def whole() -> Note:
                at = len(self.ctx.block.items)
                emit()
                self.roll(at, i, inputs, outputs, alike)
                return False

            if copies is None or source is None:
                whole()
            else:
                copies.lower(self.ctx, source, (what, for_loops), whole)

        product = i.unit is Unit.MXU and self.ctx.region is None
        self.ctx.emission = emission if product else None
        outer, self.copies = self.copies, None if copies is not None else self.copies
        try:
            if copies is None or source is None:
                lower()
            else:
                room: Hashable = None if source.asks_for_room else self.ctx.budget
                if source.in_blocks:
                    room = room, self.placement.live.get(i, 0), self.placement.shares.of(i)
                if copies.lower(self.ctx, source, (room, for_loops if product else None), lower):
                    self.cramped.add(i)
        finally:
            self.ctx.emission, self.copies = None, outer
        if not product:
            self.roll(start, i, inputs, outputs, source and (source.key, self.ctx.budget))

    def roll(
        self, start: int, i: Group, inputs: Sequence[Array], outputs: Sequence[Array], alike: Hashable = None
    ) -> None:
        """Make loops of what repeats in a group, if it is large and loops are wanted: of the items from `start` on.

        Groups that are alike (of the same key `alike`) have them in the same way.
        """
        items = self.ctx.block.items[start:]
        share = self.loops.of(i)
        if not share or self.ctx.region is not None:
            return
        if len(items) < SMALLEST or not all(isinstance(item, TileOp) for item in items):
            return
        given = {a.buf for a in (*inputs, *outputs, *self.cache.values())}
        given |= self.ctx.whole - self.ctx.inner
        loops = GroupLoops(self.ctx, items, given, self.room(i))
        key = None if alike is None else (alike, len(items), share, self.free)
        choice = self.ways.get(key) or loops.choice(share)
        if key is not None:
            self.ways[key] = choice
        made = loops.made(choice)
        self.ctx.block.items[start:] = made.block.items
        self.ctx.explain += made.decisions

    def _picked(self, tuner: Tuner, i: Group, inputs: Sequence[Array], outputs: Sequence[Array]) -> str:
        """The plan that measuring picks for a group; empty: the cheapest, as where it lies is known only in the run."""
        if any(a.dynamic is not None for a in (*inputs, *outputs)):
            return ""
        key = group_key(self.ctx, i, inputs, outputs, self.free)
        plan, decision = tuner.pick(i.name, key, lambda picked: self.rules.alone(self, i, inputs, outputs, picked))
        self.ctx.explain += [decision] if decision else []
        return plan

    def _updated(self, i: Instruction, inputs: Sequence[Array]) -> list[Array]:
        """Where a group updates an operand in place, whose old value nothing needs; empty: it does not."""
        number = self._updates.get((i, 0))
        if number is None or (i, 0) in self.homes:
            return []
        array = inputs[number]
        role = array.buf.decl.role if array.buf.decl is not None else Role.TEMP
        fits = ((i, 0) in self.placement.spilled) == (array.buf.space is Space.HBM)
        return [recast(array, i.dims, i.shape.dtype)] if fits and role is Role.TEMP else []

    def _blocks(self, i: Group, inputs: list[Array], outputs: list[Array]) -> None:
        """Lower a blocked group; to what watches groups, those in it are one."""
        records, self.records = self.records, []
        outer, self.ctx.region = self.ctx.region, self.ctx.region or i
        self.rules.blocks(self, i, inputs, outputs)
        self.records, self.ctx.region = records, outer

    def cached(self, array: Array, hlo: str = "") -> Array:
        """The copy in VMEM of a small parameter or constant, made on first use, for `hlo`; else the array itself."""
        size = prod(array.dims) * array.dtype.size
        if array.buf in self.cache:
            if array.buf in self._recent:
                self._recent[array.buf] = self._recent.pop(array.buf)
            return replace(array, buf=self.cache[array.buf].buf)
        decl = array.buf.decl
        if decl is None or decl.role not in (Role.PARAMETER, Role.CONSTANT) or not size or size != array.buf.bytes:
            return array
        if size > min(self.ctx.chip.vmem.bytes // CACHED_SHARE, self.ctx.budget // 8):
            return array
        self._recent[array.buf] = size
        return self.bring(array, hlo)

    def _forget_copies(self, used: Collection[Buf]) -> None:
        """Let go of the copies that were used longest ago, but those of `used`, where all take too much of VMEM.

        A copy that is needed again much later would keep its place from whatever runs until then.  Blocks have theirs
        together.
        """
        excess = sum(self._recent.values()) - self.ctx.chip.vmem.bytes // KEPT_SHARE
        for buf in list(self._recent):
            if excess <= 0 or self.ctx.region is not None:
                break
            if buf not in used:
                excess -= self._recent.pop(buf)
                del self.cache[buf]

    def bring(self, array: Array, hlo: str = "") -> Array:
        """Load a whole dense array, for `hlo`, into VMEM and keep the copy, laid out alike, in the region."""
        copy = self.ctx.stage_in(array, Box(array.origin, array.dims), "load whole", hlo)
        self.cache[array.buf] = copy
        return replace(array, buf=copy.buf)

    def region(self, lower: Steps[Value]) -> Steps[tuple[Block, Value]]:
        """Lower into a block of its own; copies that it makes are not known outside."""
        outer, cache, recent = self.ctx.block, self.cache, self._recent
        self.ctx.block, self.cache, self._recent = Block(), dict(cache), {}
        try:
            value: Value = yield lower
            return self.ctx.block, value
        finally:
            self.ctx.block, self.cache, self._recent = outer, cache, recent
