"""Rules of dimensions: which dimension of an operand is read at index x alone for index x of one of the result's.

A rule takes an instruction, the number of an operand and a dimension of the result, and gives the operand's dimension;
None: the operand is read whole, whatever the index.  Where other indices are needed it raises `NotBlockableError`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from systolith.compiler.hlo.attributes import PadDim, SliceDim, WindowDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import reshape_factors

DimRule = Callable[[Instruction, int, int], int | None]


class NotBlockableError(Exception):
    """Result index x of a dimension depends on operand indices other than x."""


def elementwise_dim(i: Instruction, k: int, d: int) -> int | None:
    """The result's own dimension; scalars are read whole."""
    return d if i.operands[k].shape.rank else None


def broadcast_dim(i: Instruction, k: int, d: int) -> int | None:
    """The operand's dimension that lies there; none, where the operand is repeated."""
    dims = i.ints("dimensions", ())
    return dims.index(d) if d in dims else None


def reshape_dim(i: Instruction, k: int, d: int) -> int | None:
    """The dimension of the same indices."""
    (operand,) = i.operands
    for xs, ys in reshape_factors(operand.dims, i.dims):
        if d in ys:
            same = [x for x in xs if operand.dims[x] == i.dims[d]]
            if prod(operand.dims[x] for x in xs) == i.dims[d] and same:
                return same[0]
    raise NotBlockableError("the reshape splits or merges the dimension")


def reduce_dim(i: Instruction, k: int, d: int) -> int | None:
    """The kept dimension; an initial value is read whole."""
    if 2 * k >= len(i.operands):
        return None  # an initial value
    reduced = i.ints("dimensions", ())
    return [e for e in range(i.operands[k].shape.rank) if e not in reduced][d]


def dot_dim(i: Instruction, k: int, d: int) -> int | None:
    """A batch dimension of both operands, or a free one of one."""
    side = ("lhs", "rhs")[k]
    batch, contracting = i.ints(f"{side}_batch_dims", ()), i.ints(f"{side}_contracting_dims", ())
    if d < len(batch):
        return batch[d]
    free = [[e for e in range(o.shape.rank) if e not in taken] for o, taken in zip(i.operands, _taken(i), strict=True)]
    assert set(batch) | set(contracting) == set(_taken(i)[k])
    place = d - len(batch)
    if k == 0:
        return free[0][place] if place < len(free[0]) else None
    return free[1][place - len(free[0])] if place >= len(free[0]) else None


def summed_dims(i: Instruction, d: int) -> list[tuple[Instruction, int]]:
    """The operands that an operation sums along dimension `d` of its first one, index by index, and the dimension of
    each; none: it does not.

    So `reduce`, `dot`, and `convolution` over its features, or over a spatial dimension that its window fills.
    """
    if i.opcode == "reduce":
        return [(i.operands[0], d)] if d in i.ints("dimensions") else []
    right = _SUMMED[i.opcode](i, d) if i.opcode in _SUMMED else None
    return [] if right is None else [(i.operands[0], d), (i.operands[1], right)]


def _summed_by_dot(i: Instruction, d: int) -> int | None:
    left = i.ints("lhs_contracting_dims", ())
    return i.ints("rhs_contracting_dims")[left.index(d)] if d in left else None


def _summed_by_convolution(i: Instruction, d: int) -> int | None:
    dims = i.conv_dims
    if i.integer("feature_group_count", 1) != 1 or i.integer("batch_group_count", 1) != 1:
        return None
    if d in dims.input_spatial:
        n = dims.input_spatial.index(d)
        return dims.kernel_spatial[n] if i.window.dims[n] == WindowDim(i.operands[0].dims[d]) else None
    return dims.kernel_input if d == dims.input_feature else None


_SUMMED = {"dot": _summed_by_dot, "convolution": _summed_by_convolution}
"""For each product, the dimension of its second operand that is summed with one of the first; None: there is none."""


def _taken(i: Instruction) -> list[tuple[int, ...]]:
    return [i.ints(f"{s}_batch_dims", ()) + i.ints(f"{s}_contracting_dims", ()) for s in ("lhs", "rhs")]


def convolution_dim(i: Instruction, k: int, d: int) -> int | None:
    """The batch, or a spatial dimension along which the window is of one element."""
    dims = i.conv_dims
    if d == dims.output_batch and i.integer("batch_group_count", 1) == 1:
        return dims.input_batch if k == 0 else None
    if d in dims.output_spatial:
        n = dims.output_spatial.index(d)
        if i.window.dims[n] == WindowDim(1, reversal=i.window.dims[n].reversal):
            return dims.input_spatial[n] if k == 0 else None
    raise NotBlockableError("the convolution needs other indices of the dimension")


def reduce_window_dim(i: Instruction, k: int, d: int) -> int | None:
    """A dimension along which the window is of one element; an initial value is read whole."""
    if 2 * k >= len(i.operands):
        return None  # an initial value
    if i.window.dims[d] != WindowDim(1):
        raise NotBlockableError("the window is along the dimension")
    return d


def slice_dim(i: Instruction, k: int, d: int) -> int | None:
    """A dimension that is not cut."""
    if i.slices[d] != SliceDim(0, i.operands[0].dims[d]):
        raise NotBlockableError("the slice cuts the dimension")
    return d


def pad_dim(i: Instruction, k: int, d: int) -> int | None:
    """A dimension that is not padded."""
    padding: tuple[PadDim, ...] = i.attributes["padding"]  # type: ignore[assignment]
    if padding[d] != PadDim(0, 0):
        raise NotBlockableError("the dimension is padded")
    return d if k == 0 else None


def untouched_dim(i: Instruction, k: int, d: int) -> int | None:
    """A dimension that is not among `dimensions`."""
    if d in i.ints("dimensions"):
        raise NotBlockableError(f"{i.opcode} works along the dimension")
    return d


def iota_dim(i: Instruction, k: int, d: int) -> int | None:
    """No operand: any dimension but that along which it counts."""
    if d == i.integer("iota_dimension"):
        raise NotBlockableError("the iota counts along the dimension")
    return None
