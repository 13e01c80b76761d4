"""ResNet-50 and BERT-base as ONNX graphs of full size, random weights, with the nodes that PyTorch's exporter writes.

Sources of the architectures: He et al., 2016 (v1.5: the stride in the 3 x 3); Devlin et al., 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RESNET50, RESNET50_WEIGHTS = (3, 4, 6, 3), 25_557_032
BERT_BASE_WEIGHTS = 109_482_240
"""Trainable numbers: of torchvision's resnet50, and of the BertModel of bert-base-uncased."""

Made = tuple[onnx.ModelProto, int]
"""A model, and how many trainable numbers it has."""


@dataclass
class Net:
    """A graph under way.

    Attributes:
        weights: initializers by name; `trained` counts the trainable numbers.
    """

    opset: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, Any] = field(default_factory=dict)
    trained: int = 0

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node; the name of its result."""
        out = f"/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{out}_output_0"], name=out, **attributes))
        return f"{out}_output_0"

    def weight(self, name: str, *dims: int, near: float = 0.0, spread: float | None = None) -> str:
        """A trainable array; by default as wide as keeps the variance of what it is multiplied with."""
        width = 1 / sqrt(prod(dims[1:]) or 1) if spread is None else spread
        self.weights[name] = (near + width * self.rng.standard_normal(dims, np.float32)).astype(np.float32)
        self.trained += prod(dims)
        return name

    def known(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant, as a node."""
        return self.add("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def model(self, name: str, inputs: Mapping[str, tuple[int, Any]], result: str) -> onnx.ModelProto:
        """The model; `inputs` are types and dimensions, which may be symbolic."""
        declared = [helper.make_tensor_value_info(n, kind, dims) for n, (kind, dims) in inputs.items()]
        weights = [numpy_helper.from_array(w, n) for n, w in self.weights.items()]
        out = helper.make_value_info(result, onnx.TypeProto())
        graph = helper.make_graph(self.nodes, name, declared, [out], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])


