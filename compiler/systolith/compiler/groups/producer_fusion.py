"""Producer fusion: what only products read is computed in their groups, a tile at a time, instead of being stored.

An elementwise group whose value is an operand of products and nothing else joins the groups of these products, if that
is expected to take fewer cycles.  So does the expression that a result of blocks ends in (`groups/block_tails.py`).

- stored: its own cycles and those of the products, which read it where it is placed; what the products load besides
  may move while the vector unit makes it;
- computed: the products', whose tiles cost what computing them takes (`mxu/fused_operand.py`), as often as the best
  tile plan stages them.

Both are the estimates of `mxu/gemm_search.py`.  A value that is stored in VMEM costs no transfer, but its products wait
until all of it is there; one that is computed keeps what it is made from alive for longer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.errors import DoesNotFitError, LimitError
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.groups.block_tails import Tail, without_tail
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.index.affine import Box
from systolith.compiler.memory.aliasing import stored_directly
from systolith.compiler.memory.residency import (
    CACHED_SHARE,
    TILES,
    VALUES_SHARE,
    Aliases,
    Leaf,
    Placement,
    leaf_bytes,
    leaf_liveness,
    nested,
    place,
)
from systolith.compiler.mxu.gemm_plan import GemmPlan
from systolith.compiler.mxu.matmul import contraction_cycles, contraction_of, planned
from systolith.compiler.ops.expression_builder import analyze, group_roots, root_operations
from systolith.compiler.ops.group import Group, Unit, is_cheap, result_values
from systolith.compiler.ops.table import Family, family, info
from systolith.compiler.options import Options
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.outline import Outline
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.tile.arrays import dense_array
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.vpu.emit import vector_cycles
from systolith.compiler.vpu.reduce_ways import anywhere
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space

ALIKE = 0.03
"""Estimates that differ by less than this part, or by less than a latency of HBM, are alike: the value is stored."""

ENDS_ALIKE = 0.05
"""The same where a value is the result of blocks.

By estimates that differ by 4 % the layer norms of GPT-2's training step would be computed in their products; in the
simulator one layer takes 0.07 % longer so, and four take 11 %, since what they are made of stays.
"""

LOOP_SHARE = 8
"""Operands of a loop of up to this part of VMEM count as resident."""


@dataclass(frozen=True)
class FusePrologues:
    """Compute elementwise operands of products in tiles of the products.

    Attributes:
        chip: that the cycles are of.
        options: as for lowering.
        always: compute in their products' groups all values that can be, not only where that is expected to be faster.
        blocks: look at results of blocks alone.
    """

    chip: Chip
    options: Options
    always: bool = False
    blocks: bool = False

    def run(self, module: Module) -> Outcome:
        changed, decisions = False, list[Decision]()
        fixed = stored_directly(module.entry, Aliases(module.entry))
        placement = place(module, self.chip.vmem.bytes, TILES, (), fixed)
        todo = [module.entry]
        while todo:
            computation = todo.pop()
            todo += [c for i in computation.instructions for c in nested(i)]
            fusing = _Computation(self, module, computation, placement)
            decisions += fusing.run()
            changed |= bool(fusing.gone)
        return Outcome(changed, tuple(decisions))


@dataclass
class _Reader:
    """A product's group that reads a value, and the group as it would be if it computed it."""

    group: Group
    fused: Group


