"""Inlining: the bodies of `call` and `fusion` instead of the calls."""

from __future__ import annotations

from dataclasses import dataclass, replace

from systolith.compiler.hlo.ir import Computation, Instruction, Module


@dataclass(frozen=True)
class Inline:
    """Replace every call of the given opcodes by what it calls, innermost first.

    Attributes:
        opcodes: which calls.
    """

    opcodes: tuple[str, ...] = ("call", "fusion")

    def run(self, module: Module) -> bool:
        changed = False
        for computation in module.post_order():
            if any(i.opcode in self.opcodes for i in computation.instructions):
                self._inline(computation)
                changed = True
        return changed

    def _inline(self, computation: Computation) -> None:
        taken = {i.name for i in computation.instructions}
        out: list[Instruction] = []
        value: dict[Instruction, Instruction] = {}
        for instruction in computation.instructions:
            instruction.operands = [value.get(o, o) for o in instruction.operands]
            if instruction.opcode not in self.opcodes:
                out.append(instruction)
                continue
            copies, result = _copied(instruction, taken)
            out.extend(copies)
            value[instruction] = result
        root = computation.result
        computation.root = value.get(root, root)
        computation.instructions = out


def _copied(call: Instruction, taken: set[str]) -> tuple[list[Instruction], Instruction]:
    """Copies of the callee's instructions with the call's operands for its parameters, and the result's copy."""
    (callee,) = call.called
    value = dict(zip(callee.parameters, call.operands, strict=True))
    copies: list[Instruction] = []
    for instruction in callee.instructions:
        if instruction.opcode == "parameter":
            continue
        operands = [value[o] for o in instruction.operands]
        name = unique(instruction.name, taken)
        copy = replace(instruction, name=name, operands=operands, attributes=dict(instruction.attributes))
        value[instruction] = copy
        copies.append(copy)
    return copies, value[callee.result]


def unique(stem: str, taken: set[str]) -> str:
    """A name that is not taken, made from `stem`; it is taken then."""
    name, number = stem, 0
    while name in taken:
        number += 1
        name = f"{stem}.i{number}"
    taken.add(name)
    return name
