"""Conditionals that always take one branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.rules.shapes_control import branches
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.simplify.algebraic_arithmetic import splat


@dataclass(frozen=True)
class SimplifyConditionals:
    """Replace a `conditional` on a constant, or with one branch only, by a `call` of the branch."""

    def run(self, module: Module) -> bool:
        return rewrite(module, _call, ("conditional",))


def _call(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.opcode != "conditional":
        return None
    choices = _in_order_of_operands(i)
    selector, *arguments = i.operands
    taken: int | None = 0 if len(choices) == 1 else None
    if (value := splat(selector)) is not None:
        index = 1 - int(value) if selector.shape.dtype.name == "pred" else int(value)
        taken = index if 0 <= index < len(choices) else len(choices) - 1
    if taken is None:
        return None
    return r.emit("call", arguments[taken], shape=i.shape, name=i.name, to_apply=choices[taken])


def _in_order_of_operands(i: Instruction) -> Sequence[Computation]:
    """The pred form gives the true branch first, and `branches` the false one."""
    return branches(i) if "branch_computations" in i.attributes else tuple(reversed(branches(i)))
