"""Matrix products, and operations on windows over spatial dimensions: convolutions, pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeVar

import numpy as np

from systolith.compiler.xla_builder import XlaOp
from systolith.compiler.xla_builder.contraction import ConvolutionDimensionNumbers, DotDimensionNumbers
from systolith.runtime.imports.onnx.broadcast import dims, element, full, spread
from systolith.runtime.imports.onnx.node import Made, Node, Rule, image
from systolith.runtime.imports.onnx.reduction import reducer, start

Pads = list[tuple[int, int]]
T = TypeVar("T")


def _matmul(n: Node) -> Made:
    b, x, y = n.b, n.x(0), n.x(1)
    left, right = len(dims(x)), len(dims(y))
    x = b.reshape(x, [1, *dims(x)]) if left == 1 else x
    y = b.reshape(y, [*dims(y), 1]) if right == 1 else y
    (*batch_x, rows, inner), (*batch_y, _, columns) = dims(x), dims(y)
    if not batch_y:
        numbers = DotDimensionNumbers((len(dims(x)) - 1,), (0,))
        made, batch = b.dot_general(x, y, numbers), list(batch_x)
    else:
        batch = list(np.broadcast_shapes(tuple(batch_x), tuple(batch_y)))
        x, y = spread(b, x, [*batch, rows, inner]), spread(b, y, [*batch, inner, columns])
        axes = range(len(batch))
        made = b.dot_general(x, y, DotDimensionNumbers((len(batch) + 1,), (len(batch),), axes, axes))
    sizes = [*batch, *([rows] if left > 1 else []), *([columns] if right > 1 else [])]
    return [b.reshape(made, sizes)]


def _gemm(n: Node) -> Made:
    b, x, y = n.b, n.x(0), n.x(1)
    numbers = DotDimensionNumbers((0 if n.get("transA", 0) else 1,), (1 if n.get("transB", 0) else 0,))
    made = b.dot_general(x, y, numbers)
    if (alpha := n.get("alpha", 1.0)) != 1:
        made = b.mul(made, full(b, made, alpha))
    if not n.has(2):
        return [made]
    offset = spread(b, n.x(2), dims(made))
    return [b.add(made, b.mul(offset, full(b, offset, beta)) if (beta := n.get("beta", 1.0)) != 1 else offset)]


def _window(n: Node, sizes: Sequence[int], window: Sequence[int]) -> tuple[list[int], list[int], Pads]:
    """Strides, dilations and padding of a window over spatial dimensions."""
    rank = len(sizes)
    strides, dilations = (list(n.get(name, [1] * rank)) for name in ("strides", "dilations"))
    auto = n.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for size, stride, dilation, width in zip(sizes, strides, dilations, window, strict=True):
            total = max(0, (-(-size // stride) - 1) * stride + dilation * (width - 1) + 1 - size)
            less = total // 2
            pads.append((less, total - less) if auto == "SAME_UPPER" else (total - less, less))
        return strides, dilations, pads
    flat = [0] * 2 * rank if auto == "VALID" else list(n.get("pads", [0] * 2 * rank))
    return strides, dilations, list(zip(flat[:rank], flat[rank:], strict=True))


def _conv(n: Node) -> Made:
    b, rank = n.b, len(n.graph.dims(n.name(0))) - 2
    if rank not in (1, 2, 3):
        raise n.refuse(f"{rank} spatial dimensions: must be 1 to 3")
    x, w = n.graph.last(n.name(0)), n.graph.kernel(n.name(1))
    strides, dilations, pads = _window(n, dims(x)[1:-1], dims(w)[:-2])
    places, taps, last = tuple(range(1, rank + 1)), tuple(range(rank)), rank + 1
    numbers = ConvolutionDimensionNumbers(0, last, places, rank, last, taps, 0, last, places)
    groups = int(n.get("group", 1))
    made = b.conv_general_dilated(x, w, strides, pads, [1] * rank, dilations, numbers, groups)
    return [image(b.add(made, b.broadcast_in_dim(n.x(2), dims(made), [last])) if n.has(2) else made, last)]


def _pool(n: Node) -> Made:
    b, (x, channels) = n.b, n.image()
    n.only("ceil_mode", 0)
    n.only("storage_order", 0)
    window = list(n.get("kernel_shape"))
    sizes = dims(x)[1:-1] if channels > 1 else dims(x)[2:]
    strides, dilations, pads = _window(n, sizes, window)

    def placed(each: Sequence[T], other: T) -> list[T]:
        """Of spatial dimensions, with those of batch and channels."""
        return [other, *each, other] if channels > 1 else [other, other, *each]

    method = "max" if n.proto.op_type == "MaxPool" else "add"

    def pooled(value: XlaOp) -> XlaOp:
        return b.reduce_window_with_general_padding(
            value,
            start(b, method, element(x)),
            reducer(method, element(x)),
            placed(window, 1),
            placed(strides, 1),
            window_dilations=placed(dilations, 1),
            padding=placed(pads, (0, 0)),
        )

    made = pooled(x)
    if method == "add":
        inside = n.get("count_include_pad", 0) or not any(map(any, pads))
        made = b.div(made, full(b, made, prod(window)) if inside else pooled(full(b, x, 1)))
    return [image(made, channels)]


CONTRACTIONS: Mapping[str, Rule] = {
    "AveragePool": _pool,
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MaxPool": _pool,
}
"""Rules by operation."""
