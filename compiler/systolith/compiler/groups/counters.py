"""What counts the iterations of a loop comes last in its body.

It is made in the place of the state then, which nothing reads any more, and no transfer of an iteration waits for it.
Before groups are made the order has a part in what is fused, so it is changed after that.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.groups.loop_state import loops_of
from systolith.compiler.hlo.ir import Computation, Module
from systolith.compiler.ops.group import Group
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.simplify.while_trip_count import element


@dataclass(frozen=True)
class CountLast:
    """Let groups that make a scalar of a loop's next state of the same scalar come last."""

    def run(self, module: Module) -> Outcome:
        bodies = {loop.computation("body"): None for _, loop in loops_of(module)}
        changed = [_count_last(body) for body in bodies]
        return Outcome(any(changed))


def _count_last(body: Computation) -> bool:
    """Whether anything comes later."""
    root, users = body.result, body.users()
    if root.opcode != "tuple":
        return False
    counters = {
        made
        for number, made in enumerate(root.operands)
        if isinstance(made, Group) and made.shape.is_array and not made.dims and users[made] == [root]
        if any(element(o, body) == number for o in made.operands)
    }
    before = body.instructions
    rest = [i for i in before if i not in counters and i is not root]
    body.root, body.instructions = root, [*rest, *(i for i in before if i in counters), root]
    return any(a is not b for a, b in zip(before, body.instructions, strict=True))
