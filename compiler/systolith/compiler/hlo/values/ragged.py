"""`ragged-dot` and `scaled-dot`, in terms of `dot`.

A ragged dot has one left dimension that is cut into groups by `group_sizes`; sizes may differ by the dimensions before
it (of its own kind, and the batch).  Which dimension it is makes three operations:

    free         each row of the left meets the right matrix of its group; rows of no group give 0
    contracting  a result for each group, the sum over its part
    batch        the plain dot; sizes change nothing
"""

from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.values.contraction import contract

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def ragged_dot(
    i: Instruction, precision: str | None, lhs: np.ndarray, rhs: np.ndarray, group_sizes: np.ndarray
) -> np.ndarray:
    """`ragged-dot`: the result's dimensions are those of `dot`, after the group in the contracting mode."""
    ragged = i.ints("lhs_ragged_dims")
    if len(ragged) != 1:
        raise HloError(f"ragged-dot has one ragged dimension, got {len(ragged)}")
    (dim,) = ragged
    lb, lc = i.ints("lhs_batch_dims", ()), i.ints("lhs_contracting_dims", ())
    rb, rc = i.ints("rhs_batch_dims", ()), i.ints("rhs_contracting_dims", ())
    group = i.ints("rhs_group_dims", ())
    letters = iter(_LETTERS)
    left = [next(letters) for _ in range(lhs.ndim)]
    right = [""] * rhs.ndim
    for a, b in (*zip(lb, rb, strict=True), *zip(lc, rc, strict=True)):
        right[b] = left[a]
    g = next(letters)
    for d in group:
        right[d] = g
    right = [letter or next(letters) for letter in right]
    free_left = [left[d] for d in range(lhs.ndim) if d not in (*lb, *lc)]
    free_right = [letter for d, letter in enumerate(right) if d not in (*rb, *rc, *group)]
    batch = [left[d] for d in lb]
    spec = f"{''.join(right)}->{''.join([*batch, *free_left, *free_right])}"
    if dim in lb:
        return contract(i, lhs, rhs, precision, lambda a, b: np.einsum(f"{''.join(left)},{spec}", a, b))
    own = lc if dim in lc else tuple(d for d in range(lhs.ndim) if d not in (*lb, *lc))
    before = (*lb, *(d for d in own if own.index(d) < own.index(dim)))
    member = _membership(group_sizes, before, dim, lhs)
    grouped = np.where(member, lhs[np.newaxis], lhs.dtype.type(0))
    result = g + spec.split("->")[1] if dim in lc else spec.split("->")[1]
    full = f"{g}{''.join(left)},{''.join(right)}->{result}"
    return contract(i, grouped, rhs, precision, lambda a, b: np.einsum(full, a, b, optimize=True))


def _membership(group_sizes: np.ndarray, before: tuple[int, ...], dim: int, lhs: np.ndarray) -> np.ndarray:
    """Of groups x the left array's sizes (1 where all are alike): whether the element is of the group."""
    if group_sizes.ndim == 1:
        before = ()
    ends = np.cumsum(group_sizes.astype(np.int64), axis=-1)
    starts = ends - group_sizes.astype(np.int64)
    place = np.arange(lhs.shape[dim])
    inside = (place >= starts[..., np.newaxis]) & (place < ends[..., np.newaxis])  # before..., group, place
    if inside.ndim != len(before) + 2:
        raise HloError(f"group sizes have {len(before) + 1} dimensions, or 1, got {group_sizes.ndim}")
    order = sorted(range(len(before)), key=lambda n: before[n])
    moved = inside.transpose(len(before), *order, len(before) + 1)
    sizes = [1] * lhs.ndim
    for d in (*before, dim):
        sizes[d] = lhs.shape[d]
    if any(d > dim for d in before):
        moved = np.moveaxis(moved, -1, 1 + sum(d < dim for d in before))
    return moved.reshape(inside.shape[-2], *sizes)


def scaled_dot(i: Instruction, *operands: np.ndarray) -> np.ndarray:
    """`scaled-dot`: both sides multiplied by their scales, each of which holds for a block of elements, then `dot`."""
    lhs, rhs, *scales = operands
    if len(scales) != 2:
        raise HloError(f"scaled-dot takes two arrays and their scales, got {len(operands)} operands")
    sides = []
    for side, x, scale in zip(("lhs", "rhs"), (lhs, rhs), scales, strict=True):
        wide = x.astype(np.float64)
        scaled = wide if scale.ndim == 0 and x.ndim else wide * _spread_blocks(scale.astype(np.float64), x.shape)
        batch, contracted = i.ints(f"{side}_batch_dims", ()), i.ints(f"{side}_contracting_dims", ())
        free = tuple(d for d in range(x.ndim) if d not in (*batch, *contracted))
        sides.append((scaled, batch, contracted, free))
    letters = iter(_LETTERS)
    left = {d: next(letters) for d in range(lhs.ndim)}
    right = {b: left[a] for n in (1, 2) for a, b in zip(sides[0][n], sides[1][n], strict=True)}
    right |= {d: next(letters) for d in sides[1][3]}
    result = [left[d] for d in (*sides[0][1], *sides[0][3])] + [right[d] for d in sides[1][3]]
    spec = f"{''.join(left.values())},{''.join(right[d] for d in range(rhs.ndim))}->{''.join(result)}"
    return contract(i, sides[0][0], sides[1][0], "highest", lambda a, b: np.einsum(spec, a, b, optimize=True))


def _spread_blocks(scale: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """The scale of each element: in each dimension one scale stands for size / scales elements."""
    for d, (have, want) in enumerate(zip(scale.shape, sizes, strict=True)):
        if have == 0 or want % have:
            raise HloError(f"a dimension of {want} elements cannot have {have} scales")
        scale = np.repeat(scale, want // have, axis=d) if want != have else scale
    return scale
