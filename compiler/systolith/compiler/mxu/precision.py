"""Passes of a floating-point contraction through the matrix units, which multiply bf16.

An f32 operand is the sum of three bf16 parts; a pass multiplies one part of each.  The reference evaluator decides by
itself how exact an operation is to be (`hlo/values/contraction.py`), so that a fault here is seen by comparison.
"""

from __future__ import annotations

from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.ir import Instruction
from systolith.isa.dtypes import DType

Passes = tuple[tuple[int, int], ...]

ONE: Passes = ((0, 0),)
THREE: Passes = ((0, 1), (1, 0), (0, 0))
SIX: Passes = ((0, 2), (1, 1), (0, 1), (2, 0), (1, 0), (0, 0))
"""(lhs part, rhs part) of each pass: small ones first, passes that share a weight tile together."""

PRECISIONS = {"default": ONE, "high": THREE, "highest": SIX}

ALGORITHMS = {
    "dot_any_f8_any_f8_f32": ONE,
    "dot_any_f8_any_f8_f32_fast_accum": ONE,
    "dot_bf16_bf16_bf16": ONE,
    "dot_bf16_bf16_f32": ONE,
    "dot_bf16_bf16_f32_x3": THREE,
    "dot_bf16_bf16_f32_x6": SIX,
    "dot_bf16_bf16_f32_x9": SIX,
    "dot_f16_f16_f16": THREE,
    "dot_f16_f16_f32": THREE,
    "dot_f32_f32_f32": SIX,
    "dot_f64_f64_f64": SIX,
    "dot_tf32_tf32_f32": THREE,
    "dot_tf32_tf32_f32_x3": SIX,
}
"""XLA's algorithms of a dot (`xla_data.proto`, `PrecisionConfig.Algorithm`) and passes at least as exact."""

EXACT_IN_BF16 = frozenset({"bf16", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"})


def passes_of(product: Instruction, override: str | None, lhs: DType, rhs: DType) -> Passes:
    """The passes of a dot or convolution; parts that an operand's type leaves zero are dropped.

    Args:
        product: its algorithm decides, or else the higher precision of its operands.
        override: taken instead of the operands' precision; an algorithm stays.
        lhs, rhs: element types of the operands.

    Raises:
        CompileError: the algorithm or precision is unknown.
    """
    algorithm = product.word("algorithm", "dot_unset")
    if algorithm != "dot_unset":
        found = [ALGORITHMS.get(algorithm)]
    elif override is not None:
        found = [PRECISIONS.get(override)]
    else:
        found = [PRECISIONS.get(p) for p in product.words("operand_precision", ("default",))]
    known = [passes for passes in found if passes is not None]
    if len(known) < len(found):
        raise compile_error(product, "an algorithm or precision that the matrix units do not have; leave it out")
    return tuple(
        (a, b)
        for a, b in max(known, key=len)
        if not (a and lhs.name in EXACT_IN_BF16) and not (b and rhs.name in EXACT_IN_BF16)
    )
