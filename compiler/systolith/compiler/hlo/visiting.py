"""Orders in which instructions are visited, and what is found on the way."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import cast

from systolith.compiler.hlo.ir import Computation, Instruction


def control_predecessors(computation: Computation) -> dict[Instruction, list[Instruction]]:
    """For each instruction that states any, those that are to run before it though it does not use them."""
    stated = [i for i in computation.instructions if "control-predecessors" in i.attributes]
    if not stated:
        return {}
    named = {i.name: i for i in computation.instructions}
    return {
        i: [named[n] for n in cast("tuple[str, ...]", i.attributes["control-predecessors"]) if n in named]
        for i in stated
    }


def through(i: Instruction, opcode: str) -> Instruction:
    """The operand of a chain of operations of one opcode; the instruction itself, if it has another."""
    while i.opcode == opcode:
        (i,) = i.operands
    return i


def cone(roots: Iterable[Instruction], leaves: Collection[Instruction] = ()) -> set[Instruction]:
    """The transitive operands of `roots`, roots included, down to parameters and leaves."""
    todo = list(roots)
    found = set(todo)
    while todo:
        for o in todo.pop().operands:
            if o not in found:
                found.add(o)
                if o not in leaves:
                    todo.append(o)
    return found


def post_order(computation: Computation) -> list[Instruction]:
    """Every instruction after its operands and control predecessors, in XLA's order of visits: depth first from
    instructions without users, in the order of the list, and from the root last.
    """
    before = control_predecessors(computation)
    used = {o for i in computation.instructions for o in i.operands}.union(*before.values())
    root = computation.result
    done: dict[Instruction, None] = {}
    for start in [*(i for i in computation.instructions if i not in used and i is not root), root]:
        stack = [(start, False)]
        while stack:
            i, ready = stack.pop()
            if ready:
                done[i] = None
            elif i not in done:
                stack.append((i, True))
                children = [*i.operands, *before.get(i, ())]
                stack.extend((child, False) for child in reversed(children) if child not in done)
    return list(done)
