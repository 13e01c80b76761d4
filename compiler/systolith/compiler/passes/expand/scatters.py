"""`scatter` with one index for each window, into the middle of three dimensions.

XLA's `scatter_simplifier` has a like form; see `passes/expand/index_vectors.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array, tuple_of
from systolith.compiler.passes.expand.index_vectors import WindowAxis, Windows
from systolith.compiler.passes.on_arrays import applied
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import PRED, S32, Kind


@dataclass(frozen=True)
class SimplifyScatters:
    """Write each `scatter` as one of windows of `[B, w, R]` into `[B, D, R]` at s32 indices along D.

    Index vectors become offsets, -1 where a component is outside.  That they are unique is still only a hint.
    """

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _expanded(r, i) if i.opcode == "scatter" else None)


def is_simple(i: Instruction) -> bool:
    """Whether a scatter is of the expanded form."""
    (x, *_), indices, (updates, *_) = _operands(i)
    wide = updates.shape.rank == 4
    return (
        (x.shape.rank, indices.shape.rank, i.integer("index_vector_dim")) == (3, 1, 1)
        and indices.shape.dtype is S32
        and i.ints("scatter_dims_to_operand_dims") == (1,)
        and i.ints("update_window_dims") == ((0, 2, 3) if wide else (0, 2))
        and i.ints("inserted_window_dims", ()) == (() if wide else (1,))
        and not i.ints("input_batching_dims", ())
        and (updates.dims[0], updates.dims[-1]) == x.dims[::2]
    )


def _operands(i: Instruction) -> tuple[list[Instruction], Instruction, list[Instruction]]:
    """Arrays, indices, updates."""
    count = len(i.operands) // 2
    return i.operands[:count], i.operands[count], i.operands[count + 1 :]


def windows_of(i: Instruction) -> Windows:
    """The windows that a scatter writes."""
    arrays, indices, updates = _operands(i)
    x, vector_dim = arrays[0], i.integer("index_vector_dim")
    pairs = zip(i.ints("input_batching_dims", ()), i.ints("scatter_indices_batching_dims", ()), strict=True)
    batching = {d: s - (s > vector_dim) for d, s in pairs}
    dropped = {*i.ints("inserted_window_dims", ()), *batching}
    window = iter(updates[0].dims[d] for d in i.ints("update_window_dims"))
    sizes = tuple(1 if d in dropped else next(window) for d in range(len(x.dims)))
    mapped = dict.fromkeys((d for d, n in enumerate(x.dims) if sizes[d] < n and d not in batching), -1)
    mapped |= {d: k for k, d in enumerate(i.ints("scatter_dims_to_operand_dims"))}
    if not mapped and not batching:  # all of the operand, for each index vector
        return Windows(x.dims or (1,), sizes or (1,), {0: -1}, {}, indices, vector_dim)
    return Windows(x.dims, sizes, mapped, batching, indices, vector_dim)


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    arrays, _, updates = _operands(i)
    given = [o.shape for o in i.operands]
    if any(s.is_dynamic for s in given) or is_simple(i) or not arrays[0].shape.size:
        return None
    if not updates[0].shape.size:
        return r.emit("tuple", *arrays, shape=i.shape) if i.shape.is_tuple else arrays[0]
    w = windows_of(i)
    if apart := _apart(r, i, w):
        return apart
    w = w.joined()
    flat = [r.reshaped(r.transposed(x, w.order), w.flat) for x in arrays]
    shapes = [x.shape for x in flat]
    made = r.emit(
        "scatter",
        *flat,
        _offsets(r, w),
        *(_updates(r, i, w, u) for u in updates),
        shape=tuple_of(shapes) if i.shape.is_tuple else shapes[0],
        name=i.name,
        to_apply=i.computation(),
        update_window_dims=(0, 2, 3) if w.width > 1 else (0, 2),
        inserted_window_dims=() if w.width > 1 else (1,),
        scatter_dims_to_operand_dims=(1,),
        index_vector_dim=1,
        indices_are_sorted=False,
        unique_indices=i.flag("unique_indices"),
    )
    if not i.shape.is_tuple:
        return _back(r, w, made, i.dims)
    parts = [r.emit("get-tuple-element", made, shape=s, index=k) for k, s in enumerate(shapes)]
    return r.emit("tuple", *(_back(r, w, p, arrays[0].dims) for p in parts), shape=i.shape)


def _apart(r: Rewriter, i: Instruction, w: Windows) -> Instruction | None:
    """A scatter whose index vectors write different elements each, as batching dimensions say: element by element.

    So the gradient of taking an element of each row needs neither a list nor an order.  None: it is none, or takes the
    updates, which leaves the other elements alone.
    """
    targets = {k: d for d, k in w.batching.items()}
    apart = all(n == 1 or k in targets for k, n in enumerate(w.count))
    others = [d for d in range(len(w.operand)) if d not in w.batching and not w.given(d)]
    whole = all(w.sizes[d] == w.operand[d] for d in others) and all(w.sizes[d] == 1 for d in w.starts if w.given(d))
    taken = i.computation().result.opcode == "parameter"
    if (
        i.shape.is_tuple
        or taken
        or not w.batching
        or not (apart and whole)
        or len(i.operands[0].dims) != len(w.operand)
    ):
        return None
    x, _, updates = i.operands

    def spread(values: Instruction, axes: list[WindowAxis]) -> Instruction:
        """Values with these dimensions, none of size 1, repeated to the operand's sizes."""
        dims = [targets[a.dim] if a.batch else a.dim for a in axes]
        order = sorted(range(len(dims)), key=dims.__getitem__)
        placed = r.transposed(r.reshaped(values, [w.size(a) for a in axes]), order)
        return r.emit("broadcast", placed, shape=array(values.shape.dtype, x.dims), dimensions=tuple(sorted(dims)))

    batch = [WindowAxis(True, k) for k, n in enumerate(w.count) if n > 1]
    mask: Instruction | None = None
    for d, start in w.components(r).items():
        if w.given(d):
            narrow = start.shape.dtype.bits <= S32.bits
            start = r.converted(start, S32) if narrow else start
            place = r.emit("iota", shape=array(start.shape.dtype, x.dims), iota_dimension=d)
            there = array(PRED, x.dims)
            here = r.emit("compare", place, spread(start, batch), shape=there, direction="EQ")
            mask = here if mask is None else r.emit("and", mask, here)
    given = spread(r.reshaped(updates, [w.size(a) for a in _axes(i, w)]), _axes(i, w))
    made = applied(r, i.computation(), x, given)
    return made if mask is None else r.emit("select", mask, made, x)


