"""Relief: what is done about a module that does not fit in HBM.

In turn, until it fits: temporaries lie in the memory of results that are not made yet; the groups of the entry run in
another order; values are computed again (`memory/rematerialise.py`).  What is estimated on grouped HLO is measured by
lowering it, and kept if it takes fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from systolith.compiler.emit.assemble import assemble
from systolith.compiler.errors import DoesNotFitError, HbmError
from systolith.compiler.explain import Decision, planned_cycles
from systolith.compiler.groups.stats import group_infos
from systolith.compiler.hlo.ir import Module
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.memory.hbm import buffer_table, share_temporaries
from systolith.compiler.memory.linear_schedule import ORDERS, line_of, rewritten
from systolith.compiler.memory.rematerialise import Remade, Rematerialiser
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.passes.effects import moves_for_host
from systolith.compiler.passes.expand.entry_states import states_of
from systolith.compiler.schedule.early_kernels import last_parts
from systolith.compiler.schedule.fitting import Fitted
from systolith.compiler.schedule.program import predicted
from systolith.compiler.tile.ir import GroupRecord, TileModule
from systolith.isa.chip import Chip
from systolith.isa.program import Role

MOST_ROUNDS = 8
"""How often values that are to be computed again are chosen, and the module lowered with them."""

HOSTED = "temporaries lie in the memory of results until these are made"

_SHOWN = 3
"""Buffers that a refusal names."""


@dataclass
class Lowered:
    """A module that fits in VMEM, with a plan of its temporaries in HBM.

    Attributes:
        module: grouped HLO.
        lowering: what lowered it.
        fitted: its operations, in order, with addresses.
    """

    module: Module
    lowering: Lowering
    fitted: Fitted

    @property
    def hbm(self) -> int:
        """Bytes of HBM that it takes."""
        return sum(b.bytes for b in self.lowering.ctx.buffers if b.shares is None)

    def share(self, into_results: bool) -> None:
        """Plan HBM; `into_results`: temporaries may lie in the memory of results that are not made yet."""
        buffers = self.lowering.ctx.buffers
        results = [b for b in buffers if b.decl is not None and b.decl.role is Role.RESULT]
        owners = self.lowering.ctx.donated.union(b.memory for b in results if into_results)
        share_temporaries(self.fitted.block, [b for b in buffers if b.memory in owners], self._records())

    def tile(self, records: bool) -> TileModule:
        """The module in tile IR; `records`: with what checks need to know of each group."""
        ctx = self.lowering.ctx
        block, buffers = self.fitted.block, buffer_table(ctx.buffers, states_of(self.module))
        groups = group_infos(self.module, planned_cycles(ctx.explain))
        found = list(self._records()) if records else []
        chip = ctx.chip
        return TileModule(self.module.name, block, chip.name, chip.digest(), buffers, ctx.whole, groups, found)

    def _records(self) -> Iterator[GroupRecord]:
        """Of groups that have operations of their own: loads that moved ahead, and parts that start early but the last,
        are not among them.
        """
        last = last_parts(self.fitted.cut)
        position = {op: n for n, op in enumerate(self.fitted.block.ops())}
        for made in self.lowering.records:
            there = (last.get(op, op) for op in made.ops if op not in self.fitted.moved)
            own = sorted((op for op in there if op in position), key=position.__getitem__)
            if own:
                yield GroupRecord(made.group.name, own[0], own[-1], made.inputs, made.outputs)


@dataclass
class Relief:
    """Changes by which a module fits in HBM.

    Attributes:
        remade: values that are computed again, or later.
        decisions: for people.
    """

    remade: list[Remade] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def chose(self, what: str, before: int, after: int) -> None:
        """Record what made the module smaller, if it did; in bytes of HBM."""
        if after >= before:
            return
        numbers = {"bytes of HBM": after, "bytes before": before}
        self.decisions.append(Decision("memory", "", what, "the module does not fit in HBM otherwise", numbers))


def relieved(lowered: Lowered, chip: Chip, lower: Callable[[Module], Lowered]) -> tuple[Lowered, Relief]:
    """A module with less in HBM.

    Args:
        lowered: as it is.
        chip: with too little HBM for it.
        lower: lowers a grouped module and plans its temporaries.

    Raises:
        CompileError: it still does not fit; says what takes most, and what to do.
        DoesNotFitError: it does not, and has views, which no other order may have.
    """
    relief, before = Relief(), lowered.hbm
    lowered.share(into_results=True)
    relief.chose(HOSTED, before, lowered.hbm)
    module = lowered.module
    if lowered.hbm > chip.hbm.bytes and any(
        isinstance(i, Group) and i.unit is Unit.VIEW for i in module.instructions()
    ):
        raise DoesNotFitError(f"module {module.name!r} does not fit in HBM, and views are in the way of another order")
    if moves_for_host(module):
        if lowered.hbm > chip.hbm.bytes:
            raise _refusal(lowered, chip)
        return lowered, relief
    line = line_of(module.entry, lowered.lowering.spilled, ())
    for name, order in ORDERS.items():
        if lowered.hbm > chip.hbm.bytes:
            other = lower(rewritten(module, {module.entry: order(line)}))
            other.share(into_results=True)
            relief.chose(f"groups in the order: {name}", lowered.hbm, other.hbm)
            lowered = min(lowered, other, key=lambda found: found.hbm)
    if lowered.hbm > chip.hbm.bytes:
        lowered = _rematerialised(lowered, chip, lower, relief)
    if lowered.hbm > chip.hbm.bytes:
        raise _refusal(lowered, chip)
    # What the module takes in this order, or with values computed again, need not be as tight as it was before.
    lowered.share(into_results=False)
    if lowered.hbm <= chip.hbm.bytes:
        relief.decisions = [d for d in relief.decisions if d.chosen != HOSTED]
    else:
        lowered.share(into_results=True)
    return lowered, relief


def _rematerialised(lowered: Lowered, chip: Chip, lower: Callable[[Module], Lowered], relief: Relief) -> Lowered:
    tile = lowered.tile(records=False)
    program = assemble(tile.name, tile.block, tile.buffers, lowered.fitted.plan, chip).program
    cycles = {g.name: g.predicted for g in predicted(tile.groups, program, chip)}
    wanted, most = lowered.hbm - chip.hbm.bytes, -1
    for _ in range(MOST_ROUNDS):
        changing = Rematerialiser(lowered.module, lowered.lowering.spilled, cycles)
        changes = list(changing.lower(changing.peak - wanted))
        if len(changes) <= most or not changes:
            break
        other = lower(rewritten(lowered.module, changing.lines))
        other.share(into_results=True)
        if other.hbm >= lowered.hbm:
            # What is estimated is not what is measured: values may share memory less well.
            wanted, most = 2 * wanted, len(changes)
            continue
        relief.remade += changes
        relief.chose(f"{len(changes)} values computed again, or later", lowered.hbm, other.hbm)
        relief.decisions += map(_decision, changes)
        lowered, wanted, most = other, other.hbm - chip.hbm.bytes, -1
        if wanted <= 0:
            break
    return lowered


def _decision(change: Remade) -> Decision:
    what = f"{change.group} is {'computed again' if change.cycles else 'made only'} before {change.before}"
    numbers = {"groups": change.groups, "cycles": change.cycles, "bytes": change.bytes, "peak": change.peak}
    return Decision("memory", change.group, what, "fewest cycles a byte at the peak", numbers)


def _refusal(lowered: Lowered, chip: Chip) -> HbmError:
    own = [b for b in lowered.lowering.ctx.buffers if b.shares is None and b.decl is not None]
    sizes = {role: sum(b.bytes for b in own if b.decl and b.decl.role is role) for role in Role}
    parts = ", ".join(f"{role} {size}" for role, size in sizes.items() if size)
    largest = sorted(own, key=lambda b: -b.bytes)[:_SHOWN]
    most = ", ".join(f"{b.decl.role} {b.name!r} {b.bytes}" for b in largest if b.decl)
    fed = moves_for_host(lowered.module)
    tried = "infeeds and outfeeds keep its order" if fed else "another order and computing values again save no more"
    return HbmError(
        f"module {lowered.module.name!r} needs {lowered.hbm} bytes of HBM ({parts}), chip {chip.name!r} has"
        f" {chip.hbm.bytes}; {tried}; most take {most}: use a smaller"
        " batch or type, donate arguments, or a chip with more HBM"
    )
