"""Inlining: the bodies of `call` and `fusion` instead of the calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.passes.rewrite import Names

MOST_INSTRUCTIONS = 10_000_000
"""Instructions of a computation after inlining; calls that double at each level make more."""

_CONTROL = "control-predecessors"


@dataclass(frozen=True)
class Inline:
    """Replace calls (`call`, `fusion` or both) by what they call, innermost first.

    Instructions that had to run before or after a call run before or after all that it did.

    Attributes:
        opcodes: which calls.
    """

    opcodes: tuple[str, ...] = ("call", "fusion")

    def run(self, module: Module) -> bool:
        order = module.post_order()
        self._check_size(order)
        changed = False
        for computation in order:
            if any(i.opcode in self.opcodes for i in computation.instructions):
                self._inline(computation)
                changed = True
        return changed

    def _check_size(self, order: list[Computation]) -> None:
        sizes: dict[Computation, int] = {}
        for computation in order:
            calls = [i for i in computation.instructions if i.opcode in self.opcodes]
            size = len(computation.instructions) + sum(sizes[c] for i in calls for c in i.called)
            if size > MOST_INSTRUCTIONS:
                raise CompileError(
                    f"computation {computation.name!r} has {size} instructions when its calls are inlined, "
                    f"more than the {MOST_INSTRUCTIONS} that are tried: call less often"
                )
            sizes[computation] = size

    def _inline(self, computation: Computation) -> None:
        names = Names(i.name for i in computation.instructions)
        out: list[Instruction] = []
        value: dict[Instruction, Instruction] = {}
        instead: dict[str, tuple[str, ...]] = {}
        for instruction in computation.instructions:
            instruction.operands = [value.get(o, o) for o in instruction.operands]
            if instruction.opcode not in self.opcodes:
                out.append(instruction)
                continue
            copies, result = _copied(instruction, names)
            out.extend(copies)
            value[instruction] = result
            instead[instruction.name] = tuple(i.name for i in copies) or (result.name,)
        root = computation.result
        computation.root = value.get(root, root)
        computation.instructions = out
        for instruction in out:
            if _CONTROL in instruction.attributes:
                named = [n for old in _before(instruction) for n in instead.get(old, (old,))]
                instruction.attributes[_CONTROL] = tuple(dict.fromkeys(named))


def _before(i: Instruction) -> tuple[str, ...]:
    return cast("tuple[str, ...]", i.attributes.get(_CONTROL, ()))


def _copied(call: Instruction, fresh: Names) -> tuple[list[Instruction], Instruction]:
    """Copies of the callee's instructions with the call's operands for its parameters, and the result's copy."""
    (callee,) = call.called
    value = dict(zip(callee.parameters, call.operands, strict=True))
    names = {i.name: o.name for i, o in value.items()}
    copies: list[Instruction] = []
    for instruction in callee.instructions:
        if instruction.opcode == "parameter":
            continue
        operands = [value[o] for o in instruction.operands]
        names[instruction.name] = name = fresh.fresh(instruction.name)
        copy = replace(instruction, name=name, operands=operands, attributes=dict(instruction.attributes))
        value[instruction] = copy
        copies.append(copy)
    for copy in copies:
        if before := (*(names[n] for n in _before(copy)), *_before(call)):
            copy.attributes[_CONTROL] = before
    return copies, value[callee.result]
