"""Batch normalisation as what it is defined by: means, variances, and elementwise operations.

Types of less than 32 bits are computed in f32 and rounded once.  Definitions: XLA's operation semantics
(`BatchNormTraining`, `BatchNormInference`, `BatchNormGrad`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import cast

import numpy as np

from systolith.compiler.hlo.attributes import Raw
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import F32


@dataclass(frozen=True)
class ExpandBatchNorm:
    """Expand `batch-norm-training`, `batch-norm-inference` and `batch-norm-grad` of static shapes."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _Norm(r, i, callees).expanded() if i.opcode in _EXPANDED else None)
        callees.place()
        return changed


class _Norm:
    """One operation: its sizes, and the arithmetic over them."""

    def __init__(self, r: Rewriter, i: Instruction, callees: Callees) -> None:
        self.r, self.i, self.callees = r, i, callees
        x = i.operands[0].shape
        self.given = x.dtype
        self.dtype = x.dtype if x.dtype.bits >= 32 else F32
        self.feature = i.integer("feature_index")
        self.shape = array(self.dtype, x.dims)
        self.vector = array(self.dtype, (x.dims[self.feature],))
        self.others = tuple(d for d in range(x.rank) if d != self.feature)
        self.count = prod(x.dims[d] for d in self.others)

    def expanded(self) -> Instruction | None:
        if any(o.shape.is_dynamic for o in self.i.operands):
            return None
        operands = [self.r.converted(o, self.dtype) for o in self.i.operands]
        return _EXPANDED[self.i.opcode](self, operands)

    def training(self, operands: list[Instruction]) -> Instruction:
        x, scale, offset = operands
        mean = self._mean(x)
        centred = self._op("subtract", x, self._spread(mean))
        variance = self._mean(self._op("multiply", centred, centred))
        result = self._normalised(centred, scale, offset, variance)
        return self._tuple(result, mean, variance)

    def inference(self, operands: list[Instruction]) -> Instruction:
        x, scale, offset, mean, variance = operands
        centred = self._op("subtract", x, self._spread(mean))
        return self.r.converted(self._normalised(centred, scale, offset, variance), self.given)

    def grad(self, operands: list[Instruction]) -> Instruction:
        """With d the gradient, c = x - mean and s = 1 / sqrt(variance + epsilon): of the offset, sum(d); of the scale,
        sum(d c) s; of x, scale s (d - mean(d) - c mean(d c) s s).
        """
        x, scale, mean, variance, d = operands
        centred = self._op("subtract", x, self._spread(mean))
        s = self._inverse_deviation(variance)
        product = self._sum(self._op("multiply", d, centred))
        offset_grad = self._sum(d)
        slope = self._op("multiply", self._per_element(product), self._op("multiply", s, s))
        shift = self._op("subtract", d, self._spread(self._per_element(offset_grad)))
        inner = self._op("subtract", shift, self._op("multiply", centred, self._spread(slope)))
        result = self._op("multiply", inner, self._spread(self._op("multiply", scale, s)))
        return self._tuple(result, self._op("multiply", product, s), offset_grad)

    def _normalised(
        self, centred: Instruction, scale: Instruction, offset: Instruction, variance: Instruction
    ) -> Instruction:
        scaled = self._op("multiply", centred, self._spread(self._inverse_deviation(variance)))
        return self._op("add", self._op("multiply", scaled, self._spread(scale)), self._spread(offset))

    def _inverse_deviation(self, variance: Instruction) -> Instruction:
        stated = np.float32(cast(Raw, self.i.attributes["epsilon"]))  # XLA keeps it as f32, whatever the arrays
        epsilon = self.r.full(stated, self.vector)
        return self._op("rsqrt", self._op("add", variance, epsilon))

    def _op(self, opcode: str, *operands: Instruction) -> Instruction:
        return self.r.emit(opcode, *operands, shape=operands[0].shape)

    def _spread(self, vector: Instruction) -> Instruction:
        return self.r.emit("broadcast", vector, shape=self.shape, dimensions=(self.feature,))

    def _sum(self, x: Instruction) -> Instruction:
        zero = self.r.constant(0, self.dtype)
        adder = self.callees.reducer("add", self.dtype)
        return self.r.emit("reduce", x, zero, shape=self.vector, dimensions=self.others, to_apply=adder)

    def _per_element(self, total: Instruction) -> Instruction:
        return self._op("divide", total, self.r.full(self.count, self.vector))

    def _mean(self, x: Instruction) -> Instruction:
        return self._per_element(self._sum(x))

    def _tuple(self, *parts: Instruction) -> Instruction:
        back = [self.r.converted(p, s.dtype) for p, s in zip(parts, self.i.shape.elements, strict=True)]
        return self.r.emit("tuple", *back, shape=self.i.shape)


_EXPANDED = {
    "batch-norm-training": _Norm.training,
    "batch-norm-inference": _Norm.inference,
    "batch-norm-grad": _Norm.grad,
}
