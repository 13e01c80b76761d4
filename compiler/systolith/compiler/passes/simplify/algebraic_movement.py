"""Algebraic rules of data movement: what moves nothing, and two movements that are one."""

from __future__ import annotations

from math import prod
from typing import cast

import numpy as np

from systolith.compiler.hlo.attributes import PadDim, SliceDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.values.reduction import plain_operation
from systolith.compiler.passes.on_arrays import applied, is_simple
from systolith.compiler.passes.rewrite import Rewriter, Rule
from systolith.compiler.passes.simplify.algebraic_arithmetic import splat
from systolith.isa.dtypes import S32

_OTHER_SIDE = {
    f"{side}_{what}_dims": f"{other}_{what}_dims"
    for side, other in (("lhs", "rhs"), ("rhs", "lhs"))
    for what in ("batch", "contracting")
}
"""The attribute of a dot that says of one operand what another says of the other."""


PARTS = 4
"""Elements that alternate, at most, for which an array is one of so many parts side by side."""


def reshape(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of nothing, of a reshape, of a broadcast scalar, and of a broadcast that it only adds or drops ones of."""
    (x,) = i.operands
    if x.dims == i.dims:
        return x
    if x.opcode == "reshape":
        return r.emit("reshape", x.operands[0], shape=i.shape)
    if x.opcode == "broadcast" and x.operands[0].shape.rank == 0:
        return r.emit("broadcast", x.operands[0], shape=i.shape, dimensions=())
    return _reshape_of_broadcast(r, i, x) if x.opcode == "broadcast" else None


def _reshape_of_broadcast(r: Rewriter, i: Instruction, x: Instruction) -> Instruction | None:
    """A reshape that only adds or drops dimensions of size 1 after a broadcast: a reshape of the operand, broadcast."""
    place = _unit_places(x.dims, i.dims)
    if place is None:
        return None
    (y,) = x.operands
    kept = [(place[d], n) for d, n in zip(x.ints("dimensions"), y.dims, strict=True) if place[d] is not None]
    dims = tuple(n for _, n in kept)
    if prod(dims) != prod(y.dims):
        return None
    inner = y if dims == y.dims else r.emit("reshape", y, shape=array(y.shape.dtype, dims))
    return r.emit("broadcast", inner, shape=i.shape, dimensions=tuple(d for d, _ in kept if d is not None))


def _unit_places(old: tuple[int, ...], new: tuple[int, ...]) -> list[int | None] | None:
    """For each old dimension its new number (None: a dropped one of size 1); None if more changes than ones."""
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    big = iter([d for d, n in enumerate(new) if n != 1])
    return [None if n == 1 else next(big) for n in old]


def transpose(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of nothing, of a transpose, of a broadcast scalar, one that moves dimensions of size 1 only, and of a dot."""
    (x,) = i.operands
    order = i.ints("dimensions")
    if order == tuple(range(len(order))):
        return x
    if x.opcode == "transpose":
        inner = x.ints("dimensions")
        return r.emit("transpose", x.operands[0], shape=i.shape, dimensions=tuple(inner[d] for d in order))
    if x.opcode == "broadcast" and x.operands[0].shape.rank == 0:
        return r.emit("broadcast", x.operands[0], shape=i.shape, dimensions=())
    if [d for d in order if x.dims[d] != 1] == [d for d, n in enumerate(x.dims) if n != 1]:
        return r.emit("reshape", x, shape=i.shape)
    return _transpose_of_dot(r, i, x) if x.opcode == "dot" and r.uses[x] == 1 else None


def _transpose_of_dot(r: Rewriter, i: Instruction, x: Instruction) -> Instruction | None:
    """Rows and columns of a product change places: the product of its operands the other way around.

    Where other dimensions move besides, they move afterwards, and the innermost one stays.
    """
    batch, rank = len(x.ints("lhs_batch_dims", ())), x.shape.rank
    rows = x.operands[0].shape.rank - len(x.ints("lhs_contracting_dims", ()))
    order, turned = i.ints("dimensions"), (*range(batch), *range(rows, rank), *range(batch, rows))
    if not batch < rows < rank or order[-1] != rows - 1 or "sparsity" in x.attributes:
        return None
    attributes = {_OTHER_SIDE.get(name, name): value for name, value in x.attributes.items() if name != "sharding"}
    if "operand_precision" in attributes:
        attributes["operand_precision"] = tuple(reversed(cast("tuple[str, ...]", attributes["operand_precision"])))
    shape = i.shape if order == turned else array(x.shape.dtype, [x.dims[d] for d in turned])
    product = r.emit("dot", *reversed(x.operands), shape=shape, name=x.name, **attributes)
    return r.transposed(product, [turned.index(d) for d in order])


def broadcast(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of nothing, of a broadcast, of a reshape that adds ones, and one that only adds ones."""
    (x,) = i.operands
    dims = i.ints("dimensions", ())
    if x.dims == i.dims and dims == tuple(range(len(dims))):
        return x
    if x.opcode == "broadcast":
        inner = tuple(dims[d] for d in x.ints("dimensions", ()))
        return r.emit("broadcast", x.operands[0], shape=i.shape, dimensions=inner)
    if x.opcode == "reshape":
        (y,) = x.operands
        place = _unit_places(y.dims, x.dims)
        if place is not None and 1 not in y.dims:
            inner = tuple(dims[p] for p in place if p is not None)
            return r.emit("broadcast", y, shape=i.shape, dimensions=inner)
    if prod(x.dims) == prod(i.dims) and list(dims) == sorted(dims):
        return r.emit("reshape", x, shape=i.shape)
    return None


def copy(r: Rewriter, i: Instruction) -> Instruction | None:
    """A copy is its operand, where their layouts agree."""
    return i.operands[0]


def slice_(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of everything, of a slice, of what lies in one operand of a concatenation, and of alternate elements."""
    (x,) = i.operands
    if x.dims == i.dims:
        return x
    if x.opcode == "slice":
        parts = zip(i.slices, x.slices, strict=True)
        merged = tuple(
            SliceDim(b.start + a.start * b.stride, b.start + (a.limit - 1) * b.stride + 1, a.stride * b.stride)
            if a.limit > a.start
            else SliceDim(b.start, b.start)
            for a, b in parts
        )
        return r.emit("slice", x.operands[0], shape=i.shape, slice=merged)
    if x.opcode == "broadcast" and x.operands[0].shape.rank == 0:
        return r.emit("broadcast", x.operands[0], shape=i.shape, dimensions=())
    if x.opcode == "concatenate":
        return _slice_of_concatenate(r, i, x)
    return _slice_of_alternate(r, i, x)


def _slice_of_alternate(r: Rewriter, i: Instruction, x: Instruction) -> Instruction | None:
    """Of every second element along the last dimension, say, where the others are read, too: of pairs of elements."""
    if not i.dims or r.uses[x] < 2 or x.shape.is_dynamic:
        return None
    *others, cut = i.slices
    n, step = x.dims[-1], cut.stride
    if any(c.stride > 1 for c in others) or not 1 < step <= PARTS:
        return None
    if n % step or cut.start >= step or i.dims[-1] * step != n:
        return None
    pairs = r.reshaped(x, (*x.dims[:-1], n // step, step))
    ends = [(c.start, c.limit) for c in others]
    return r.reshaped(r.sliced(pairs, [*ends, (0, n // step), (cut.start, cut.start + 1)]), i.dims)


def _slice_of_concatenate(r: Rewriter, i: Instruction, x: Instruction) -> Instruction | None:
    (d,) = x.ints("dimensions")
    cut, at = i.slices[d], 0
    for part in x.operands:
        if at <= cut.start and cut.limit <= at + part.dims[d] and cut.limit > cut.start:
            inside = SliceDim(cut.start - at, cut.limit - at, cut.stride)
            return r.emit("slice", part, shape=i.shape, slice=(*i.slices[:d], inside, *i.slices[d + 1 :]))
        at += part.dims[d]
    return None


def pad(r: Rewriter, i: Instruction) -> Instruction | None:
    """By nothing, and of nothing."""
    padding = cast("tuple[PadDim, ...]", i.attributes["padding"])
    (x, value) = i.operands
    if not x.shape.size:
        return r.spread(value, i.shape)
    nothing = all(
        (p.low, p.high) == (0, 0) and (not p.interior or n <= 1) for p, n in zip(padding, x.dims, strict=True)
    )
    return x if nothing else None


def reverse(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of dimensions of size 1, of a broadcast scalar, and twice the same."""
    (x,) = i.operands
    if all(i.dims[d] == 1 for d in i.ints("dimensions")) or (x.opcode == "broadcast" and not x.operands[0].shape.rank):
        return x
    twice = x.opcode == "reverse" and set(x.ints("dimensions")) == set(i.ints("dimensions"))
    return x.operands[0] if twice else None


def concatenate(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of one thing, of nothing more, of what was concatenated the same way, and of neighbouring slices of one thing."""
    (d,) = i.ints("dimensions")
    parts: list[Instruction] = []
    for o in i.operands:
        inner = o.operands if o.opcode == "concatenate" and o.ints("dimensions") == (d,) and r.uses[o] == 1 else [o]
        parts += [p for p in inner if p.dims[d]]
    parts = parts or i.operands[:1]
    merged = [parts[0]]
    for part in parts[1:]:
        joined = _joined(r, merged[-1], part, d)
        merged[-1:] = [merged[-1], part] if joined is None else [joined]
    if len(merged) == 1:
        return merged[0]
    return r.emit("concatenate", *merged, shape=i.shape, dimensions=(d,)) if merged != i.operands else None


def _joined(r: Rewriter, a: Instruction, b: Instruction, d: int) -> Instruction | None:
    """The slice that two slices of one thing make, the second after the first along a dimension."""
    if a.opcode != "slice" or b.opcode != "slice" or a.operands != b.operands:
        return None
    if any(s.stride != 1 for s in (*a.slices, *b.slices)) or a.slices[d].limit != b.slices[d].start:
        return None
    if any(a.slices[k] != b.slices[k] for k in range(len(a.slices)) if k != d):
        return None
    whole = SliceDim(a.slices[d].start, b.slices[d].limit)
    shape = array(a.shape.dtype, (*a.dims[:d], a.dims[d] + b.dims[d], *a.dims[d + 1 :]))
    return r.emit("slice", a.operands[0], shape=shape, slice=(*a.slices[:d], whole, *a.slices[d + 1 :]))


def dynamic_slice(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of everything (starts clamp to 0), and from constant places."""
    x, *starts = i.operands
    if x.dims == i.dims:
        return x
    values = _starts(starts, x.dims, i.dims)
    if values is None:
        return None
    parts = tuple(SliceDim(s, s + n) for s, n in zip(values, i.dims, strict=True))
    return r.emit("slice", x, shape=i.shape, slice=parts)


def _starts(starts: list[Instruction], base: tuple[int, ...], sizes: tuple[int, ...]) -> list[int] | None:
    """Constant start indices, clamped."""
    if len(starts) != len(base):
        return None
    found = [splat(s) for s in starts]
    if any(s is None for s in found):
        return None
    return [min(max(int(cast(np.ndarray, s)), 0), n - k) for s, n, k in zip(found, base, sizes, strict=True)]


def dynamic_update_slice(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of everything, and of nothing."""
    x, update = i.operands[:2]
    if update.dims == x.dims:
        return update
    return x if update.shape.size == 0 else None


def dimension_size(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of what sets it, or of a dimension that is not dynamic."""
    (x,), (d,) = i.operands, i.ints("dimensions")
    if x.opcode == "set-dimension-size":
        if x.ints("dimensions") != (d,):
            return r.like(i, x.operands[:1], i.shape)
        return r.emit("clamp", r.constant(0, S32), x.operands[1], r.constant(x.dims[d], S32))
    return None if r.has_dynamic_sizes or x.dims[d] < 0 else r.constant(x.dims[d], i.shape.dtype)


def iota(r: Rewriter, i: Instruction) -> Instruction | None:
    """Along a dimension of size 1."""
    return r.full(0, i.shape) if i.dims[i.integer("iota_dimension")] == 1 else None


def reduce(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of no elements, into some; `reduce-window` too, whose padding adds nothing.  Of one element into each; of a
    transpose.
    """
    values, initial = i.operands[: len(i.operands) // 2], i.operands[len(i.operands) // 2 :]
    if values[0].shape.size or values[0].shape.is_dynamic:
        return _reduce_one(r, i) or _reduce_transposed(r, i)
    if i.shape.is_tuple:
        whole = [r.spread(v, s) for v, s in zip(initial, i.shape.elements, strict=True)]
        return r.emit("tuple", *whole, shape=i.shape)
    return r.spread(initial[0], i.shape)


def _reduce_one(r: Rewriter, i: Instruction) -> Instruction | None:
    """Along a last dimension of size 1, and others: the initial value and the element, combined.

    The gradient of what a softmax divides by has such a sum.  Along first dimensions, as in batch norm's gradient, it
    is left: what follows a sum of columns is computed apart then, so that all sums of a value are one pass (5 % of the
    cycles of ResNet-50's training step).
    """
    if i.opcode != "reduce" or not i.shape.is_array or not is_simple(i.computation()):
        return None
    x, initial = i.operands
    if not x.shape.is_fixed or x.shape.size != i.shape.size or x.shape.rank - 1 not in i.ints("dimensions"):
        return None
    return applied(r, i.computation(), r.spread(initial, i.shape), r.reshaped(x, i.dims))


def _reduce_transposed(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of a transpose: what is transposed, reduced over the dimensions that those were, where any order will do."""
    x, initial = i.operands[0], i.operands[-1]
    if i.opcode != "reduce" or not i.shape.is_array or x.opcode != "transpose" or x.shape.is_dynamic:
        return None
    if plain_operation(i.computation()) is None:
        return None
    order, reduced = x.ints("dimensions"), i.ints("dimensions")
    kept = [e for d, e in enumerate(order) if d not in reduced]
    shape = array(i.shape.dtype, [x.operands[0].dims[e] for e in sorted(kept)])
    over = tuple(sorted(order[d] for d in reduced))
    made = r.emit("reduce", x.operands[0], initial, shape=shape, dimensions=over, to_apply=i.computation())
    return r.transposed(made, [sorted(kept).index(e) for e in kept])


def dot(r: Rewriter, i: Instruction) -> Instruction | None:
    """Over no elements, into some."""
    empty = any(o.shape.size == 0 for o in i.operands) and i.shape.size
    return r.full(0, i.shape) if empty else None


def scatter(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of no updates."""
    x, *_, updates = i.operands
    return x if len(i.operands) == 3 and not updates.shape.size else None


def select_and_scatter(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of no source."""
    return None if i.operands[1].shape.size else r.spread(i.operands[2], i.shape)


MOVEMENT: dict[str, tuple[Rule, ...]] = {
    "reshape": (reshape,),
    "transpose": (transpose,),
    "broadcast": (broadcast,),
    "slice": (slice_,),
    "pad": (pad,),
    "reverse": (reverse,),
    "concatenate": (concatenate,),
    "dynamic-slice": (dynamic_slice,),
    "dynamic-update-slice": (dynamic_update_slice,),
    "iota": (iota,),
    "dot": (dot,),
    "convolution": (dot,),
    "scatter": (scatter,),
    "select-and-scatter": (select_and_scatter,),
}
"""Opcode to its rules, for arrays whose sizes are all known."""
