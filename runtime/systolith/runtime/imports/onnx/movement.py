"""Operations that only move elements, or choose which."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from systolith.compiler.xla_builder.movement import GatherDimensionNumbers
from systolith.isa.dtypes import S32
from systolith.runtime.imports.onnx.broadcast import dims, element, full, spread
from systolith.runtime.imports.onnx.node import Made, Node, Rule, image


def _reshape(n: Node) -> Made:
    x, sizes = n.x(), n.known(1).tolist()
    if not n.get("allowzero", 0):
        sizes = [dims(x)[d] if size == 0 else size for d, size in enumerate(sizes)]
    if -1 in sizes:
        rest = prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = prod(dims(x)) // rest if rest else 0
    return [n.b.reshape(x, sizes)]


def _flatten(n: Node) -> Made:
    x, axis = n.x(), int(n.get("axis", 1))
    first = axis % len(dims(x)) if axis < 0 else axis
    return [n.b.reshape(x, [prod(dims(x)[:first]), prod(dims(x)[first:])])]


def _squeeze(n: Node) -> Made:
    x = n.x()
    axes = n.ints("axes", 1)
    gone = {a % len(dims(x)) for a in axes} if axes is not None else {d for d, k in enumerate(dims(x)) if k == 1}
    return [n.b.reshape(x, [size for d, size in enumerate(dims(x)) if d not in gone])]


def _unsqueeze(n: Node) -> Made:
    x, axes = n.x(), n.ints("axes", 1) or []
    rank = len(dims(x)) + len(axes)
    new, rest = {a % rank for a in axes}, iter(dims(x))
    return [n.b.reshape(x, [1 if d in new else next(rest) for d in range(rank)])]


def _transpose(n: Node) -> Made:
    x = n.x()
    return [n.b.transpose(x, n.get("perm", list(range(len(dims(x))))[::-1]))]


def _concat(n: Node) -> Made:
    axis = n.axis(0, len(n.graph.dims(n.proto.input[0])))
    images = [n.image(k) for k in range(len(n.proto.input))]
    if axis == 1 and all(channels > 1 for _, channels in images):
        return [image(n.b.concat_in_dim([x for x, _ in images], images[0][1]), images[0][1])]
    return [n.b.concat_in_dim(n.inputs, axis)]


def _expand(n: Node) -> Made:
    return [spread(n.b, n.x(), np.broadcast_shapes(dims(n.x()), tuple(n.known(1).tolist())))]


def _slice(n: Node) -> Made:
    b, x = n.b, n.x()
    starts, ends = n.known(1).tolist(), n.known(2).tolist()
    axes = n.known(3).tolist() if n.has(3) else list(range(len(starts)))
    steps = n.known(4).tolist() if n.has(4) else [1] * len(starts)
    low, high, stride = [0] * len(dims(x)), list(dims(x)), [1] * len(dims(x))
    turned = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        d = axis % len(dims(x))
        chosen = range(dims(x)[d])[start:end:step]
        if step < 0:
            turned.append(d)
            chosen = chosen[::-1]
        low[d], stride[d] = (chosen.start if chosen else 0), abs(step)
        high[d] = chosen[-1] + 1 if chosen else low[d]
    made = b.slice(x, low, high, stride)
    return [b.rev(made, turned) if turned else made]


def _split(n: Node) -> Made:
    x = n.x()
    axis = n.axis(0, len(dims(x)))
    size, count = dims(x)[axis], int(n.get("num_outputs", len(n.proto.output)))
    each = -(-size // count)
    sizes = n.ints("split", 1) or [min(each, size - k * each) for k in range(count)]
    ends = np.cumsum(sizes).tolist()
    return [n.b.slice_in_dim(x, end - part, end, 1, axis) for end, part in zip(ends, sizes, strict=True)]


def _gather(n: Node) -> Made:
    b, x, at = n.b, n.x(0), n.x(1)
    axis = n.axis(0, len(dims(x)))
    below = b.lt(at, full(b, at, 0))
    at = b.select(below, b.add(at, full(b, at, dims(x)[axis])), at)
    at = b.convert_element_type(at, S32.name)
    rank, indices = len(dims(x)), len(dims(at))
    offsets = [d if d < axis else d + indices - 1 for d in range(rank) if d != axis]
    numbers = GatherDimensionNumbers(offsets, (axis,), (axis,), indices)
    return [b.gather(x, at, numbers, [1 if d == axis else size for d, size in enumerate(dims(x))])]


def _pad(n: Node) -> Made:
    b, x = n.b, n.x()
    n.only("mode", "constant")
    if n.has(3):
        raise n.refuse("axes: give pads of all dimensions")
    pads, rank = n.known(1).tolist(), len(dims(x))
    value = b.reshape(n.x(2), []) if n.has(2) else b.zero(element(x).name)
    return [b.pad(x, value, list(zip(pads[:rank], pads[rank:], strict=True)))]


MOVEMENTS: Mapping[str, Rule] = {
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""Rules by operation."""
