"""Loops that run never or once, and elements of a loop's state that it need not carry."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, tuple_of
from systolith.compiler.hlo.trip_count import stated, trip_count
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.rewrite import Names, Rewriter, rewrite, stands_for
from systolith.compiler.passes.simplify.dead_code import drop_dead
from systolith.compiler.passes.simplify.while_trip_count import element, known_trip_count


@dataclass(frozen=True)
class SimplifyWhileLoops:
    """Loops of at most one iteration go; elements of the state that nothing reads or changes are not carried.

    A loop of no iterations is its start; of one, a call of its body.  What every iteration passes on is read before the
    loop, and if it is a constant it is one in the loop.
    """

    def run(self, module: Module) -> bool:
        effects = Effects()
        changed = rewrite(module, partial(_iterations, effects), ("while",))
        callers = Counter(c for i in module.instructions() for c in i.called)
        for computation in module.computations:
            if any(i.opcode == "while" for i in computation.instructions):
                changed |= _Carried(computation, callers, effects).sweep()
        return changed


def _iterations(effects: Effects, r: Rewriter, i: Instruction) -> Instruction | None:
    if i.opcode != "while":
        return None
    count = known_trip_count(i)
    if count == 0 and not effects.within(i.computation("condition")):
        return i.operands[0]
    if count == 1 and not effects.of(i):
        return r.emit("call", i.operands[0], shape=i.shape, name=i.name, to_apply=i.computation("body"))
    return None


class _Carried:
    """The loops of one computation; each is changed in place, and the elements read of it are renumbered."""

    def __init__(self, computation: Computation, callers: Counter[Computation], effects: Effects) -> None:
        self.computation, self.callers, self.effects = computation, callers, effects
        self.users = computation.users()
        self.names = Names(i.name for i in computation.instructions)
        before = control_predecessors(computation)
        self.pinned = set(before).union(*before.values())
        self.values: dict[Instruction, Instruction] = {}
        self.out: list[Instruction] = []
        self.changed = False

    def sweep(self) -> bool:
        for i in self.computation.instructions:
            i.operands = [self.values.get(o, o) for o in i.operands]
            if i.opcode == "while" and self._plain(i):
                self._narrow(i)
            if i not in self.values:
                self.out.append(i)
        root = self.computation.result
        self.computation.root = self.values.get(root, root)
        self.computation.instructions = self.out
        return self.changed or bool(self.values)

    def _plain(self, i: Instruction) -> bool:
        """Whether state and callees are only this loop's, and everywhere taken element by element."""
        condition, body = i.computation("condition"), i.computation("body")
        if not i.shape.is_tuple or condition is body or any(self.callers[c] != 1 for c in (condition, body)):
            return False
        if control_predecessors(condition) or control_predecessors(body) or body.result.opcode != "tuple":
            return False
        if i in self.pinned or i is self.computation.result or condition.result is condition.first_parameter:
            return False
        states = [(c, c.first_parameter) for c in (condition, body)]
        readers = [u for c, state in states for u in c.instructions if state in u.operands]
        return all(u.opcode == "get-tuple-element" and u not in self.pinned for u in (*self.users[i], *readers))

    def _narrow(self, i: Instruction) -> None:
        condition, body = i.computation("condition"), i.computation("body")
        root, count = body.result, len(i.shape.elements)
        for k in range(count):
            if element(root.operands[k], body) == k:
                self._read_before(i, k)
        outside = {u.integer("index") for u in self.users[i] if u not in self.values}
        kept = sorted(_needed(condition, body, outside, self.effects))
        if len(kept) == count:
            return
        self.changed = True
        shape = tuple_of([i.shape.elements[k] for k in kept])
        i.operands = [self._add(i, "tuple", shape, [self._start(i, k) for k in kept])]
        body.root = replace(root, operands=[root.operands[k] for k in kept], shape=shape, attributes=_kept(root))
        body.instructions = [body.root if j is root else j for j in body.instructions]
        place = {k: at for at, k in enumerate(kept)}
        for callee in (condition, body):
            drop_dead(callee, self.effects)
            callee.first_parameter.shape = shape
            callee.first_parameter.attributes.pop("sharding", None)
            for j in callee.instructions:
                if (number := element(j, callee)) is not None:
                    j.attributes["index"] = place[number]
        i.shape, i.attributes = shape, _kept(i)
        for u in self.users[i]:
            if u not in self.values:
                u.attributes["index"] = place[u.integer("index")]

    def _read_before(self, i: Instruction, k: int) -> None:
        """Let what reads element k, which stays as it is, read it of the start; a constant is one in the loop too."""
        readers = [u for u in self.users[i] if u.integer("index") == k]
        if not readers and i.operands[0].opcode != "tuple":
            return
        first = self._start(i, k)
        self.values |= {u: first for u in readers if stands_for(u, first)}
        if first.opcode == "constant" and first.shape.is_array and first.shape.rank == 0:
            for callee in (i.computation("condition"), i.computation("body")):
                self.changed |= _place_constant(callee, first, k)

    def _start(self, i: Instruction, k: int) -> Instruction:
        """Element k of the state before the first iteration."""
        (start,) = i.operands
        if start.opcode == "tuple":
            return start.operands[k]
        return self._add(i, "get-tuple-element", start.shape.elements[k], [start], index=k)

    def _add(
        self, i: Instruction, opcode: str, shape: Shape, operands: list[Instruction], **attributes: Attribute
    ) -> Instruction:
        made = Instruction(self.names.fresh(f"{i.name}.start"), opcode, shape, operands, attributes, line=i.line)
        self.out.append(made)
        return made


def _needed(condition: Computation, body: Computation, outside: set[int], effects: Effects) -> set[int]:
    """Elements of the state that are read after the loop, by its condition, or by its body for those or an effect."""
    needed = set(outside)
    seen: set[Instruction] = set()
    parameters = {condition.first_parameter, body.first_parameter}
    stack = [condition.result, *(i for c in (condition, body) for i in c.instructions if effects.of(i))]
    stack += [body.result.operands[k] for k in needed]
    while stack:
        i = stack.pop()
        if i in seen:
            continue
        seen.add(i)
        if i.operands and i.operands[0] in parameters:
            k = i.integer("index")
            if k not in needed:
                needed.add(k)
                stack.append(body.result.operands[k])
        else:
            stack.extend(i.operands)
    return needed


def _place_constant(computation: Computation, value: Instruction, k: int) -> bool:
    """Let element k of the state be a constant in a computation."""

    def constant(r: Rewriter, i: Instruction) -> Instruction | None:
        return r.like(value, [], value.shape) if element(i, computation) == k else None

    return Rewriter(computation).sweep(constant)


def _kept(i: Instruction) -> dict[str, Attribute]:
    """The attributes that hold for another state: of what the backend was told, the trip count."""
    count = trip_count(i)
    kept = {k: v for k, v in i.attributes.items() if k not in ("sharding", "backend_config")}
    return kept if count is None else kept | {"backend_config": stated(count)}
