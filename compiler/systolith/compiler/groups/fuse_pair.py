"""Two fusion groups as one with the results of both: its computation, whether kernels can have it, and its cycles."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from systolith.compiler.errors import LimitError
from systolith.compiler.groups.fusion import Limits
from systolith.compiler.groups.structure import structure
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.ops.expression import Load, Micro, Pieces, topological
from systolith.compiler.ops.expression_builder import GroupPlan, analyze, group_roots, root_operations
from systolith.compiler.ops.group import Group
from systolith.compiler.ops.pieces import kernel_sizes
from systolith.compiler.ops.reduction_builder import one_pass_obstacle, reduction_of
from systolith.compiler.ops.table import Family, family
from systolith.compiler.passes.outline import Outline
from systolith.compiler.vpu.emit import kernel_cycles, vector_cycles
from systolith.compiler.vpu.reduce_task import Finish, Task
from systolith.compiler.vpu.reduce_ways import Ways, anywhere
from systolith.compiler.vpu.transposes import turns
from systolith.isa.chip import Chip


@dataclass(frozen=True)
class Joint:
    """A group that computes what two did.

    Attributes:
        computation: its root is a tuple where it has several results.
        leaves: the values that its parameters stand for.
        kept: which of the results it has, by number: the first group's, then the second's.
    """

    computation: Computation
    leaves: tuple[Instruction, ...]
    kept: tuple[int, ...]


class NotJointError(Exception):
    """Two groups that cannot be one, or should not; says why.

    Attributes:
        costs: whether it is for what it would cost.
    """

    def __init__(self, why: str, costs: bool = False) -> None:
        super().__init__(why)
        self.costs = costs


def join(first: Group, second: Group, made: dict[Instruction, int], kept: Sequence[int]) -> Joint:
    """Two groups as one.

    Args:
        first, second: groups, in the order of the program.
        made: which result of `first` an operand of `second` is.
        kept: see `Joint`.
    """
    copy = Outline()
    roots: list[Instruction] = []
    for group in (first, second):
        for p, operand in zip(group.body.parameters, group.operands, strict=True):
            inside = group is second and operand in made
            copy.copies[p] = roots[made[operand]] if inside else copy.parameter(operand)
        for i in group.body.instructions:
            if i.opcode not in ("parameter", "tuple"):
                copy.take(i)
        roots += [copy.copies[root] for root in group_roots(group.body)]
    whole = copy.computation(f"group.{second.name}", [roots[k] for k in kept])
    return Joint(whole, tuple(copy.values), tuple(kept))


@dataclass
class Kernels:
    """Cycles of the vector unit for groups whose values are all in VMEM, one instruction each.

    Attributes:
        chip: for costs.
        limits: of kernels.
    """

    chip: Chip
    limits: Limits = field(default_factory=Limits)
    _plans: dict[Computation, GroupPlan] = field(default_factory=dict)
    _single: dict[Computation, int] = field(default_factory=dict)
    _turns: dict[Computation, bool] = field(default_factory=dict)
    _saved: dict[Hashable, int | tuple[str, bool]] = field(default_factory=dict)
    _full: dict[Instruction, bool] = field(default_factory=dict)
    _loaded: dict[Computation, list[tuple[int, IndexMap, int]]] = field(default_factory=dict)

    def is_full(self, group: Group) -> bool:
        """Whether it has so many operations or streams that no kernel has room for those of another group."""
        if group not in self._full:
            operations = sum(family(i) is Family.ELEMENTWISE for i in group.body.instructions)
            self._full[group] = operations > 2 * self.limits.micro_ops or self._fills(group)
        return self._full[group]

    def _fills(self, group: Group) -> bool:
        """Whether a group takes all micro-operations of a kernel, or all streams but for another result."""
        try:
            if not group.reduces:
                return kernel_sizes(self._plan(group.body))[0] > self.limits.micro_ops
            r = reduction_of(group.body)
        except (NotJointError, LimitError):
            return True
        # Scalars may be operands of the instruction, which take no stream.
        loads = sum(isinstance(n, Load) and n.leaf.shape.size > 1 for n in topological([*r.inputs, *r.side_nodes]))
        return loads + len(r.roots) >= self.limits.streams

    def check_streams(self, first: Group, second: Group, made: Container[Instruction], results: int) -> None:
        """Whether a kernel has the streams that two elementwise groups load from and store so many results to.

        `made`: what the second has from the first.

        Raises:
            NotJointError: it does not.
        """
        if first.reduces or second.reduces:
            return
        loads = {
            (operand, index, fill)
            for group in (first, second)
            for operand, index, fill in self._loads(group)
            if group is first or operand not in made
        }
        if len(loads) + results > self.limits.streams:
            raise NotJointError(f"too large for a kernel: {len(loads) + results} streams", True)

    def _loads(self, group: Group) -> Iterator[tuple[Instruction, IndexMap, int]]:
        """What a group loads; nothing of one that concatenates, whose kernels load parts of it."""
        if group.body not in self._loaded:
            plan = self._plan(group.body)
            number = {p: n for n, p in enumerate(group.body.parameters)}
            loads = () if _in_pieces(plan) else (n for n in plan.all_nodes if isinstance(n, Load))
            self._loaded[group.body] = [(number[load.leaf], load.map, load.fill) for load in loads]
        return ((group.operands[n], index, fill) for n, index, fill in self._loaded[group.body])

    def saved(self, first: Group, second: Group, joint: Joint) -> int:
        """Cycles that the vector unit takes less for a joint group than for the two.

        Layers that are alike have pairs that are alike: each is looked at once.

        Raises:
            NotJointError: no kernel can have it, or it would compute more than the two.
        """
        key = structure(first.body), structure(second.body), structure(joint.computation)
        if key not in self._saved:
            try:
                self._saved[key] = self._saved_of(first, second, joint)
            except NotJointError as e:
                self._saved[key] = str(e), e.costs  # not the error: it holds on to all that was being done
        found = self._saved[key]
        if isinstance(found, tuple):
            raise NotJointError(*found)
        return found

    def _saved_of(self, first: Group, second: Group, joint: Joint) -> int:
        """The same, looked at."""
        if root_operations(joint.computation):
            if any(not root_operations(g.body) and self._turned(g.body) for g in (first, second)):
                raise NotJointError("the cross-lane unit transposes one of them", True)
            return self._saved_of_reduction(joint)
        plan = self._plan(joint.computation)
        check_size(plan, self.limits)
        if _micros(plan) > sum(_micros(self._plan(g.body)) for g in (first, second)):
            raise NotJointError("the second reads the first elsewhere than it is made", True)
        apart = sum(self._alone(g.body, "one of them is several kernels") for g in (first, second))
        return apart - self._alone(joint.computation, "too large for a kernel")

    def _plan(self, computation: Computation) -> GroupPlan:
        if computation not in self._plans:
            self._plans[computation] = _plan(computation)
        return self._plans[computation]

    def _alone(self, computation: Computation, otherwise: str) -> int:
        """Cycles of a group; of one that was joined they are known from when that was looked at."""
        if computation not in self._single:
            self._single[computation] = self._cycles(computation, otherwise)
        return self._single[computation]

    def _cycles(self, computation: Computation, otherwise: str) -> int:
        plan = self._plan(computation)
        leaves = {leaf: anywhere(leaf.shape) for leaf in plan.leaves}
        outs = [anywhere(root.shape) for root in group_roots(computation)]
        cycles_of = vector_cycles if _in_pieces(plan) else kernel_cycles
        try:
            cycles = cycles_of(self.chip, plan, Box.whole(plan.dims), leaves, outs)
        except LimitError as e:
            raise NotJointError(str(e)) from None
        if cycles is None:
            raise NotJointError(otherwise)
        return cycles

    def _turned(self, computation: Computation) -> bool:
        """Whether the cross-lane unit turns what a group reads or makes."""
        if computation not in self._turns:
            plan = self._plan(computation)
            leaves = {leaf: anywhere(leaf.shape) for leaf in plan.leaves}
            outs = [anywhere(root.shape) for root in group_roots(computation)]
            self._turns[computation] = turns(self.chip, plan, Box.whole(plan.dims), leaves, outs).any
        return self._turns[computation]

    def _saved_of_reduction(self, joint: Joint) -> int:
        leaves = {p: anywhere(p.shape) for p in joint.computation.parameters}
        try:
            r = reduction_of(joint.computation)
            targets, sides = [anywhere(i.shape) for i in r.roots], [anywhere(i.shape) for i in r.sides]
            kept = Box.whole([r.dims[d] for d in r.kept])
            way = Ways(self.chip).best(Task(r, Box.whole(r.dims), kept, Finish(), leaves, targets, sides))
        except LimitError as e:
            raise NotJointError(str(e)) from None
        if way.name == "apart":
            raise NotJointError("one pass would not be faster, or combine elements in another order", True)
        return way.saved


def check_size(plan: GroupPlan, limits: Limits) -> None:
    """Whether kernels have room for a joint group.

    Raises:
        NotJointError: they do not.
    """
    micro, streams = kernel_sizes(plan)
    if micro > limits.micro_ops or streams > limits.streams:
        raise NotJointError(f"too large for a kernel: {micro} micro-operations, {streams} streams", True)


def check_results(joint: Joint) -> None:
    """Whether results are such as one pass can make.

    Raises:
        NotJointError: they are not.
    """
    if why := one_pass_obstacle(joint.computation):
        raise NotJointError(why)


def _plan(computation: Computation) -> GroupPlan:
    try:
        plan = analyze(group_roots(computation))
    except LimitError as e:
        raise NotJointError(str(e)) from None
    if not plan.dims or not Box.whole(plan.dims).elements:
        raise NotJointError("nothing to compute")
    return plan


def _micros(plan: GroupPlan) -> int:
    return sum(isinstance(n, Micro) for n in plan.all_nodes)


def _in_pieces(plan: GroupPlan) -> bool:
    """Whether it concatenates, so that a kernel has streams for some pieces only."""
    return any(isinstance(n, Pieces) for n in plan.all_nodes)
