"""Long straight code: elementwise operations on arrays of one shape by the hundred, as arithmetic on f64 is in words.

Deciding of each value whether to store it, and joining groups two by two, takes too long there.  Instead the operations
are cut, in program order, into groups of several results where the fewest values are alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.visiting import through
from systolith.compiler.ops.expression_builder import splat_or_none
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.ops.table import is_elementwise
from systolith.compiler.passes.outline import Outline
from systolith.compiler.passes.rewrite import Names
from systolith.isa.dtypes import U32
from systolith.isa.kernel import MAX_STREAMS

LONG = 128
"""Operations on words that hang together, from which on code is cut so."""

LEAST, MOST = 48, 160
"""Operations of a piece."""


def cut_straight(computation: Computation, taken: Names) -> list[Computation]:
    """Make groups of the long straight code of a computation, in place; gives the groups' computations."""
    made: list[Computation] = []
    while runs := _runs(computation):
        cutting = _Cutting(computation, taken)
        for run in runs:
            cutting.cut(run)
        cutting.rewrite()
        made += cutting.made
    return made


def _space(i: Instruction) -> tuple[int, ...]:
    """The dimensions that an array runs over: those that are not 1; of one element, a dimension of 1."""
    return tuple(n for n in i.dims if n != 1) or (1,)


def _is_member(i: Instruction) -> bool:
    """Whether it is elementwise, or leaves out dimensions of 1, or adds some."""
    if not i.shape.is_array:
        return False
    if i.opcode == "reshape":
        return _space(i) == _space(i.operands[0])
    return is_elementwise(i) and bool(i.operands)


def _runs(computation: Computation) -> list[list[Instruction]]:
    """Elementwise operations on arrays of the same dimensions that hang together, in program order: those first found.

    An operation that needs a value that others made of a run is a run of its own, so that no group needs itself.
    Others that hang together are looked for when these are groups: two groups of two runs may need each other's values
    else.
    """
    head: dict[Instruction, Instruction] = {}

    def first(i: Instruction) -> Instruction:
        while head[i] is not i:
            head[i] = head[head[i]]
            i = head[i]
        return i

    for i in computation.instructions:
        if _is_member(i):
            head[i] = i
            for o in i.operands:
                if o in head and _space(o) == _space(i):
                    head[first(o)] = first(i)
    connected: dict[Instruction, list[Instruction]] = {}
    for i in head:
        connected.setdefault(first(i), []).append(i)
    for members in connected.values():
        if len(members) < LONG or sum(i.shape.dtype is U32 for i in members) < LONG:
            continue
        stages = _stages(computation, set(members))
        if found := [run for run in stages if len(run) >= LEAST]:
            return found
    return []


def _stages(computation: Computation, members: set[Instruction]) -> list[list[Instruction]]:
    """The members by how often a path to them leaves the members and comes back."""
    stage: dict[Instruction, int] = {}
    found: dict[int, list[Instruction]] = {}
    for i in computation.instructions:
        inside = i in members
        least = 0 if inside else -1
        stage[i] = max((stage[o] + (inside and o not in members and stage[o] >= 0) for o in i.operands), default=least)
        if inside:
            stage[i] = max(stage[i], 0)
            found.setdefault(stage[i], []).append(i)
    return list(found.values())


