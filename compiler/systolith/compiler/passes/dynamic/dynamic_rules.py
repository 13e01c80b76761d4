"""Operations on arrays of dynamic sizes, by opcode: elementwise, movement, indexing, products."""

from __future__ import annotations

from collections.abc import Sequence

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.dynamic.dynamic_reductions import reduce, reduce_window, sort
from systolith.compiler.passes.dynamic.dynamic_reshapes import dynamic_reshape, reshape
from systolith.compiler.passes.dynamic.dynamic_values import Padded, Padder, Rule, Value, refused
from systolith.compiler.passes.real_expression import Real
from systolith.isa.dtypes import PRED, S32, Kind


def elementwise(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """The least of the sizes; but of two operands, one of size 1 is repeated beside the other."""
    arrays = list(xs)
    sizes: dict[int, Instruction] = {}
    for d in range(i.shape.rank):
        found = [(k, x.sizes[d]) for k, x in enumerate(arrays) if d in x.sizes]
        if len(arrays) == 2 and len(found) == 2 and found[0][1] is not found[1][1]:
            sizes[d] = _together(p, arrays, d)
        elif found:
            sizes[d] = p.least([n for _, n in found])
    return Padded(p.same(i, [x.i for x in arrays]), sizes)


def _together(p: Padder, arrays: list[Padded], d: int) -> Instruction:
    """The size of two arrays together; one of size 1 is repeated."""
    a, b = (Real(p, x.sizes[d]) for x in arrays)
    one = [n.test("EQ", 1) for n in (a, b)]
    for k, x in enumerate(arrays):
        first = p.sliced(x.i, [(0, 1) if e == d else (0, n) for e, n in enumerate(x.i.dims)])
        line = p.reshaped(first, [n for e, n in enumerate(x.i.dims) if e != d])
        kept = tuple(e for e in range(x.i.shape.rank) if e != d)
        repeated = p.emit("broadcast", line, shape=x.i.shape, dimensions=kept)
        test = p.spread(one[k], array(PRED, x.i.dims))
        arrays[k] = Padded(p.emit("select", test, repeated, x.i, shape=x.i.shape), x.sizes)
    return b.where(one[0], a.where(one[1], a.of("minimum", b))).i


def _broadcast(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    (x,) = xs
    return Padded(p.same(i, [x.i]), {i.ints("dimensions")[d]: n for d, n in x.sizes.items()})


def _transpose(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    (x,) = xs
    order = i.ints("dimensions")
    return Padded(p.same(i, [x.i]), {k: x.sizes[d] for k, d in enumerate(order) if d in x.sizes})


def _slice(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """A part counts within the bound, with zeros beyond the actual size."""
    (x,) = xs
    whole = [s.limit - s.start == n for s, n in zip(i.slices, x.i.dims, strict=True)]
    if any(s.stride != 1 and whole[d] and d in x.sizes for d, s in enumerate(i.slices)):
        return _strided(p, i, x, whole)
    taken = p.masked(x, 0, [d for d in x.sizes if not whole[d]])
    return Padded(p.same(i, [taken]), {d: n for d, n in x.sizes.items() if whole[d]})


def _strided(p: Padder, i: Instruction, x: Padded, whole: Sequence[bool]) -> Value:
    """All of a dimension, at a stride: as many as there are at that stride in the actual size."""
    taken = p.masked(x, 0, [d for d in x.sizes if not whole[d]])
    sizes = {
        d: ((Real(p, n) + (i.slices[d].stride - 1)) / i.slices[d].stride).i for d, n in x.sizes.items() if whole[d]
    }
    return Padded(p.same(i, [taken]), sizes)


def _pad(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """Pad so that elements added behind come after the actual size."""
    x, fill = xs
    padding: tuple[PadDim, ...] = i.attributes["padding"]  # type: ignore[assignment]
    sizes = {}
    for d, n in x.sizes.items():
        edge, size = padding[d], Real(p, n)
        spread = size + (size - 1).of("maximum", 0) * edge.interior
        sizes[d] = (spread + (edge.low + edge.high)).of("maximum", 0).of("minimum", i.dims[d]).i
    return Padded(p.same(i, [p.masked(x, fill.i), fill.i]), sizes)


def _reverse(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """Turned around, the actual elements are the last: they are brought to the front."""
    (x,) = xs
    turned = p.same(i, [x.i])
    for d in i.ints("dimensions"):
        if d in x.sizes:
            turned = _from(p, turned, d, (p.number(x.i.dims[d]) - Real(p, x.sizes[d])).i)
    return Padded(turned, x.sizes)


def _from(p: Padder, x: Instruction, d: int, start: Instruction) -> Instruction:
    """The elements from a place on."""
    edges = tuple(PadDim(0, n if k == d else 0, 0) for k, n in enumerate(x.dims))
    wide = p.emit("pad", x, p.constant(0, x.shape.dtype), padding=edges)
    starts = [start if k == d else p.constant(0, S32) for k in range(x.shape.rank)]
    return p.emit("dynamic-slice", wide, *starts, shape=x.shape, dynamic_slice_sizes=x.dims)


def _concatenate(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """Each where the one before ends; what lies behind its actual size is overwritten by the next."""
    (d,) = i.ints("dimensions")
    others = {e: n for x in xs for e, n in x.sizes.items() if e != d}
    if not any(d in x.sizes for x in xs):
        return Padded(p.same(i, [x.i for x in xs]), others)
    edges = tuple(PadDim(0, i.dims[e] - n if e == d else 0, 0) for e, n in enumerate(xs[0].i.dims))
    made = p.emit("pad", xs[0].i, p.constant(0, i.shape.dtype), padding=edges)
    end = p.size(xs[0], d)
    for x in xs[1:]:
        starts = [end.i if e == d else p.constant(0, S32) for e in range(i.shape.rank)]
        made = p.emit("dynamic-update-slice", made, x.i, *starts)
        end = end + p.size(x, d)
    return Padded(made, {**others, d: end.i})


def _set_dimension_size(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """Zeros where the array grows."""
    (d,), (x, n) = i.ints("dimensions"), xs
    return Padded(p.masked(x, 0, [d]), {**x.sizes, d: p.bounded(n.i, i.dims[d])})


def _get_dimension_size(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    (d,), (x,) = i.ints("dimensions"), xs
    return Padded(p.size(x, d).i)


def _dynamic_slice(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    x, *starts = xs
    whole = [d for d, n in enumerate(i.ints("dynamic_slice_sizes")) if n == x.i.dims[d]]
    taken = p.masked(x, 0, [d for d in x.sizes if d not in whole])
    return Padded(p.same(i, [taken, *(s.i for s in starts)]), {d: n for d, n in x.sizes.items() if d in whole})


def _dynamic_update_slice(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """Within the actual size."""
    x, update, *starts = xs
    if update.sizes or len(starts) != x.i.shape.rank:
        raise refused(i, "an update of dynamic sizes has no lowering")
    placed = [s.i for s in starts]
    for d, n in x.sizes.items():
        last = (Real(p, n) - update.i.dims[d]).of("maximum", 0)
        placed[d] = Real(p, p.converted(placed[d], S32)).of("minimum", last).of("maximum", 0).i
    if len({s.shape.dtype for s in placed}) > 1:
        placed = [p.converted(s, S32) for s in placed]
    return Padded(p.same(i, [x.i, update.i, *placed]), x.sizes)


def _gather(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    x, indices = xs
    vector, offsets = i.integer("index_vector_dim"), i.ints("offset_dims")
    if vector in indices.sizes:
        raise refused(i, "a dynamic number of indices to a window has no lowering")
    whole = [d for d, n in enumerate(i.ints("slice_sizes")) if n == x.i.dims[d]]
    dropped = {*i.ints("collapsed_slice_dims", ()), *i.ints("operand_batching_dims", ())}
    kept = [d for d in range(x.i.shape.rank) if d not in dropped]
    batch = [d for d in range(i.shape.rank) if d not in offsets]
    lists = [d for d in range(indices.i.shape.rank) if d != vector]
    sizes = {offsets[k]: x.sizes[d] for k, d in enumerate(kept) if d in x.sizes and d in whole}
    sizes |= {batch[k]: indices.sizes[d] for k, d in enumerate(lists) if d in indices.sizes}
    taken = p.masked(x, 0, [d for d in x.sizes if d not in whole or d in dropped])
    return Padded(p.same(i, [taken, indices.i]), sizes)


def _dot(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """Products of what is beyond the actual size are those of zeros."""
    batch = [i.ints(f"{side}_batch_dims", ()) for side in ("lhs", "rhs")]
    summed = [i.ints(f"{side}_contracting_dims", ()) for side in ("lhs", "rhs")]
    sizes: dict[int, Instruction] = {}
    cut: list[dict[int, Instruction]] = [{}, {}]
    for k, pair in enumerate([*zip(*batch, strict=True), *zip(*summed, strict=True)]):
        found = [x.sizes[d] for x, d in zip(xs, pair, strict=True) if d in x.sizes]
        if found and k < len(batch[0]):
            sizes[k] = p.least(found)
        elif found:
            for side, d in enumerate(pair):
                cut[side][d] = p.least(found)
    at = len(batch[0])
    for side, x in enumerate(xs):
        for d in range(x.i.shape.rank):
            if d not in batch[side] and d not in summed[side]:
                if d in x.sizes:
                    sizes[at] = x.sizes[d]
                at += 1
    masked = [p.masked(Padded(x.i, cut[side]), 0) for side, x in enumerate(xs)]
    return Padded(p.same(i, masked), sizes)


def _convolution(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """Of a dynamic number of images."""
    x, kernel = xs
    dims = i.conv_dims
    if kernel.sizes or set(x.sizes) != {dims.input_batch} or i.integer("batch_group_count", 1) != 1:
        raise refused(i, "of other dynamic dimensions than the batch has no lowering")
    return Padded(p.same(i, [x.i, kernel.i]), {dims.output_batch: x.sizes[dims.input_batch]})


def _scatter(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """Windows beyond the number of indices are none: they have an index outside."""
    count = len(xs) // 2
    inputs, indices, updates = xs[:count], xs[count], xs[count + 1 :]
    vector, window = i.integer("index_vector_dim"), i.ints("update_window_dims")
    taken = any(d in window for x in updates for d in x.sizes)
    if taken or vector in indices.sizes or not i.ints("scatter_dims_to_operand_dims"):
        raise refused(i, "windows that reach over a dynamic size have no lowering")
    if any(x.sizes for x in inputs):
        raise refused(i, "into an array of dynamic sizes has no lowering")
    dtype = indices.i.shape.dtype
    outside = -1 if dtype.kind is Kind.SIGNED else dtype.greatest
    listed = {d: n for d, n in indices.sizes.items() if d != vector}
    lists = [d for d in range(indices.i.shape.rank) if d != vector]
    batch = [d for d in range(updates[0].i.shape.rank) if d not in window]
    for d, n in updates[0].sizes.items():
        at = lists[batch.index(d)]
        listed[at] = p.least([n, listed[at]]) if at in listed else n
    masked = p.masked(Padded(indices.i, listed), outside)
    made = p.same(i, [*(x.i for x in inputs), masked, *(x.i for x in updates)])
    return p.opened(made)


def _pad_to_static(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    (x,) = xs
    return (Padded(p.masked(x, 0)), *(Padded(p.size(x, d).i) for d in range(x.i.shape.rank)))


def _slice_to_dynamic(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    x, *sizes = xs
    if x.i.dims != i.dims:
        raise refused(i, "of another bound has no lowering")
    return Padded(x.i, {d: p.bounded(n.i, i.dims[d]) for d, n in enumerate(sizes)})


def _first(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    return xs[0]


RULES: dict[str, Rule] = {
    "bitcast-convert": elementwise,
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "convolution": _convolution,
    "copy": _first,
    "dot": _dot,
    "dynamic-reshape": dynamic_reshape,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "get-dimension-size": _get_dimension_size,
    "map": elementwise,
    "pad": _pad,
    "reduce": reduce,
    "reduce-window": reduce_window,
    "reshape": reshape,
    "reverse": _reverse,
    "scatter": _scatter,
    "set-dimension-size": _set_dimension_size,
    "slice": _slice,
    "sort": sort,
    "transpose": _transpose,
}
"""By opcode; elementwise operations have theirs."""

CALLS: dict[str, Rule] = {"PadToStatic": _pad_to_static, "SliceToDynamic": _slice_to_dynamic}
"""By the target of a custom call."""