class _Computation:
    """The groups of one computation."""

    def __init__(self, step: FusePrologues, module: Module, computation: Computation, placement: Placement) -> None:
        self.step, self.module, self.computation, self.placement = step, module, computation, placement
        self.ctx = TileBuilder(step.chip, step.options)
        self.gone: set[Instruction] = set()
        self._look_up()

    def _look_up(self) -> None:
        """See who uses what, where it stands, and until when it is needed."""
        computation = self.computation
        self.users = computation.users()
        self.aliases = Aliases(computation)
        self.last = leaf_liveness(computation, self.aliases).last
        self.position = {i: n for n, i in enumerate(computation.instructions)}

    def run(self) -> list[Decision]:
        """Decide about every value."""
        decisions = []
        for maker in list(self.computation.instructions):
            if not isinstance(maker, Group):
                continue
            if maker.unit is Unit.VPU and not maker.reduces and maker.shape.is_array and not self.step.blocks:
                groups = [] if _rounds_a_product(maker) else self._readers(maker)
                if groups:
                    decision, fused = self._decide(maker, maker, groups, partial(self._apart, maker))
                    decisions.append(decision)
                    if fused:
                        self._fuse(maker, maker, fused)
            elif maker.tiling is not None:
                decisions += self._tails(maker)
        self._drop(self.gone)
        return decisions

    def _tails(self, blocks: Group) -> list[Decision]:
        """Decide about the results of a group of blocks that end in an elementwise expression."""
        decisions = []
        values = result_values(blocks, self.users)
        for n in reversed(range(len(values))):
            groups = self._readers(values[n])
            parts = without_tail(blocks, n, values) if groups else None
            if parts is None:
                continue
            apart = partial(self._ended, values[n], blocks, parts)
            decision, fused = self._decide(values[n], parts.tail, groups, apart)
            decisions.append(decision)
            if fused:
                self._fuse(values[n], parts.tail, fused)
                self._replace(blocks, values, parts)
                blocks, values = parts.blocks, result_values(parts.blocks, self.users)
        return decisions

    def _readers(self, made: Instruction) -> list[Group]:
        """The products' groups that read a value as an operand; none, if anything reads it otherwise."""
        found: dict[Group, None] = {}
        stack: list[Instruction] = [made]
        while stack:
            value = stack.pop()
            if value is self.computation.result:
                return []
            for user in self.users[value]:
                if user.opcode == "bitcast":
                    stack.append(user)
                elif isinstance(user, Group) and user.unit is Unit.MXU and _is_operand(user, value):
                    found[user] = None
                else:
                    return []
        return sorted(found, key=self.position.__getitem__)

    # The decision.

    def _decide(
        self,
        value: Instruction,
        maker: Group,
        groups: Sequence[Group],
        stored_cycles: Callable[[Sequence[GemmPlan]], int],
    ) -> tuple[Decision, Sequence[_Reader]]:
        """Whether the products that read a value compute it, as `maker` does; gives them, or none.

        `stored_cycles`: those of what makes it, and of the products that load it then.
        """
        in_vmem = self._is_in_vmem(value)
        names = ", ".join(g.name for g in groups)
        stored = Alternative(f"{value.name} is stored in {'VMEM' if in_vmem else 'HBM'}")
        inside = Alternative(f"{value.name} is computed in tiles of {names}")
        readers = [_Reader(g, merged(g, maker, value)) for g in groups]
        why = self._objection(value, maker, readers)
        if not why:
            try:
                products = [self._planned(r.group, r.group) for r in readers]
                apart = stored_cycles(products)
                plans = [self._planned(r.fused, r.group, self._more(value, maker, r.group)) for r in readers]
            except (DoesNotFitError, LimitError) as problem:
                why = str(problem)
            else:
                held = sum(map(_held, plans)) if in_vmem else 0
                cycles = sum(p.cycles for p in plans)
                stored = replace(stored, numbers={"cycles": apart})
                inside = replace(inside, numbers={"cycles": cycles, "cycles held up": held})
                part = ALIKE if maker is value else ENDS_ALIKE
                alike = max(self.step.chip.hbm.latency, int(apart * part))
                slower = cycles + held > apart - alike
                why = "not expected to take longer" if slower and not self.step.always else ""
        if why:
            return Decision("prologue", value.name, stored.what, why, stored.numbers, (inside,)), ()
        why = f"{value.shape.bytes:,} bytes are not stored"
        return Decision("prologue", readers[0].group.name, inside.what, why, inside.numbers, (stored,)), readers

    def _objection(self, value: Instruction, maker: Instruction, readers: Sequence[_Reader]) -> str:
        """Why what a value is made from cannot stay until its products are made; empty: it can."""
        for r in readers:
            more, live = self._more(value, maker, r.group), self.placement.live[r.group]
            if more > 0 and live + more > self.step.chip.vmem.bytes * VALUES_SHARE:
                return f"what it is made from would not stay in VMEM beside {r.group.name}"
        return ""

    def _more(self, value: Instruction, maker: Instruction, group: Instruction) -> int:
        """Bytes of values that are alive at a product's group if it computes a value, beyond those that are now."""
        given = [o for o in maker.operands if o in self.aliases.leaves]
        inputs = {leaf for o in given for leaf in self.aliases.leaves[o] if self._space(leaf) == Space.VMEM}
        longer = sum(leaf_bytes(leaf) for leaf in inputs if self.last[leaf] < self.position[group])
        rows = sum(o.shape.bytes for o in maker.operands if o not in self.aliases.leaves)
        return longer + rows - (value.shape.bytes if self._is_in_vmem(value) else 0)

    def _is_in_vmem(self, value: Instruction) -> bool:
        (leaf,) = self.aliases.leaves[value]
        return self._space(leaf) == Space.VMEM

    # Estimates.

    def _apart(self, maker: Group, products: Sequence[GemmPlan]) -> int:
        """Cycles of the group that stores a value and then of its products, whose loads may run ahead of them."""
        chip, computation = self.step.chip, maker.body
        plan = analyze(group_roots(computation))
        arrays = dict(zip(computation.parameters, map(self._array, maker.operands), strict=True))
        result = self._array(maker)
        vector = vector_cycles(chip, plan, Box.whole(plan.dims), arrays, [result])
        moved = [a for a in (*arrays.values(), result) if a.buf.space == Space.HBM]
        transfer = transfer_cycles(sum(a.buf.bytes for a in moved), chip)
        transfer += chip.hbm.latency * (bool(moved) + (result in moved))
        busy = sum(p.flow.totals.on_chip for p in products)
        return max(transfer + sum(p.cycles for p in products), vector + busy)

    def _ended(self, value: Instruction, blocks: Group, parts: Tail, products: Sequence[GemmPlan]) -> int:
        """Cycles of products that load a value, and those that blocks take more if they end in it: those of HBM, of the
        vector unit or of the matrix units, whichever of them is busy longest.
        """
        chip, tail = self.step.chip, parts.tail
        plan = analyze(group_roots(tail.body))
        arrays = dict(zip(tail.body.parameters, map(self._array, tail.operands), strict=True))
        vector = vector_cycles(chip, plan, Box.whole(plan.dims), arrays, [self._array(value)])
        around = (*blocks.operands, *result_values(blocks, self.users))
        others = [v for v in around if v.shape.is_array and v is not value]
        moved = sum(a.buf.bytes for a in map(self._array, others) if a.buf.space == Space.HBM)
        stored = 0 if self._is_in_vmem(value) else value.shape.bytes
        reduced, multiplied = _of_rows(parts.blocks.body, chip)
        with_it = max(transfer_cycles(moved + stored, chip), reduced + vector, multiplied)
        without = max(transfer_cycles(moved, chip), reduced, multiplied)
        return with_it - without + sum(p.cycles for p in products)

    def _planned(self, group: Group, placed: Instruction, more: int = 0) -> GemmPlan:
        """Tiles of a product's group that is `placed` or replaces it; `more` bytes of values are alive beside it then.

        Raises:
            DoesNotFitError: no tiles fit.
            LimitError: no instruction can hold it.
        """
        self.ctx.group = group
        self.ctx.budget = self.placement.budget[placed] - int(more * self.placement.shares.usual)
        plan = planned(self.ctx, group, [self._array(o) for o in group.operands], [self._array(placed)])
        if plan is None:
            raise DoesNotFitError("no tiles fit in VMEM")
        return plan

    def _array(self, value: Instruction) -> Array:
        """A value where it is placed (one of rows, not made yet, in VMEM), in a buffer that stands for its own."""
        (leaf,) = self.aliases.leaves.get(value, ((value, 0),))
        return dense_array(Buf(value.name, self._space(leaf), value.shape.bytes), value.shape.dtype, value.dims)

    def _space(self, leaf: Leaf) -> Space:
        """Where a value is placed; what is given is in HBM, unless it is small or a loop may have brought it in."""
        if family(leaf[0]) is Family.GIVEN:
            share = CACHED_SHARE if self.computation is self.module.entry else LOOP_SHARE
            return Space.HBM if leaf_bytes(leaf) > self.step.chip.vmem.bytes // share else Space.VMEM
        return Space.HBM if leaf in self.placement.spilled else Space.VMEM

    # The new groups.

    def _fuse(self, value: Instruction, maker: Group, readers: Sequence[_Reader]) -> None:
        """Let products compute a value."""
        computations = self.module.computations
        for r in readers:
            computations[computations.index(r.group.body)] = r.fused.body
            r.group.operands, r.group.attributes = r.fused.operands, r.fused.attributes
            for leaf in (leaf for o in r.group.operands for leaf in self.aliases.leaves.get(o, ())):
                self.last[leaf] = max(self.last[leaf], self.position[r.group])
        if maker is value:
            computations.remove(maker.body)
        stack: list[Instruction] = [value]
        while stack:
            view = stack.pop()
            if view.opcode == "bitcast" or view is value:
                self.gone.add(view)
                stack += self.users[view]

    def _replace(self, blocks: Group, values: Sequence[Instruction], parts: Tail) -> None:
        """Put a group of blocks without one of its results in the place of the one with it."""
        computation, now = self.computation, dict(zip(values, parts.values, strict=True))
        computations = self.module.computations
        parts.blocks.body.name = Names(c.name for c in computations).fresh(parts.blocks.body.name)
        computations[computations.index(blocks.body)] = parts.blocks.body
        self._drop({*self.gone, *values} - {blocks})
        names = Names(i.name for i in computation.instructions)
        for i in (parts.blocks, *parts.made):
            i.name = names.fresh(i.name)
        for i in computation.instructions:
            i.operands = [now.get(o, o) for o in i.operands]
        computation.root = now.get(computation.result, computation.result)
        at = computation.instructions.index(blocks)
        computation.instructions[at : at + 1] = [parts.blocks, *parts.made]
        placement, former = self.placement, {v: self.aliases.leaves[v][0] for v in values}
        self._look_up()
        placement.spilled |= {
            self.aliases.leaves[now[v]][0]
            for v, leaf in former.items()
            if leaf in placement.spilled and now[v] is not parts.tail
        }
        placement.live[parts.blocks], placement.budget[parts.blocks] = placement.live[blocks], placement.budget[blocks]

    def _drop(self, gone: Collection[Instruction]) -> None:
        self.computation.instructions = [i for i in self.computation.instructions if i not in gone]


