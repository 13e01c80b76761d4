"""Sums of scaled values: factors that do not change along a sum are multiplied with its result.

The gradient of a variance scales differences from the mean by a factor that another sum over the same elements gives,
and sums them.  Scaled afterwards, both sums are made in one pass, where the second would have to wait for the first.
The sum is rounded elsewhere then, so only sums that would have to wait are rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.rewrite import Rewriter
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.isa.chip import Chip
from systolith.isa.dtypes import F32


class _Scaled(NamedTuple):
    """An operation that scales the elements of a sum: negate, or multiply or divide by what `factor` repeats."""

    operation: Instruction
    factor: Instruction | None


@dataclass(frozen=True)
class FactorSums:
    """Multiply sums, not their elements, by factors that other sums over the same elements give.

    Attributes:
        chip: whose VMEM it is.
    """

    chip: Chip

    def run(self, module: Module) -> bool:
        least = self.chip.vmem.bytes // LARGE
        changed = [Rewriter(c).sweep(_Sums(least).factored) for c in module.computations]
        return any(changed) and (DeadCode().run(module) or True)


@dataclass
class _Sums:
    """The sums of one computation.

    Attributes:
        least: bytes of a large value.
        made: sums that were made, by what they sum.
        before: of small values, dimensions of what they depend on the sums of.
    """

    least: int
    made: dict[tuple[Instruction, Instruction, Sequence[int]], Instruction] = field(default_factory=dict)
    before: dict[Instruction, frozenset[tuple[int, ...]]] = field(default_factory=dict)

    def factored(self, r: Rewriter, i: Instruction) -> Instruction | None:
        """What a sum of scaled elements is rewritten to."""
        if not _is_sum(i) or i.operands[0].shape.bytes < self.least:
            return None
        value, init = i.operands
        kept = [d for d in range(value.shape.rank) if d not in i.ints("dimensions")]
        scaled: list[_Scaled] = []
        while (step := _scaling(value, kept)) is not None:
            scaled.append(step)
            value = next(o for o in step.operation.operands if o is not step.factor)
        factors = [s.factor.operands[0] for s in scaled if s.factor is not None]
        if not any(value.dims in self._sums_before(factor) for factor in factors):
            return None
        key = (value, init, i.ints("dimensions"))
        if key not in self.made:
            self.made[key] = r.like(i, [value, init], i.shape)
        result = self.made[key]
        for operation, factor in reversed(scaled):
            by = [] if factor is None else [_spread(r, factor, i, kept)]
            result = r.emit(operation.opcode, result, *by, shape=i.shape)
        return result

    def _sums_before(self, value: Instruction) -> frozenset[tuple[int, ...]]:
        """Dimensions of what a value depends on the sums of, through small values."""
        todo = [value]
        while todo:
            i = todo[-1]
            small = [o for o in i.operands if o.shape.is_array and o.shape.bytes < self.least]
            if missing := [o for o in small if o not in self.before]:
                todo += missing
                continue
            own = {i.operands[0].dims} if i.opcode == "reduce" else set()
            self.before[i] = frozenset(own).union(*(self.before[o] for o in small))
            todo.pop()
        return self.before[value]


def _is_sum(i: Instruction) -> bool:
    """Whether it is a sum of an array of f32, from 0."""
    if i.opcode != "reduce" or not i.shape.is_array or i.shape.dtype is not F32:
        return False
    root, init = i.computation().result, i.operands[1]
    adds = root.opcode == "add" and all(o.opcode == "parameter" for o in root.operands) and len({*root.operands}) == 2
    return adds and init.opcode == "constant" and init.literal is not None and not np.any(init.literal)


def _scaling(i: Instruction, kept: Sequence[int]) -> _Scaled | None:
    """The scaling that an instruction is, if the factor varies along kept dimensions alone."""
    if i.opcode == "negate":
        return _Scaled(i, None)
    places = {"multiply": (0, 1), "divide": (1,)}.get(i.opcode, ())
    for o in (i.operands[k] for k in places if i.operands[0] is not i.operands[1]):
        if o.opcode == "broadcast" and set(o.ints("dimensions", ())) <= {*kept}:
            return _Scaled(i, o)
    return None


def _spread(r: Rewriter, factor: Instruction, i: Instruction, kept: Sequence[int]) -> Instruction:
    """A factor, repeated to the dimensions of a sum."""
    (value,), dims = factor.operands, tuple(kept.index(d) for d in factor.ints("dimensions", ()))
    return value if value.dims == i.dims else r.emit("broadcast", value, shape=i.shape, dimensions=dims)
