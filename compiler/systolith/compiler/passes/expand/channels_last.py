"""Convolutions of images in NCHW, on images in NHWC.

A row of an operand of the matrix units is the channels of a pixel, read once for each element of the kernel.  Where
they lie apart, in memory, each is an access of its own; a transposed copy of the image has them side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter, rewrite

FEW = 8
"""Channels below which rows are as short in either order."""


@dataclass(frozen=True)
class MoveChannelsLast:
    """Transpose images in NCHW, and of any number of dimensions, before and after they are convolved."""

    def run(self, module: Module) -> bool:
        return rewrite(module, _channels_last)


def _channels_last(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.opcode != "convolution" or any(x.shape.is_dynamic for x in (i, *i.operands)):
        return None
    x, kernel = i.operands
    rank, labels = x.shape.rank, i.conv_dims
    last, spatial = rank - 1, tuple(range(1, rank - 1))
    inputs, outputs = (
        (labels.input_batch, labels.input_feature, *labels.input_spatial),
        (labels.output_batch, labels.output_feature, *labels.output_spatial),
    )
    if rank < 3 or {inputs, outputs} != {tuple(range(rank))} or x.dims[1] < FEW:
        return None
    if i.integer("feature_group_count", 1) > 1 or i.integer("batch_group_count", 1) > 1 or _is_dot(i):
        return None
    turned = replace(labels, input_feature=last, input_spatial=spatial, output_feature=last, output_spatial=spatial)
    order = (0, *range(2, rank), 1)
    made = r.like(i, [r.transposed(x, order), kernel], array(i.shape.dtype, [i.dims[d] for d in order]))
    made.attributes["dim_labels"] = turned
    return r.transposed(made, (0, last, *spatial))


def _is_dot(i: Instruction) -> bool:
    """Whether each pixel is a product of its own, of any order."""
    return all((w.size, w.stride, w.low, w.high, w.base_dilation) == (1, 1, 0, 0, 1) for w in i.window.dims)
