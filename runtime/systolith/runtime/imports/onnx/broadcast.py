"""Values of the builder broadcast as ONNX, which does as numpy, broadcasts them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from systolith.compiler.xla_builder import XlaBuilder, XlaOp
from systolith.isa.dtypes import DType


def dims(x: XlaOp) -> tuple[int, ...]:
    """The dimensions of a value."""
    return tuple(x.shape.dims)


def element(x: XlaOp) -> DType:
    """The element type of a value."""
    return x.shape.dtype


def full(b: XlaBuilder, like: XlaOp, value: float) -> XlaOp:
    """An array of one number, as another is."""
    return b.broadcast(b.scalar_like(like, value), dims(like))


def spread(b: XlaBuilder, x: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """Broadcast as numpy does."""
    have, first = dims(x), len(sizes) - len(dims(x))
    if have == tuple(sizes):
        return x
    kept = [d for d, n in enumerate(have) if n != 1 or sizes[d + first] == 1]
    squeezed = b.reshape(x, [have[d] for d in kept])
    return b.broadcast_in_dim(squeezed, sizes, [d + first for d in kept])


def together(b: XlaBuilder, *given: XlaOp) -> list[XlaOp]:
    """Values broadcast to the shape that they have together."""
    sizes = np.broadcast_shapes(*map(dims, given))
    return [spread(b, x, sizes) for x in given]
