"""Several iterations of a loop as one, where they copy what they carry.

A value whose successor reads other elements of it than the one that is made, such as a grid of which each point needs
its neighbours, or the state of a recurrent layer, cannot be overwritten by it: each iteration makes the next one
elsewhere and copies it.  Of two iterations the second one makes it where the first one found it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.explain import Decision
from systolith.compiler.groups.counted_scalars import counted_states
from systolith.compiler.groups.fuse_pair import join
from systolith.compiler.groups.layer_body import scalar
from systolith.compiler.groups.loop_state import loops_of, plain
from systolith.compiler.groups.stats import work
from systolith.compiler.hlo.clone import clone_called
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.shape import tuple_of
from systolith.compiler.hlo.trip_count import stated, trip_count
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.compiler.memory.aliasing import carried_in_place
from systolith.compiler.memory.residency import Aliases, leaf_bytes, nested
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.ops.table import info
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.outline import Outline
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.while_trip_count import element
from systolith.isa.chip import Chip

FACTORS = (2, 3, 5, 7)
"""How many iterations become one: the least that divides the trip count, or the first, with an iteration before."""

FEWEST = 3
"""Iterations that are left at least."""

SHARE = 16
"""A body whose copies take less than this part of what its groups take at least stays as it is."""

LARGEST = 128
"""Groups of the new body at most."""


@dataclass(frozen=True)
class UnrollCarried:
    """Make several iterations of a loop one where it copies what it carries, and these need not.

    Attributes:
        chip: whose transfers and matrix units are weighed.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        decisions: list[Decision] = []
        effects = Effects()
        for outer, loop in loops_of(module):
            body, count = loop.computation("body"), trip_count(loop)
            if effects.of(loop) or not _is_plain(outer, loop):
                continue
            once, (times, first) = _copied(body), _factor(body, count)
            if not once or not times or not self._is_worth(body, once, times):
                continue
            unroll = _Unroll(module, outer, loop)
            several = unroll.tested() if count is None else unroll.body(times)
            if (left := _copied(several)) < times * once:
                unroll.replace(several, None if count is None else count // times, first)
                what, why = f"{times} iterations are one", "what it carries would be copied"
                numbers = {"bytes copied": left, "before": times * once}
                decisions.append(Decision("loop", loop.name, what, why, numbers))
        if decisions:
            DeadCode().run(module)
        return Outcome(bool(decisions), tuple(decisions))

    def _is_worth(self, body: Computation, copied: int, times: int) -> bool:
        """Whether copies take a good part of an iteration, and so many are not too long."""
        chip = self.chip
        groups = [i for i in body.instructions if isinstance(i, Group) and i.unit is not Unit.VIEW]
        if len(groups) * times > LARGEST or any(nested(i) for i in body.instructions if not isinstance(i, Group)):
            return False
        moved = sum(map(_moved, groups))
        flops = sum(_flops(i.body) for i in groups if i.unit is not Unit.VPU)
        products = flops // (2 * chip.mxu.rows * chip.mxu.cols * chip.mxu.count)
        return SHARE * transfer_cycles(2 * copied, chip) >= transfer_cycles(moved, chip) + products


def _is_plain(outer: Computation, loop: Instruction) -> bool:
    """Whether the loop's state is a tuple that is taken apart everywhere, and nothing states an order."""
    return plain(outer, loop) and not any(map(control_predecessors, (outer, loop.computation("body"))))


def _factor(body: Computation, count: int | None) -> tuple[int, bool]:
    """How many iterations are to be one, and whether the first one is left over; 0: none are.

    None is left over, nor depends on a test, where one updates an array in place: outside the loop that would be
    copied.  `count`: of iterations; None: that is not known.
    """
    updates = any(isinstance(i, Group) and i.unit is Unit.DMA and info(i.root).updates for i in body.instructions)
    if count is None:
        return (0 if updates else 2), False
    whole = [(times, False) for times in FACTORS if count % times == 0 and count // times >= FEWEST]
    left = [(FACTORS[0], True)] if not updates and count // FACTORS[0] >= FEWEST else []
    return min([*whole, *left], default=(0, False), key=lambda way: way[0] + way[1])


def _moved(group: Group) -> int:
    """Bytes that a group reads and writes; of an array that it takes or changes a part of, the part's."""
    root = group.root
    if group.unit is Unit.DMA and root.opcode == "dynamic-slice":
        return 2 * root.shape.bytes
    if group.unit is Unit.DMA and info(root).updates:
        return 2 * sum(o.shape.bytes for o in root.operands[1:])
    return group.shape.bytes + sum(o.shape.bytes for o in group.operands)


def _flops(computation: Computation) -> int:
    return sum(_flops(i.body) if isinstance(i, Group) else work(i)[0] for i in computation.instructions)


def _copied(body: Computation) -> int:
    """Bytes of what a body makes and copies to where the next iteration reads it."""
    (parameter,) = body.parameters
    in_place = carried_in_place(body)
    after = Aliases(body).leaves[body.result]
    return sum(leaf_bytes(leaf) for k, leaf in enumerate(after) if leaf != (parameter, k) and leaf not in in_place)


def _part(whole: Instruction, number: int, name: str) -> Instruction:
    return Instruction(name, "get-tuple-element", whole.shape.elements[number], [whole], {"index": number})


class _Unroll:
    """Several iterations of a loop in the making.

    Args:
        module: it.
        outer: the computation with the loop.
        loop: it.
    """

    def __init__(self, module: Module, outer: Computation, loop: Instruction) -> None:
        self._module, self._outer, self._loop = module, outer, loop
        self._names = Names([*(i.name for i in module.instructions()), *(c.name for c in module.computations)])
        self._made: list[Computation] = []

    def body(self, times: int) -> Computation:
        """The body of several iterations."""
        *called, made = clone_called(self._loop.computation("body"), self._names.fresh)
        root = made.result
        out, after = [i for i in made.instructions if i is not root], list(root.operands)
        for _ in range(times - 1):
            more, following = self._iteration(after)
            pairs = zip(after, following, strict=True)
            joint = {b: c for a, b in pairs if (c := self._counted(a, b)) is not None}
            for i in more:
                i.operands = [joint.get(o, o) for o in i.operands]
            out += [joint.get(i, i) for i in more]
            after = [joint.get(i, i) for i in following]
        root.operands = after
        made.root, made.instructions = root, [*out, root]
        self._made += [*called, made]
        return made

    def tested(self) -> Computation:
        """The body of two iterations, of which the second one runs if the condition holds.

        If it does not, what the first one made is copied: once in a run of the loop.
        """
        *called, made = clone_called(self._loop.computation("body"), self._names.fresh)
        second, condition = (self._copy(self._loop.computation(name)) for name in ("body", "condition"))
        root, given = made.result, made.first_parameter
        out, after = [i for i in made.instructions if i is not root], list(root.operands)
        *test, predicate = self._on(condition, after)
        test += [] if predicate in after else [predicate]
        state = Instruction(self._names.fresh(f"{self._loop.name}.once"), "tuple", given.shape, after)
        changed = [k for k, i in enumerate(after) if element(i, made) != k]
        second.result.operands = [second.result.operands[k] for k in changed]
        second.result.shape = shape = tuple_of([i.shape for i in second.result.operands])
        whole = Instruction(given.name, "parameter", given.shape, number=0)
        parts = [_part(whole, k, f"{given.name}.{k}") for k in changed]
        rest_root = Instruction("same", "tuple", shape, parts)
        rest = Computation(self._names.fresh(f"{made.name}.last"), [whole, *parts, rest_root], rest_root)
        attributes: dict[str, Attribute] = {"true_computation": second, "false_computation": rest}
        name = self._names.fresh(f"{self._loop.name}.again")
        again = Instruction(name, "conditional", shape, [predicate, state, state], attributes)
        found = [_part(again, n, self._names.fresh(f"{name}.{k}")) for n, k in enumerate(changed)]
        for part, k in zip(found, changed, strict=True):
            root.operands[k] = part
        made.root, made.instructions = root, [*out, *test, state, again, *found, root]
        self._made += [*called, second, rest, made]
        return made

    def replace(self, body: Computation, count: int | None, first: bool) -> None:
        """Let the loop have that body and trip count; `first`: the first iteration is left over, and comes before."""
        loop, outer = self._loop, self._outer
        if first:
            self._precede()
        loop.attributes["body"] = body
        if count is not None:
            loop.attributes["backend_config"] = stated(count)
        at = self._module.computations.index(outer)
        self._module.computations[at:at] = self._made

    def _precede(self) -> None:
        """An iteration before the loop, which knows what the first one counts."""
        loop, outer = self._loop, self._outer
        (state,) = loop.operands
        counted = counted_states(loop, 2)
        more, after = self._iteration(state.operands)
        for k, (start, step) in counted.items():
            after[k] = scalar(self._names.fresh(f"{loop.name}.next"), start + step, state.operands[k].shape.dtype)
            more.append(after[k])
        sunk = {i: self._sunk(i) if isinstance(i, Group) and i.unit is Unit.DMA else i for i in more}
        for i in sunk.values():
            i.operands = [sunk.get(o, o) for o in i.operands]
        outer.root = outer.result
        at = outer.instructions.index(state)
        outer.instructions[at:at] = sunk.values()
        state.operands = [sunk.get(i, i) for i in after]

    def _sunk(self, group: Group) -> Group:
        """A group with its constant operands inside: a slice at a constant reads no index."""
        copy = Outline()
        for p, o in zip(group.body.parameters, group.operands, strict=True):
            copy.copies[p] = copy.add(o, []) if o.opcode == "constant" else copy.parameter(o)
        made = [copy.take(i) for i in group.body.instructions if i.opcode != "parameter"]
        body = copy.computation(self._names.fresh(group.body.name), [made[-1]])
        self._made.append(body)
        return Group.of(group.name, body, copy.values, group, group.unit)

    def _iteration(self, state: Sequence[Instruction]) -> tuple[list[Instruction], list[Instruction]]:
        """The instructions of an iteration on elements of the state, and the next state's elements."""
        *made, root = self._on(self._copy(self._loop.computation("body")), state)
        return made, root.operands

    def _copy(self, computation: Computation) -> Computation:
        """A copy of a computation and of all that it calls, with names of their own: groups are known by theirs."""
        *called, made = clone_called(computation, self._names.fresh)
        for i in (i for c in (*called, made) for i in c.instructions):
            i.name = self._names.fresh(i.name)
        self._made += called
        return made

    def _on(self, computation: Computation, state: Sequence[Instruction]) -> list[Instruction]:
        """The instructions of a computation of the loop's on elements of the state, and what stands for the root."""
        stands: dict[Instruction, Instruction] = {}
        made: list[Instruction] = []
        for i in computation.instructions:
            number = element(i, computation)
            if number is not None:
                stands[i] = state[number]
            elif i is not computation.first_parameter:
                i.operands = [stands.get(o, o) for o in i.operands]
                made.append(i)
        root = computation.result
        return [*(i for i in made if i is not root), stands.get(root, root)]

    def _counted(self, first: Instruction, second: Instruction) -> Group | None:
        """What two groups one after the other make of a scalar, made by one: SEQ knows it if it only counts."""
        if not (isinstance(first, Group) and isinstance(second, Group)) or second.operands != [first]:
            return None
        if first.unit is not Unit.VPU or first.reduces:
            return None
        if not first.shape.is_array or not second.shape.is_array or first.dims or second.dims:
            return None
        joint = join(first, second, {first: 0}, [1])
        joint.computation.name = self._names.fresh(joint.computation.name)
        self._made.append(joint.computation)
        return Group.of(second.name, joint.computation, joint.leaves, second, Unit.VPU)