def _rounds_a_product(group: Group) -> bool:
    """Whether a group only rounds what a product's group makes, which can do so itself (`groups/multi_output.py`)."""
    makers = [o.operands[0] if o.opcode == "get-tuple-element" else o for o in group.operands]
    if group.root.opcode != "convert" or group.root.operands[0].opcode != "parameter":
        return False
    return isinstance(makers[0], Group) and makers[0].unit is Unit.MXU


def _of_rows(body: Computation, chip: Chip) -> tuple[int, int]:
    """Cycles of the vector unit for what a body's reductions read, all of it in VMEM, and of the matrix units."""
    others = [i for i in body.instructions if not is_cheap(i)]
    vector = multiplied = 0
    for root in root_operations(body):
        if family(root) is Family.CONTRACTION:
            multiplied += contraction_cycles(contraction_of(root), chip)
            continue
        read = root.operands[: len(root.operands) // 2]
        plan = analyze(read, frontier=others)
        leaves = {leaf: anywhere(leaf.shape) for leaf in plan.leaves}
        made = [anywhere(o.shape) for o in read]
        vector += vector_cycles(chip, plan, Box.whole(plan.dims), leaves, made)
    return vector, multiplied


def _held(plan: GemmPlan) -> int:
    """Cycles in which SEQ may wait for the vector unit's queue, and what follows with it.

    Blocks that are shorter than the way through the array have operands and results in turns in that queue.
    """
    m, n = plan.flow.blocks
    return m * n * plan.flow.repeats * plan.flow.fill if plan.ahead > 1 else 0


def _is_operand(group: Group, value: Instruction) -> bool:
    """Whether a product's group reads a value only as an operand of the product, through views."""
    computation, product = group.body, group.root
    users = computation.users()
    stack = [p for p in computation.parameters if group.operands[p.number or 0] is value]
    while stack:
        i = stack.pop()
        if i is computation.result or not all(u is product or info(u).view for u in users[i]):
            return False
        stack += [u for u in users[i] if u is not product]
    return True


def merged(group: Group, maker: Group, value: Instruction) -> Group:
    """The group of a product with what makes one of its operands in it: `value` as `maker` computes it."""
    outer, inner = group.body, maker.body
    copy = Outline()

    def copied(computation: Computation, given: Sequence[Instruction]) -> Instruction:
        copy.copies |= zip(computation.parameters, given, strict=True)
        for i in computation.instructions:
            if i.opcode != "parameter":
                copy.take(i)
        return copy.copies[computation.result]

    def given(operand: Instruction) -> Instruction:
        """The instruction of the fused body for an operand of the group."""
        chain = list(_views(operand))
        if chain[-1] is not value:
            return copy.parameter(operand)
        result = copied(inner, [copy.parameter(o) for o in maker.operands])
        for view in reversed(chain[:-1]):
            result = copy.add(Instruction(view.name, "reshape", view.shape, line=view.line), [result])
        return result

    root = copied(outer, [given(o) for o in group.operands])
    attributes = group.attributes | {"calls": copy.computation(outer.name, [root])}
    return replace(group, operands=copy.values, attributes=attributes)


def _views(value: Instruction) -> Iterator[Instruction]:
    """A value, and what it is a bitcast of, and so on."""
    yield value
    while value.opcode == "bitcast":
        (value,) = value.operands
        yield value
