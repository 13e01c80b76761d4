"""Products in loops that no iteration has to wait for: one product of all iterations may take their place."""

from __future__ import annotations

from collections import defaultdict

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.passes.simplify.while_trip_count import element, keeps, step_of


def carried_values(loop: Instruction) -> set[Instruction]:
    """The values of a loop's body that depend on what an iteration changes, other than by a constant."""
    body, found = loop.computation("body"), set[Instruction]()
    for i in body.instructions:
        number = element(i, body)
        changes = number is not None and not keeps(loop, number) and step_of(body, number) is None
        if changes or not found.isdisjoint(i.operands):
            found.add(i)
    return found


def added_values(body: Computation) -> dict[int, list[Instruction]]:
    """The values that an iteration adds to elements of the state that it does not read otherwise, by their numbers."""
    if body.result.opcode != "tuple":
        return {}
    users, reads = body.users(), defaultdict[int, list[Instruction]](list)
    for i in body.instructions:
        if (number := element(i, body)) is not None:
            reads[number].append(i)
    found = {k: _added(users, reads[k], body.result, k) for k in range(len(body.result.operands))}
    return {k: terms for k, terms in found.items() if terms}


def _added(
    users: dict[Instruction, list[Instruction]], before: list[Instruction], result: Instruction, number: int
) -> list[Instruction]:
    """What is added to an element that is read so; none: it is not only added to."""
    terms: list[Instruction] = []
    todo = [(result.operands[number], result)]
    while todo:
        i, user = todo.pop()
        if i.opcode == "add" and users[i] == [user]:
            todo += [(o, i) for o in i.operands]
        else:
            terms.append(i)
    alone = sum(len(users[i]) for i in before) == 1 == sum(i in before for i in terms)
    return [i for i in terms if i not in before] if alone else []


def viewed(i: Instruction) -> Instruction:
    """What an instruction is a transpose or reshape of."""
    while i.opcode in ("transpose", "reshape"):
        (i,) = i.operands
    return i


def free_products(loop: Instruction) -> dict[Instruction, bool]:
    """The dots of a loop's body that depend on nothing carried, or whose sum alone counts, and whether that is so."""
    body = loop.computation("body")
    if body.result.opcode != "tuple":
        return {}
    carried = carried_values(loop)
    added = {viewed(x) for terms in added_values(body).values() for x in terms}
    dots = [i for i in body.instructions if i.opcode == "dot"]
    return {i: i in added for i in dots if i in added or i not in carried}
