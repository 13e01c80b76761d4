"""Products in loops that no iteration has to wait for: one product of all iterations may take their place."""

from __future__ import annotations

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


def added_values(body: Computation, number: int) -> list[Instruction]:
    """The values that an iteration adds to an element of the state that it does not read otherwise; none: it does not
    only add.
    """
    if body.result.opcode != "tuple":
        return []
    users = body.users()
    terms: list[Instruction] = []
    todo = [(body.result.operands[number], body.result)]
    while todo:
        i, user = todo.pop()
        if i.opcode == "add" and users[i] == [user]:
            todo += [(o, i) for o in i.operands]
        else:
            terms.append(i)
    before = [i for i in body.instructions if element(i, body) == number]
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
    added = {viewed(x) for k in range(len(body.result.operands)) for x in added_values(body, k)}
    dots = [i for i in body.instructions if i.opcode == "dot"]
    return {i: i in added for i in dots if i in added or i not in carried}
