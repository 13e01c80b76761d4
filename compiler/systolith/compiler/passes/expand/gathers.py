"""`gather` with one index for each window, into the middle of three dimensions.

XLA's `gather_simplifier` has a like form; see `passes/expand/index_vectors.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.expand.index_vectors import WindowAxis, Windows
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import S32, Kind


@dataclass(frozen=True)
class SimplifyGathers:
    """Write each `gather` as one of windows of `[B, w, R]` in `[B, D, R]` at s32 indices along D, or as a slice.

    Index vectors, whose components are clamped, become offsets; a gather of one window is a `dynamic-slice`, one that
    indexes no dimension a `broadcast`.
    """

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _expanded(r, i) if i.opcode == "gather" else None)


def is_simple(i: Instruction) -> bool:
    """Whether a gather is of the expanded form."""
    x, indices = i.operands
    wide = i.shape.rank == 4
    return (
        (x.shape.rank, indices.shape.rank, i.integer("index_vector_dim")) == (3, 1, 1)
        and indices.shape.dtype is S32
        and i.ints("start_index_map") == (1,)
        and i.ints("offset_dims") == ((0, 2, 3) if wide else (0, 2))
        and i.ints("collapsed_slice_dims", ()) == (() if wide else (1,))
        and not i.ints("operand_batching_dims", ())
        and i.ints("slice_sizes")[::2] == x.dims[::2]
    )


def windows_of(i: Instruction) -> Windows:
    """The windows that a gather reads."""
    x, indices = i.operands
    sizes, vector_dim = i.ints("slice_sizes"), i.integer("index_vector_dim")
    mapped = {d: k for k, d in enumerate(i.ints("start_index_map")) if sizes[d] < x.dims[d]}
    pairs = zip(i.ints("operand_batching_dims", ()), i.ints("start_indices_batching_dims", ()), strict=True)
    batching = {d: s - (s > vector_dim) for d, s in pairs}
    return Windows(x.dims, sizes, mapped, batching, indices, vector_dim)


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    x, indices = i.operands
    dynamic = any(s.is_dynamic for s in (x.shape, indices.shape, i.shape))
    if dynamic or is_simple(i) or 0 in (i.shape.size, prod(i.ints("slice_sizes"))):
        return None
    w = windows_of(i)
    x = _whole(r, x, w)
    w = replace(w, operand=x.dims).joined()
    if not w.indexed:
        return _arranged(r, i, w, x, [WindowAxis(False, d) for d in range(len(x.dims)) if x.dims[d] > 1])
    if prod(w.count) == 1:
        return _slice(r, i, w, x)
    flat = r.reshaped(r.transposed(x, w.order), w.flat)
    starts = w.components(r)
    if len(starts) > 1 or indices.shape.dtype is not S32:
        starts = {d: _clamped(r, start, w.limit(d)) if w.given(d) else start for d, start in starts.items()}
    outer, _, inner = w.flat
    made = r.emit(
        "gather",
        flat,
        w.offsets(r, starts),
        shape=array(i.shape.dtype, w.flat_windows()),
        name=i.name,
        offset_dims=(0, 2, 3) if w.width > 1 else (0, 2),
        collapsed_slice_dims=() if w.width > 1 else (1,),
        start_index_map=(1,),
        index_vector_dim=1,
        slice_sizes=(outer, w.width, inner),
        indices_are_sorted=False,
    )
    return _arranged(r, i, w, made, w.axes)


def _whole(r: Rewriter, x: Instruction, w: Windows) -> Instruction:
    """The operand, of dimensions that are not indexed only what windows have."""
    return r.sliced(x, [(0, x.dims[d] if d in w.indexed else m) for d, m in enumerate(w.sizes)])


def _clamped(r: Rewriter, start: Instruction, limit: int) -> Instruction:
    """Start indices between 0 and a limit, s32."""
    dtype, shape = start.shape.dtype, start.shape
    if dtype.kind is Kind.SIGNED:
        start = r.emit("maximum", start, r.full(0, shape))
    if limit < dtype.greatest:
        start = r.emit("minimum", start, r.full(limit, shape))
    return r.converted(start, S32)


def _slice(r: Rewriter, i: Instruction, w: Windows, x: Instruction) -> Instruction:
    """The gather of one window."""
    found = w.components(r)
    scalar = array(w.indices.shape.dtype)
    zero = r.constant(0, scalar.dtype)
    starts = [r.emit("reshape", found[d], shape=scalar) if w.given(d) else zero for d in range(len(x.dims))]
    shape = array(i.shape.dtype, w.sizes)
    made = r.emit("dynamic-slice", x, *starts, shape=shape, name=i.name, dynamic_slice_sizes=w.sizes)
    return r.reshaped(made, i.dims)


def _arranged(r: Rewriter, i: Instruction, w: Windows, made: Instruction, axes: list[WindowAxis]) -> Instruction:
    """Windows, with their dimensions in the order `axes`, as a gather gives them."""
    places = w.placed(i.ints("offset_dims"), i.ints("collapsed_slice_dims", ()))
    made = r.reshaped(made, [w.size(a) for a in axes])
    if all(a in axes for a in places if a.batch):
        return r.reshaped(r.transposed(made, [axes.index(a) for a in places if a in axes]), i.dims)
    shape = array(i.shape.dtype, tuple(n for a, n in zip(places, i.dims, strict=True)))
    dimensions = tuple(places.index(a) for a in axes)
    return r.emit("broadcast", made, shape=shape, dimensions=dimensions)
