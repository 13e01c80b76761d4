"""How often one group computes a value that it does not store, or reads it in other parts than it is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from systolith.compiler.groups.transposed import moves_innermost
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.ops.group import is_cheap
from systolith.compiler.ops.table import Family, family, info

MOST = 8
"""So many pieces of concatenations are looked at."""

REPEATED_OPERATIONS = 32
"""Cheap operations again for each element from which on a value is stored: storing one f32 and reading it again takes
HBM as long as 17 operations take `tpu_v3`'s vector unit.
"""

REPEATED_WORK = 1 << 22
"""Cheap operations again in all from which on: the start of one more group takes as long as some of these."""


def pieces(
    i: Instruction,
    users: Sequence[Instruction],
    known: Mapping[Instruction, Sequence[Instruction]],
    stored: Collection[Instruction],
) -> list[Instruction]:
    """Some of the operands of concatenations that are computed with a value.

    Args:
        i: the value.
        users: of it.
        known: what this gives for the users.
        stored: values of which users read what is in memory.
    """
    found: dict[Instruction, None] = {}
    for user in users:
        if user.opcode == "concatenate":
            found[i] = None
        elif is_cheap(user) and user not in stored and len(found) < MOST:
            found |= dict.fromkeys(known[user])
    return list(found)[:MOST]


def repetitions(i: Instruction, users: Sequence[Instruction], among: Sequence[Instruction]) -> float:
    """How often an element of a value is computed: users read it at other indices each time, or are `among` other
    pieces of a concatenation, which are kernels of their own.
    """
    moving = [u for u in users if info(u).shifts]
    read = sum(u.shape.size for u in moving) + (len(moving) < len(users)) * i.shape.size
    return max(read, sum(p.shape.size for p in among)) / max(1, i.shape.size)


def expansion(
    i: Instruction, users: Mapping[Instruction, Sequence[Instruction]], stored: Collection[Instruction]
) -> int:
    """How many times users repeat a value along some dimension, so that fusing would compute it as often; 0: none."""
    moved, times = [i], 0
    while moved:
        value = moved.pop()
        for user in users[value]:
            if user.opcode == "broadcast" and user.shape.size > value.shape.size:
                times = max(times, user.shape.size // max(1, value.shape.size))
            if user.opcode in ("reshape", "transpose") and user not in stored:
                moved.append(user)
    return times


def read_in_parts(i: Instruction, users: Mapping[Instruction, Sequence[Instruction]]) -> bool:
    """Whether a transpose of the innermost dimension, or a concatenation of what is computed, is read in slices or
    turned around, all of it.

    The vector unit would read slices of a transpose a few elements at a time; the cross-lane unit copies it whole.
    Slices of a concatenation compute its pieces again for each part of them.
    """
    computed = any(is_cheap(o) and family(o) is not Family.MOVEMENT for o in i.operands)
    if not (moves_innermost(i) or (i.opcode == "concatenate" and computed)):
        return False
    parts, todo = 0, [i]
    while todo:
        for user in users[todo.pop()]:
            if user.opcode == "reshape":
                todo.append(user)
            elif user.opcode in ("slice", "reverse"):
                parts += user.shape.size
    return parts >= i.shape.size


def is_repeated_work(operations: int, times: int, elements: int) -> bool:
    """Whether cheap operations, so many times for each of a value's elements, take longer than storing it does.

    A single one takes no longer than the load beside it.
    """
    again = operations * (times - 1) if operations > 1 else 0
    return again >= REPEATED_OPERATIONS and again * elements >= REPEATED_WORK
