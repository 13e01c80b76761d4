"""Multi-output fusion: groups that read the same values, or one of which reads what the other makes, become one group
with the results of both, so that what they share is read, or computed, once.

Three kinds of groups on the vector unit:

- *siblings*: elementwise groups over the same dimensions with a common operand (an optimiser's p, m and v);
- *producer and consumer*: a value that is needed in memory and used elementwise by a later group;
- *reductions*: several over the same dimensions of the same operands (a mean and a mean of squares), also together with
  elementwise values over those dimensions (an exponential and its sum).

When these are joined, a group also joins that of the product that it reads, if its results can be made as the product's
tiles come (`groups/product_results.py`): an optimiser's step and the gradient that it is for, or a sum over the rows.

A group joins an earlier one, at that one's place: what it needs besides moves ahead of it.  It does so where the vector
unit and HBM have less to do (`groups/fuse_pair.py`), where no value lives longer that VMEM has no room for, and where
nothing is lost that was made in an operand's memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.explain import Decision
from systolith.compiler.groups.fuse_pair import Joint, Kernels, NotJointError, check_results, join
from systolith.compiler.groups.product_results import ProductResults
from systolith.compiler.groups.slice_views import SliceViews
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.memory.aliasing import Uses, parameter_leaves, pointwise, stored_directly, wanted_aliases
from systolith.compiler.memory.residency import (
    CACHED_SHARE,
    TILES,
    VALUES_SHARE,
    Aliases,
    Leaf,
    Placement,
    leaf_bytes,
    leaves_of,
    place_computation,
    running,
)
from systolith.compiler.memory.update_places import rows_in_hbm
from systolith.compiler.ops.group import Group, Unit, result_values
from systolith.compiler.ops.table import Family, family
from systolith.compiler.options import Options
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.rewrite import Names
from systolith.isa.chip import Chip

NEAREST = 16
"""Groups that read or make what a group reads, among which it looks for another one to join."""

SMALL = 1024
"""Results of this part of the room for values may live longer in any case."""

LEAST_GAIN = 8
"""Cycles; less does not make up for users of the first group's results, which get them later."""

OUTPUTS = ".outputs"
"""Suffix of the names of groups with several results."""


@dataclass(frozen=True)
class FuseOutputs:
    """Join groups that read the same values, or one of which reads the other's result.

    Attributes:
        chip: that costs are for.
        options: as for lowering.
    """

    chip: Chip
    options: Options = field(default_factory=Options)

    def run(self, module: Module) -> Outcome:
        names = Names(c.name for c in module.computations)
        products = ProductResults(self.chip, self.options)
        changed, decisions = False, list[Decision]()
        for computation, places in _wanted(module).items():
            # Products come when the rest is settled: where values lie then says what they gain.
            for merge in (_Merging.run, _Merging.into_products):
                if merge is _Merging.into_products and not any(map(_products_read, computation.instructions)):
                    continue
                merging = _Merging(computation, self.chip, names, places, computation is module.entry, products)
                gone, made = merge(merging)
                at = module.computations.index(computation)
                module.computations[at:at] = made
                module.computations = [c for c in module.computations if c not in gone]
                decisions += merging.decisions
                changed |= bool(made)
        return Outcome(changed, tuple(decisions))


def fuse_outputs(computation: Computation, chip: Chip) -> list[Decision]:
    """The same for one computation, in place, but for products; gives what was decided."""
    merging = _Merging(computation, chip, Names([computation.name]), {}, True)
    merging.run()
    return merging.decisions


def _wanted(module: Module) -> dict[Computation, dict[int, Leaf]]:
    """The entry and the bodies of loops and branches, with the parameters in whose memory results are wanted."""
    parameters = parameter_leaves(module)
    aliases = wanted_aliases(module, Uses(module.entry))
    found = {c: dict[int, Leaf]() for c in running(module.entry)}
    found[module.entry] = {a.result: parameters[a.parameter] for a in aliases}
    for i in (i for c in found for i in c.instructions if i.opcode == "while"):
        body = i.computation("body")
        found[body] = dict(enumerate(leaves_of(*body.parameters)))
    return found


@dataclass(frozen=True)
class _Move:
    """How a group joins an earlier one.

    Attributes:
        at: place of the earlier one among what is done.
        ahead: what has to move ahead of it.
        rest: what is between them and stays behind.
    """

    at: int
    ahead: list[Instruction]
    rest: list[Instruction]


@dataclass(frozen=True)
class _Choice:
    """A group that can be joined, and what that gains.

    Attributes:
        first: the group.
        joint: both as one.
        values: what stands for each result of both.
        gain: cycles.
        numbers: that it is made of.
    """

    first: Group
    joint: Joint
    values: list[Instruction]
    move: _Move
    gain: int
    numbers: Mapping[str, int]


