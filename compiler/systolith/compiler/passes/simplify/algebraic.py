"""Algebraic simplification: rules by opcode, tried in order until none fits."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.rewrite import Rewriter, Rule, rewrite
from systolith.compiler.passes.simplify.algebraic_arithmetic import ARITHMETIC, elementwise
from systolith.compiler.passes.simplify.algebraic_movement import MOVEMENT, copy, dimension_size, reduce
from systolith.isa.dtypes import BF16, F32


@dataclass(frozen=True)
class Simplify:
    """Apply algebraic rules that give the same bits, until none fits."""

    def run(self, module: Module) -> bool:
        return rewrite(module, simplify)


def simplify(r: Rewriter, i: Instruction) -> Instruction | None:
    """The replacement by the first rule that applies."""
    rules = ANY_SIZES.get(i.opcode, ())
    if i.shape.is_fixed and all(o.shape.is_fixed for o in i.operands):
        rules = RULES.get(i.opcode, _OTHERS)
    for rule in rules:
        if (simpler := rule(r, i)) is not None:
            return simpler
    return None


def _narrow_operands(r: Rewriter, i: Instruction) -> Instruction | None:
    """A product of f32 operands that were bf16 is a product of bf16 operands: widening changes no value."""
    if any(
        o.opcode != "convert" or o.operands[0].shape.dtype is not BF16 or o.shape.dtype is not F32 for o in i.operands
    ):
        return None
    return r.like(i, [o.operands[0] for o in i.operands], i.shape)


_OTHERS: tuple[Rule, ...] = (elementwise,)

RULES: dict[str, tuple[Rule, ...]] = {
    **{opcode: (*rules, elementwise) for opcode, rules in ARITHMETIC.items()},
    **MOVEMENT,
    "copy": (copy,),
    "get-dimension-size": (dimension_size,),
    "reduce": (reduce,),
    "reduce-window": (reduce,),
    "dot": (*MOVEMENT["dot"], _narrow_operands),
    "convolution": (*MOVEMENT["convolution"], _narrow_operands),
}
"""Opcode to its rules, for arrays whose sizes are all known; others have `elementwise`."""

ANY_SIZES: dict[str, tuple[Rule, ...]] = {
    **{opcode: ARITHMETIC[opcode] for opcode in ("not", "abs", "sign", "convert", "select", "complex", "real", "imag")},
    "copy": (copy,),
    "get-dimension-size": (dimension_size,),
    "reduce": (reduce,),
    "reduce-window": (reduce,),
}
"""Opcode to the rules that hold for tuples and for dynamic dimensions too."""
