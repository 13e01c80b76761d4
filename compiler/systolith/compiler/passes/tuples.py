"""Tuples: elements of tuples that are made in the same computation are used directly."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Computation, Instruction, Module


@dataclass(frozen=True)
class SimplifyTuples:
    """`get-tuple-element(tuple(a, b), index=i)` is its operand; a tuple of all elements of a tuple is that tuple;
    `opt-barrier` is its operand.
    """

    def run(self, module: Module) -> bool:
        changes = [_simplify(c) for c in module.computations]
        return any(changes)


def _simplify(computation: Computation) -> bool:
    value: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        instruction.operands = [value.get(o, o) for o in instruction.operands]
        simpler = _simpler(instruction)
        if simpler is not None:
            value[instruction] = simpler
    root = computation.result
    computation.root = value.get(root, root)
    computation.instructions = [i for i in computation.instructions if i not in value]
    return bool(value)


def _simpler(i: Instruction) -> Instruction | None:
    if i.opcode == "opt-barrier":
        return i.operands[0]
    if i.opcode == "get-tuple-element" and i.operands[0].opcode == "tuple":
        return i.operands[0].operands[i.integer("index")]
    if i.opcode == "tuple" and i.operands and all(o.opcode == "get-tuple-element" for o in i.operands):
        whole = i.operands[0].operands[0]
        same = all(o.operands[0] is whole and o.integer("index") == k for k, o in enumerate(i.operands))
        return whole if same and len(i.operands) == len(whole.shape.elements) else None
    return None