class _Merging:
    """The merging of one computation's groups.

    Attributes:
        products: cycles of products with several results; None: no group joins that of a product.
        spaces: that groups run over; None: it is not for joining.
        value: what stands for a result of a group that has been joined.
        users: of each value.
        stands, reads: the leaves that an instruction is, or reads, of those whose memory results want.
        wants: those whose memory the results of a group want.
        spilled: values that will lie in HBM.
        live: bytes of the others that are alive at each group.
        budget: bytes of VMEM for the tiles of each group.
        kept: what each instruction makes of those.
        limit: bytes that they may take.
    """

    def __init__(
        self,
        computation: Computation,
        chip: Chip,
        names: Names,
        places: Mapping[int, Leaf],
        outermost: bool,
        products: ProductResults | None = None,
    ) -> None:
        self.computation, self.chip, self.names, self.outermost = computation, chip, names, outermost
        self.products = products
        self.kernels, self.effects = Kernels(chip), Effects()
        self.decisions: list[Decision] = []
        self.gone: set[Computation] = set()
        self.made: dict[Computation, None] = {}
        self.spaces: dict[Instruction, tuple[int, ...] | None] = {}
        self.value: dict[Instruction, Instruction] = {}
        self.users = {i: dict.fromkeys(users) for i, users in computation.users().items()}
        self.own_names = Names(i.name for i in computation.instructions)
        aliases = Aliases(computation)
        wanted = set(places.values())
        self.stands = {i: wanted.intersection(aliases.leaves[i]) for i in computation.instructions}
        self.reads = {i: {leaf for o in i.operands for leaf in self.stands[o]} for i in computation.instructions}
        self.wants: dict[Instruction, set[Leaf]] = {}
        for n, leaf in enumerate(aliases.leaves[computation.result]):
            if n in places:
                self.wants.setdefault(leaf[0], set()).add(places[n])
        self.limit = int(chip.vmem.bytes * VALUES_SHARE)
        placement = _placed(computation, chip, self.limit, outermost)
        self.live, self.kept = placement.live, defaultdict[Instruction, int](int)
        self.budget = placement.budget
        self.spilled: set[Instruction] = set()
        for i in computation.instructions:
            for leaf in aliases.leaves[i]:
                if leaf in placement.spilled and i.shape.is_array:
                    self.spilled.add(i)
                elif leaf[0] is i and family(i) is not Family.GIVEN and leaf not in placement.spilled:
                    self.kept[i] += leaf_bytes(leaf)

    def run(self) -> tuple[set[Computation], list[Computation]]:
        """Rewrite the computation; gives groups' computations that are gone and new."""
        self.done: list[Instruction] = []
        self.at: dict[Instruction, int] = {}
        for i in self.computation.instructions:
            if i in self.value:  # a result of a group of several, which joined another one
                continue
            i.operands = [self._now(o) for o in i.operands]
            self.at[i] = len(self.done)
            self.done.append(i)
            group: Instruction | None = i
            while isinstance(group, Group) and group.unit is Unit.VPU:
                group = self._joined(group, self._candidates(group))
        return self._rewritten()

    def into_products(self) -> tuple[set[Computation], list[Computation]]:
        """Join groups with those of the products that they read; gives the same."""
        self.done = [*self.computation.instructions]
        self.at = {i: n for n, i in enumerate(self.done)}
        for i in [*self.done]:
            if isinstance(i, Group) and (makers := _products_read(i)):
                self._joined(i, [(self.at[maker], maker) for maker in makers if maker.dims == self._space(i)])
        return self._rewritten()

    def _rewritten(self) -> tuple[set[Computation], list[Computation]]:
        self.computation.root = self._now(self.computation.result)
        self.computation.instructions = self.done
        return self.gone, [c for c in self.made if c not in self.gone]

    def _joined(self, second: Group, candidates: Iterable[tuple[int, Group]]) -> Group | None:
        """Let a group join the best of some before it, whose places are given; None: of none."""
        place = self.at[second]
        best: _Choice | None = None
        for at, first in candidates:
            try:
                choice = self._choice(first, second, at, place)
            except NotJointError as e:
                if e.costs:
                    text = f"{first.name} and {second.name} stay apart"
                    self.decisions.append(Decision("outputs", second.name, text, str(e)))
                continue
            best = choice if best is None or choice.gain > best.gain else best
        return None if best is None else self._apply(best, second, place)

    def _candidates(self, second: Group) -> Iterator[tuple[int, Group]]:
        """Groups before one, and their places, that read the same array, or make what it reads, in one iteration space;
        the nearest first.
        """
        space, place = self._space(second), self.at[second]
        if space is None or self.kernels.is_full(second):
            return
        shared = [o for o in second.operands if o.shape.is_array and o.shape.size > 1]
        near = {
            i for o in shared for i in (*self.users[o], o, *(o.operands if o.opcode == "get-tuple-element" else ()))
        }
        alike = (i for i in near if isinstance(i, Group) and i.unit is Unit.VPU and self._space(i) == space)
        found = sorted(((self.at[i], i) for i in alike if self.at.get(i, place) < place), reverse=True)
        yield from ((at, first) for at, first in found[:NEAREST] if not self.kernels.is_full(first))

    def _space(self, group: Group) -> tuple[int, ...] | None:
        if group not in self.spaces:
            self.spaces[group] = _space(group)
        return self.spaces[group]

    def _values(self, group: Instruction) -> list[Instruction]:
        """The value of each result of a group: the group, or its tuple elements."""
        return result_values(group, self.users)

    def _choice(self, first: Group, second: Group, at: int, place: int) -> _Choice:
        """The gain of joining the group at `at`; NotJointError: it is illegal, or costs more than it gains."""
        move = self._move(at, place)
        values = [*self._values(first), *self._values(second)]
        of_first = {v: k for k, v in enumerate(self._values(first))}
        needed = [
            k
            for k, v in enumerate(values)
            if k >= len(of_first) or v is self._now(self.computation.result) or set(self.users[v]) - {second}
        ]
        if first.unit is not Unit.MXU:
            self.kernels.check_streams(first, second, of_first, len(needed))
        joint = join(first, second, of_first, needed)
        if first.unit is Unit.MXU:
            self._check_memory(first, second, joint, move)
            gain = self._saved_of_product(first, second, joint, [values[k] for k in needed])
            return _Choice(first, joint, values, move, gain, {"cycles saved": gain})
        check_results(joint)
        self._check_memory(first, second, joint, move)
        vector = self.kernels.saved(first, second, joint)
        again = sum(o.shape.bytes for o in second.operands if o in first.operands and self._in_hbm(o))
        again += sum(v.shape.bytes for v in of_first if v in second.operands and self._in_hbm(v))
        again += sum(v.shape.bytes for k, v in enumerate(values) if k not in needed and self._in_hbm(v))
        gain = vector + transfer_cycles(again, self.chip)
        numbers = {"vector cycles saved": vector, "HBM bytes saved": again}
        if gain < LEAST_GAIN:
            raise NotJointError(f"saves {vector:,} vector cycles and {again:,} bytes of HBM, {gain:,} cycles", True)
        return _Choice(first, joint, values, move, gain, numbers)

    def _saved_of_product(self, first: Group, second: Group, joint: Joint, kept: Sequence[Instruction]) -> int:
        """Cycles that the group of a product takes less with one that reads it; errors as for `_choice`."""
        assert self.products is not None
        both = _group(second.name, joint, first, second)
        freed = first.shape.bytes if first not in kept and not self._in_hbm(first) else 0
        budgets = self.budget[first], self.budget[first] + int(freed * TILES.usual)
        return self.products.saved(first, second, both, (self._values(second), kept), self._in_hbm, budgets)

    def _move(self, at: int, place: int) -> _Move:
        """Those between two groups that the second needs, and the others; NotJointError: one needs the first, too."""
        first, second = self.done[at], self.done[place]
        own = {first, *self._values(first)}
        needed = set(second.operands)
        ahead: list[Instruction] = []
        rest: list[Instruction] = []
        for i in reversed(self.done[at + 1 : place]):
            if i in own:
                continue
            if i not in needed:
                rest.insert(0, i)
                continue
            if any(o in own for o in i.operands) or self.effects.of(i):
                raise NotJointError(f"{i.name} has to be between them")
            needed.update(i.operands)
            ahead.insert(0, i)
        return _Move(at, ahead, rest)

    def _check_memory(self, first: Group, second: Group, joint: Joint, move: _Move) -> None:
        """Whether values have room, and results are made in the memory that they want."""
        wants = self.wants.get(first, set()) | self.wants.get(second, set())
        for i in move.rest:
            if self.reads[i] & self.wants.get(second, set()):
                raise NotJointError(f"{i.name} reads what a result would overwrite", True)
        if wants & (self.reads[first] | self.reads[second]):
            trial = _group("", joint, first, second)
            numbers = [n for n, o in enumerate(joint.leaves) if self.stands.get(o, set()) & wants]
            if not pointwise(trial, numbers):
                raise NotJointError("a result would not be made in an operand's memory any more", True)
        later = sum(self.kept[i] for i in (second, *move.ahead))
        if later <= self.limit // SMALL:
            return
        most = max(self._alive(first, *move.rest)) + later
        if most > max(self.limit, *self._alive(first, second, *move.rest, *move.ahead)):
            raise NotJointError(f"{later:,} bytes would live longer: {most:,} of {self.limit:,}", True)

    def _alive(self, *steps: Instruction) -> list[int]:
        """Bytes of values in VMEM at each of some instructions; at those that do not run, none."""
        return [self.live.get(i, 0) for i in steps]

    def _in_hbm(self, value: Instruction) -> bool:
        """Whether a value is read from HBM by whoever reads it, as far as that is known."""
        if family(value) is Family.GIVEN and self.outermost:
            return value.shape.bytes > self.chip.vmem.bytes / CACHED_SHARE
        return value in self.spilled

    def _apply(self, choice: _Choice, second: Group, place: int) -> Group:
        """Put the joint group in the place of two; gives it."""
        first, joint, move = choice.first, choice.joint, choice.move
        merged = _group(self.own_names.fresh(_stem(second) + OUTPUTS), joint, first, second)
        values = self._stand_ins(merged, choice)
        own = {first, second, *self._values(first), *self._values(second)}
        tail = [i for i in self.done[place + 1 :] if i not in own]
        for i in (*move.rest, *tail):
            i.operands = [self._now(o) for o in i.operands]
        self.done[move.at :] = [*move.ahead, merged, *values, *move.rest, *tail]
        for i in own:
            self.at.pop(i, None)
        self.at |= {i: n for n, i in enumerate(self.done[move.at :], move.at)}
        self._account(merged, choice, second, values)
        self.gone |= {first.body, second.body}
        joint.computation.name = self.names.fresh(f"group.{_stem(second)}{OUTPUTS}")
        self.made[joint.computation] = None
        self.decisions.append(
            Decision("outputs", merged.name, f"{first.name} and {second.name} in one pass", "", choice.numbers)
        )
        return merged

    def _stand_ins(self, merged: Instruction, choice: _Choice) -> list[Instruction]:
        """The instructions that stand for the results of a joint group."""
        kept = [choice.values[k] for k in choice.joint.kept]
        if len(kept) == 1:
            self._stands_for(merged, kept[0])
            return []
        made = []
        for k, old in enumerate(kept):
            new = Instruction(old.name, "get-tuple-element", old.shape, [merged], {"index": k}, line=old.line)
            self._stands_for(new, old)
            made.append(new)
        self.users[merged] = dict.fromkeys(made)
        return made

    def _stands_for(self, new: Instruction, old: Instruction) -> None:
        self.users[new] = self.users.pop(old)
        self.value[old] = new
        if old in self.spilled:
            self.spilled.add(new)

    def _now(self, value: Instruction) -> Instruction:
        """The current replacement of a value."""
        while value in self.value:
            value = self.value[value]
        return value

    def _account(
        self, merged: Instruction, choice: _Choice, second: Instruction, values: Sequence[Instruction]
    ) -> None:
        """Users, reads and bytes after a merge."""
        both = (choice.first, second)
        for group in both:
            for o in group.operands:
                self.users[self._now(o)].pop(group, None)
        for o in merged.operands:
            self.users[o][merged] = None
        later = sum(self.kept[i] for i in (second, *choice.move.ahead))
        for i in choice.move.rest:
            self.live[i] = self.live.get(i, 0) + later
        self.live[merged] = max(self._alive(*both))
        self.budget[merged] = min(self.budget.get(group, self.limit) for group in both)
        self.reads |= {value: set() for value in values}
        self.kept[merged] = sum(self.kept[group] for group in both)
        self.reads[merged] = self.reads[both[0]] | self.reads[both[1]]
        self.wants[merged] = self.wants.get(both[0], set()) | self.wants.get(both[1], set())


