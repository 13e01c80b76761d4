"""Common subexpressions: equal instructions on equal operands are one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.passes.dead_code import has_effects

_IGNORED = frozenset({"metadata", "backend_config", "frontend_attributes"})
_KEPT = frozenset({"parameter", "while", "conditional", "fusion", "call"})


@dataclass(frozen=True)
class MergeCommon:
    """Let users of an instruction take an equal one that comes before it."""

    def run(self, module: Module) -> bool:
        changes = [_merge(c) for c in module.computations]
        return any(changes)


def _merge(computation: Computation) -> bool:
    first: dict[Hashable, Instruction] = {}
    value: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        instruction.operands = [value.get(o, o) for o in instruction.operands]
        if instruction.opcode in _KEPT or has_effects(instruction):
            continue
        found = first.setdefault(_key(instruction), instruction)
        if found is not instruction:
            value[instruction] = found
    root = computation.result
    computation.root = value.get(root, root)
    computation.instructions = [i for i in computation.instructions if i not in value]
    return bool(value)


def _key(i: Instruction) -> Hashable:
    attributes = tuple((k, _attribute_key(v)) for k, v in sorted(i.attributes.items()) if k not in _IGNORED)
    literal = i.literal.tobytes() if isinstance(i.literal, np.ndarray) else repr(i.literal)
    return (i.opcode, i.shape.text(layout=False), tuple(map(id, i.operands)), attributes, literal)


def _attribute_key(value: object) -> Hashable:
    return computation_key(value) if isinstance(value, Computation) else repr(value)


def computation_key(computation: Computation) -> Hashable:
    """Equal for computations that are the same but for names."""
    number = {i: k for k, i in enumerate(computation.instructions)}
    rows = []
    for i in computation.instructions:
        attributes = tuple((k, _attribute_key(v)) for k, v in sorted(i.attributes.items()) if k not in _IGNORED)
        literal = i.literal.tobytes() if isinstance(i.literal, np.ndarray) else repr(i.literal)
        operands = tuple(number[o] for o in i.operands)
        rows.append((i.opcode, i.shape.text(layout=False), operands, attributes, i.number, literal))
    return (tuple(rows), number[computation.result])
