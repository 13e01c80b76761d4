"""Reductions along axes, and norms and softmax, which are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from systolith.compiler.xla_builder import XlaBuilder, XlaComputation, XlaOp
from systolith.isa.dtypes import DType, Kind
from systolith.runtime.imports.onnx.broadcast import dims, element, full, spread
from systolith.runtime.imports.onnx.node import Made, Node, Rule, image


def reducer(method: str, of: DType) -> XlaComputation:
    """The computation of two scalars that a reduction takes."""
    made = XlaBuilder(method)
    x, y = (made.parameter(n, f"{of}[]") for n in range(2))
    getattr(made, method)(x, y)
    return made.build()


def start(b: XlaBuilder, method: str, of: DType) -> XlaOp:
    """The value that a reduction starts with."""
    if method in ("max", "min"):
        if of.kind is Kind.FLOAT:
            return b.constant(np.array(-np.inf if method == "max" else np.inf, of.stored))
        return b.min_value(of.name) if method == "max" else b.max_value(of.name)
    return b.zero(of.name) if method == "add" else b.one(of.name)


def reduced(b: XlaBuilder, x: XlaOp, method: str, axes: Sequence[int], keep: bool = False) -> XlaOp:
    """Elements along axes combined."""
    made = b.reduce(x, start(b, method, element(x)), reducer(method, element(x)), sorted(axes))
    return b.reshape(made, [1 if d in axes else n for d, n in enumerate(dims(x))]) if keep else made


def mean(b: XlaBuilder, x: XlaOp, axes: Sequence[int], keep: bool = False) -> XlaOp:
    """The mean along axes."""
    total = reduced(b, x, "add", axes, keep)
    return b.div(total, full(b, total, prod(dims(x)[d] for d in axes)))


def _reduction(method: str) -> Rule:
    def rule(n: Node) -> Made:
        x = n.x()
        rank = len(dims(x))
        axes = n.ints("axes", 1)
        if not axes:
            if n.get("noop_with_empty_axes", 0):
                return [x]
            axes = list(range(rank))
        axes, keep = [a % rank for a in axes], bool(n.get("keepdims", 1))
        return [mean(n.b, x, axes, keep) if method == "mean" else reduced(n.b, x, method, axes, keep)]

    return rule


def _of(before: str, after: str = "") -> Rule:
    """A sum of a function of the elements, and a function of that; empty: the value itself."""

    def rule(n: Node) -> Made:
        x, b = n.x(), n.b
        n.only("noop_with_empty_axes", 0)
        rank = len(dims(x))
        axes = [a % rank for a in n.ints("axes", 1) or range(rank)]
        total = reduced(b, getattr(b, before)(x) if before else x, "add", axes, bool(n.get("keepdims", 1)))
        return [getattr(b, after)(total) if after else total]

    return rule


def _softmax(n: Node) -> Made:
    x, b = n.x(), n.b
    axis = [n.axis(-1, len(dims(x)))]
    shifted = b.sub(x, spread(b, reduced(b, x, "max", axis, keep=True), dims(x)))
    powers = b.exp(shifted)
    total = reduced(b, powers, "add", axis, keep=True)
    if n.proto.op_type == "LogSoftmax":
        return [b.sub(shifted, spread(b, b.log(total), dims(x)))]
    return [b.div(powers, spread(b, total, dims(x)))]


def _layer_normalization(n: Node) -> Made:
    x, b = n.x(), n.b
    axes = list(range(n.axis(-1, len(dims(x))), len(dims(x))))
    centred = b.sub(x, spread(b, mean(b, x, axes, keep=True), dims(x)))
    variance = mean(b, b.mul(centred, centred), axes, keep=True)
    scale = b.rsqrt(b.add(variance, full(b, variance, n.get("epsilon", 1e-5))))
    y = b.mul(b.mul(centred, spread(b, scale, dims(x))), spread(b, n.x(1), dims(x)))
    return [b.add(y, spread(b, n.x(2), dims(x))) if n.has(2) else y]


def _batch_normalization(n: Node) -> Made:
    (x, channels), b = n.image(), n.b
    n.only("training_mode", 0)
    scale, offset, average, variance = (n.x(k) for k in range(1, 5))
    factor = b.mul(scale, b.rsqrt(b.add(variance, full(b, variance, n.get("epsilon", 1e-5)))))
    rest = b.sub(offset, b.mul(average, factor))
    factor, rest = (b.broadcast_in_dim(v, dims(x), [channels]) for v in (factor, rest))
    return [image(b.add(b.mul(x, factor), rest), channels)]


def _global_pool(n: Node) -> Made:
    x, channels = n.image()
    axes = [d for d in range(1, len(dims(x))) if d != channels]
    average = n.proto.op_type == "GlobalAveragePool"
    made = mean(n.b, x, axes, keep=True) if average else reduced(n.b, x, "max", axes, keep=True)
    return [image(made, channels)]


REDUCTIONS: Mapping[str, Rule] = {
    **{op: _reduction(method) for op, method in {
        "ReduceMax": "max", "ReduceMean": "mean", "ReduceMin": "min", "ReduceProd": "mul", "ReduceSum": "add",
    }.items()},
    "ReduceL1": _of("abs"),
    "ReduceL2": _of("square", "sqrt"),
    "ReduceLogSum": _of("", "log"),
    "ReduceSumSquare": _of("square"),
    "BatchNormalization": _batch_normalization,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _softmax,
    "Softmax": _softmax,
}  # fmt: skip
"""Rules by operation."""
