"""Operations on one element of each input."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import numpy as np

from systolith.compiler.xla_builder import XlaBuilder, XlaOp
from systolith.isa.dtypes import Kind
from systolith.runtime.imports.onnx.broadcast import dims, element, full, spread, together
from systolith.runtime.imports.onnx.graph import element_type
from systolith.runtime.imports.onnx.node import Made, Node, Rule


def _unary(method: str) -> Rule:
    return lambda n: [getattr(n.b, method)(n.x())]


def _binary(method: str) -> Rule:
    return lambda n: [getattr(n.b, method)(*together(n.b, n.x(0), n.x(1)))]


def _variadic(method: str) -> Rule:
    def rule(n: Node) -> Made:
        first, *rest = together(n.b, *n.inputs)
        for other in rest:
            first = getattr(n.b, method)(first, other)
        return [first]

    return rule


def _identity(n: Node) -> Made:
    return [n.x()]


def _relu(n: Node) -> Made:
    return [n.b.max(n.x(), full(n.b, n.x(), 0))]


def _leaky_relu(n: Node) -> Made:
    x, b = n.x(), n.b
    return [b.select(b.lt(x, full(b, x, 0)), b.mul(x, full(b, x, n.get("alpha", 0.01))), x)]


def _elu(n: Node) -> Made:
    x, b = n.x(), n.b
    below = b.mul(full(b, x, n.get("alpha", 1.0)), b.expm1(x))
    return [b.select(b.lt(x, full(b, x, 0)), below, x)]


def _hard(b: XlaBuilder, x: XlaOp, alpha: float, beta: float) -> XlaOp:
    line = b.add(b.mul(x, full(b, x, alpha)), full(b, x, beta))
    return b.clamp(full(b, x, 0), line, full(b, x, 1))


def _hard_sigmoid(n: Node) -> Made:
    return [_hard(n.b, n.x(), n.get("alpha", 0.2), n.get("beta", 0.5))]


def _hard_swish(n: Node) -> Made:
    return [n.b.mul(n.x(), _hard(n.b, n.x(), 1 / 6, 0.5))]


def _gelu(n: Node) -> Made:
    x, b = n.x(), n.b
    n.only("approximate", "none", "tanh")
    if n.get("approximate", "none") == "tanh":
        cube = b.mul(full(b, x, 0.044715), b.mul(x, b.mul(x, x)))
        inner = b.tanh(b.mul(full(b, x, sqrt(2 / np.pi)), b.add(x, cube)))
    else:
        inner = b.erf(b.mul(x, full(b, x, sqrt(0.5))))
    return [b.mul(b.mul(full(b, x, 0.5), x), b.add(full(b, x, 1), inner))]


def _clip(n: Node) -> Made:
    x, b = n.x(), n.b
    if n.has(1):
        x = b.max(x, spread(b, n.x(1), dims(x)))
    if n.has(2):
        x = b.min(x, spread(b, n.x(2), dims(x)))
    return [x]


def _pow(n: Node) -> Made:
    x, y = n.x(0), n.x(1)
    return [n.b.pow(*together(n.b, x, n.b.convert_element_type(y, element(x).name)))]


def _where(n: Node) -> Made:
    return [n.b.select(*together(n.b, n.x(0), n.x(1), n.x(2)))]


def _cast(n: Node) -> Made:
    to = element_type(n.get("to"), n.where)
    if to.kind is Kind.PRED:
        return [n.b.ne(n.x(), full(n.b, n.x(), 0))]
    return [n.b.convert_element_type(n.x(), to.name)]


ELEMENTWISE: Mapping[str, Rule] = {
    **{op: _unary(method) for op, method in {
        "Abs": "abs", "Acos": "acos", "Asin": "asin", "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh",
        "Erf": "erf", "Exp": "exp", "Floor": "floor", "Log": "log", "Neg": "neg", "Not": "not_",
        "Reciprocal": "reciprocal", "Round": "round_nearest_even", "Sigmoid": "logistic", "Sign": "sign", "Sin": "sin",
        "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
    }.items()},
    **{op: _binary(method) for op, method in {
        "Add": "add", "And": "and_", "Div": "div", "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge",
        "Less": "lt", "LessOrEqual": "le", "Mul": "mul", "Or": "or_", "Sub": "sub", "Xor": "xor",
    }.items()},
    **{op: _variadic(method) for op, method in {"Max": "max", "Min": "min", "Sum": "add"}.items()},
    "Cast": _cast,
    "Clip": _clip,
    "Dropout": _identity,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Identity": _identity,
    "LeakyRelu": _leaky_relu,
    "Pow": _pow,
    "Relu": _relu,
    "Where": _where,
}  # fmt: skip
"""Rules by operation."""
