"""64-bit integers and f64 become pairs of u32, as XLA rewrites integers for chips that have none (X64 rewriting).

A value of u64, s64 or f64 is two arrays of u32, the low and the high word of its bits (`pairs.py`).  The rules of the
opcodes are in `wide_rules.py` and, of what takes or gives f64, in `double_rules.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.words import double_rules, wide_rules
from systolith.compiler.passes.words.double_rules import on_doubles
from systolith.compiler.passes.words.pairs import PairedTypes, PairRewriter, PairRule, Value
from systolith.isa.dtypes import DTYPES, U32


def _by_type(opcode: str) -> PairRule:
    """The rule of an opcode: that of f64 or that of integers."""
    doubles, integers = double_rules.RULES.get(opcode), wide_rules.RULES.get(opcode)

    def of(i: Instruction) -> PairRule | None:
        return doubles if on_doubles(i) else integers

    def rule(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
        found = of(i)
        assert found is not None, f"{i} was no obstacle"
        return found.rule(r, i, operands)

    def takes(i: Instruction) -> bool:
        found = of(i)
        return found is not None and (found.takes is None or found.takes(i))

    return PairRule(rule, takes)


RULES = {
    **wide_rules.MOVING,
    **{opcode: _by_type(opcode) for opcode in sorted(double_rules.RULES.keys() | wide_rules.RULES.keys())},
}
"""Opcode to how it is rewritten; others have no form on pairs."""

WIDE_TYPES = PairedTypes({DTYPES[name]: U32 for name in ("s64", "u64", "f64")}, RULES, ("low", "high"))


@dataclass(frozen=True)
class SplitWideTypes:
    """Replace 64-bit integers and f64 by pairs of u32, if every operation on them can be.

    Parameters and results of the module keep their types.
    """

    def run(self, module: Module) -> bool:
        return WIDE_TYPES.run(module)
