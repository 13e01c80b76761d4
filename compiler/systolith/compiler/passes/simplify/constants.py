"""Constant folding: small results of constants, through the reference evaluator."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import cast

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.values.evaluator import evaluate_computation
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.compiler.ops.table import Family, opcodes_of
from systolith.compiler.passes.effects import Effects

FOLDABLE = opcodes_of(Family.ELEMENTWISE, Family.MOVEMENT) - {"broadcast", "iota"}
"""Not broadcast and iota, which address generators make for free (but for 64-bit types, which few chips have)."""

EVERYTHING = FOLDABLE | frozenset(
    """convolution dot dynamic-slice dynamic-update-slice gather get-tuple-element map reduce reduce-window scatter
    select-and-scatter sort""".split()
)
"""Opcodes that XLA folds too, and their callees in no more than the work below."""


@dataclass(frozen=True)
class FoldConstants:
    """Replace instructions whose operands are constants by their values.

    Attributes:
        limit: largest number of elements of a result, and of an operand of what is not elementwise.
        opcodes: what is folded.
    """

    limit: int = 4096
    opcodes: frozenset[str] = FOLDABLE

    def run(self, module: Module) -> bool:
        effects = Effects()
        changes = [self._fold(c, effects) for c in module.computations]
        return any(changes)

    def _fold(self, computation: Computation, effects: Effects) -> bool:
        changed = False
        before = control_predecessors(computation)
        pinned = set(before).union(*before.values())
        for instruction in computation.instructions:
            if not self._foldable(instruction) or instruction in pinned or effects.of(instruction):
                continue
            try:
                value = _value(instruction)
            except HloError:
                continue  # what the evaluator does not do is left to the lowerings, which say so
            instruction.opcode, instruction.operands, instruction.literal = "constant", [], value
            kept = ("metadata", "sharding")
            instruction.attributes = {k: v for k, v in instruction.attributes.items() if k in kept}
            changed = True
        return changed

    def _foldable(self, i: Instruction) -> bool:
        if any(o.opcode != "constant" for o in i.operands):
            return False
        shapes = (i.shape, *(o.shape for o in i.operands))
        if not i.shape.is_array or i.shape.size > self.limit or any(s.is_dynamic for s in shapes):
            return False
        wide = i.opcode in ("iota", "broadcast") and (i.shape.dtype.bits > 32)
        if i.opcode not in FOLDABLE and _work(i) > self.limit * _WORK:
            return False
        return wide or (i.opcode in self.opcodes and bool(i.operands))


_WORK = 256
"""Products of sizes of operands and result, for each element of the limit, that are folded."""


def _work(i: Instruction) -> int:
    return prod(max(1, leaf.size) for s in (i.shape, *(o.shape for o in i.operands)) for leaf in s.leaves())


def _value(instruction: Instruction) -> np.ndarray:
    lone = Computation("fold", [*dict.fromkeys(instruction.operands), instruction], instruction)
    return cast(np.ndarray, evaluate_computation(lone, []))
