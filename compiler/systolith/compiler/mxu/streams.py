"""Address patterns for the operands of a contraction: groups of loops, padding as bounds, dilation as divisibility."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from systolith.compiler.errors import LimitError
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.tile.ir import Array, Ref
from systolith.compiler.tile.patterns import AxisCoord, address, merged, pattern
from systolith.isa.chip import Chip
from systolith.isa.dtypes import DType
from systolith.isa.pattern import MAX_COORDS, MAX_LOOPS, Pattern
from systolith.isa.timing import row_cycles


def operand_ref(index: IndexMap, array: Array, box: Box, groups: tuple[range, range]) -> tuple[Ref, int]:
    """The stream that visits what `index` reads of an operand over two groups of axes, rows and what is in a row, and
    how many of its loops are rows.

    `array` may be a part of the operand.  Axes in no group stand at their first value in the box.  Loops merge within
    their group where that leaves the order of the elements as it is; each group keeps at least one loop.
    """
    offset, strides, coords = address(array, index.within(box))
    made, rows = _pattern(array.dtype, box.dims, groups, strides, coords)
    return Ref(array.buf, made, offset, array.dynamic), rows


@lru_cache(maxsize=4096)
def _pattern(
    dtype: DType,
    dims: tuple[int, ...],
    groups: tuple[range, range],
    strides: tuple[int, ...],
    coords: Sequence[AxisCoord],
) -> tuple[Pattern, int]:
    """The pattern of groups of loops, and how many loops of it are the first group's; tiles of a product share few."""
    for group in groups:
        coords = _refined(group, dims, strides, coords)
    vectors = (strides, *(c.coefs for c in coords))
    rows, columns = (merged(group, dims, vectors) for group in groups)
    loops = rows + columns
    if len(loops) > MAX_LOOPS or len(coords) > MAX_COORDS:
        raise LimitError(
            f"an operand of a product takes {len(loops)} loops and {len(coords)} bounds; an address generator has"
            f" {MAX_LOOPS} and {MAX_COORDS}"
        )
    return pattern(dtype, loops, strides, coords), len(rows)


def _refined(
    group: range, dims: Sequence[int], strides: Sequence[int], coords: Sequence[AxisCoord]
) -> Sequence[AxisCoord]:
    """The same coordinates, such that neighbouring loops of a group merge where the strides allow it.

    A coordinate that only the outer one of two loops (with coefficient 1) moves becomes linear in both, scaled by the
    inner count: c in [lo, hi) is n * c + i in [n * lo, n * hi) for i in [0, n).
    """
    for outer, inner in pairwise([a for a in group if dims[a] > 1]):
        n = dims[inner]
        split = [c.coefs[outer] == 1 and c.coefs[inner] == 0 and c.div == 1 for c in coords]
        along = [s or c.coefs[outer] == n * c.coefs[inner] for s, c in zip(split, coords, strict=True)]
        if strides[outer] == n * strides[inner] and all(along):
            coords = [_scaled(c, n, inner) if s else c for s, c in zip(split, coords, strict=True)]
    return coords


def _scaled(c: AxisCoord, n: int, inner: int) -> AxisCoord:
    coefs = tuple(1 if a == inner else n * coef for a, coef in enumerate(c.coefs))
    return AxisCoord(coefs, n * c.offset, n * c.lo, n * c.hi)


def row_cost(ref: Ref, rows: int, chip: Chip) -> int:
    """Cycles of one row of a weight or stream port; `rows` is how many loops count rows."""
    return row_cycles(ref.pattern, rows, chip.mxu.segments, chip.mxu.segment_bytes)
