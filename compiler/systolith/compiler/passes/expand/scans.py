"""Cumulative sums and the like, as `reduce-window` says them; long ones of few lines in blocks.

A scan combines one element after another.  Where there are few lines beside each other to do so at once, blocks of a
line are scanned like lines, then what the blocks come to, and each block is combined with what comes before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np

from systolith.compiler.hlo.attributes import PadDim, SliceDim, Window, WindowDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.hlo.values.reduction import IDEMPOTENT, plain_operation
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import F32

NEUTRAL = {"add": 0, "multiply": 1, "xor": 0}
"""Neutral elements of operations that are not idempotent: only these may be combined any number of times."""


def scanned(i: Instruction) -> tuple[int, bool] | None:
    """The dimension along which an instruction accumulates, and whether from its end.

    None: it is no `reduce-window` over all that comes before an element, or its initial value counts each time.
    """
    if i.opcode != "reduce-window" or len(i.operands) != 2 or not i.shape.is_array:
        return None
    dims, window = i.operands[0].dims, i.window.dims
    used = [d for d, w in enumerate(window) if (w.size, w.low, w.high) != (1, 0, 0)]
    plain = all((w.stride, w.window_dilation, w.base_dilation) == (1, 1, 1) for w in window)
    if not plain or len(used) != 1 or not i.operands[0].shape.size or not repeatable(i):
        return None
    w, n = window[used[0]], dims[used[0]]
    whole = w.size >= n and (w.low, w.high) in ((w.size - 1, 0), (0, w.size - 1))
    return (used[0], w.high > 0) if whole else None


def repeatable(i: Instruction) -> bool:
    """Whether shapes are static and the initial value is known, and may be combined any number of times."""
    opcode, init = plain_operation(i.computation()), i.operands[1]
    if init.opcode != "constant" or i.shape.is_dynamic or i.operands[0].shape.is_dynamic:
        return False
    return opcode in IDEMPOTENT or (opcode in NEUTRAL and bool(np.asarray(init.literal) == NEUTRAL[opcode]))


@dataclass(frozen=True)
class SplitScans:
    """Scan long lines in blocks where there are few of them.

    A line takes a step for each element, and lines beside each other are as fast as one until they fill a vector.  In
    blocks it takes a step for each element of a block, and one for each block.

    Attributes:
        block: elements of a block, at least about so many.
        long: lines of fewer elements stay; more than a block.
        few: so many lines, or more, stay.
        each: lines stay that have fewer than so many elements for each of them.
    """

    block: int = 128
    long: int = 256
    few: int = 64
    each: int = 64

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = False
        while rewrite(module, lambda r, i: self._split(callees, r, i)):
            changed = True
        callees.place()
        return changed

    def _split(self, callees: Callees, r: Rewriter, i: Instruction) -> Instruction | None:
        found = scanned(i)
        if found is None:
            return None
        dim, backwards = found
        n = i.dims[dim]
        lines = i.shape.size // n
        if n < self.long or lines >= self.few or lines * self.each > n:
            return None
        opcode = plain_operation(i.computation())
        assert opcode is not None
        line = _Lines(callees, r, opcode, dim, backwards)
        # Narrow floats are rounded once, at the end.
        wide = i.shape.dtype.is_float and i.shape.dtype.bits < 32
        x, init = i.operands
        block = self._block(n)
        if not wide:
            return line.in_blocks(x, init, block, i.shape)
        x, init = r.emit("convert", x, shape=array(F32, x.dims)), r.constant(init.literal, F32)
        return r.emit("convert", line.in_blocks(x, init, block, x.shape), shape=i.shape)

    def _block(self, n: int) -> int:
        """Elements of a block of a line of n: about as many as there are blocks; a divisor, since padding is copied."""
        near = max(self.block, 1 << round(log2(n) / 2))
        whole = [b for b in range(near // 2 + 1, min(2 * near, n)) if n % b == 0]
        return min(whole, key=lambda b: max(b / near, near / b), default=near)


@dataclass(frozen=True)
class _Lines:
    """Makes scans by one operation along one dimension."""

    callees: Callees
    r: Rewriter
    opcode: str
    dim: int
    backwards: bool

    def in_blocks(self, x: Instruction, init: Instruction, block: int, shape: Shape) -> Instruction:
        """The scan of an array, of the same shape, by blocks of so many elements."""
        r, d, n = self.r, self.dim, x.dims[self.dim]
        count = -(-n // block)
        x = self._padded(x, init, 0, count * block - n)
        before, after = x.dims[:d], x.dims[d + 1 :]
        blocks = r.emit("reshape", x, shape=array(x.shape.dtype, (*before, count, block, *after)))
        inner = self._along(blocks, init, d + 1)
        end = 0 if self.backwards else block - 1
        cut = tuple(SliceDim(end, end + 1) if k == d + 1 else SliceDim(0, m) for k, m in enumerate(inner.dims))
        ends = r.emit("slice", inner, slice=cut)
        totals = self._along(r.reshaped(ends, (*before, count, *after)), init, d)
        others = self._padded(totals, init, *((-1, 1) if self.backwards else (1, -1)))
        places = tuple(k for k in range(len(inner.dims)) if k != d + 1)
        spread = r.emit("broadcast", others, shape=inner.shape, dimensions=places)
        value = r.emit("reshape", r.emit(self.opcode, spread, inner), shape=x.shape)
        return r.emit(
            "slice", value, shape=shape, slice=tuple(SliceDim(0, n if k == d else m) for k, m in enumerate(x.dims))
        )

    def _along(self, x: Instruction, init: Instruction, dim: int) -> Instruction:
        return cumulative(self.r, self.callees, self.opcode, x, init, dim, self.backwards)

    def _padded(self, x: Instruction, init: Instruction, low: int, high: int) -> Instruction:
        if low == high == 0:
            return x
        padding = tuple(PadDim(low, high) if k == self.dim else PadDim(0, 0) for k in range(len(x.dims)))
        return self.r.emit("pad", x, init, padding=padding)


def cumulative(
    r: Rewriter, callees: Callees, opcode: str, x: Instruction, init: Instruction, dim: int, backwards: bool = False
) -> Instruction:
    """Of each element, what it and all before it along a dimension combine to by one operation; or all after it."""
    n = x.dims[dim]
    low, high = (0, n - 1) if backwards else (n - 1, 0)
    window = tuple(WindowDim(n, low=low, high=high) if k == dim else WindowDim(1) for k in range(len(x.dims)))
    reducer = callees.reducer(opcode, x.shape.dtype)
    return r.emit("reduce-window", x, init, shape=x.shape, window=Window(window), to_apply=reducer)
