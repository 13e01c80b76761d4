"""Arrays whose sizes are known only when they are there: their values have the actual sizes.

`dynamic-reshape`, `get-dimension-size`, `set-dimension-size`, and XLA's calls between a bounded array and a full one
with its sizes (`PadToStatic`, `SliceToDynamic`).  Where a size grows, XLA shows contents of padding; here zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.shape import Shape


def fitted(x: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The array cut, or filled up with zeros, to sizes."""
    kept = x[tuple(slice(0, n) for n in sizes)]
    if kept.shape == tuple(sizes):
        return kept
    result = np.zeros(tuple(sizes), x.dtype)
    result[tuple(slice(0, n) for n in kept.shape)] = kept
    return result


def filled(x: np.ndarray, bounds: Sequence[int], block: Sequence[int]) -> np.ndarray:
    """The array filled up to its bounds in each dimension of which a block takes a part: places count up to those."""
    taken = zip(x.shape, bounds, block, strict=True)
    return fitted(x, [n if size >= bound or bound < 0 else bound for n, bound, size in taken])


def bounded(size: int, bound: int) -> int:
    """A size within 0 and its bound (negative: there is none)."""
    return max(size, 0) if bound < 0 else min(max(size, 0), bound)


def get_dimension_size(i: Instruction, x: np.ndarray) -> np.ndarray:
    """The actual size of a dimension, as s32."""
    return np.asarray(x.shape[i.ints("dimensions")[0]], i.shape.dtype.stored)


def set_dimension_size(i: Instruction, x: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The array with another actual size in one dimension."""
    (dim,) = i.ints("dimensions")
    sizes = list(x.shape)
    sizes[dim] = bounded(int(size), i.dims[dim])
    return fitted(x, sizes)


def dynamic_reshape(i: Instruction, x: np.ndarray, *sizes: np.ndarray) -> np.ndarray:
    """`reshape` to sizes that are operands."""
    wanted = [bounded(int(n), bound) for n, bound in zip(sizes, i.dims, strict=True)]
    if prod(wanted) != x.size:
        raise HloError(f"{x.size} elements do not have sizes {wanted}")
    return x.reshape(wanted)


def reshaped_sizes(source: Shape, target: Shape, actual: Sequence[int]) -> list[int]:
    """Sizes of a `reshape` to a shape with dynamic dimensions.

    Runs of dimensions of equal product are matched, as XLA does; in each at most one size of the result is open.

    Raises:
        HloError: the actual sizes do not determine those of the result.
    """
    sizes: list[int] = []
    for sources, targets in runs_of_dimensions(source.dims, target.dims):
        count = prod(actual[d] for d in sources)
        flags = target.dynamic or (False,) * target.rank
        open_dims = [d for d in targets if flags[d]]
        if len(targets) == len(sources) == 1:
            sizes.append(count)
            continue
        fixed = prod(target.dims[d] for d in targets if d not in open_dims)
        if len(open_dims) > 1 or (fixed and count % fixed) or (not open_dims and count != fixed):
            raise HloError(f"sizes {list(actual)} of {source} do not tell those of {target}")
        sizes.extend(count // fixed if d in open_dims and fixed else target.dims[d] for d in targets)
    return sizes


def runs_of_dimensions(source: Sequence[int], target: Sequence[int]) -> list[tuple[range, range]]:
    """The shortest runs of dimensions of either with equal products."""
    runs: list[tuple[range, range]] = []
    a = b = 0
    while a < len(source) or b < len(target):
        start = (a, b)
        left, right = 1, 1
        while True:
            if a < len(source) and (left <= right or b == len(target)):
                left *= source[a]
                a += 1
            elif b < len(target):
                right *= target[b]
                b += 1
            if left == right and (a, b) != start:
                break
            if a == len(source) and b == len(target):
                break
        runs.append((range(start[0], a), range(start[1], b)))
    return runs


def pad_to_static(i: Instruction, operands: Sequence[Literal]) -> Literal:
    """The array filled up to its bounds, and its actual sizes."""
    x = np.asarray(operands[0])
    return (fitted(x, i.shape.elements[0].dims), *(np.asarray(n, np.int32) for n in x.shape))


def slice_to_dynamic(i: Instruction, operands: Sequence[Literal]) -> Literal:
    """The array cut to sizes that are operands."""
    x, *sizes = (np.asarray(value) for value in operands)
    return fitted(x, [bounded(int(n), bound) for n, bound in zip(sizes, i.dims, strict=True)])


DYNAMIC: dict[str, Callable[..., np.ndarray]] = {
    "get-dimension-size": get_dimension_size,
    "set-dimension-size": set_dimension_size,
    "dynamic-reshape": dynamic_reshape,
}
"""Opcode to a function of the instruction and its operands' values."""
