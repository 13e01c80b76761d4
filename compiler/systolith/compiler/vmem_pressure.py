"""Measures that make a module fit in VMEM: which values stay there, how large tiles are, what is spilled to HBM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import TypeVar

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.emit.linearize import linearize
from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.explain import Alternative, Decision, planned_cycles
from systolith.compiler.groups.splitting import split
from systolith.compiler.groups.stats import executed
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.lower.block_bodies import BlockBodies
from systolith.compiler.lower.group_copies import GroupCopies
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.lower.module import lower_module
from systolith.compiler.memory.residency import TILE_SHARES, TILES, VALUES_SHARES, Leaf, leaf_bytes, leaves_of
from systolith.compiler.memory.shares import Shares
from systolith.compiler.ops.group import Group
from systolith.compiler.options import Options
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.plan import ForcedPlan
from systolith.compiler.schedule.fitting import Fitted, predicted, schedule
from systolith.compiler.schedule.group_loops import LOOP_SHARES, NO_LOOPS, Choice
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Block, Buf
from systolith.compiler.tile.verifier import verify_tile_ir
from systolith.isa.chip import Chip

G = TypeVar("G", bound=Instruction)

APART = 6
"""So many times tiles are made smaller in groups that are in the way of others; then all groups have smaller ones."""

MOST_ATTEMPTS = 80

_LARGEST = "the largest share that fits"
"""Why a share is taken."""

CLEARLY = 0.06
"""By so much the estimate of one share of VMEM for values has to be better for the other not to be tried to the end."""


def fit_in_vmem(
    module: Module, chip: Chip, options: Options, copies: GroupCopies | None = None
) -> tuple[Lowering, Fitted]:
    """Lower until everything fits, and split groups that no instruction can hold, in place.

    After a split everything is tried anew, so that what comes of it depends on the module alone.  `copies` are of the
    groups of this module, and of others; None: each is lowered by itself.

    Raises:
        DoesNotFitError: it never does.
    """
    taken, splits = Names(c.name for c in module.computations), list[Decision]()
    while True:
        lowering, fitted = _fitted(module, chip, options, copies)
        if not lowering.oversized:
            assert fitted is not None
            lowering.ctx.explain += splits
            return lowering, fitted
        splits += split(lowering.oversized, taken, module)


def _fitted(module: Module, chip: Chip, options: Options, copies: GroupCopies | None) -> tuple[Lowering, Fitted | None]:
    """Lower so that everything fits, with the usual share of VMEM for values, or less where that takes fewer cycles.

    None: there are groups that no instruction can hold.

    Raises:
        DoesNotFitError: it never does.
    """
    plan = options.plan
    if plan is not None:
        wanted = [v for v in VALUES_SHARES if plan.has("memory", "", _values_text(v))]
    else:
        # Blocks that sum products wait for HBM, and have weights and sums in VMEM: values there would be in the way.
        sums = any(isinstance(i, Group) and i.sums_products for i in module.instructions())
        wanted = [VALUES_SHARES[1]] if sums else []
    found = _fastest([_Attempt(module, chip, options, share, copies) for share in wanted])
    if found is not None:
        return found
    usual = _Attempt(module, chip, options, VALUES_SHARES[0], copies)
    if plan is not None or usual.lowering.oversized or not usual.lowering.lacks_room(VALUES_SHARES[1]):
        return usual.fitted()
    less = _Attempt(module, chip, options, VALUES_SHARES[1], copies)
    if less.lowering.oversized or less.price > usual.price * (1 + CLEARLY):
        return usual.fitted()
    tried = [less] if less.price < usual.price * (1 - CLEARLY) else [usual, less]
    return _fastest(tried) or usual.fitted()


class _Attempt:
    """Lowers a module beside whole values that take up to a share of VMEM.

    Args:
        module, chip, options: what to compile.
        values: the share.
        copies: of groups.

    Attributes:
        lowering: the last one.
    """

    def __init__(self, module: Module, chip: Chip, options: Options, values: float, copies: GroupCopies | None) -> None:
        self.chip, self.values = chip, values
        self._times = Counter({i.name: times for i, times in executed(module.entry)})
        self._shares, self._spilled = _planned_memory(module, options.plan)
        bodies, ways = BlockBodies(chip), dict[Hashable, Choice]()
        self._lower = partial(lower_module, module, bodies, options, self._spilled, values=values, ways=ways)
        self._copies = copies
        self.lowering, self._owners = self._lower(self._shares, copies=copies)

    @property
    def price(self) -> int:
        """An estimate of the cycles that depend on the share: of products and blocks, and to move spilled values.

        What blocks have in them counts with them.
        """
        moved = (
            transfer_cycles(leaf_bytes(leaf), self.chip) * self._times[leaf[0].name] for leaf in self.lowering.spilled
        )
        planned = planned_cycles(self.lowering.ctx.explain).items()
        return sum(moved) + sum(cycles * self._times[group] for group, cycles in planned)

    def fitted(self) -> tuple[Lowering, Fitted | None]:
        """Lower until everything fits: smaller tiles first, then values spilled to HBM, the largest first.

        None: there are groups that no instruction can hold.

        Raises:
            DoesNotFitError: it never does.
        """
        shares, spilled, before, lessened = self._shares, self._spilled, "", 0
        for _ in range(MOST_ATTEMPTS * len(LOOP_SHARES)):
            lowering = self.lowering
            if lowering.oversized:
                return lowering, None
            if lowering.ctx.options.complete:
                verify_tile_ir(lowering.ctx.block)
            fitted = schedule(lowering.ctx, lowering.free)
            plan = fitted.plan
            loops = _smaller_loops(lowering, fitted)
            if loops is not None:
                self.lowering, self._owners = self._lower(shares, copies=self._copies, loops=loops)
                continue
            if plan.failed is None:
                lowering.ctx.explain += _decided(lowering, fitted, shares, spilled)
                return lowering, fitted
            # Where smaller tiles do not help, still smaller ones will not.
            helpless, last, before = plan.failed.value.name == before, before, plan.failed.value.name
            if not shares.parts:
                break
            smaller = _smaller_tiles(lowering, fitted) if lessened < APART else shares.all_lowered()
            if smaller is not None and not helpless:
                shares, lessened = smaller, lessened + 1
            elif self._copies is not None:  # of what copies hold nobody knows whose values it is
                self._copies, before = None, last
            else:
                steps = [plan.failed.first, *plan.fullest()]
                around = [buf for step in steps for buf in plan.lives.alive(step) if buf in self._owners]
                if not around:
                    break
                spilled.add(self._owners[max(around, key=lambda b: b.bytes)])
                shares, lessened = self._shares, 0
            self.lowering, self._owners = self._lower(shares, copies=self._copies)
        raise DoesNotFitError(
            f"the module does not fit in the {self.chip.vmem.bytes} bytes of VMEM of chip {self.chip.name!r}: a buffer"
            f" of {plan.failed.value.bytes if plan.failed else 0} bytes has no place; use a chip with more VMEM"
        )


def _smaller_tiles(lowering: Lowering, fitted: Fitted) -> Shares | None:
    """Smaller tiles for groups that have some where a buffer without a place finds memory fullest, and for those that
    are like these; None: they have the smallest.
    """
    ctx, groups = lowering.ctx, {record.group.name: record.group for record in lowering.records}
    owner = {
        buf: groups[op.origin.group]
        for op in fitted.block.ops()
        if op.origin.group in groups
        for buf in op.buffers
        if buf not in ctx.whole
    }
    there = {_likeness(group) for group in _at_the_fullest(fitted, owner)}
    return lowering.placement.shares.lowered({g: inf for g in groups.values() if _likeness(g) in there})


def _likeness(group: Instruction) -> tuple[str, ...]:
    """What groups have in common that compute alike."""
    return (str(group.attributes.get("kind")), str(group.shape), *(str(o.shape) for o in group.operands))


def _at_the_fullest(fitted: Fitted, owner: Mapping[Buf, G]) -> Counter[G]:
    """The groups of buffers that lie where a buffer without a place finds memory fullest, and the bytes of these."""
    plan = fitted.plan
    ranges = [live for live in plan.lives if live.value in owner]
    most = Counter[G]()
    for at in plan.fullest():
        taken = Counter[G]()
        for buf, first, last in ranges:
            if first <= at <= last:
                taken[owner[buf]] += buf.bytes
        most |= taken
    return most


def _smaller_loops(lowering: Lowering, fitted: Fitted) -> Shares | None:
    """Loops with less of VMEM, where those of a lowering do not fit; None: they do, or nothing is gained by that.

    Loops that have buffers where a buffer without a place would find memory fullest are in its way; a buffer that other
    groups use, too, is none of theirs.
    """
    if not lowering.rolled:
        return None
    if fitted.plan.failed is None:
        return None if _has_registers(lowering.ctx, fitted.block) else NO_LOOPS
    ctx = lowering.ctx
    loops = [(lowering.rolled[loop.var], loop.body) for loop in fitted.block.loops() if loop.var in lowering.rolled]
    groups = {buf: group for group, body in loops for op in body.ops() for buf in op.buffers if buf not in ctx.whole}
    others = {
        buf for op in fitted.block.ops() for buf in op.buffers if buf in groups and groups[buf].name != op.origin.group
    }
    most = _at_the_fullest(fitted, {buf: group for buf, group in groups.items() if buf not in others})
    return lowering.loops.lowered({group: size / lowering.room(group) for group, size in most.items()})


def _has_registers(ctx: TileBuilder, block: Block) -> bool:
    """Whether there are registers for the addresses that loops move beside the scalars of a lowering."""
    with suppress(DoesNotFitError):
        if ctx.registers:
            linearize(block)
        return True
    return False


def _fastest(attempts: Sequence[_Attempt]) -> tuple[Lowering, Fitted] | None:
    """That of the fewest cycles, which are predicted if several fit; None: none fits."""
    found: list[tuple[_Attempt, Lowering, Fitted]] = []
    for attempt in attempts:
        with suppress(DoesNotFitError):
            lowering, fitted = attempt.fitted()
            if fitted is not None:
                found.append((attempt, lowering, fitted))
    if not found:
        return None
    n, why, numbers, lost = 0, "else blocks lack room", dict[str, int](), tuple[Alternative, ...]()
    if len(found) > 1:
        priced = [(round(predicted(lowering.ctx, fitted).total), n) for n, (_, lowering, fitted) in enumerate(found)]
        (cycles, n), *others = sorted(priced)
        why, numbers = "the least cycles", {"cycles": cycles}
        lost = tuple(Alternative(_values_text(found[k][0].values), "slower", {"cycles": c}) for c, k in others)
    best, lowering, fitted = found[n]
    lowering.ctx.explain.append(Decision("memory", "", _values_text(best.values), why, numbers, lost))
    return lowering, fitted


def _planned_memory(module: Module, plan: ForcedPlan | None) -> tuple[Shares, set[Leaf]]:
    """The shares of VMEM to try, and what is spilled in any case: those of a plan, if it says so."""
    share = next((s for s in TILE_SHARES if plan is not None and plan.has("memory", "", _share_text(s))), None)
    if plan is None or share is None:
        return TILES, set()
    running = [i for i in module.instructions() if i.opcode != "parameter"]
    less = {i: s for i in running for s in TILE_SHARES if plan.has("memory", i.name, _tiles_text(s))}
    return Shares((), share, less), {
        leaf for leaf in leaves_of(*running) if plan.has("memory", leaf[0].name, _spilled_text(leaf))
    }


def _share_text(share: float) -> str:
    return f"tiles of a group take up to {share:.0%} of the free VMEM"


def _tiles_text(share: float) -> str:
    return f"its tiles take up to {share:.0%} of the free VMEM"


def _values_text(share: float) -> str:
    return f"whole values take up to {share:.0%} of VMEM"


def _spilled_text(leaf: Leaf) -> str:
    return f"result {leaf[1]} of {leaf[0].name} is spilled to HBM"


def _decided(lowering: Lowering, fitted: Fitted, shares: Shares, spilled: Collection[Leaf]) -> Iterator[Decision]:
    """Decisions about spills, shares of VMEM, and loads ahead."""
    for leaf in sorted(lowering.spilled, key=lambda leaf: leaf[0].name):
        maker, size = leaf[0].name, leaf_bytes(leaf)
        why = "no place was left for it" if leaf in spilled else "too large to stay with what is alive beside it"
        yield Decision("memory", maker, _spilled_text(leaf), why, {"bytes": size})
    used = {"VMEM bytes used": fitted.plan.high_water}
    yield Decision("memory", "", _share_text(shares.usual), _LARGEST, used, _larger(shares.usual))
    for group, share in sorted(shares.less.items(), key=lambda each: each[0].name):
        yield Decision("memory", group.name, _tiles_text(share), _LARGEST, {}, _larger(share))
    ahead = [
        Alternative(f"{fitted.ahead:.0%} for those of {group}", f"did not fit: {part:.0%}")
        for group, part in fitted.less.items()
    ]
    for kernel, parts in fitted.cut.items():
        text = f"in {len(parts)} parts, each after the last operation that it depends on"
        yield Decision("schedule", kernel.origin.group, text, "the matrix units multiply meanwhile")
    numbers = {"loads": sum(op.op == "dma.load" for op in fitted.block.ops()), "moved ahead": len(fitted.moved)}
    yield Decision(
        "schedule", "", f"loads ahead of their use take up to {fitted.ahead:.0%} of the free VMEM",
        _LARGEST, numbers, tuple(ahead),
    )  # fmt: skip


def _larger(share: float) -> tuple[Alternative, ...]:
    """Larger shares of tiles than one, which did not fit."""
    return tuple(Alternative(f"{s:.0%} of it", "did not fit") for s in TILE_SHARES if s > share)
