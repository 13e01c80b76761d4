"""What is elementwise in the rows of a loop is computed by the loop: an optimiser's step, and the gradients it is for.

Layers in `jax.lax.scan` have stacks of weights, and the loop of the backward pass leaves a row of gradients for each
layer. JAX writes the optimiser's step after it, over whole stacks: all gradients are stored and loaded, while the
matrix units wait. In the loop the step of a layer joins the product that makes its gradient
(`groups/product_results.py`), and new weights take the place of the old ones, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from systolith.compiler.explain import Decision
from systolith.compiler.groups.layer_body import Made
from systolith.compiler.groups.loop_rows import row_of, row_update, row_updates
from systolith.compiler.groups.loop_state import kept, loops_of, plain, space
from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.compiler.memory.aliasing import parameter_leaves, read_aliases
from systolith.compiler.ops.table import Family, family, is_elementwise
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.while_loops import SimplifyWhileLoops
from systolith.compiler.passes.simplify.while_trip_count import element
from systolith.isa.chip import Chip


@dataclass(frozen=True)
class UpdateInLoops:
    """Compute in loops what is elementwise in the rows that they leave, where gradients are stored for nothing else.

    Attributes:
        chip: rows of a part of its VMEM and more are.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        decisions: list[Decision] = []
        names = Names(i.name for i in module.instructions())
        wanted = _wanted(module)
        least = self.chip.vmem.bytes // LARGE
        for outer, loop in loops_of(module):
            if control_predecessors(outer):
                continue
            for got, update in _rows(outer, loop, least):
                step = _Step(outer, loop, got, update, wanted if outer is module.entry else {}, least, names)
                if step.is_possible():
                    step.move()
                    numbers = {"operations": len(step.members), "arrays": len(step.results)}
                    what = f"what is elementwise in {got.name} is in the loop"
                    decisions.append(Decision("rows", loop.name, what, "its rows are not stored", numbers))
        if decisions:
            for tidy in (DeadCode(), SimplifyWhileLoops(), DeadCode()):
                tidy.run(module)
        return Outcome(bool(decisions), tuple(decisions))


def _wanted(module: Module) -> dict[Instruction, Instruction]:
    """The parameters whose memory results of the module have."""
    result = module.entry.result
    results = result.operands if result.opcode == "tuple" else [result]
    parameters = parameter_leaves(module)
    flat = all(r.shape.is_array for r in results)
    return {results[a.result]: parameters[a.parameter][0] for a in read_aliases(module)} if flat else {}


def _rows(outer: Computation, loop: Instruction, least: int) -> list[tuple[Instruction, Instruction]]:
    """The arrays of rows that a loop gives, each with its update in the body; `least`: bytes of a row."""
    if not plain(outer, loop):
        return []
    updates = {n: u for n, u in row_updates(loop) if u.operands[1].shape.bytes >= least}
    gots = [u for u in outer.users()[loop] if u.opcode == "get-tuple-element"]
    return [(got, updates[got.integer("index")]) for got in gots if got.integer("index") in updates]


