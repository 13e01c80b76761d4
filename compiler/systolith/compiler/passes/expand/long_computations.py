"""Reductions, windows and scatters by functions of f64 or of complex numbers, in loops.

Such a function (the logarithm of a sum of exponentials, say) is a thousand operations on words: more than a kernel
holds, and written out for each element of a window as long as the window.  In a loop over the elements that are
combined one after the other, XLA's `scatter_expander`, it is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from systolith.compiler.hlo.attributes import PadDim, SliceDim, WindowDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.ops.table import info
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.on_arrays import applied, is_simple
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DTYPES, PRED, S32, Kind

FEW = 2
"""Elements of a window for which the computation is written out."""


@dataclass(frozen=True)
class LoopLongComputations:
    """Apply functions of f64 or of complex numbers to one element after the other; scatters are of the simple form."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _RULES[i.opcode](callees, r, i) if _is_long(i) else None)
        callees.place()
        return changed


def _is_long(i: Instruction) -> bool:
    if i.opcode not in _RULES or not i.shape.is_array or not i.shape.size or not i.operands[0].shape.size:
        return False
    if any(s.is_dynamic for s in (i.shape, *(o.shape for o in i.operands))):
        return False
    wide = i.shape.dtype is DTYPES["f64"] or i.shape.dtype.kind is Kind.COMPLEX
    called = i.computation()
    return wide and is_simple(called) and any(info(j).expensive for j in called.instructions)


def is_looped(i: Instruction) -> bool:
    """Whether a `reduce-window` becomes a loop, in which what a window sees beyond its operand adds nothing."""
    return i.opcode == "reduce-window" and _is_long(i) and prod(w.size for w in i.window.dims) > FEW


def _window(callees: Callees, r: Rewriter, i: Instruction) -> Instruction | None:
    return _looped(callees, r, i, i.window.dims, i.dims)


def _reduce(callees: Callees, r: Rewriter, i: Instruction) -> Instruction | None:
    """As a window over all that is reduced."""
    dims, sizes = i.ints("dimensions"), i.operands[0].dims
    window = [WindowDim(n if d in dims else 1) for d, n in enumerate(sizes)]
    made = _looped(callees, r, i, window, tuple(1 if d in dims else n for d, n in enumerate(sizes)))
    return made and r.reshaped(made, i.dims)


def _looped(
    callees: Callees, r: Rewriter, i: Instruction, window: Sequence[WindowDim], dims: tuple[int, ...]
) -> Instruction | None:
    """From the initial value on, one element of each window an iteration, in row-major order; None: they are few."""
    x, init = i.operands
    length = prod(w.size for w in window)
    if length <= FEW:
        return None
    padding = tuple(PadDim(w.low, w.high, w.base_dilation - 1) for w in window)
    spans = tuple((n - 1) * w.stride + 1 for n, w in zip(dims, window, strict=True))
    beyond = any(max(w.low, w.high) > 0 or w.base_dilation > 1 for w in window)
    parts = tuple(SliceDim(0, n, w.stride) for n, w in zip(spans, window, strict=True))

    def step(inside: Rewriter, count: Instruction, state: State) -> list[Instruction]:
        total, *padded = state
        starts, left = [], count
        for w in reversed(window):
            place = inside.emit("remainder", left, inside.constant(w.size, S32))
            starts.append(inside.emit("multiply", place, inside.constant(w.window_dilation, S32)))
            left = inside.emit("divide", left, inside.constant(w.size, S32))
        seen = [inside.emit("dynamic-slice", p, *reversed(starts), dynamic_slice_sizes=spans) for p in padded]
        seen = [inside.emit("slice", s, slice=parts) for s in seen] if spans != dims else seen
        new = applied(inside, i.computation(), total, seen[0])
        return [inside.emit("select", seen[1], new, total) if beyond else new, *padded]

    first = [r.spread(init, array(i.shape.dtype, dims)), r.emit("pad", x, init, padding=padding)]
    if beyond:
        there = r.full(True, array(PRED, x.dims))
        first.append(r.emit("pad", there, r.constant(False, PRED), padding=padding))
    return counted_loop(r, callees, length, first, step, Rewriter, "window")[0]


def _scatter(callees: Callees, r: Rewriter, i: Instruction) -> Instruction | None:
    """One update an iteration, in the order of the list, unless its window is not inside."""
    x, indices, updates = i.operands
    (before, length, after), count = x.dims, indices.dims[0]
    width = updates.dims[2] if updates.shape.rank == 4 else 1
    window = (before, width, after)

    def step(inside: Rewriter, number: Instruction, state: State) -> list[Instruction]:
        total, starts, given = state
        zero, last = inside.constant(0, S32), inside.constant(length - width, S32)
        start = inside.reshaped(inside.emit("dynamic-slice", starts, number, dynamic_slice_sizes=(1,)), ())
        at = inside.emit("clamp", zero, start, last)
        there = inside.emit("compare", at, start, shape=array(PRED), direction="EQ")
        sizes = tuple(1 if d == 1 else n for d, n in enumerate(given.dims))
        rest = [zero] * (len(sizes) - 2)
        update = inside.emit("dynamic-slice", given, zero, number, *rest, dynamic_slice_sizes=sizes)
        old = inside.emit("dynamic-slice", total, zero, at, zero, dynamic_slice_sizes=window)
        new = applied(inside, i.computation(), old, inside.reshaped(update, window))
        kept = inside.emit("select", inside.spread(there, array(PRED, window)), new, old)
        return [inside.emit("dynamic-update-slice", total, kept, zero, at, zero), starts, given]

    return counted_loop(r, callees, count, [x, indices, updates], step, Rewriter, "scatter")[0]


_RULES = {"reduce": _reduce, "reduce-window": _window, "scatter": _scatter}
