"""A convolution as a product of matrices: what each place of the window sees, beside one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod

from systolith.compiler.hlo.attributes import PadDim, SliceDim, WindowDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import DType

MOST = 256
"""Places of a window that lie beside one another; larger windows are cut, and their sums added."""

LARGEST = 16 * MOST
"""Places of a window that is cut."""


def by_taps(
    r: Rewriter, i: Instruction, expanded: Callable[[Instruction], Instruction], dtype: DType
) -> Instruction | None:
    """A convolution as a dot; None: its window has too many places.

    Args:
        r: makes instructions.
        i: the convolution.
        expanded: what is to stand for a dot.
        dtype: to multiply in.
    """
    labels, window = i.conv_dims, i.window.dims
    places = prod(w.size for w in window)
    if MOST < places <= LARGEST and i.shape.size:
        return _in_pieces(r, i, expanded, dtype)
    if places > MOST or not i.shape.size or not places:
        return None
    x, kernel = (r.converted(o, dtype) for o in i.operands)
    x = r.transposed(x, (labels.input_batch, labels.input_feature, *labels.input_spatial))
    kernel = r.transposed(kernel, (labels.kernel_output, labels.kernel_input, *labels.kernel_spatial))
    turned = tuple(d + 2 for d, w in enumerate(window) if w.reversal)
    kernel = r.emit("reverse", kernel, dimensions=turned) if turned else kernel
    features, batches = i.integer("feature_group_count", 1), i.integer("batch_group_count", 1)
    seen = _seen(r, x, window)
    batch, _, *positions, taps = seen.dims
    outputs, inputs = kernel.dims[:2]
    groups = features * batches
    # Dimensions: groups of features, or of batches, are of the batch of the dot.
    left = (batch, features, inputs) if batches == 1 else (batches, batch // batches, inputs)
    left_group = 1 if batches == 1 else 0
    seen = r.reshaped(seen, (*left, *positions, taps))
    kernel = r.reshaped(kernel, (groups, outputs // groups, inputs, taps))
    count = len(positions)
    rest = (seen.dims[1 - left_group], *positions, outputs // groups)
    dot = r.emit(
        "dot",
        seen,
        kernel,
        shape=array(dtype, (groups, *rest)),
        lhs_batch_dims=(left_group,),
        rhs_batch_dims=(0,),
        lhs_contracting_dims=(2, 3 + count),
        rhs_contracting_dims=(2, 3),
    )
    made = expanded(dot)
    r.drop(dot)
    made = r.transposed(made, (1, 0, 2 + count, *range(2, 2 + count)))  # batch, groups, features of a group, places
    made = r.reshaped(made, (rest[0], outputs, *positions))
    order = (labels.output_batch, labels.output_feature, *labels.output_spatial)
    made = r.transposed(made, tuple(order.index(d) for d in range(len(order))))
    return r.converted(made, i.shape.dtype)


def _in_pieces(
    r: Rewriter, i: Instruction, expanded: Callable[[Instruction], Instruction], dtype: DType
) -> Instruction | None:
    """The sum of convolutions with the parts of a window, cut along its largest dimension."""
    labels, window = i.conv_dims, i.window.dims
    d = max(range(len(window)), key=lambda k: window[k].size)
    w, x, kernel = window[d], *i.operands
    each = max(MOST * w.size // prod(v.size for v in window), 1)
    total: Instruction | None = None
    for first in range(0, w.size, each):
        last = min(first + each, w.size)
        taps = (w.size - last, w.size - first) if w.reversal else (first, last)
        cuts = [taps if k == labels.kernel_spatial[d] else (0, n) for k, n in enumerate(kernel.dims)]
        before, behind = first * w.window_dilation, (w.size - last) * w.window_dilation
        part = replace(w, size=last - first, low=w.low - before, high=w.high - behind)
        piece = r.like(i, [x, r.sliced(kernel, cuts)], array(dtype, i.dims))
        piece.attributes["window"] = replace(i.window, dims=(*window[:d], part, *window[d + 1 :]))
        made = by_taps(r, piece, expanded, dtype)
        assert made is not None, "a part of a window is cut until it has few places"
        r.drop(piece)
        total = made if total is None else r.emit("add", total, made)
    return None if total is None else r.converted(total, i.shape.dtype)


def _seen(r: Rewriter, x: Instruction, window: tuple[WindowDim, ...]) -> Instruction:
    """The elements that each place of the window sees, along a new last dimension."""
    edges = tuple(PadDim(w.low, w.high, w.base_dilation - 1) for w in window)
    zero = r.constant(0, x.shape.dtype)
    padded = r.emit("pad", x, zero, padding=(PadDim(0, 0), PadDim(0, 0), *edges))
    sizes = tuple(w.positions(n) for w, n in zip(window, x.dims[2:], strict=True))
    whole = [SliceDim(0, n) for n in x.dims[:2]]
    parts = []
    for place in product(*(range(w.size) for w in window)):
        starts = [k * w.window_dilation for k, w in zip(place, window, strict=True)]
        cuts = [
            SliceDim(start, start + (n - 1) * w.stride + 1, w.stride)
            for start, n, w in zip(starts, sizes, window, strict=True)
        ]
        part = r.emit("slice", padded, slice=(*whole, *cuts))
        parts.append(r.reshaped(part, (*part.dims, 1)))
    return parts[0] if len(parts) == 1 else r.emit("concatenate", *parts, dimensions=(len(x.dims),))
