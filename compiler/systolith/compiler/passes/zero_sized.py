"""Arrays without elements are constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.rewrite import Rewriter, rewrite


@dataclass(frozen=True)
class EliminateZeroSized:
    """Replace what gives an array without elements by a constant."""

    def run(self, module: Module) -> bool:
        effects = Effects()

        def empty(r: Rewriter, i: Instruction) -> Instruction | None:
            known = i.shape.is_array and not i.shape.is_dynamic and i.shape.size == 0
            if not known or i.opcode in ("parameter", "constant") or effects.of(i):
                return None
            made = r.constant(np.empty(i.dims), i.shape.dtype)
            made.shape = i.shape
            return made

        return rewrite(module, empty)
