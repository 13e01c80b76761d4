"""Complex numbers become pairs of f32 or f64, their real and imaginary parts (`pairs.py`).

The rules of the opcodes are in `complex_rules.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Module
from systolith.compiler.passes.words.complex_rules import RULES
from systolith.compiler.passes.words.pairs import PairedTypes
from systolith.isa.dtypes import DTYPES, F32

COMPLEX_NUMBERS = PairedTypes({DTYPES["c64"]: F32, DTYPES["c128"]: DTYPES["f64"]}, RULES, ("real", "imag"))


@dataclass(frozen=True)
class SplitComplexNumbers:
    """Replace complex numbers by pairs of floats, if every operation on them can be.

    Parameters and results of the module keep their types.
    """

    def run(self, module: Module) -> bool:
        return COMPLEX_NUMBERS.run(module)