def resnet(counts: tuple[int, ...] = RESNET50, width: int = 64, classes: int = 1000, size: int = 224) -> Made:
    """A residual network of bottlenecks, with batch normalisations, on `size` x `size` images."""
    net = Net(opset=17)

    def norm(x: str, name: str, features: int) -> str:
        scale = net.weight(f"{name}.weight", features, near=1.0, spread=0.1)
        offset = net.weight(f"{name}.bias", features, spread=0.1)
        net.weights[f"{name}.running_mean"] = net.rng.standard_normal(features, np.float32) * np.float32(0.1)
        net.weights[f"{name}.running_var"] = net.rng.uniform(0.8, 1.2, features).astype(np.float32)
        moments = (f"{name}.running_mean", f"{name}.running_var")
        return net.add("BatchNormalization", x, scale, offset, *moments, epsilon=1e-5, momentum=0.9, training_mode=0)

    def conv(x: str, name: str, features: int, channels: int, window: int, stride: int = 1) -> str:
        w = net.weight(f"{name}.weight", features, channels, window, window)
        pads, kernel = [window // 2] * 4, [window] * 2
        attributes = {"dilations": [1, 1], "group": 1, "kernel_shape": kernel, "pads": pads, "strides": [stride] * 2}
        return norm(net.add("Conv", x, w, **attributes), f"{name}.bn", features)

    x = net.add("Relu", conv("image", "conv1", width, 3, 7, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2], ceil_mode=0)
    channels = width
    for stage, count in enumerate(counts):
        inner, outer = width << stage, 4 * width << stage
        for block in range(count):
            name, stride = f"layer{stage + 1}.{block}", 2 if stage and not block else 1
            y = net.add("Relu", conv(x, f"{name}.conv1", inner, channels, 1))
            y = net.add("Relu", conv(y, f"{name}.conv2", inner, inner, 3, stride))
            y = conv(y, f"{name}.conv3", outer, inner, 1)
            shortcut = x if block else conv(x, f"{name}.downsample", outer, channels, 1, stride)
            x, channels = net.add("Relu", net.add("Add", y, shortcut)), outer
    x = net.add("Flatten", net.add("GlobalAveragePool", x), axis=1)
    w, b = net.weight("fc.weight", classes, channels), net.weight("fc.bias", classes)
    x = net.add("Gemm", x, w, b, alpha=1.0, beta=1.0, transB=1)
    inputs = {"image": (TensorProto.FLOAT, ("batch", 3, size, size))}
    return net.model("resnet50", inputs, x), net.trained


def bert(layers: int = 12, width: int = 768, heads: int = 12, words: int = 30522, positions: int = 512) -> Made:
    """An encoder with embeddings and a pooler; batch and sequence are symbolic, nodes compute the shapes."""
    net, each = Net(opset=14), width // heads

    def size(x: str, axis: int) -> str:
        return net.add("Gather", net.add("Shape", x), net.known(axis), axis=0)

    def shape(*sizes: str | int) -> str:
        zero = net.known([0])
        parts = [net.known([s]) if isinstance(s, int) else net.add("Unsqueeze", s, zero) for s in sizes]
        return net.add("Concat", *parts, axis=0)

    def norm(x: str, name: str) -> str:
        centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
        square = net.add("Pow", centred, net.known(2.0, np.float32))
        variance = net.add("Add", net.add("ReduceMean", square, axes=[-1]), net.known(1e-12, np.float32))
        x = net.add("Div", centred, net.add("Sqrt", variance))
        x = net.add("Mul", x, net.weight(f"{name}.weight", width, near=1.0, spread=0.1))
        return net.add("Add", x, net.weight(f"{name}.bias", width, spread=0.1))

    def linear(x: str, name: str, have: int, out: int) -> str:
        w = net.weight(f"{name}.weight", have, out, spread=1 / sqrt(have))
        return net.add("Add", net.weight(f"{name}.bias", out, spread=0.1), net.add("MatMul", x, w))

    def split(x: str, perm: list[int]) -> str:
        sizes = shape(size(x, 0), size(x, 1), heads, each)
        return net.add("Transpose", net.add("Reshape", x, sizes), perm=perm)

    one = net.known(1.0, np.float32)
    mask = net.add("Unsqueeze", net.add("Unsqueeze", "attention_mask", net.known([1])), net.known([2]))
    mask = net.add("Sub", one, net.add("Cast", mask, to=TensorProto.FLOAT))
    mask = net.add("Mul", mask, net.known(np.finfo(np.float32).min, np.float32))

    net.weights["position_ids"] = np.arange(positions, dtype=np.int64)[None]
    axes = (net.known([1]), net.known([1]))
    length = net.add("Unsqueeze", size("input_ids", 1), net.known([0]))
    at = net.add("Slice", "position_ids", net.known([0]), length, *axes)
    x = net.add("Gather", net.weight("word", words, width, spread=0.5), "input_ids")
    x = net.add("Add", x, net.add("Gather", net.weight("type", 2, width, spread=0.5), "token_type_ids"))
    x = net.add("Add", x, net.add("Gather", net.weight("position", positions, width, spread=0.5), at))
    x = norm(x, "embeddings")
    for n in range(layers):
        name = f"layer.{n}"
        q, k, v = (linear(x, f"{name}.{part}", width, width) for part in ("query", "key", "value"))
        scores = net.add("MatMul", split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]))
        scores = net.add("Add", net.add("Div", scores, net.known(sqrt(each), np.float32)), mask)
        mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), split(v, [0, 2, 1, 3]))
        mixed = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
        merged = net.add("Reshape", mixed, shape(size(mixed, 0), size(mixed, 1), width))
        x = norm(net.add("Add", linear(merged, f"{name}.output", width, width), x), f"{name}.attention")
        y = linear(x, f"{name}.up", width, 4 * width)
        erf = net.add("Add", net.add("Erf", net.add("Div", y, net.known(sqrt(2), np.float32))), one)
        y = net.add("Mul", net.add("Mul", y, erf), net.known(0.5, np.float32))
        x = norm(net.add("Add", linear(y, f"{name}.down", 4 * width, width), x), name)
    first = net.add("Gather", x, net.known(0), axis=1)
    w, b = net.weight("pooler.weight", width, width), net.weight("pooler.bias", width, spread=0.1)
    x = net.add("Tanh", net.add("Gemm", first, w, b, alpha=1.0, beta=1.0, transB=1))
    ids = (TensorProto.INT64, ("batch", "sequence"))
    return net.model("bert", dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ids), x), net.trained
