"""Values that all iterations of a loop have and that a few cheap operations make of fewer bytes: made in each of them.

JAX makes the mask of attention once, before a loop over layers, a whole array of 25 MB of a few indices. Inside the
loop it is a part of what reads it, and no byte is moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.explain import Decision
from systolith.compiler.groups.loop_state import kept, leaves_of, loops_of, plain
from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.ops.table import is_elementwise
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.while_loops import SimplifyWhileLoops
from systolith.compiler.passes.simplify.while_trip_count import element, keeps
from systolith.isa.chip import Chip

FEWER = 8
"""So many times fewer bytes."""


@dataclass(frozen=True)
class SinkInvariants:
    """Make large values that loops keep, and that are cheap, where the iterations use them.

    Attributes:
        chip: values of a part of its VMEM and more are large.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        names = Names(i.name for i in module.instructions())
        decisions: list[Decision] = []
        for computation, loop in loops_of(module):
            for value in self._sunk(computation, loop, names):
                what = f"{value.name} is made in each iteration of {loop.name}"
                decisions.append(Decision("recompute", value.name, what, "", {"bytes": value.shape.bytes}))
        if decisions:
            for tidy in (SimplifyWhileLoops(), DeadCode()):
                tidy.run(module)
        return Outcome(bool(decisions), tuple(decisions))

    def _sunk(self, outer: Computation, loop: Instruction, names: Names) -> list[Instruction]:
        """Change a loop; which values it is that it makes itself."""
        if not plain(outer, loop):
            return []
        body, found = loop.computation("body"), list[Instruction]()
        for number, value in enumerate(list(loop.operands[0].operands)):
            if not value.shape.is_array or value.shape.bytes < self.chip.vmem.bytes // LARGE or not keeps(loop, number):
                continue
            leaves, users = leaves_of(value), body.users()
            parts = [i for i in body.instructions if element(i, body) == number]
            readers = [u for part in parts for u in users[part] if u is not body.result]
            few = sum(leaf.shape.bytes for leaf in leaves) * FEWER <= value.shape.bytes
            if value in leaves or not few or not readers or not all(map(is_elementwise, readers)):
                continue
            _make(outer, loop, value, parts, leaves, names)
            found.append(value)
        return found


def _make(
    outer: Computation,
    loop: Instruction,
    value: Instruction,
    parts: list[Instruction],
    leaves: list[Instruction],
    names: Names,
) -> None:
    """Let the body make a value of leaves, in the place of parts of its state."""
    body = loop.computation("body")
    at = {leaf: kept(outer, loop, leaf, names) for leaf in leaves}
    out: list[Instruction] = []
    made: dict[Instruction, Instruction] = {}
    stack = [value]
    while stack:
        i = stack[-1]
        if i in at:
            operands = [body.first_parameter]
            made[i] = Instruction(names.fresh(i.name), "get-tuple-element", i.shape, operands, {"index": at[i]})
        elif missing := [o for o in i.operands if o not in made]:
            stack += missing
            continue
        elif i not in made:
            made[i] = i.copy([made[o] for o in i.operands], dict(i.attributes))
            made[i].name = names.fresh(i.name)
        out += [made[i]] if made[i] not in out else []
        stack.pop()
    first = body.instructions.index(body.first_parameter) + 1
    body.instructions[first:first] = out
    for reader in body.instructions:
        if reader is not body.result and any(part in reader.operands for part in parts):
            reader.operands = [made[value] if o in parts else o for o in reader.operands]