@dataclass
class _Cutting:
    """The cutting of one computation.

    Attributes:
        computation: to be rewritten.
        taken: names of computations.
        made: groups' computations.
        value: what stands for a result of a group.
        parts: the results of a group of several, which stand behind it.
    """

    computation: Computation
    taken: Names
    made: list[Computation] = field(default_factory=list)
    value: dict[Instruction, Instruction] = field(default_factory=dict)
    parts: dict[Instruction, list[Instruction]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.users = self.computation.users()
        self.names = Names(i.name for i in self.computation.instructions)
        self.gone: set[Instruction] = set()

    def cut(self, run: Sequence[Instruction]) -> None:
        """Make groups of a run."""
        run = self._with_views(run)
        place = {i: n for n, i in enumerate(run)}
        last = [max((place.get(u, len(run)) for u in self.users[i]), default=n) for n, i in enumerate(run)]
        if self.computation.result in place:
            last[place[self.computation.result]] = len(run)
        start = 0
        while start < len(run):
            end = self._end(run, start, last)
            self._grouped(
                run[start:end], [i for i, used in zip(run[start:end], last[start:end], strict=True) if used >= end]
            )
            start = end

    def _with_views(self, run: Sequence[Instruction]) -> list[Instruction]:
        """With the parts of arrays that nothing else takes, from where they are needed first."""
        members = set(run)

        def is_view(o: Instruction, reader: Instruction) -> bool:
            return o.opcode == "slice" and _space(o) == _space(reader) and members.issuperset(self.users[o])

        found: dict[Instruction, None] = {}
        for i in run:
            found |= dict.fromkeys(o for o in i.operands if is_view(o, i))
            found[i] = None
        return list(found)

    def _end(self, run: Sequence[Instruction], start: int, last: Sequence[int]) -> int:
        """Where the next group ends: where the fewest values are alive, of the places that streams suffice for."""
        inputs: set[Instruction] = set()
        inside: set[Instruction] = set()
        waiting, ends = 0, Counter[int]()  # values that are alive, and how many of them end at a place
        best, fewest = start + 1, MAX_STREAMS + 1
        for n in range(start, min(start + MOST, len(run))):
            repeated = {through(o, "broadcast") for o in run[n].operands}
            inputs |= {x for x in repeated - inside if x.opcode != "constant"}
            inside.add(run[n])
            if last[n] > n:
                waiting += 1
                ends[last[n]] += 1
            waiting -= ends[n]
            if len(inputs) + waiting > MAX_STREAMS:
                continue
            if n + 1 == len(run):
                return len(run)
            if waiting <= fewest or n - start < LEAST:
                best, fewest = n + 1, waiting
        return best

    def _grouped(self, members: Sequence[Instruction], results: Sequence[Instruction]) -> None:
        """The group of some operations, in the place of its results."""
        name, body = members[-1].name, _Body(_space(members[0]))
        for i in members:
            body.take(i)
        places = dict.fromkeys(body.value[i] for i in results)
        made = body.copy.computation(self.taken.fresh(f"group.{name}"), list(places))
        self.made.append(made)
        self.gone.update(members)
        why = "stored: long code is cut there"
        group = Group.of(self.names.fresh(f"{name}.piece"), made, body.copy.values, members[-1], Unit.VPU, why=why)
        parts: list[Instruction] = [group]
        if len(places) > 1:
            stem = f"{name}.part"
            shapes = [p.shape for p in places]
            parts = [
                Instruction(self.names.fresh(stem), "get-tuple-element", shape, [group], {"index": k})
                for k, shape in enumerate(shapes)
            ]
            self.parts[group] = parts
        part = dict(zip(places, parts, strict=True))
        for i in results:
            value = part[body.value[i]]
            self.value[i] = value if value.dims == i.dims else Instruction(i.name, "reshape", i.shape, [value])

    def rewrite(self) -> None:
        """Put the groups in the place of what they compute, each after what it needs."""
        out: dict[Instruction, None] = {}
        most = sum(map(len, (i.operands for i in self.computation.instructions)))
        for i in (self.value.get(j, j) for j in self.computation.instructions if j not in self.gone or j in self.value):
            waiting = [i]
            while waiting:
                top = waiting[-1]
                top.operands = [self.value.get(o, o) for o in top.operands]
                missing = [o for o in top.operands if o not in out]
                waiting += missing
                assert len(waiting) <= most, f"a group of {self.computation.name} needs its own result"
                if not missing:
                    out |= dict.fromkeys((waiting.pop(), *self.parts.get(top, ())))
        self.computation.root = self.value.get(self.computation.result, self.computation.result)
        self.computation.instructions = list(out)


class _Body:
    """A group's computation in the making: all over the same dimensions.

    Attributes:
        dims: these.
        copy: the computation.
        value: what an operation computes there.
    """

    def __init__(self, dims: tuple[int, ...]) -> None:
        self.dims, self.copy = dims, Outline()
        self.value: dict[Instruction, Instruction] = {}

    def take(self, i: Instruction) -> None:
        """Add an operation, operands first."""
        if i.opcode == "reshape":
            self.value[i] = self._operand(i.operands[0])
        elif i.opcode == "slice":
            self.value[i] = self._shaped(self.copy.add(i, [self.copy.parameter(i.operands[0])]))
        else:
            self.value[i] = self._with_dims(i, [self._operand(o) for o in i.operands])

    def _operand(self, o: Instruction) -> Instruction:
        if o not in self.value:
            self.value[o] = self._outside(o)
        return self.value[o]

    def _outside(self, o: Instruction) -> Instruction:
        if o.opcode == "broadcast":
            repeated = self._given(o.operands[0])
            return self._shaped(self.copy.add(o, [repeated])) if repeated.shape.rank else self._with_dims(o, [repeated])
        given = self._given(o)
        return self._shaped(given) if given.shape.rank or self.dims == (1,) else given

    def _given(self, o: Instruction) -> Instruction:
        if o.opcode == "constant" and splat_or_none(o) is not None:
            return self.copy.add(o, [])
        return self.copy.parameter(o)

    def _with_dims(self, i: Instruction, operands: Sequence[Instruction]) -> Instruction:
        made = self.copy.add(i, operands)
        made.shape = array(i.shape.dtype, self.dims)
        return made

    def _shaped(self, x: Instruction) -> Instruction:
        if x.dims == self.dims:
            return x
        made = Instruction(f"{x.name}.shaped", "reshape", array(x.shape.dtype, self.dims), [x])
        self.copy.body.append(made)
        return made
