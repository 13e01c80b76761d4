"""Dead code: instructions that no result needs, computations that nothing calls."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.compiler.passes.effects import Effects


def has_effects(instruction: Instruction) -> bool:
    """Whether an instruction, or one that it calls, does more than give a value."""
    return Effects().of(instruction)


@dataclass(frozen=True)
class DeadCode:
    """Drop instructions and computations that nothing uses; parameters stay, and what control dependencies name."""

    def run(self, module: Module) -> bool:
        effects = Effects()
        changes = [drop_dead(computation, effects) for computation in module.computations]
        reached = _reached(module)
        changes.append(len(reached) < len(module.computations))
        module.computations = [c for c in module.computations if c in reached]
        return any(changes)


def drop_dead(computation: Computation, effects: Effects) -> bool:
    """Drop what a computation's result does not need; gives whether there was any."""
    alive: set[Instruction] = set()
    before = control_predecessors(computation)
    stack = [computation.result, *before, *(i for named in before.values() for i in named)]
    stack += [i for i in computation.instructions if effects.of(i)]
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
