"""Computations of grouped HLO as lines of steps over numbered values: what is alive when, and HLO made of them again.

Steps are what runs (groups, loops, conditionals); tuples, their elements and views only name values, and are written
anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from systolith.compiler.hlo.clone import clone, clone_computation
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.memory.liveness import Liveness, liveness
from systolith.compiler.memory.residency import Aliases, Leaf, leaf_bytes, leaves_of
from systolith.compiler.ops.group import Group
from systolith.compiler.ops.table import Family, family
from systolith.compiler.passes.rewrite import Names

AGAIN = ".remat"
"""Names of groups that compute something again end so (as XLA's do)."""


@dataclass(frozen=True, eq=False)
class Step:
    """An instruction where it runs.

    Attributes:
        instruction: a group, a loop or a conditional; steps with one instruction compute the same.
        reads: values, in the order of the operands' leaves.
        makes: values, in the order of its own leaves.
    """

    instruction: Instruction
    reads: tuple[int, ...]
    makes: tuple[int, ...]


@dataclass(frozen=True)
class LinearSchedule:
    """A computation as steps.

    Attributes:
        steps: in the order in which they run.
        leaves: what each value is; values that are the same leaf are computed several times.
        sizes: bytes of HBM that each value takes while it is alive; 0: none of its own.
        ends: values that the root holds.
        pinned: values that must not be needed for longer, because others are to have their memory.
    """

    steps: tuple[Step, ...]
    leaves: tuple[Leaf, ...]
    sizes: tuple[int, ...]
    ends: tuple[int, ...]
    pinned: frozenset[int]

    @cached_property
    def liveness(self) -> Liveness[int]:
        """Over the steps; the values that the root holds are needed after them."""
        return liveness(((s.makes, s.reads) for s in self.steps), self.pinned, self.ends)

    @cached_property
    def makers(self) -> dict[int, Step]:
        """The step that makes a value; parameters and constants have none."""
        return {v: s for s in self.steps for v in s.makes}

    def usage(self, inside: Mapping[Instruction, int]) -> list[int]:
        """Bytes of HBM at each step; `inside`: what is alive at once inside loops and conditionals."""
        made = self.makers
        found = self.liveness.usage(lambda v: self.sizes[v] if v in made else 0, len(self.steps))
        if inside:
            found = [alive + inside.get(s.instruction, 0) for alive, s in zip(found, self.steps, strict=True)]
        return found


def line_of(computation: Computation, spilled: Collection[Leaf], pinned: Collection[Leaf]) -> LinearSchedule:
    """A computation as it is.

    Args:
        computation: of grouped HLO.
        spilled: leaves that lie in HBM, in memory of their own.
        pinned: leaves whose memory others are to have.
    """
    aliases = Aliases(computation)
    running = [i for i in computation.instructions if family(i) is not Family.NAME]
    leaves = tuple(leaves_of(*running))
    number = {leaf: n for n, leaf in enumerate(leaves)}

    def step(i: Instruction) -> Step:
        reads = (number[leaf] for o in i.operands for leaf in aliases.leaves[o])
        return Step(i, tuple(reads), tuple(number[leaf] for leaf in leaves_of(i)))

    return LinearSchedule(
        tuple(step(i) for i in running if family(i) is not Family.GIVEN),
        leaves,
        tuple(leaf_bytes(leaf) if leaf in spilled else 0 for leaf in leaves),
        tuple(number[leaf] for leaf in aliases.leaves[computation.result]),
        frozenset(number[leaf] for leaf in pinned if leaf in number),
    )


# Other orders.


def freeing_first(line: LinearSchedule) -> LinearSchedule:
    """At each moment the step that lets the most bytes go, less what it makes."""
    weights = _weights(line)
    readers = Counter(v for s in line.steps for v in set(s.reads))
    missing = {s: len({v for v in s.reads if v in line.makers}) for s in line.steps}
    waiting: dict[int, list[Step]] = {v: [] for v in line.makers}
    for s in line.steps:
        for v in set(s.reads) & line.makers.keys():
            waiting[v].append(s)
    place = {s: n for n, s in enumerate(line.steps)}

    def growth(s: Step) -> tuple[int, int]:
        freed = sum(weights[v] for v in set(s.reads) if readers[v] == 1)
        return sum(weights[v] for v in s.makes) - freed, place[s]

    ready, order = [s for s in line.steps if not missing[s]], []
    while ready:
        s = min(ready, key=growth)
        ready.remove(s)
        order.append(s)
        readers.subtract(set(s.reads))
        for user in (u for v in s.makes for u in waiting[v]):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return replace(line, steps=tuple(order))


def depth_first(line: LinearSchedule) -> LinearSchedule:
    """The schedule in depth-first order: each step just after its operands, the maker of the largest one first."""
    weights = _weights(line)
    done: dict[Step, None] = {}
    for root in (*(line.makers[v] for v in line.ends if v in line.makers), *line.steps):
        stack = [(root, False)]
        while stack:
            s, ready = stack.pop()
            if ready:
                done.setdefault(s)
            elif s not in done:
                stack.append((s, True))
                operands = sorted((v for v in set(s.reads) if v in line.makers), key=lambda v: (weights[v], v))
                stack.extend((line.makers[v], False) for v in operands)
    return replace(line, steps=tuple(done))


def _weights(line: LinearSchedule) -> list[int]:
    """Bytes of each value that comes and goes, wherever it lies."""
    ends = set(line.ends)
    return [leaf_bytes(leaf) if v in line.makers and v not in ends else 0 for v, leaf in enumerate(line.leaves)]


ORDERS: dict[str, Callable[[LinearSchedule], LinearSchedule]] = {
    "what lets most bytes go first": freeing_first,
    "depth first": depth_first,
}


# Back to HLO.


def rewritten(module: Module, lines: Mapping[Computation, LinearSchedule]) -> Module:
    """A copy of a grouped module with some of its computations as lines say."""
    copy = clone(module)
    for computation, twin in list(zip(module.computations, copy.computations, strict=True)):
        if computation in lines:
            twins = dict(zip(computation.instructions, twin.instructions, strict=True))
            _Writer(copy, twin, twins, lines[computation]).write()
    return copy


@dataclass
class _Writer:
    """Writes a computation's instructions anew."""

    module: Module
    computation: Computation
    twins: Mapping[Instruction, Instruction]
    line: LinearSchedule
    out: list[Instruction] = field(default_factory=list)
    maker: dict[int, Instruction] = field(default_factory=dict)
    names: Names = field(default_factory=lambda: Names(()))
    known: dict[tuple[int, tuple[int, ...]], Instruction] = field(default_factory=dict)

    def write(self) -> None:
        given = [i for i in self.twins.values() if family(i) is Family.GIVEN]
        self.names = Names(i.name for i in self.twins.values() if family(i) is not Family.NAME)
        self.out = given
        self.maker = {v: self.twins[i] for v, (i, _) in enumerate(self.line.leaves) if v not in self.line.makers}
        seen: set[Instruction] = set()
        for step in self.line.steps:
            shapes = [o.shape for o in step.instruction.operands]
            reads = iter(step.reads)
            operands = [self._value(reads, shape) for shape in shapes]
            instruction = self.twins[step.instruction]
            if instruction in seen:
                assert isinstance(instruction, Group), "only groups run again"
                instruction = self._again(instruction)
            seen.add(instruction)
            instruction.operands = operands
            self.out.append(instruction)
            self.maker |= dict.fromkeys(step.makes, instruction)
        root = self._value(iter(self.line.ends), self.computation.result.shape)
        if root.shape.is_tuple:
            root.name = self.names.fresh(self.computation.result.name)
        self.computation.instructions, self.computation.root = self.out, root

    def _again(self, first: Group) -> Group:
        """A group that computes the same as another, with a computation of its own."""
        called = first.body
        copy = clone_computation(called, Names(c.name for c in self.module.computations).fresh(called.name + AGAIN))
        self.module.computations.insert(self.module.computations.index(called), copy)
        name = self.names.fresh(first.name + AGAIN)
        return replace(first, name=name, operands=[], attributes=first.attributes | {"calls": copy})

    def _value(self, values: Iterator[int], shape: Shape) -> Instruction:
        """An operand of a shape that is made of the next values."""
        if shape.is_tuple:
            return self._new("tuple", shape, [self._value(values, s) for s in shape.elements])
        value = next(values)
        key = value, shape.dims
        if key not in self.known:
            found = self._leaf(value)
            self.known[key] = found if found.dims == shape.dims else self._new("bitcast", shape, [found])
        return self.known[key]

    def _leaf(self, value: int) -> Instruction:
        found, number = self.maker[value], self.line.leaves[value][1]
        while found.shape.is_tuple:
            counts = [len(s.arrays) for s in found.shape.elements]
            index = next(n for n in range(len(counts)) if number < sum(counts[: n + 1]))
            number -= sum(counts[:index])
            found = self._new("get-tuple-element", found.shape.elements[index], [found])
            found.attributes["index"] = index
        return found

    def _new(self, opcode: str, shape: Shape, operands: Sequence[Instruction]) -> Instruction:
        made = Instruction(self.names.fresh(opcode), opcode, shape, list(operands))
        self.out.append(made)
        return made
