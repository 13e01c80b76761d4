"""Windows that are reduced by functions of f64 or of complex numbers, in a loop over the elements of a window.

Such a function (the logarithm of a sum of exponentials, say) is a thousand operations on words.  Written out for each
element of a window it would be as long as the window, so it is written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from systolith.compiler.hlo.attributes import PadDim, SliceDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.ops.table import info
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.on_arrays import applied, is_simple
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DTYPES, S32, Kind

FEW = 2
"""Elements of a window for which the computation is written out."""


@dataclass(frozen=True)
class ExpandWindowsOfFunctions:
    """Loop over the elements of windows whose computation has functions of f64 or of complex numbers."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _looped(callees, r, i) if _is_long(i) else None)
        callees.place()
        return changed


def _is_long(i: Instruction) -> bool:
    if i.opcode != "reduce-window" or not i.shape.is_array or not i.shape.size:
        return False
    if i.shape.is_dynamic or i.operands[0].shape.is_dynamic or prod(w.size for w in i.window.dims) <= FEW:
        return False
    wide = i.shape.dtype is DTYPES["f64"] or i.shape.dtype.kind is Kind.COMPLEX
    called = i.computation()
    return wide and is_simple(called) and any(info(j).expensive for j in called.instructions)


def _looped(callees: Callees, r: Rewriter, i: Instruction) -> Instruction:
    """From the initial value on, one element of each window an iteration, in row-major order."""
    x, init = i.operands
    window = i.window.dims
    padding = tuple(PadDim(w.low, w.high, w.base_dilation - 1) for w in window)
    spans = tuple((n - 1) * w.stride + 1 for n, w in zip(i.dims, window, strict=True))

    def step(inside: Rewriter, count: Instruction, state: State) -> list[Instruction]:
        total, padded = state
        starts, left = [], count
        for w in reversed(window):
            place = inside.emit("remainder", left, inside.constant(w.size, S32))
            starts.append(inside.emit("multiply", place, inside.constant(w.window_dilation, S32)))
            left = inside.emit("divide", left, inside.constant(w.size, S32))
        seen = inside.emit("dynamic-slice", padded, *reversed(starts), dynamic_slice_sizes=spans)
        if any(w.stride > 1 for w in window):
            seen = inside.emit(
                "slice", seen, slice=tuple(SliceDim(0, n, w.stride) for n, w in zip(spans, window, strict=True))
            )
        return [applied(inside, i.computation(), total, seen), padded]

    first = [r.spread(init, i.shape), r.emit("pad", x, init, padding=padding)]
    return counted_loop(r, callees, prod(w.size for w in window), first, step, Rewriter, "window")[0]
