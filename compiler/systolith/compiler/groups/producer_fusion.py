"""Producer fusion: what only products read is computed in their groups, a tile at a time, instead of being stored.

An elementwise group whose value is an operand of products and nothing else joins the groups of these products, if that
is expected to take fewer cycles:

    stored      its own cycles and those of the products, which read it where it is placed; what the products load
    besides may move while the vector unit makes it computed    the products', whose tiles cost what computing them
    takes (`mxu/fused_operand.py`), as often as the best tile plan stages them

Both are the estimates of `mxu/gemm_search.py`.  A value that is stored in VMEM costs no transfer, but its products wait
until all of it is there; one that is computed keeps what it is made from alive for longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.errors import DoesNotFitError, LimitError
from systolith.compiler.explain import Alternative, Decision
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
from systolith.compiler.mxu.matmul import planned
from systolith.compiler.ops.expression_builder import analyze, group_roots
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.ops.table import Family, family, info
from systolith.compiler.options import Options
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.outline import Outline
from systolith.compiler.tile.arrays import dense_array
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.vpu.emit import vector_cycles
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space

ALIKE = 0.03
"""Estimates that differ by less than this part, or by less than a latency of HBM, are alike: the value is stored."""

LOOP_SHARE = 8
"""Operands of a loop of up to this part of VMEM count as resident."""


@dataclass(frozen=True)
class FusePrologues:
    """Compute elementwise operands of products in tiles of the products.

    Attributes:
        chip: that the cycles are of.
        options: as for lowering.
        always: compute in their products' groups all values that can be, not only where that is expected to be faster.
    """

    chip: Chip
    options: Options
    always: bool = False

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
        self.users = computation.users()
        self.aliases = Aliases(computation)
        self.last = leaf_liveness(computation, self.aliases).last
        self.position = {i: n for n, i in enumerate(computation.instructions)}
        self.gone: set[Instruction] = set()

    def run(self) -> list[Decision]:
        """Decide about every value."""
        decisions = []
        for maker in self.computation.instructions:
            if isinstance(maker, Group) and maker.unit is Unit.VPU and not maker.reduces and maker.shape.is_array:
                groups = self._readers(maker)
                if groups:
                    decisions.append(self._decide(maker, [_Reader(g, merged(g, maker)) for g in groups]))
        self.computation.instructions = [i for i in self.computation.instructions if i not in self.gone]
        return decisions

    def _readers(self, maker: Group) -> list[Group]:
        """The products' groups that read a value as an operand; none, if anything reads it otherwise."""
        found: dict[Group, None] = {}
        stack: list[Instruction] = [maker]
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

    def _decide(self, maker: Group, readers: Sequence[_Reader]) -> Decision:
        in_vmem = self._space((maker, 0)) == Space.VMEM
        names = ", ".join(r.group.name for r in readers)
        stored = Alternative(f"{maker.name} is stored in {'VMEM' if in_vmem else 'HBM'}")
        inside = Alternative(f"{maker.name} is computed in tiles of {names}")
        why = self._objection(maker, readers)
        if not why:
            try:
                apart = self._apart(maker, [self._planned(r.group, r.group) for r in readers])
                plans = [self._planned(r.fused, r.group, self._more(maker, r.group)) for r in readers]
            except (DoesNotFitError, LimitError) as problem:
                why = str(problem)
            else:
                held = sum(map(_held, plans)) if in_vmem else 0
                cycles = sum(p.cycles for p in plans)
                stored = replace(stored, numbers={"cycles": apart})
                inside = replace(inside, numbers={"cycles": cycles, "cycles held up": held})
                alike = max(self.step.chip.hbm.latency, int(apart * ALIKE))
                slower = cycles + held > apart - alike
                why = "not expected to take longer" if slower and not self.step.always else ""
        group, chosen, other = maker.name, stored, inside
        if not why:
            self._fuse(maker, readers)
            group, chosen, other = readers[0].group.name, inside, stored
            why = f"{maker.shape.bytes:,} bytes are not stored"
        return Decision("prologue", group, chosen.what, why, chosen.numbers, (other,))

    def _objection(self, maker: Instruction, readers: Sequence[_Reader]) -> str:
        """Why what a value is made from cannot stay until its products are made; empty: it can."""
        for r in readers:
            more, live = self._more(maker, r.group), self.placement.live[r.group]
            if more > 0 and live + more > self.step.chip.vmem.bytes * VALUES_SHARE:
                return f"what it is made from would not stay in VMEM beside {r.group.name}"
        return ""

    def _more(self, maker: Instruction, group: Instruction) -> int:
        """Bytes of values that are alive at a product's group if it computes a value, beyond those that are now."""
        inputs = {leaf for o in maker.operands for leaf in self.aliases.leaves[o] if self._space(leaf) == Space.VMEM}
        longer = sum(leaf_bytes(leaf) for leaf in inputs if self.last[leaf] < self.position[group])
        return longer - (maker.shape.bytes if self._space((maker, 0)) == Space.VMEM else 0)

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
        """A value where it is placed, in a buffer that stands for its own."""
        (leaf,) = self.aliases.leaves[value]
        return dense_array(Buf(value.name, self._space(leaf), value.shape.bytes), value.shape.dtype, value.dims)

    def _space(self, leaf: Leaf) -> Space:
        """Where a value is placed; what is given is in HBM, unless it is small or a loop may have brought it in."""
        if family(leaf[0]) is Family.GIVEN:
            share = CACHED_SHARE if self.computation is self.module.entry else LOOP_SHARE
            return Space.HBM if leaf_bytes(leaf) > self.step.chip.vmem.bytes // share else Space.VMEM
        return Space.HBM if leaf in self.placement.spilled else Space.VMEM

    # The new groups.

    def _fuse(self, maker: Group, readers: Sequence[_Reader]) -> None:
        computations = self.module.computations
        for r in readers:
            computations[computations.index(r.group.body)] = r.fused.body
            r.group.operands, r.group.attributes = r.fused.operands, r.fused.attributes
            for leaf in (leaf for o in r.group.operands for leaf in self.aliases.leaves[o]):
                self.last[leaf] = max(self.last[leaf], self.position[r.group])
        computations.remove(maker.body)
        stack: list[Instruction] = [maker]
        while stack:
            value = stack.pop()
            if value.opcode == "bitcast" or value is maker:
                self.gone.add(value)
                stack += self.users[value]


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


def merged(group: Group, maker: Group) -> Group:
    """The group of a product with what makes one of its operands in it."""
    outer, inner = group.body, maker.body
    copy = Outline()

    def copied(computation: Computation, given: Sequence[Instruction]) -> Instruction:
        copy.copies |= zip(computation.parameters, given, strict=True)
        for i in computation.instructions:
            if i.opcode != "parameter":
                copy.take(i)
        return copy.copies[computation.result]

    def given(value: Instruction) -> Instruction:
        """The instruction of the fused body for an operand of the group."""
        chain = list(_views(value))
        if chain[-1] is not maker:
            return copy.parameter(value)
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
