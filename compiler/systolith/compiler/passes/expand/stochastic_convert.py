"""`stochastic-convert` as arithmetic: away from zero where the fraction is above the random number.

Source: XLA's `stochastic_convert_decomposer`; the values are those of `hlo/values/precision.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DTYPES, F32, U32, DType, Kind


@dataclass(frozen=True)
class DecomposeStochasticConvert:
    """Write `stochastic-convert` of floats to signed integers as a comparison of their fractions with random bits."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _expanded(r, i) if i.opcode == "stochastic-convert" else None)


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    """The threshold is the fraction in units of the random number, rounded up: what is below is below the fraction."""
    source, bits = i.operands[0].shape.dtype, i.operands[1].shape.dtype.bits
    if not source.is_float or i.shape.dtype.kind is not Kind.SIGNED or i.shape.is_dynamic:
        return None
    word = U32 if source.bits <= U32.bits else DTYPES["u64"]
    x, random = (Real(r, r.converted(o, t)) for o, t in zip(i.operands, (_wide(source), word), strict=True))
    magnitude = x.of("abs")
    whole = magnitude.of("floor")
    threshold = ((magnitude - whole) * 2.0**bits).of("ceil").converted(word)
    rounded = (whole + 1).where(random.test("LT", threshold), whole)
    return (-rounded).where(x.test("LT", 0), rounded).converted(i.shape.dtype).i


def _wide(source: DType) -> DType:
    return F32 if source.bits < F32.bits else source
