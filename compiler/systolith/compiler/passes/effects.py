"""Side effects of instructions."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.ops.table import Family, family


class Effects:
    """Which computations have effects, found once each; what has one stays, and two of them are never made one."""

    def __init__(self) -> None:
        self._known: dict[Computation, bool] = {}

    def of(self, instruction: Instruction) -> bool:
        """Whether an instruction, or one that it calls, does more than give a value."""
        if family(instruction) in (Family.EFFECT, Family.HOST):
            return True
        if not instruction.attributes:
            return False
        if instruction.opcode == "custom-call" and instruction.attributes.get("custom_call_has_side_effect", False):
            return True
        return any(map(self.within, instruction.called))

    def within(self, computation: Computation) -> bool:
        """Whether running a computation does more than give a value."""
        stack = [computation] if computation not in self._known else []
        while stack:
            top = stack[-1]
            called = [c for i in top.instructions for c in i.called if c not in self._known]
            if called:
                stack.extend(called)
            else:
                self._known[top] = any(map(self.of, top.instructions))
                stack.pop()
        return self._known[computation]


def moves_for_host(module: Module) -> bool:
    """Whether a module has infeeds or outfeeds, whose order is that of its text: passes that reorder let it be."""
    return any(family(i) is Family.HOST for i in module.instructions())
