"""The state of a loop: values that all its iterations have, and that are added to it."""

from __future__ import annotations

from collections.abc import Iterator

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, tuple_of
from systolith.compiler.memory.residency import allocation
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.passes.simplify.while_trip_count import keeps

CHEAP = frozenset("add and broadcast compare convert iota multiply not or reshape select subtract".split())
"""Operations that are done again in each iteration where that saves bytes."""

MOST = 16
"""So many of them for one value."""


def loops_of(module: Module) -> Iterator[tuple[Computation, Instruction]]:
    """Every loop, with the computation that it is in."""
    for computation in list(module.computations):
        yield from ((computation, i) for i in list(computation.instructions) if i.opcode == "while")


def kept(outer: Computation, loop: Instruction, value: Instruction, names: Names) -> int:
    """Where a loop of a computation has a value of it, which stays the same; it is added if it is not there.

    The loop's state is a tuple that only the loop takes.
    """
    given, body, condition = loop.operands[0], loop.computation("body"), loop.computation("condition")
    for at, operand in enumerate(given.operands):
        if operand is value and keeps(loop, at):
            return at
    at, place = len(given.operands), outer.instructions
    given.operands = [*given.operands, value]
    if place.index(value) > place.index(given):
        place.remove(given)
        place.insert(place.index(loop), given)
    body.root = body.result
    parameter = body.first_parameter
    part = Instruction(names.fresh("kept"), "get-tuple-element", value.shape, [parameter], {"index": at})
    body.instructions.insert(body.instructions.index(body.root), part)
    body.root.operands = [*body.root.operands, part]
    shape = tuple_of([o.shape for o in given.operands])
    for changed in (given, loop, body.root, parameter, condition.first_parameter):
        changed.shape = shape
        changed.attributes.pop("sharding", None)
    return at


def space(outer: Computation, loop: Instruction, shape: Shape, names: Names) -> int:
    """A new element of a loop's state, without contents; its number."""
    made = allocation(names.fresh(f"{loop.name}.space"), shape, loop.line)
    outer.instructions.insert(outer.instructions.index(loop.operands[0]), made)
    return kept(outer, loop, made, names)


def plain(outer: Computation, loop: Instruction) -> bool:
    """Whether a loop's state is a tuple that only the loop takes, of which all else takes elements."""
    (state,), body, condition = loop.operands, loop.computation("body"), loop.computation("condition")
    alone = state.opcode == "tuple" and outer.users()[state] == [loop] and state is not outer.result
    made = body.result.opcode == "tuple" and not body.users()[body.result]
    return alone and made and _is_taken_apart(body) and _is_taken_apart(condition)


def _is_taken_apart(computation: Computation) -> bool:
    """Whether all that takes its one parameter takes elements of it."""
    (given,) = computation.parameters
    return all(i.opcode == "get-tuple-element" for i in computation.instructions if given in i.operands)


def leaves_of(value: Instruction) -> list[Instruction]:
    """What a value that iterations have in common is made of in each of them: itself, or fewer bytes from which a few
    cheap operations make it.
    """
    leaves: dict[Instruction, None] = {}
    cone: dict[Instruction, None] = {}
    todo = [value]
    while todo:
        i = todo.pop()
        if i.opcode in CHEAP and len(cone) < MOST:
            cone[i] = None
            todo += i.operands
        elif i.opcode != "constant":
            leaves[i] = None
    fewer = value.opcode == "constant" or sum(i.shape.bytes for i in leaves) < value.shape.bytes
    return [*leaves] if fewer else [value]