def _axes(i: Instruction, w: Windows) -> list[WindowAxis]:
    """The dimensions of updates, but those of size 1."""
    given = w.placed(i.ints("update_window_dims"), i.ints("inserted_window_dims", ()))
    return [a for a in given if w.size(a) > 1]


def _offsets(r: Rewriter, w: Windows) -> Instruction:
    """Offsets of windows; -1, or outside, where one is left out."""
    starts = w.components(r)
    dtype = w.indices.shape.dtype
    if len(starts) == 1 and dtype is S32:
        return w.offsets(r, starts)
    valid: Instruction | None = None
    for d, start in starts.items():
        if not w.given(d):
            continue
        for test in _tests(r, start, w.limit(d)):
            valid = test if valid is None else r.emit("and", valid, test)
        starts[d] = r.converted(start, S32)
    return w.offsets(r, starts, valid)


def _tests(r: Rewriter, start: Instruction, limit: int) -> list[Instruction]:
    """Whether start indices are between 0 and a limit."""
    dtype, shape = start.shape.dtype, array(PRED, start.dims)
    found: list[Instruction] = []
    if dtype.kind is Kind.SIGNED:
        found.append(r.emit("compare", start, r.full(0, start.shape), shape=shape, direction="GE"))
    if limit < dtype.greatest:
        found.append(r.emit("compare", start, r.full(limit, start.shape), shape=shape, direction="LE"))
    return found


def _updates(r: Rewriter, i: Instruction, w: Windows, updates: Instruction) -> Instruction:
    """Updates with their dimensions as the expanded form has them."""
    given = _axes(i, w)
    there = r.reshaped(updates, [w.size(a) for a in given])
    return r.reshaped(r.transposed(there, [given.index(a) for a in w.axes if a in given]), w.flat_windows())


def _back(r: Rewriter, w: Windows, made: Instruction, dims: tuple[int, ...]) -> Instruction:
    """The expanded result, as the scatter gives it."""
    apart = r.reshaped(made, [w.operand[d] for d in w.order])
    return r.reshaped(r.transposed(apart, [w.order.index(d) for d in range(len(w.order))]), dims)
