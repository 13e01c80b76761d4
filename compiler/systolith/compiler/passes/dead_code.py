"""Dead code: instructions that no result needs, computations that nothing calls."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.opcodes import COLLECTIVES

EFFECTS = frozenset({"infeed", "outfeed", "send", "send-done", "recv", "recv-done", "rng", "custom-call"}) | COLLECTIVES
"""Opcodes that do more than give a value; they stay, and two of them are never made one."""


def has_effects(instruction: Instruction) -> bool:
    """Whether an instruction, or one that it calls, does more than give a value."""
    if instruction.opcode in EFFECTS and instruction.attributes.get("custom_call_has_side_effect", True):
        return True
    return any(has_effects(i) for c in instruction.called for i in c.instructions)


@dataclass(frozen=True)
class DeadCode:
    """Drop instructions and computations that nothing uses; parameters stay."""

    def run(self, module: Module) -> bool:
        changed = False
        for computation in module.computations:
            changed |= _sweep(computation)
        reached = _reached(module)
        changed |= len(reached) < len(module.computations)
        module.computations = [c for c in module.computations if c in reached]
        return changed


def _sweep(computation: Computation) -> bool:
    alive: set[Instruction] = set()
    stack = [computation.result, *(i for i in computation.instructions if has_effects(i))]
    while stack:
        instruction = stack.pop()
        if instruction not in alive:
            alive.add(instruction)
            stack.extend(instruction.operands)
    kept = [i for i in computation.instructions if i in alive or i.opcode == "parameter"]
    changed = len(kept) < len(computation.instructions)
    if changed:
        computation.root = computation.result
        computation.instructions = kept
    return changed


def _reached(module: Module) -> set[Computation]:
    reached: set[Computation] = set()
    stack = [module.entry]
    while stack:
        computation = stack.pop()
        if computation not in reached:
            reached.add(computation)
            stack.extend(c for i in computation.instructions for c in i.called)
    return reached
