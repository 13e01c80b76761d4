"""Padding between the elements of the last dimension, beside each of them.

Elements of the last dimension lie in lanes, where a kernel stores those with others between them one at a time.  With
what follows each element as one more dimension, which is then joined to the row, the cross-lane unit interleaves whole
registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.rewrite import Rewriter, rewrite


@dataclass(frozen=True)
class InterleavePadding:
    """Pad each element of a row on its own, and join the elements; what is padded around the row comes after that."""

    def run(self, module: Module) -> bool:
        return rewrite(module, _interleaved, ("pad",))


def _interleaved(r: Rewriter, i: Instruction) -> Instruction | None:
    """A `pad` without padding between elements of the last dimension; None: it had none."""
    if i.opcode != "pad" or not i.shape.rank or i.shape.is_dynamic or not i.shape.size:
        return None
    x, value = i.operands
    *others, last = cast("tuple[PadDim, ...]", i.attributes["padding"])
    *rows, count = x.dims
    between = last.interior
    if not between or count < 2 or not x.shape.size:
        return None
    still = (PadDim(0, 0),) * x.shape.rank
    apart = r.emit("pad", r.reshaped(x, (*x.dims, 1)), value, padding=(*still, PadDim(0, between)))
    joined = r.reshaped(apart, (*rows, count * (1 + between)))
    return r.emit("pad", joined, value, padding=(*others, PadDim(last.low, last.high - between)))
