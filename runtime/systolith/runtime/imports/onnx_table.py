"""ONNX's operations in HLO; meanings: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from systolith.compiler.xla_builder import XlaBuilder, XlaComputation, XlaOp
from systolith.compiler.xla_builder.contraction import ConvolutionDimensionNumbers, DotDimensionNumbers
from systolith.compiler.xla_builder.movement import GatherDimensionNumbers
from systolith.isa.dtypes import S32, DType, Kind
from systolith.runtime.imports.onnx_graph import Graph, OnnxError, Value, element_type

if TYPE_CHECKING:
    from onnx import NodeProto

Pads = list[tuple[int, int]]


class Node:
    """An operation and its inputs.

    Attributes:
        b: builds the module.
        graph: where it is.
        where: names it in errors.
    """

    def __init__(self, graph: Graph, proto: NodeProto, where: str) -> None:
        self.b, self.graph, self.proto, self.where = graph.b, graph, proto, where

    def has(self, n: int) -> bool:
        """Whether there is an input."""
        return n < len(self.proto.input) and bool(self.proto.input[n])

    def x(self, n: int = 0) -> XlaOp:
        """An input."""
        if not self.has(n):
            raise OnnxError(f"{self.where}: input {n} is missing")
        return self.graph.named(self.proto.input[n])

    @property
    def inputs(self) -> list[XlaOp]:
        return [self.x(n) for n in range(len(self.proto.input))]

    def known(self, n: int) -> np.ndarray[Any, Any]:
        """An input whose value does not depend on the run."""
        value = self.graph.values[self.proto.input[n]] if self.has(n) else None
        if not isinstance(value, np.ndarray):
            raise OnnxError(f"{self.where}: {self.proto.input[n]!r}: must be known before the run")
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        from onnx import helper

        found = next((a for a in self.proto.attribute if a.name == name), None)
        if found is None:
            return default
        value = helper.get_attribute_value(found)
        return value.decode() if isinstance(value, bytes) else value

    def ints(self, name: str, n: int) -> list[int] | None:
        """Integers that are an attribute, or input `n` in later versions."""
        given = self.get(name)
        if given is None and self.has(n):
            given = self.known(n).reshape(-1).tolist()
        return None if given is None else [int(v) for v in given]

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse other values of an attribute; the first is its default."""
        value = self.get(name, allowed[0])
        if value not in allowed:
            raise OnnxError(f"{self.where}: {name} = {value}: must be {' or '.join(map(str, allowed))}")

    def axis(self, default: int, rank: int) -> int:
        return int(self.get("axis", default)) % max(rank, 1)

    def refuse(self, text: str) -> OnnxError:
        return OnnxError(f"{self.where}: {text}")


def dims(x: XlaOp) -> tuple[int, ...]:
    """The dimensions of a value."""
    return tuple(x.shape.dims)


def element(x: XlaOp) -> DType:
    """The element type of a value."""
    return x.shape.dtype


def full(b: XlaBuilder, like: XlaOp, value: float) -> XlaOp:
    """An array of one number, as another is."""
    return b.broadcast(b.scalar_like(like, value), dims(like))


