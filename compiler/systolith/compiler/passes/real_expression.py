"""Arithmetic on real arrays as formulas: operators that make HLO instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import PRED, DType


@dataclass(frozen=True)
class Real:
    """An array in a formula.

    Attributes:
        r: makes instructions.
        i: the array.
    """

    r: Rewriter
    i: Instruction

    def _with(self, opcode: str, *others: Real | float) -> Self:
        return self._as(self.r.emit(opcode, self.i, *(self.like(o).i for o in others), shape=self.i.shape))

    def _as(self, i: Instruction) -> Self:
        """Another array in the same formula."""
        return replace(self, i=i)

    def like(self, value: Real | float) -> Self:
        """A number as an array of this shape; an array as it is."""
        return self._as(value.i if isinstance(value, Real) else self.r.full(value, self.i.shape))

    def __add__(self, other: Real | float) -> Self:
        return self._with("add", other)

    def __sub__(self, other: Real | float) -> Self:
        return self._with("subtract", other)

    def __mul__(self, other: Real | float) -> Self:
        return self._with("multiply", other)

    def __truediv__(self, other: Real | float) -> Self:
        return self._with("divide", other)

    def __neg__(self) -> Self:
        return self._with("negate")

    def of(self, opcode: str, *others: Real | float) -> Self:
        """An elementwise operation by its opcode: `x.of("maximum", y)`."""
        return self._with(opcode, *others)

    def converted(self, dtype: DType) -> Self:
        """As another type; of the same type as it is."""
        return self._as(self.r.converted(self.i, dtype))

    def reshaped(self, dims: Sequence[int]) -> Self:
        """With other dimensions."""
        return self._as(self.r.reshaped(self.i, dims))

    def test(self, direction: str, other: Real | float) -> Instruction:
        """A comparison."""
        shape = array(PRED, self.i.dims)
        return self.r.emit("compare", self.i, self.like(other).i, shape=shape, direction=direction)

    def where(self, test: Instruction, other: Real | float) -> Self:
        """This where `test` holds, else the other."""
        return self._as(self.r.emit("select", test, self.i, self.like(other).i, shape=self.i.shape))
