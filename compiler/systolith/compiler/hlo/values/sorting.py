"""`sort` with any comparator, and `topk`.

The sort is stable: a merge sort, bottom up, in which every element finds its place in the neighbouring run by binary
search, all elements at once.  The comparator runs O(log^2 n) times, on whole arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Literal
from systolith.compiler.hlo.values.elementwise import total_order
from systolith.compiler.hlo.values.orders import Calls


def sort(i: Instruction, operands: Sequence[np.ndarray], calls: Calls) -> Literal:
    """`sort` along one dimension, all operands by the same order."""
    (dim,) = i.ints("dimensions")
    rows = prod(n for d, n in enumerate(operands[0].shape) if d != dim)
    lines = [np.moveaxis(x, dim, -1).reshape(rows, x.shape[dim]) for x in operands]
    order = sorted_order(i.computation(), lines, calls)
    shape = np.moveaxis(operands[0], dim, -1).shape
    results = [np.moveaxis(np.take_along_axis(x, order, axis=1).reshape(shape), -1, dim) for x in lines]
    return tuple(results) if i.shape.is_tuple else results[0]


def sorted_order(comparator: Computation, lines: Sequence[np.ndarray], calls: Calls) -> np.ndarray:
    """For each row, the indices that put it in order.

    Args:
        comparator: takes a pair of scalars per array (left, right, left, right, ...); true if left comes first.  Where
            it is no order (not transitive, say), each row's order is some permutation.
        lines: arrays of rows x n.

    Returns:
        Indices of rows x n.
    """
    rows, n = lines[0].shape
    order = np.broadcast_to(np.arange(n), (rows, n)).copy()
    run = 1
    while run < n and rows:
        order = _merge(comparator, lines, order, run, calls)
        run *= 2
    return order


def _merge(
    comparator: Computation, lines: Sequence[np.ndarray], order: np.ndarray, run: int, calls: Calls
) -> np.ndarray:
    """Merge neighbouring sorted runs of `run` elements."""
    rows, n = order.shape
    position = np.arange(n)
    start = position // (2 * run) * (2 * run)
    middle = np.minimum(start + run, n)
    end = np.minimum(start + 2 * run, n)
    is_left = position < middle
    keys = [np.take_along_axis(x, order, axis=1) for x in lines]
    low = np.broadcast_to(np.where(is_left, middle, start), (rows, n)).copy()
    high = np.broadcast_to(np.where(is_left, end, middle), (rows, n)).copy()
    other_start = np.where(is_left, middle, start)
    while (active := low < high).any():
        probe = np.where(active, (low + high) // 2, 0)
        others = [np.take_along_axis(k, probe, axis=1) for k in keys]
        # Left elements stand before equal right ones: count others that come strictly first, or that do not come after.
        first = [np.where(is_left, o, k) for o, k in zip(others, keys, strict=True)]
        second = [np.where(is_left, k, o) for o, k in zip(others, keys, strict=True)]
        pairs = [x for pair in zip(first, second, strict=True) for x in pair]
        before = calls.map(comparator, pairs)[0].astype(np.bool_)
        advance = np.where(is_left, before, ~before)
        low = np.where(active & advance, probe + 1, low)
        high = np.where(active & ~advance, probe, high)
    target = position - np.where(is_left, 0, middle - start) + (low - other_start)
    merged = np.full_like(order, -1)
    np.put_along_axis(merged, target, order, axis=1)
    if (merged < 0).any():  # the comparator is no order: places meet, and any permutation will do
        return np.take_along_axis(order, np.argsort(target, axis=1, kind="stable"), axis=1)
    return merged


def top_k(i: Instruction, operands: Sequence[np.ndarray]) -> Literal:
    """`topk` along the last dimension: values and their indices, the first of equals first."""
    return largest(operands[0], i.integer("k"), i.flag("largest", True))


def largest(x: np.ndarray, k: int, descending: bool = True) -> Literal:
    """The k largest (or smallest) along the last dimension in order, and their indices as s32."""
    integer = x.dtype.kind in "biu" or x.dtype.name.startswith(("int", "uint"))
    keys = total_order(x) if not integer else x if x.dtype.itemsize == 8 else x.astype(np.int64)
    order = np.argsort(np.invert(keys) if descending else keys, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, axis=-1), order.astype(np.int32)
