"""Constant folding: small results of constants, through the reference evaluator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.evaluator import evaluate_computation
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.opcodes import ELEMENTWISE

FOLDABLE = ELEMENTWISE | {"reshape", "transpose", "slice", "concatenate", "reverse", "pad", "bitcast-convert"}
"""Not broadcast and iota, which address generators make for free (but for 64-bit types, which few chips have)."""


@dataclass(frozen=True)
class FoldConstants:
    """Replace instructions whose operands are constants by their values.

    Attributes:
        limit: largest number of elements of a result.
    """

    limit: int = 4096

    def run(self, module: Module) -> bool:
        changes = [self._fold(c) for c in module.computations]
        return any(changes)

    def _fold(self, computation: Computation) -> bool:
        changed = False
        for instruction in computation.instructions:
            if not self._foldable(instruction):
                continue
            try:
                value = _value(instruction)
            except HloError:
                continue  # what the evaluator does not do is left to the lowerings, which say so
            instruction.opcode, instruction.operands, instruction.literal = "constant", [], value
            instruction.attributes = {k: v for k, v in instruction.attributes.items() if k == "metadata"}
            changed = True
        return changed

    def _foldable(self, i: Instruction) -> bool:
        if not i.shape.is_array or i.shape.size > self.limit:
            return False
        wide = i.opcode in ("iota", "broadcast") and (i.shape.dtype.bits > 32)
        constant = all(o.opcode == "constant" for o in i.operands)
        return (wide and constant) or (i.opcode in FOLDABLE and constant and bool(i.operands))


def _value(instruction: Instruction) -> np.ndarray:
    lone = Computation("fold", [*dict.fromkeys(instruction.operands), instruction], instruction)
    return cast(np.ndarray, evaluate_computation(lone, []))
