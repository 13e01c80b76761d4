"""Convolutions in one order of dimensions: input and output batch, space, feature; kernel space, input, output."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.attributes import ConvDims
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter, rewrite


@dataclass(frozen=True)
class CanonicaliseConvolutions:
    """Transpose operands and result of every convolution into that order."""

    def run(self, module: Module) -> bool:
        return rewrite(module, _canonical)


def _canonical(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.opcode != "convolution" or any(o.shape.is_dynamic for o in i.operands):
        return None
    labels = i.conv_dims
    rank = len(labels.input_spatial)
    space, last = tuple(range(1, rank + 1)), rank + 1
    wanted = ConvDims(0, last, space, rank, last, tuple(range(rank)), 0, last, space)
    if labels == wanted:
        return None
    orders = (
        (labels.input_batch, *labels.input_spatial, labels.input_feature),
        (*labels.kernel_spatial, labels.kernel_input, labels.kernel_output),
    )
    operands = [transposed(r, o, order) for o, order in zip(i.operands, orders, strict=True)]
    back = (labels.output_batch, *labels.output_spatial, labels.output_feature)
    attributes = {k: v for k, v in i.attributes.items() if k != "sharding"} | {"dim_labels": wanted}
    shape = array(i.shape.dtype, tuple(i.dims[d] for d in back))
    made = r.emit("convolution", *operands, shape=shape, name=i.name, **attributes)
    places = tuple(back.index(d) for d in range(rank + 2))
    return (
        made
        if made.dims == i.dims and places == tuple(range(rank + 2))
        else r.emit("transpose", made, shape=i.shape, dimensions=places)
    )


def transposed(r: Rewriter, x: Instruction, order: tuple[int, ...]) -> Instruction:
    """The array with its dimensions in another order; itself if that is its own."""
    return x if order == tuple(range(len(order))) else r.emit("transpose", x, dimensions=order)