@dataclass
class _Step:
    """The operations after a loop that are elementwise in an array of its rows.

    Attributes:
        outer: their computation.
        loop: the loop.
        rows: the array that the loop gives.
        update: that of a row, in the body.
        wanted: parameters whose memory results have.
        least: bytes of a large value.
        names: those that are taken.
        members: the operations, in order.
        again: what they take that does not come from the rows, and is elementwise in arrays of as many rows.
        given: arrays of as many rows that they take.
        spread: broadcasts that they take, of what is the same for all rows.
        results: members that others use.
    """

    outer: Computation
    loop: Instruction
    rows: Instruction
    update: Instruction
    wanted: Mapping[Instruction, Instruction]
    least: int
    names: Names
    members: list[Instruction] = field(default_factory=list)
    again: dict[Instruction, None] = field(default_factory=dict)
    given: dict[Instruction, None] = field(default_factory=dict)
    spread: dict[Instruction, None] = field(default_factory=dict)
    results: list[Instruction] = field(default_factory=list)
    _early: set[Instruction] = field(default_factory=set)

    def is_possible(self) -> bool:
        """Whether nothing else needs the rows, all that is made of them is a result, and the rest is there before."""
        self._collect()
        users, inside, end = self.outer.users(), set(self.members), self.outer.result
        others = {i: [u for u in users[i] if u not in inside] for i in (self.rows, *self.members)}
        if not self.members or others.pop(self.rows):
            return False
        self.results = [i for i, used in others.items() if used]
        only = end.opcode == "tuple" and all(u is end for used in others.values() for u in used)
        return only and self._is_there() and all(map(self._has_place, self.results))

    def _collect(self) -> None:
        """What is elementwise in the rows, of what does not come from the loop otherwise."""
        after, reach = {self.loop}, {self.rows}
        for i in self.outer.instructions:
            if after.isdisjoint(i.operands):
                continue
            after.add(i)
            others = [o for o in i.operands if o not in reach]
            if len(others) == len(i.operands) or not is_elementwise(i) or i.called:
                continue
            if all(o not in after and o.dims == i.dims for o in others):
                reach.add(i)
                self.members.append(i)
                self._take(others)

    def _take(self, values: Sequence[Instruction]) -> None:
        """Values that members read: made on one row, too, if they are elementwise in others."""
        todo = [*values]
        while todo:
            o = todo.pop()
            if _is_spread(o):
                self.spread[o] = None
            elif is_elementwise(o) and not o.called and all(p.dims == o.dims for p in o.operands):
                self.again[o] = None
                todo += o.operands
            else:
                self.given[o] = None

    def _needed(self) -> list[Instruction]:
        """Values that the loop takes."""
        return [*self.given, *(o for b in self.spread for o in b.operands)]

    def _is_there(self) -> bool:
        """Whether what the loop takes is made before it, or can be: few bytes of parameters."""
        place = {i: n for n, i in enumerate(self.outer.instructions)}
        todo = self._needed()
        while todo:
            i = todo.pop()
            if place[i] < place[self.loop.operands[0]] or i in self._early:
                continue
            cheap = is_elementwise(i) or family(i) is Family.MOVEMENT or i.opcode == "constant"
            if i.opcode != "parameter" and (not cheap or i.called or i.shape.bytes >= self.least):
                return False
            self._early.add(i)
            todo += i.operands
        return True

    def _has_place(self, result: Instruction) -> bool:
        """Whether a result has memory of its own, or that of a parameter whose rows only this iteration reads."""
        parameter = self.wanted.get(result)
        if parameter is None:
            return True
        after = self.outer.instructions[self.outer.instructions.index(self.loop) :]
        readers = {i for i in after if parameter in i.operands} - {*self.members, *self.again}
        if parameter not in self.given or readers:
            return False
        body = self.loop.computation("body")
        numbers = [n for n, o in enumerate(self.loop.operands[0].operands) if o is parameter]
        parts = [i for i in body.instructions if element(i, body) in numbers]
        slices = {u for part in parts for u in body.users()[part]} - {body.result}
        return len(numbers) < 2 and all(map(self._is_own_row, slices))

    def _is_own_row(self, i: Instruction) -> bool:
        """Whether an instruction of the body takes the row of its iteration."""
        whole = i.operands[0].dims if i.operands else ()
        return i.opcode == "dynamic-slice" and i.operands[1] is self.update.operands[2] and i.dims == (1, *whole[1:])

    def move(self) -> None:
        """Let the loop compute them."""
        early = [i for i in self.outer.instructions if i in self._early]
        self.outer.instructions = [i for i in self.outer.instructions if i not in self._early]
        at = self.outer.instructions.index(self.loop.operands[0])
        self.outer.instructions[at:at] = early
        body = self.loop.computation("body")
        where = {value: kept(self.outer, self.loop, value, self.names) for value in self._needed()}
        places = {
            r: where[self.wanted[r]] if r in self.wanted else space(self.outer, self.loop, r.shape, self.names)
            for r in self.results
        }
        out = Made(self.names)
        parts = {element(i, body): i for i in body.instructions}
        made = self._operations(out, {value: parts[number] for value, number in where.items()})
        for result, number in places.items():
            wide, put = row_update(parts[number], made[result], self.update.operands[2], self._zero(out), self.names)
            out.out += [wide, put]
            body.result.operands[number] = put
        last = body.instructions.index(body.result)
        body.instructions[last:last] = out.out
        self._replace(places)

    def _operations(self, out: Made, parts: Mapping[Instruction, Instruction]) -> dict[Instruction, Instruction]:
        """The operations on one row; `parts`: what the loop takes, in its body."""
        made: dict[Instruction, Instruction] = {}
        row, like = row_of(self.update), array(self.rows.shape.dtype, self.rows.dims[1:])
        made[self.rows] = row if row.dims == like.dims else out.add("row", "reshape", like, [row])
        for value in self.given:
            sizes, like = (1, *value.dims[1:]), array(value.shape.dtype, value.dims[1:])
            starts = [self.update.operands[2], *(self._zero(out) for _ in sizes[1:])]
            shape = array(value.shape.dtype, sizes)
            row = out.add("row", "dynamic-slice", shape, [parts[value], *starts], dynamic_slice_sizes=sizes)
            made[value] = out.add("row", "reshape", like, [row])
        for value in self.spread:
            like = array(value.shape.dtype, value.dims[1:])
            dims = tuple(d - 1 for d in value.ints("dimensions"))
            made[value] = out.add("row", "broadcast", like, [parts[value.operands[0]]], dimensions=dims)
        for i in (i for i in self.outer.instructions if i in self.again or i in self.members):
            made[i] = i.copy([made[o] for o in i.operands], dict(i.attributes), array(i.shape.dtype, i.dims[1:]))
            made[i].name = self.names.fresh(i.name)
            out.out.append(made[i])
        return made

    def _zero(self, out: Made) -> Instruction:
        return next((i for i in out.out if i.opcode == "constant"), None) or out.scalar("zero", 0)

    def _replace(self, places: Mapping[Instruction, int]) -> None:
        """Let others use what the loop gives."""
        out = Made(self.names)
        got = {
            r: out.add(f"{r.name}.rows", "get-tuple-element", r.shape, [self.loop], index=n) for r, n in places.items()
        }
        at = self.outer.instructions.index(self.loop) + 1
        self.outer.instructions[at:at] = out.out
        for i in self.outer.instructions:
            if i not in self.members:
                i.operands = [got.get(o, o) for o in i.operands]


def _is_spread(i: Instruction) -> bool:
    """Whether a value is the same for all rows."""
    return i.opcode == "broadcast" and 0 not in i.ints("dimensions", ())
