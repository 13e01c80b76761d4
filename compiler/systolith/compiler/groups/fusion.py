"""Grouping: every computation that runs becomes a list of groups.

In the grouped module each instruction of the entry and of the bodies of `while` and `conditional` is one of

    parameter, constant, tuple, get-tuple-element, while, conditional       structure
    bitcast                                                                 a view: the same dense bytes, another shape
    Group   on the matrix units     one dot or convolution and its elementwise epilogue
            on the vector unit      one reduce or reduce-window, its elementwise producers (reduce) and epilogue; or a
                                    convolution (`groups/unit_assignment.py`); or elementwise operations and data
                                    movement
            by DMA                  one other operation: gather, scatter, dynamic-slice, dynamic-update-slice, ...
            in blocks               any operations (`tiling/blocking.py`)
    infeed, outfeed, custom-call, collectives and the like, as they are

Operands of a dot or convolution may be chains of views (`tile/views.py`) of the group's parameters.  An epilogue has
the shape of what it follows and reads it at the same index; transposes may follow a product.  Scalar constants are
inside the groups, other constants are operands.

How: a value is *materialised* (written to memory) if something needs it there, or if computing it again in each group
that uses it costs more.  A group computes one materialised value from others; `groups/multi_output.py` then makes
groups of several results of those on the vector unit, with a tuple as the body's root.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from systolith.compiler.explain import Decision
from systolith.compiler.groups.folding import folding_cut
from systolith.compiler.groups.repetitions import (
    expansion,
    is_repeated_work,
    pieces,
    read_in_parts,
    repetitions,
)
from systolith.compiler.groups.straight import cut_straight
from systolith.compiler.groups.transposed import why_stored
from systolith.compiler.groups.unit_assignment import MATRIX_UNITS, UnitAssignment
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.trampoline import Steps, trampoline
from systolith.compiler.memory.residency import names_memory
from systolith.compiler.ops.expression_builder import NotFoldableError, analyze, reads_in_place, splat_or_none
from systolith.compiler.ops.group import Group, Unit, is_cheap
from systolith.compiler.ops.pieces import kernel_sizes
from systolith.compiler.ops.table import ROOTS, Family, family, info
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.outline import Outline
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.passes.simplify.dead_code import drop_dead, has_effects
from systolith.compiler.tile.views import read_from, view_chains
from systolith.isa.kernel import MAX_STREAMS

OUTSIDE = (Family.GIVEN, Family.NAME, Family.CONTROL, Family.CALL, Family.ORDER, Family.ASYNC, Family.HOST)
"""Families that stay outside groups."""

_ROUNDS = 5
FUSED_SHOWN = 12
"""Operations of a group that are named when it is explained."""

_IN_PARTS = "it is read in other parts than it is made of"
"""Why transposes and concatenations are stored."""


@dataclass(frozen=True)
class Limits:
    """How large a group may become.

    Attributes:
        micro_ops: micro-operations of a kernel.
        streams: streams of a kernel.
        duplicated: elementwise operations that are computed again rather than stored.
        whole: elementwise operations of a group that is still looked at as a whole to find its best cut.
        large: bytes of a value that would be moved to HBM and back; transcendental functions are computed again for it.
    """

    micro_ops: int = 48
    whole: int = 192
    streams: int = MAX_STREAMS
    duplicated: int = 8
    large: float = inf


@dataclass(frozen=True)
class Fuse:
    """Group the entry computation and, recursively, the bodies of its loops and conditionals.

    Attributes:
        limits: of a group.
        unit: of each operation.
    """

    limits: Limits = Limits()
    unit: UnitAssignment = MATRIX_UNITS

    def run(self, module: Module) -> bool:
        done: set[Computation] = set()
        taken = Names(c.name for c in module.computations)
        todo = [module.entry]
        while todo:
            computation = todo.pop()
            if computation in done:
                continue
            done.add(computation)
            todo.extend(c for i in computation.instructions if family(i) is Family.CONTROL for c in i.called)
            made = cut_straight(computation, taken)
            made += _Grouping(computation, self.limits, self.unit).regroup(taken)
            at = module.computations.index(computation)
            module.computations[at:at] = made
        return True


def group_computation(computation: Computation) -> None:
    """Group one computation, in place, as `Fuse` does."""
    _Grouping(computation, Limits(), MATRIX_UNITS).regroup(Names([computation.name]))


@dataclass
class _Grouping:
    """The grouping of one computation.

    Attributes:
        forced: values that have to be in memory, whatever is decided about others.
        in_memory: these, and those whose users, as decided, read them from memory (dots, views).
        stored: values that are (forced, or chosen to be).
        unit: of each operation.
        absorbed: dots and reductions that are computed in the group of their epilogue, with its result.
        why: each stored value is.
        cheap, expensive, summed, moved: operations that can be part of a kernel, that are costly to do twice, that sum
            (dots and reductions), that move data.  They are asked about for each value and all below it.
    """

    computation: Computation
    limits: Limits
    unit: UnitAssignment
    forced: set[Instruction] = field(default_factory=set)
    in_memory: set[Instruction] = field(default_factory=set)
    stored: set[Instruction] = field(default_factory=set)
    absorbed: dict[Instruction, Instruction] = field(default_factory=dict)
    checked: set[tuple[Instruction, ...]] = field(default_factory=set)
    why: dict[Instruction, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        there = self.computation.instructions
        self.cheap = {i for i in there if is_cheap(i)}
        self.expensive = {i for i in self.cheap if info(i).expensive}
        self.summed = {i for i in there if family(i) in ROOTS}
        self.moved = {i for i in there if family(i) is Family.MOVEMENT}

    def regroup(self, taken: Names) -> list[Computation]:
        """Rewrite the computation; gives the groups' computations."""
        for _ in range(len(self.computation.instructions) + 1):
            self._settle()
            more = self._oversized()
            if not more:
                break
            self.forced |= more
        return self._rewrite(taken)

    # What is stored.

    def _settle(self) -> None:
        """Decide until nothing changes: what an expression costs depends on what below it is stored."""
        self.before: set[Instruction] = set()
        for _ in range(_ROUNDS):
            self._decide()
            if self.stored == self.before:
                break
            self.before = self.stored

    def _decide(self) -> None:
        self.users = self.computation.users()
        self.place = {i: n for n, i in enumerate(self.computation.instructions)}
        self.stored, self.absorbed = set(), {}
        self.need: dict[Instruction, set[Instruction]] = {}
        self.pieces: dict[Instruction, list[Instruction]] = {}
        self.in_memory = forced = set(self.forced)
        for i in reversed(self.computation.instructions):
            self.need[i] = self._needed_by(i, forced)
            self.pieces[i] = pieces(i, self.users[i], self.pieces, self.stored)
            if i not in self.cheap:
                self.stored.add(i)
                if self._on_mxu(i):
                    forced.update(read_from(i))
            elif why := self._reason(i, forced):
                self.stored.add(i)
                self.why[i] = why
                if i.opcode == "reshape" or (i.opcode == "transpose" and why == _IN_PARTS):
                    forced.add(i.operands[0])
        for i in self.computation.instructions:
            if family(i) in ROOTS:
                self._absorb(i)

    def _on_mxu(self, i: Instruction) -> bool:
        return self.unit(i) is Unit.MXU

    def _needed_by(self, i: Instruction, forced: set[Instruction]) -> set[Instruction]:
        """The groups (by result, or by reduction) that compute with `i`; users that want it in memory force it."""
        need: set[Instruction] = set()
        for user in self.users[i]:
            if user in self.cheap:
                need |= {user} if user in self.stored else self.need[user]
            elif user.opcode in ("reduce", "scan"):
                need.add(user)
            elif not self._on_mxu(user):
                forced.add(i)
        return need

    def _reason(self, i: Instruction, forced: set[Instruction]) -> str:
        """Why a cheap operation's value is stored; empty: it is not."""
        if i in self.forced:
            return "what uses it would be too large, or does not fold"
        if i in forced:
            return "its users read it from memory"
        return "result" if i is self.computation.result else self._worth_storing(i)

    def _worth_storing(self, i: Instruction) -> str:
        """Why storing costs less than computing it again; empty: it does not."""
        if self.need[i] and read_in_parts(i, self.users):
            return _IN_PARTS
        expanded = expansion(i, self.users, self.stored)
        if why := why_stored(i, self.need[i], bool(expanded), self.limits.large):
            return why
        if i.opcode == "constant" or family(i) is Family.MOVEMENT:
            return ""
        times = repetitions(i, self.users[i], self.pieces[i])
        if not expanded and len(self.need[i]) < 2 and times < 2:
            return ""
        cone = self._cone(i)
        expensive = not self.expensive.isdisjoint(cone)
        epilogue = any(self._may_be_absorbed(o) and o.dims == i.dims for c in cone for o in c.operands)
        operations = len(cone) - len(self.moved.intersection(cone))
        work = f"{operations} operations{', transcendental' * expensive}{', after a product or sum' * epilogue}"
        if expanded and (expensive or epilogue or is_repeated_work(operations, expanded, i.shape.size)):
            return f"repeated along a dimension, {work}"
        leaves = {
            o for c in cone for o in c.operands if (o in self.before or o not in self.cheap) and o.opcode != "constant"
        }
        if self._one_pass(i, len(leaves)):
            return ""
        heavy = expensive or epilogue
        if times >= 2 and (heavy or operations * (times - 1) > self.limits.duplicated):
            return f"computed {times:.1f} times in one group, {work}"
        if len(self.need[i]) < 2 or (not epilogue and self._is_near(i, operations, leaves)):
            return ""
        if heavy or operations > self.limits.duplicated:
            return f"{len(self.need[i])} users, {work}"
        read, uses = sum(o.shape.bytes for o in leaves), len(self.need[i])
        again, once = uses * read, read + (1 + uses) * i.shape.bytes
        return f"{uses} users would read {again:,} bytes rather than {once:,}" if again > once else ""

    def _is_near(self, i: Instruction, operations: int, leaves: Collection[Instruction]) -> bool:
        """Whether a large value is a few operations away from the only other one that it is computed from.

        The vector unit takes a transcendental function of each vector sooner than HBM moves the vector.
        """
        alike = [o.shape.size == i.shape.size and o in self.before for o in leaves]
        return i.shape.bytes >= self.limits.large and operations <= self.limits.duplicated and alike == [True]

    def _one_pass(self, i: Instruction, leaves: int) -> bool:
        """Whether several groups that compute with a value are concatenations that one kernel can make.

        `groups/multi_output.py` joins them, and `vpu/emit.py` their pieces.
        """
        groups = self.need[i]
        if len(groups) < 2:
            return False
        alike = all(g.opcode == "concatenate" and g.dims == next(iter(groups)).dims for g in groups)
        return alike and 2 * (leaves + len(groups)) <= self.limits.streams

    def _cone(self, i: Instruction) -> list[Instruction]:
        """The cheap operations that `i` is computed from, with itself, down to what was stored in the last round."""
        found: dict[Instruction, None] = {}
        stack = [i]
        while stack:
            c = stack.pop()
            known = c is not i and c in self.before
            if c not in found and c in self.cheap and not known and len(found) < 4 * self.limits.micro_ops:
                found[c] = None
                # What is repeated is stored if it is worth anything, so it does not count here.
                stack.extend(o for o in c.operands if c.opcode != "broadcast" or o.shape.size == c.shape.size)
        return list(found)

    # Epilogues.

    def _may_be_absorbed(self, i: Instruction) -> bool:
        """Whether a product or sum may be computed in the group that uses it: nothing wants it in memory."""
        return i in self.summed and i not in self.in_memory and self.cheap.issuperset(self.users[i])

    def _absorb(self, i: Instruction) -> None:
        """Let the group that alone uses a dot or reduction compute it."""
        if not i.shape.is_array or i is self.computation.result or not self._may_be_absorbed(i):
            return
        if len(self.need[i]) != 1:
            return
        (group,) = self.need[i]
        core = group
        while self._on_mxu(i) and core.opcode == "transpose" and core is not i:
            core = core.operands[0]
        if core is i and group is not i:
            self.absorbed[i] = group
            return
        if family(core) in ROOTS or group in self.absorbed.values() or (core is not group and self._is_leaf(core)):
            return
        if core.dims == i.dims and reads_in_place(core, i, self._leaves(core)):
            self.absorbed[i] = group

    # Sizes.

    def _leaves(self, group: Instruction) -> set[Instruction]:
        """The stored values that a group reads."""
        return {o for i in self._members(group) for o in i.operands if self._is_leaf(o)}

    def _is_leaf(self, i: Instruction) -> bool:
        if i.opcode == "constant":
            return splat_or_none(i) is None
        return i in self.stored or (i.opcode == "reshape" and self._is_view(i))

    def _is_view(self, i: Instruction) -> bool:
        """Whether a reshape is of a stored value (through reshapes), so that it stays outside as a view."""
        (x,) = i.operands
        while x.opcode == "reshape" and x not in self.stored:
            (x,) = x.operands
        return (x in self.stored and x not in self.absorbed and x.opcode != "constant") or x.opcode == "parameter"

    def _members(self, group: Instruction) -> list[Instruction]:
        """The cheap operations of a group, operands first (not those of an absorbed operation)."""
        found: dict[Instruction, None] = {}
        stack = [group]
        while stack:
            i = stack.pop()
            if i in found or (i is not group and (self._is_leaf(i) or i not in self.cheap)):
                continue
            found[i] = None
            stack.extend(i.operands)
        return sorted(found, key=self.place.__getitem__)

    def _oversized(self) -> set[Instruction]:
        """Values to store because their group is too large or does not fold."""
        more: set[Instruction] = set()
        for roots in self._vector_roots():
            for root in roots:
                members = tuple(self._members(root))
                key = (root, *members)
                if key in self.checked:
                    continue
                cuts = self._many_cuts(root, members) or self._cut(root, members)
                if not cuts:
                    self.checked.add(key)
                more |= cuts
        return more

    def _vector_roots(self) -> Iterator[list[Instruction]]:
        """Results of vector expressions: of loops and epilogues, and the cheap operands of reductions."""
        for i in self.computation.instructions:
            if i in self.stored and i in self.cheap and not (i.opcode == "reshape" and self._is_view(i)):
                yield [i]
            elif i.opcode in ("reduce", "scan"):
                yield [o for o in i.operands if o in self.cheap and not self._is_leaf(o)]

    def _many_cuts(self, root: Instruction, members: Sequence[Instruction]) -> set[Instruction]:
        """Where to cut a group that is many times too large: each piece has as many operations as a kernel may."""
        computing = {m for m in members if family(m) is not Family.MOVEMENT}
        if max(len(computing), len(members) // 4) <= self.limits.whole:
            return set()
        cuts: set[Instruction] = set()
        piece: dict[Instruction, set[Instruction]] = {}
        for m in members:
            piece[m] = {m}.union(*(piece.get(o, ()) for o in m.operands))
            large = len(piece[m] & computing) >= self.limits.micro_ops or len(piece[m]) >= 2 * self.limits.micro_ops
            if large and m is not root and m.opcode != "reshape":
                cuts.add(m)
                piece[m] = set()
        return cuts

    def _cut(self, root: Instruction, members: Sequence[Instruction]) -> set[Instruction]:
        try:
            plan = analyze([root], frontier=self._leaves(root))
        except NotFoldableError as problem:
            stored = self._not_folding(root, problem.at)
            return set() if stored is None else {stored}
        micro, streams = kernel_sizes(plan)
        if micro <= self.limits.micro_ops and streams <= self.limits.streams:
            return set()
        operations = [m for m in members if m is not root and family(m) is not Family.MOVEMENT]
        inner = [m for m in operations if m.shape.rank] or operations
        if not inner:
            return set()
        sizes = {m: len([c for c in self._members(m) if family(c) is not Family.MOVEMENT]) for m in inner}
        half = max(1, len([m for m in members if family(m) is not Family.MOVEMENT]) // 2)
        inner.sort(key=lambda m: abs(sizes[m] - half))
        near = (m for m in inner[:8] if abs(sizes[m] - half) <= half // 4)
        return {next((m for m in near if self._alone(m, members)), inner[0])}

    def _alone(self, i: Instruction, members: Sequence[Instruction]) -> bool:
        """Whether a group that reads `i` needs nothing else that `i` is computed from."""
        below = set(self._members(i))
        inside = [m for m in below - {i} if m.shape.rank and family(m) is Family.ELEMENTWISE]
        return all(u in below or u not in members for m in inside for u in self.users[m])

    def _not_folding(self, root: Instruction, at: Instruction | None) -> Instruction | None:
        """The first movement, from the leaves, without which the rest folds: it (or a reshape's operand) is stored.

        Where there is none, several do not: then the first one from the root, `at`.
        """
        i = folding_cut(root, self._leaves(root), self.place)
        if i is None or (i is root and i.opcode != "reshape"):
            i = at
        if i is not None and i.opcode == "reshape":
            return i.operands[0]
        return i if i is not root else None

    # The new computation.

    def _rewrite(self, taken: Names) -> list[Computation]:
        made: list[Computation] = []
        value: dict[Instruction, Instruction] = {}
        out: list[Instruction] = []
        absorbing = {g: h for h, g in self.absorbed.items()}
        for i in self.computation.instructions:
            if i.opcode == "constant":
                value[i] = i
                out.append(i)
            elif i.opcode == "reshape" and (self._is_view(i)):
                value[i] = replace(i, opcode="bitcast", operands=[value[i.operands[0]]], attributes=_metadata(i))
                out.append(value[i])
            elif i not in self.stored or i in self.absorbed:
                continue
            elif family(i) in OUTSIDE or has_effects(i) or names_memory(i):
                i.operands = [value[o] for o in i.operands]
                value[i] = i
                out.append(i)
            else:
                group = self._group(i, absorbing.get(i, i), value, taken)
                value[i] = group
                out.append(group)
                made.append(group.body)
        self.computation.root = value[self.computation.result]
        self.computation.instructions = out
        drop_dead(self.computation, Effects())
        return made

    def _group(
        self, result: Instruction, root: Instruction, value: Mapping[Instruction, Instruction], taken: Names
    ) -> Group:
        """The group of a stored value and a root operation; `value`: what stands for others."""
        unit = self.unit(root)
        if unit is Unit.VPU and family(root) is Family.CONTRACTION:
            root.attributes["operand_precision"] = ("highest", "highest")  # what the vector unit computes with
        body, leaves = self._body(result, root, taken)
        why = f"stored: {self.why.get(result, f'{result.opcode} is')}"
        return Group.of(result.name, body, [value[leaf] for leaf in leaves], result, unit, why=why)

    def _body(self, result: Instruction, root: Instruction, taken: Names) -> tuple[Computation, list[Instruction]]:
        """The computation of a group, and what its parameters are."""
        copy = Outline()
        copies: dict[Instruction, Instruction] = {}  # a value may be both, a parameter and copied

        def is_leaf(i: Instruction, of: Instruction) -> bool:
            if i is result or i is root:
                return False
            if (info(of).view and of in chain) or (of is root and self._on_mxu(root)):
                return i not in chain
            return self._is_leaf(i)

        chain = set(view_chains(root)) if self._on_mxu(root) else set()

        def visit(i: Instruction, of: Instruction) -> Steps[Instruction]:
            if is_leaf(i, of):
                return copy.parameter(i)
            if i not in copies:
                operands: list[Instruction] = []
                for o in i.operands:
                    operands.append((yield visit(o, i)))
                copies[i] = copy.add(i, operands)
            return copies[i]

        made = trampoline(visit(result, result))
        return copy.computation(taken.fresh(f"group.{result.name}"), [made]), copy.values


def made_of(group: Group) -> Decision:
    """The decision that describes a group: its operations and why it ends there."""
    inside = [j for j in group.body.instructions if j.opcode != "parameter"]
    fused = ", ".join(f"{j.name} ({j.opcode})" if j.name != j.opcode else j.name for j in inside[:FUSED_SHOWN])
    more = f" and {len(inside) - FUSED_SHOWN} more" if len(inside) > FUSED_SHOWN else ""
    how = f"on {group.unit}" if group.unit else "in blocks"
    return Decision("fusion", group.name, f"{group.kind} {how}: {fused}{more}", group.why, {"operations": len(inside)})


def _metadata(i: Instruction) -> dict[str, Attribute]:
    return {k: v for k, v in i.attributes.items() if k == "metadata"}
