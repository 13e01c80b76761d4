"""Windows over the last dimension, as pools of images in NCHW have them, over another one.

Elements of the last dimension lie in lanes.  A window that moves over them by more than one reads every so many lanes,
a few elements an access; over any other dimension it reads whole registers.  To transpose what the window reads and
what it gives costs less than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from systolith.compiler.hlo.attributes import SliceDim, Window, WindowDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.values.reduction import IDEMPOTENT, plain_operation
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.scans import repeatable
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import F32

STILL = WindowDim(1)
"""A dimension over which no window moves."""

LEAST = 1 << 15
"""Elements of an operand from which on a window is turned: for fewer, the latencies of two transposes are more than the
accesses that they save (pools of 2x2 and 3x3 on `tpu_v3`)."""

BESIDE = 64
"""Elements in the dimensions over which no window moves, side by side in lanes, for which these become the last one."""


@dataclass(frozen=True)
class TurnStridedWindows:
    """Reduce windows with a stride over the last dimension over the others first, then, transposed, over it.

    Attributes:
        least: elements of an operand that is not too small for it.
    """

    least: int = LEAST

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _turned(callees, r, i) if _is_strided(i, self.least) else None)
        callees.place()
        return changed


def _is_strided(i: Instruction, least: int) -> bool:
    """Whether a window of one operation, which may be reduced dimension by dimension, moves so."""
    if i.opcode != "reduce-window" or not i.shape.is_array or i.shape.rank < 2 or i.operands[0].shape.size < least:
        return False
    last, dtype = i.window.dims[-1], i.shape.dtype
    return last.size > 1 and last.stride > 1 and dtype.bits <= F32.bits and repeatable(i)


def _turned(callees: Callees, r: Rewriter, i: Instruction) -> Instruction:
    x, init = i.operands
    operation, dtype = plain_operation(i.computation()) or "", i.shape.dtype
    # Narrow floats are rounded once, at the end.
    wide = F32 if dtype.is_float and operation not in IDEMPOTENT else dtype
    start = r.constant(np.asarray(init.literal).astype(wide.stored), wide)
    *others, last = i.window.dims

    def reduced(x: Instruction, dims: Sequence[WindowDim]) -> Instruction:
        window = Window(tuple(dims))
        return r.emit("reduce-window", x, start, window=window, to_apply=callees.reducer(operation, wide))

    x = r.converted(x, wide)
    if any(w != STILL for w in others):
        x = reduced(x, [*others, STILL])
    lines = r.reshaped(x, (prod(x.dims[:-1]), x.dims[-1]))
    made = reduced(r.transposed(lines, (1, 0)), [last, STILL])
    return r.converted(r.reshaped(r.transposed(made, (1, 0)), i.dims), dtype)


@dataclass(frozen=True)
class Turned:
    """A `select-and-scatter` whose windows do not move over the last dimension: the others lie there, side by side.

    Attributes:
        r: makes instructions.
        i: the operation.
        moved: dimensions over which windows move, the last one among them.
        still: the others.
    """

    r: Rewriter
    i: Instruction
    moved: tuple[int, ...]
    still: tuple[int, ...]

    @classmethod
    def of(cls, r: Rewriter, i: Instruction, cut: Sequence[SliceDim], least: int) -> Turned | None:
        """None: it stays as it is.

        Args:
            r: makes instructions.
            i: the operation.
            cut: the part of its result that is needed.
            least: elements of an operand that is not too small for it.
        """
        x, window = i.operands[0], i.window.dims
        still = tuple(d for d, w in enumerate(window) if w == STILL and (cut[d].start, cut[d].limit) == (0, x.dims[d]))
        moved = tuple(d for d in range(x.shape.rank) if d not in still)
        few = prod(x.dims[d] for d in still) < BESIDE or x.shape.size < least
        return None if few or not moved or moved[-1] < x.shape.rank - 1 else cls(r, i, moved, still)

    def operation(self) -> Instruction:
        """The operation on operands so turned; it stands nowhere."""
        x, source, init = self.i.operands
        x, source = self._lines(x), self._lines(source)
        window = Window((*(self.i.window.dims[d] for d in self.moved), STILL))
        attributes = self.i.attributes | {"window": window}
        return Instruction(self.i.name, self.i.opcode, x.shape, [x, source, init], attributes)

    def cut(self, cut: Sequence[SliceDim]) -> list[SliceDim]:
        """The part of the result that is needed."""
        return [*(cut[d] for d in self.moved), SliceDim(0, prod(self.i.dims[d] for d in self.still))]

    def back(self, made: Instruction) -> Instruction:
        """Its result, or part of it, as that of the operation."""
        order = self.moved + self.still
        dims = (*made.dims[:-1], *(self.i.dims[d] for d in self.still))
        whole = self.r.emit("reshape", made, shape=array(made.shape.dtype, dims))
        return self.r.transposed(whole, tuple(order.index(d) for d in range(len(order))))

    def _lines(self, x: Instruction) -> Instruction:
        turned = self.r.transposed(x, self.moved + self.still)
        return self.r.reshaped(turned, (*turned.dims[: len(self.moved)], prod(turned.dims[len(self.moved) :])))
