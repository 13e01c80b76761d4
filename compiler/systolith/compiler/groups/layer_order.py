"""The order in which layers of a training step come one after another.

JAX writes what updates the weights of all layers after all gradients, weight by weight.  Here operations come in the
order of the products that they need, one after another: what updates the weights of a layer then stands with its
gradient, and what the backward pass takes of elementwise operations stands there.
"""

from __future__ import annotations

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.ops.table import Family, family, is_elementwise

LATE = ("broadcast", "iota", "reshape")
"""Operations that come right before what uses them, as elementwise ones do."""


def by_products(computation: Computation) -> list[Instruction]:
    """The instructions by how many products are on the longest way to them; those of as many stay in order.

    What needs no product, and what is elementwise, comes as late as its users let it.
    """
    depth: dict[Instruction, int] = {}
    for i in computation.instructions:
        before = max((depth[o] for o in i.operands), default=0)
        depth[i] = before + (family(i) is Family.CONTRACTION or i.opcode == "while")
    users, at = computation.users(), dict(depth)
    for i in reversed(computation.instructions):
        late = not depth[i] or is_elementwise(i) or i.opcode in LATE
        needed = [at[user] for user in users[i] if user is not computation.result]
        if late and needed and len(needed) == len(users[i]):
            at[i] = min(needed)
    at[computation.result] = max(at.values())
    return sorted(computation.instructions, key=at.__getitem__)
