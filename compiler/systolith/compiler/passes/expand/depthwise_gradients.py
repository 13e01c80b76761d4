"""Gradients of the weights of depthwise convolutions: a sum of products of two images for each tap.

JAX writes them as convolutions with a group for each channel, whose window is the whole image.  A product of one
channel fills one column of the matrix units; on the vector unit the channels lie in lanes, and a pass over the images
makes the sums of all taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from systolith.compiler.hlo.attributes import PadDim, SliceDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import F32

MOST = 64
"""Taps: each is a sum of its own."""


@dataclass(frozen=True)
class SumDepthwiseGradients:
    """Write a convolution whose batches are groups of one, each of one feature, as a sum for each of its outputs."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _sums(r, i, callees) if _is_gradient(i) else None, ("convolution",))
        callees.place()
        return changed


def _is_gradient(i: Instruction) -> bool:
    if i.opcode != "convolution" or i.integer("feature_group_count", 1) != 1:
        return False
    labels, groups = i.conv_dims, i.integer("batch_group_count", 1)
    single = 1 < groups == i.operands[0].dims[labels.input_batch] == i.dims[labels.output_feature]
    plain = all(w.base_dilation == 1 and not w.reversal for w in i.window.dims)
    types = {i.shape.dtype, *(o.shape.dtype for o in i.operands)}
    floats = len(types) == 1 and all(t.is_float and t.bits <= 32 for t in types)
    taps = prod(i.dims[d] for d in labels.output_spatial)
    return single and plain and floats and 0 < taps <= MOST and bool(i.operands[1].shape.size)


def _sums(r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
    """The convolution: image and kernel with the dimensions of a sum, then the channels."""
    labels, window = i.conv_dims, i.window.dims
    x, kernel = (r.converted(o, F32) for o in i.operands)
    x = r.transposed(x, (labels.input_feature, *labels.input_spatial, labels.input_batch))
    kernel = r.transposed(kernel, (labels.kernel_input, *labels.kernel_spatial, labels.kernel_output))
    if any(w.low or w.high for w in window):
        around = (PadDim(0, 0), *(PadDim(w.low, w.high) for w in window), PadDim(0, 0))
        x = r.emit("pad", x, r.constant(0, F32), padding=around)
    outputs = [i.dims[d] for d in labels.output_spatial]
    summed = tuple(range(len(window) + 1))
    sums = []
    for tap in product(*map(range, outputs)):
        seen = r.emit("slice", x, slice=_seen(x, i, tap))
        made = callees.reduced(r, "add", r.emit("multiply", seen, kernel), 0, summed)
        sums.append(r.reshaped(made, (1, *made.dims)))
    whole = sums[0] if len(sums) == 1 else r.emit("concatenate", *sums, dimensions=(0,))
    # The result has a batch of one, and each channel is a feature.
    whole = r.reshaped(whole, (1, *outputs, whole.dims[-1]))
    places = (labels.output_batch, *labels.output_spatial, labels.output_feature)
    order = [places.index(d) for d in range(len(places))]
    return r.converted(r.transposed(whole, order), i.shape.dtype)


def _seen(x: Instruction, i: Instruction, tap: Sequence[int]) -> tuple[SliceDim, ...]:
    """What an output sees of the padded image."""
    parts = [SliceDim(0, x.dims[0])]
    for t, w in zip(tap, i.window.dims, strict=True):
        first = t * w.stride
        parts.append(SliceDim(first, first + (w.size - 1) * w.window_dilation + 1, w.window_dilation))
    return (*parts, SliceDim(0, x.dims[-1]))