def spread(b: XlaBuilder, x: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """Broadcast as numpy does."""
    have, first = dims(x), len(sizes) - len(dims(x))
    if have == tuple(sizes):
        return x
    kept = [d for d, n in enumerate(have) if n != 1 or sizes[d + first] == 1]
    squeezed = b.reshape(x, [have[d] for d in kept])
    return b.broadcast_in_dim(squeezed, sizes, [d + first for d in kept])


def together(b: XlaBuilder, *given: XlaOp) -> list[XlaOp]:
    """Values broadcast to the shape that they have together."""
    sizes = np.broadcast_shapes(*map(dims, given))
    return [spread(b, x, sizes) for x in given]


def reducer(method: str, of: DType) -> XlaComputation:
    """The computation of two scalars that a reduction takes."""
    made = XlaBuilder(method)
    x, y = (made.parameter(n, f"{of}[]") for n in range(2))
    getattr(made, method)(x, y)
    return made.build()


def _start(b: XlaBuilder, method: str, of: DType) -> XlaOp:
    if method in ("max", "min"):
        if of.kind is Kind.FLOAT:
            return b.constant(np.array(-np.inf if method == "max" else np.inf, of.stored))
        return b.min_value(of.name) if method == "max" else b.max_value(of.name)
    return b.zero(of.name) if method == "add" else b.one(of.name)


def reduced(b: XlaBuilder, x: XlaOp, method: str, axes: Sequence[int], keep: bool = False) -> XlaOp:
    """Elements along axes combined."""
    made = b.reduce(x, _start(b, method, element(x)), reducer(method, element(x)), sorted(axes))
    return b.reshape(made, [1 if d in axes else n for d, n in enumerate(dims(x))]) if keep else made


def mean(b: XlaBuilder, x: XlaOp, axes: Sequence[int], keep: bool = False) -> XlaOp:
    """The mean along axes."""
    total = reduced(b, x, "add", axes, keep)
    return b.div(total, full(b, total, prod(dims(x)[d] for d in axes)))


Made = Sequence[Value]
Rule = Callable[[Node], Made]


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
    x, b = n.x(), n.b
    n.only("training_mode", 0)
    scale, offset, average, variance = (n.x(k) for k in range(1, 5))
    factor = b.mul(scale, b.rsqrt(b.add(variance, full(b, variance, n.get("epsilon", 1e-5)))))
    rest = b.sub(offset, b.mul(average, factor))
    factor, rest = (b.broadcast_in_dim(v, dims(x), [1]) for v in (factor, rest))
    return [b.add(b.mul(x, factor), rest)]


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
    b, x, w = n.b, n.x(0), n.x(1)
    rank = len(dims(x)) - 2
    if rank not in (1, 2, 3):
        raise n.refuse(f"{rank} spatial dimensions: must be 1 to 3")
    strides, dilations, pads = _window(n, dims(x)[2:], dims(w)[2:])
    spatial = tuple(range(2, rank + 2))
    numbers = ConvolutionDimensionNumbers(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)
    groups = int(n.get("group", 1))
    made = b.conv_general_dilated(x, w, strides, pads, [1] * rank, dilations, numbers, groups)
    return [b.add(made, b.broadcast_in_dim(n.x(2), dims(made), [1])) if n.has(2) else made]


def _pool(n: Node) -> Made:
    b, x = n.b, n.x()
    n.only("ceil_mode", 0)
    n.only("storage_order", 0)
    window = list(n.get("kernel_shape"))
    strides, dilations, pads = _window(n, dims(x)[2:], window)
    method = "max" if n.proto.op_type == "MaxPool" else "add"

    def pooled(value: XlaOp) -> XlaOp:
        return b.reduce_window_with_general_padding(
            value,
            _start(b, method, element(x)),
            reducer(method, element(x)),
            [1, 1, *window],
            [1, 1, *strides],
            window_dilations=[1, 1, *dilations],
            padding=[(0, 0), (0, 0), *pads],
        )

    made = pooled(x)
    if method == "max":
        return [made]
    if n.get("count_include_pad", 0) or not any(map(any, pads)):
        return [b.div(made, full(b, made, prod(window)))]
    return [b.div(made, pooled(full(b, x, 1)))]


def _global_pool(n: Node) -> Made:
    x = n.x()
    axes = list(range(2, len(dims(x))))
    average = n.proto.op_type == "GlobalAveragePool"
    return [mean(n.b, x, axes, keep=True) if average else reduced(n.b, x, "max", axes, keep=True)]


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
    return [n.b.concat_in_dim(n.inputs, n.axis(0, len(dims(n.x()))))]


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


TABLE: Mapping[str, Rule] = {
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
    **{op: _reduction(method) for op, method in {
        "ReduceMax": "max", "ReduceMean": "mean", "ReduceMin": "min", "ReduceProd": "mul", "ReduceSum": "add",
    }.items()},
    "AveragePool": _pool,
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "Dropout": _identity,
    "Elu": _elu,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Identity": _identity,
    "LayerNormalization": _layer_normalization,
    "LeakyRelu": _leaky_relu,
    "LogSoftmax": _softmax,
    "MatMul": _matmul,
    "MaxPool": _pool,
    "Pad": _pad,
    "Pow": _pow,
    "Relu": _relu,
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}  # fmt: skip
"""The rule of each operation: its results, of which the last optional ones may be left out."""
