"""A plugin of systolith: a pass, an expander, a lowering, and the values of custom calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from systolith.compiler.hlo.ir import Instruction, Literal, Module
from systolith.compiler.index.affine import Box
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array


class SquarePowers:
    """Write `power(x, 2)` as `x * x`."""

    def run(self, module: Module) -> bool:
        return rewrite(module, _squared)


def _squared(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.opcode != "power":
        return None
    x, exponent = i.operands
    while exponent.opcode == "broadcast":
        (exponent,) = exponent.operands
    if exponent.opcode != "constant" or exponent.literal is None or np.any(np.asarray(exponent.literal) != 2):
        return None
    return r.emit("multiply", x, x, shape=i.shape)


def expand_swish(r: Rewriter, i: Instruction) -> Instruction:
    """Write custom call `example.swish` as `x * logistic(x)`."""
    (x,) = i.operands
    return r.emit("multiply", x, r.emit("logistic", x), shape=i.shape)


def lower_swap_halves(
    builder: TileBuilder, instruction: Instruction, operands: Sequence[Array | int], results: Sequence[Array]
) -> None:
    """Lower custom call `example.swap_halves`: the second half of an array's rows, then the first; copied by DMA."""
    source, result = operands[0], results[0]
    assert isinstance(source, Array)
    rows = source.dims[0]
    half = rows // 2
    for start, to, count in ((half, 0, rows - half), (0, rows - half, half)):
        part = _rows(source, start, count)
        builder.move(part, _rows(result, to, count), "swap halves")


def _rows(array: Array, start: int, count: int) -> Array:
    """Some rows, as an array of their own."""
    part = view(array, Box((start, *(0 for _ in array.dims[1:])), (count, *array.dims[1:])))
    return Array(part.buf, part.dtype, part.dims, part.strides, (0,) * len(part.dims), part.offset, part.dynamic)


def swish(i: Instruction, values: list[Literal]) -> Literal:
    """The value of `example.swish`."""
    x = np.asarray(values[0])
    return np.asarray(x / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)


def swap_halves(i: Instruction, values: list[Literal]) -> Literal:
    """The value of `example.swap_halves`."""
    x = np.asarray(values[0])
    half = x.shape[0] // 2
    return np.concatenate([x[half:], x[:half]])
