"""Gathers of elementwise values: the few elements are gathered first, and computed then.

A loss takes one logarithm a row out of those of all classes (`take_along_axis`), a quantised table is converted before
its rows are looked up: all of the value would be computed and stored for a gather to read a small part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.attributes import PadDim, SliceDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.ops.table import Family, family, is_elementwise
from systolith.compiler.passes.rewrite import Rewriter, rewrite

LESS = 4
"""A gather takes at most this part of the elements, so that computing them is less work than computing all."""

MOST = 32
"""Operations on what is gathered, at most, and what they read."""

GATHERED = 2
"""Arrays that are gathered from, at most."""


@dataclass(frozen=True)
class MoveGathers:
    """Gather from the operands of an elementwise value instead of from the value."""

    def run(self, module: Module) -> bool:
        return rewrite(module, _moved)


def _moved(r: Rewriter, i: Instruction) -> Instruction | None:
    """What a gather of an elementwise value is written as."""
    if i.opcode != "gather" or i.shape.size * LESS > i.operands[0].shape.size or r.has_dynamic_sizes:
        return None
    order = _operations(i)
    if order is None:
        return None
    made: dict[Instruction, Instruction] = {}
    for o in order:
        shape = array(o.shape.dtype, i.dims)
        if o.opcode == "broadcast":
            made[o] = r.emit("broadcast", *o.operands, shape=shape, dimensions=_places(i, o))
        elif is_elementwise(o):
            made[o] = r.like(o, [made.get(p, p) for p in o.operands], shape)
        elif o.opcode == "slice":
            made[o] = _gathered_slice(r, i, o)
        else:
            made[o] = r.like(i, [o, *i.operands[1:]], shape)
    return made[i.operands[0]]


def _gathered_slice(r: Rewriter, i: Instruction, part: Instruction) -> Instruction:
    """A gather from some batches of an array, as those of a gather from all: no part of the array is copied for it."""
    (x,), indices = part.operands, i.operands[1]
    padding, dims, slices = [PadDim(0, 0)] * indices.shape.rank, list(i.dims), [SliceDim(0, n) for n in i.dims]
    for d, (in_indices, in_result) in _batches(i).items():
        low, high = part.slices[d].start, x.dims[d] - part.slices[d].limit
        padding[in_indices] = PadDim(low, high)
        slices[in_result] = SliceDim(low, low + i.dims[in_result])
        dims[in_result] = x.dims[d]
    wide = array(indices.shape.dtype, [n + p.low + p.high for n, p in zip(indices.dims, padding, strict=True)])
    zero = r.constant(0, indices.shape.dtype)
    every = r.emit("pad", indices, zero, shape=wide, padding=tuple(padding))
    gathered = r.like(i, [x, every], array(part.shape.dtype, dims))
    gathered.attributes.pop("indices_are_sorted", None)  # the added ones are zeros
    return r.emit("slice", gathered, shape=array(part.shape.dtype, i.dims), slice=tuple(slices))


def _operations(i: Instruction) -> list[Instruction] | None:
    """The elementwise operations behind a gather, and what they are made of, operands first; None: they stay there."""
    order: dict[Instruction, None] = {}
    todo = [(i.operands[0], False)]
    while todo and len(order) <= MOST:
        o, after_operands = todo.pop()
        if after_operands:
            order[o] = None
        elif o not in order:
            todo.append((o, True))
            todo += [(p, False) for p in o.operands if p.shape.rank and is_elementwise(o)]
    read = [o for o in order if not is_elementwise(o)]
    few = len(order) <= MOST and sum(o.opcode != "broadcast" for o in read) <= GATHERED
    return list(order) if few and len(read) < len(order) and all(_is_gathered(i, o) for o in read) else None


def _is_gathered(i: Instruction, o: Instruction) -> bool:
    """Whether a gather may read what an elementwise operation reads: values of batches, or an array in memory.

    Of other data movement a copy would be made for it.
    """
    if o.opcode == "broadcast":
        of_batches = set(o.ints("dimensions", ())) <= _batches(i).keys()
        return of_batches and sorted(_places(i, o)) == list(_places(i, o))
    if o.opcode == "slice":
        cut = {d for d, (n, s) in enumerate(zip(o.operands[0].dims, o.slices, strict=True)) if s != SliceDim(0, n)}
        return cut <= _batches(i).keys() and all(o.slices[d].stride == 1 for d in cut)
    return o.opcode == "reshape" or family(o) is not Family.MOVEMENT


def _batches(i: Instruction) -> dict[int, tuple[int, int]]:
    """For each batch dimension of a gather's operand, that of its indices and that of its result."""
    indexed = [d for d in range(i.operands[1].shape.rank) if d != i.integer("index_vector_dim")]
    results = [d for d in range(i.shape.rank) if d not in i.ints("offset_dims", ())]
    pairs = zip(i.ints("operand_batching_dims", ()), i.ints("start_indices_batching_dims", ()), strict=True)
    return {d: (e, results[indexed.index(e)]) for d, e in pairs}


def _places(i: Instruction, repeated: Instruction) -> tuple[int, ...]:
    """The dimensions of a gather's result that those of a broadcast's operand become, which are batches."""
    batches = _batches(i)
    return tuple(batches[d][1] for d in repeated.ints("dimensions", ()))
