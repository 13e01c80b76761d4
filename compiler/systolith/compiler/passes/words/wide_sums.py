"""Reductions of f64 with few results in two steps, so that each has many elements side by side."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.values.reduction import neutral_element, plain_operation
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DTYPES

F64 = DTYPES["f64"]


@dataclass(frozen=True)
class SplitWideSums:
    """Reduce f64 to as many partial results as a vector has elements first, where there are fewer results.

    Attributes:
        enough: results of the first step.
        least: elements that each of them is made of.
    """

    enough: int = 1024
    least: int = 4

    def run(self, module: Module) -> bool:
        return rewrite(module, self._split)

    def _split(self, r: Rewriter, i: Instruction) -> Instruction | None:
        if i.opcode != "reduce" or not i.shape.is_array or i.shape.dtype is not F64 or i.operands[0].shape.is_dynamic:
            return None
        opcode, x = plain_operation(i.computation()), i.operands[0]
        dims = i.ints("dimensions")
        if opcode is None or not i.shape.size or not dims or i.shape.size >= self.enough:
            return None
        last = max(dims)
        size, part = x.dims[last], 1
        while size % (2 * part) == 0 and i.shape.size * part < self.enough:
            part *= 2
        if part == 1 or prod(x.dims[d] for d in dims) < self.least * part:
            return None
        split = r.reshaped(x, (*x.dims[:last], size // part, part, *x.dims[last + 1 :]))
        first = [n for d, n in enumerate(split.dims) if d not in dims]
        neutral = r.constant(neutral_element(opcode, F64), F64)
        calls = i.computation()
        some = r.emit("reduce", split, neutral, shape=array(F64, first), dimensions=dims, to_apply=calls)
        place = last - sum(d < last for d in dims)
        return r.emit("reduce", some, i.operands[1], shape=i.shape, dimensions=(place,), to_apply=calls)
