"""64-bit integers become pairs of u32, as XLA rewrites them for chips that have none (X64 rewriting).

A value of u64 or s64 is two arrays of u32, its low and its high word (`pairs.py`).  The rules of the opcodes are in
`wide_rules.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Module
from systolith.compiler.passes.pairs import PairedTypes
from systolith.compiler.passes.wide_rules import RULES
from systolith.isa.dtypes import DTYPES, U32

WIDE_INTEGERS = PairedTypes({DTYPES["s64"]: U32, DTYPES["u64"]: U32}, RULES, ("low", "high"))


@dataclass(frozen=True)
class SplitWideIntegers:
    """Replace integers of 64 bits by pairs of u32, if every operation on them can be.

    What the module takes and gives keeps its types.
    """

    def run(self, module: Module) -> bool:
        return WIDE_INTEGERS.run(module)
