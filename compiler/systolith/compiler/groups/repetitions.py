"""How often one group computes a value that it does not store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.ops.group import is_cheap

SHIFTING = ("pad", "slice", "reverse")
"""Movement through which a group reads a value at several indices."""

MOST = 8
"""So many pieces of concatenations are looked at."""


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
    moving = [u for u in users if u.opcode in SHIFTING]
    read = sum(u.shape.size for u in moving) + (len(moving) < len(users)) * i.shape.size
    return max(read, sum(p.shape.size for p in among)) / max(1, i.shape.size)
