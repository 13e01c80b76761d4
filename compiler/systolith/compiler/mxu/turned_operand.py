"""The streamed operand of a product whose sums do not run along its innermost dimension, copied so that they do.

A weight gradient sums over images and positions, and channels lie innermost.  Read as it lies, every element of a row
would be an access of its own; the cross-lane unit copies what is staged at up to a row of lanes a cycle.
"""

from __future__ import annotations

from collections.abc import Collection

from systolith.compiler.index.contraction import Contraction
from systolith.compiler.tile.arrays import dense
from systolith.compiler.tile.ir import Array
from systolith.isa.pattern import MAX_LOOPS


def minor_dims(c: Contraction, array: Array) -> tuple[int, ...]:
    """Dimensions of the left operand, which lies in `array`, to lay out innermost: those along which the sum runs;
    none, if it runs along the innermost one.
    """
    summed = {a for a in c.k if c.sizes[a] > 1}
    dims = [d for d, n in enumerate(array.dims) if n > 1]
    minor = tuple(d for d in dims if c.lhs.dims[d].depends & summed)
    if not minor or len(dims) > MAX_LOOPS:
        return ()
    return () if _innermost(array) in minor else minor


def run(array: Array) -> int:
    """Elements of an array with several that lie together along its innermost dimension."""
    return array.dims[_innermost(array)]


def _innermost(array: Array) -> int:
    return min((d for d, n in enumerate(array.dims) if n > 1), key=array.strides.__getitem__)


def turned(array: Array, minor: Collection[int]) -> Array:
    """An array of the same dims from the start of the same buffer, dense, with some dimensions innermost."""
    order = [*(d for d in range(len(array.dims)) if d not in minor), *sorted(minor)]
    steps = dense([array.dims[d] for d in order], array.dtype.size)
    strides = tuple(steps[order.index(d)] for d in range(len(order)))
    return Array(array.buf, array.dtype, array.dims, strides, array.origin)
