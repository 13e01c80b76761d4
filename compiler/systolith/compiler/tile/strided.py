"""Arrays of which every second index of a dimension is read, say: a view of those alone.

A box of the whole dimension would bring from HBM what nothing reads, as a convolution of one tap with a stride does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from systolith.compiler.index.affine import Box, Expr, IndexMap
from systolith.compiler.tile.ir import Array


def compact(array: Array, index: IndexMap, sizes: Sequence[int], least: int) -> tuple[Array, IndexMap]:
    """The elements of an array that are read, and where they are in it; both unchanged where all are read.

    Args:
        array: what is read.
        index: from axes to its indices.
        sizes: of the axes.
        least: bytes between neighbours from which a dimension is worth it: nearer ones share granules of HBM.
    """
    if not index.total:
        return array, index
    whole, dims = Box.whole(sizes), list(index.dims)
    counts, strides, origin, offset = list(array.dims), list(array.strides), list(array.origin), array.offset
    for d, expr in enumerate(index.dims):
        step = gcd(*(c for axis, c in expr.terms if sizes[axis] > 1))
        if step < 2 or abs(strides[d]) < least:
            continue
        lo, hi = expr.interval(whole)
        coefs = tuple(c // step if n > 1 else 0 for c, n in zip(expr.coefs, sizes, strict=True))
        dims[d] = Expr(coefs, (expr.const - lo) // step)
        offset += (lo - origin[d]) * strides[d]
        counts[d], strides[d], origin[d] = (hi - lo) // step + 1, strides[d] * step, 0
    if dims == list(index.dims):
        return array, index
    read = replace(array, dims=tuple(counts), strides=tuple(strides), origin=tuple(origin), offset=offset)
    return read, replace(index, dims=tuple(dims))