def _products_read(i: Instruction) -> list[Group]:
    """The groups of products that a group on the vector unit reads."""
    if not isinstance(i, Group) or i.unit is not Unit.VPU:
        return []
    return list(dict.fromkeys(o for o in i.operands if isinstance(o, Group) and o.unit is Unit.MXU))


def _stem(group: Instruction) -> str:
    return group.name.split(OUTPUTS)[0]


def _space(group: Group) -> tuple[int, ...] | None:
    """The dimensions that a group runs over; None: it is not for joining."""
    root = group.root
    if not group.reduces:
        return root.dims
    return root.operands[0].dims if root.opcode == "reduce" and root.shape.is_array else None


def _group(name: str, joint: Joint, first: Group, second: Group) -> Group:
    """The group of a joint computation."""
    why = "; ".join(dict.fromkeys((first.why, second.why)))
    return Group.of(name, joint.computation, joint.leaves, second, first.unit, why=why)


def _placed(computation: Computation, chip: Chip, limit: int, outermost: bool) -> Placement:
    """Where the values of a computation will lie, as far as that is known before lowering."""
    fixed = stored_directly(computation, Aliases(computation)) if outermost else set[Leaf]()
    views = {(i, 0) for i in SliceViews(chip).of(computation)}
    placement = Placement(fixed | views | rows_in_hbm(computation, chip.vmem.bytes))
    place_computation(placement, computation, chip.vmem.bytes, limit, 0)
    return placement
