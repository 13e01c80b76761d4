"""Small ONNX models: each operation of the table in several forms, and blocks of networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, I64 = np.float32, np.int64


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        op: its type.
        inputs: shapes of inputs of the run (f32), or arrays, which are initializers; None: left out.
        attributes: of the node.
        outputs: how many.
        positive: inputs are positive.
        of: type of the inputs.
    """

    op: str
    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    positive: bool = False
    of: Any = F32

    def __str__(self) -> str:
        return f"{self.op}-{len(self.inputs)}-{'-'.join(f'{k}={v}' for k, v in self.attributes.items())}"


def i64(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, I64)


def f32(*dims: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(dims)).standard_normal(dims, F32)


X = (2, 3, 4, 5)
UNARY = "Abs Acos Asin Atanh Ceil Cos Cosh Erf Exp Floor Neg Round Sigmoid Sign Sin Sinh Tan Tanh Identity Relu".split()
BINARY = "Add Div Mul Sub Equal Greater GreaterOrEqual Less LessOrEqual Max Min Sum".split()
LOGICAL = "And Or Xor".split()
POOL = {"kernel_shape": [3, 2], "strides": [2, 1]}

CASES = [
    *(Case(op, [(3, 7)]) for op in UNARY),
    *(Case(op, [(3, 7)], positive=True) for op in ("Log", "Reciprocal", "Sqrt")),
    *(Case(op, [(3, 1, 5), (4, 1)]) for op in BINARY),
    *(Case(op, [(3, 1), (4,)], of=np.bool_) for op in LOGICAL),
    Case("Not", [(3, 4)], of=np.bool_),
    Case("Max", [(2, 3), (3,), (1, 1)]),
    Case("Pow", [(3, 4), (3, 4)], positive=True),
    Case("Pow", [(3, 4), i64(2)], positive=True),
    Case("Where", [np.array([[True], [False]]), (2, 3), (3,)]),
    Case("Cast", [(3, 4)], {"to": TensorProto.INT32}),
    Case("Cast", [(3, 4)], {"to": TensorProto.BOOL}),
    Case("Clip", [(3, 4), np.array(-0.5, F32), np.array(0.25, F32)]),
    Case("Clip", [(3, 4), None, np.array(0.25, F32)]),
    Case("LeakyRelu", [(3, 4)]),
    Case("LeakyRelu", [(3, 4)], {"alpha": 0.3}),
    Case("Elu", [(3, 4)], {"alpha": 0.7}),
    Case("HardSigmoid", [(3, 4)]),
    Case("HardSwish", [(3, 4)]),
    Case("Gelu", [(3, 4)]),
    Case("Gelu", [(3, 4)], {"approximate": "tanh"}),
    Case("Dropout", [(3, 4)]),
    *(Case(op, [X], {"axis": axis}) for op in ("Softmax", "LogSoftmax") for axis in (-1, 1)),
    Case("LayerNormalization", [X, f32(4, 5), f32(4, 5)], {"axis": 2, "epsilon": 1e-3}),
    Case("LayerNormalization", [X, f32(5)]),
    Case("BatchNormalization", [X, f32(3), f32(3), f32(3), np.abs(f32(3))], {"epsilon": 1e-3}),
    *(
        Case(f"Reduce{name}", [X, axes], {"keepdims": keep})
        for name in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
        for axes, keep in ((i64(1, -1), 1), (i64(0), 0), (None, 0))
    ),
    *(
        Case("ReduceLogSum", [X, axes], {"keepdims": keep}, positive=True)
        for axes, keep in ((i64(1, -1), 1), (i64(0), 0), (None, 0))
    ),
    Case("MatMul", [(3, 4), (4, 5)]),
    Case("MatMul", [(2, 3, 4), (4, 5)]),
    Case("MatMul", [(2, 1, 3, 4), (5, 4, 2)]),
    Case("MatMul", [(4,), (2, 4, 3)]),
    Case("MatMul", [(2, 3, 4), (4,)]),
    Case("Gemm", [(3, 4), (4, 5), (5,)]),
    Case("Gemm", [(4, 3), (5, 4), (3, 1)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    Case("Gemm", [(3, 4), (4, 5)]),
    Case("Einsum", [(2, 3, 4, 5), (2, 3, 6, 5)], {"equation": "bhqd,bhkd->bhqk"}),
    Case("Einsum", [(2, 3, 4, 6), (2, 6, 3, 5)], {"equation": "bhqk, bkhd -> bqhd"}),
    Case("Einsum", [(2, 1, 3, 4), (5, 4, 2)], {"equation": "...ij,...jk->k...i"}),
    Case("Einsum", [(3, 4), (4, 5), (5, 3)], {"equation": "ij,jk,ki->k"}),
    Case("Einsum", [(4, 2), (3, 4)], {"equation": "ki,jk"}),
    Case("Einsum", [(2, 3, 4)], {"equation": "b...c->c..."}),
    Case("Einsum", [(2, 3, 1), (2, 1, 4)], {"equation": "bij,bij->ij"}),
    Case("Einsum", [(3,), (4,)], {"equation": "i,j->ji"}),
    Case("Einsum", [(2, 3), (3,)], {"equation": "ij,j->"}),
    Case("Conv", [(2, 3, 9, 8), f32(4, 3, 3, 2), f32(4)], {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    Case("Conv", [(1, 4, 7, 7), f32(6, 2, 3, 3)], {"group": 2, "dilations": [2, 1]}),
    Case("Conv", [(1, 2, 7, 6), f32(3, 2, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("Conv", [(1, 2, 9), f32(3, 2, 4)], {"pads": [1, 2]}),
    Case("MaxPool", [(2, 3, 7, 6)], POOL),
    Case("MaxPool", [(2, 3, 7, 6)], POOL | {"pads": [1, 1, 0, 1]}),
    Case("AveragePool", [(2, 3, 7, 6)], POOL),
    Case("AveragePool", [(2, 3, 7, 6)], POOL | {"pads": [1, 1, 0, 1]}),
    Case("AveragePool", [(2, 3, 7, 6)], POOL | {"pads": [1, 1, 0, 1], "count_include_pad": 1}),
    Case("GlobalAveragePool", [X]),
    Case("GlobalMaxPool", [X]),
    Case("Reshape", [X, i64(0, -1, 5)]),
    Case("Flatten", [X], {"axis": 2}),
    Case("Flatten", [X], {"axis": -1}),
    Case("Squeeze", [(1, 3, 1, 5), i64(0, -2)]),
    Case("Squeeze", [(1, 3, 1, 5)]),
    Case("Unsqueeze", [(3, 5), i64(0, -1)]),
    Case("Transpose", [X], {"perm": [0, 2, 3, 1]}),
    Case("Transpose", [X]),
    Case("Concat", [(2, 3), (2, 1), f32(2, 2)], {"axis": -1}),
    Case("Expand", [(3, 1), i64(2, 1, 4)]),
    Case("Slice", [X, i64(1, -3), i64(9, -1), i64(2, -1)]),
    Case("Slice", [X, i64(-1, 0), i64(-9, 4), i64(3, 1), i64(-2, 2)]),
    Case("Split", [X, i64(1, 3)], {"axis": 2}, 2),
    Case("Split", [(7, 2)], {"num_outputs": 3}, 3),
    Case("Gather", [X, i64(2, -1, 0)], {"axis": 1}),
    Case("Gather", [(7, 3), np.array([[0, 6], [-7, 2]], I64)]),
    Case("Gather", [(7, 3), np.array(-1, I64)]),
    Case("Pad", [(3, 4), i64(1, 0, 2, 3), np.array(1.5, F32)]),
    Case("Pad", [(3, 4), i64(0, 1, 0, 1)]),
]


def model(nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Any], known: Mapping[str, Any], outputs: Sequence[str],
          opset: int = 20) -> onnx.ModelProto:  # fmt: skip
    """A model; `inputs` are arrays like those of the run."""
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(x.dtype)), x.shape)
        for name, x in inputs.items()
    ]
    results = [helper.make_value_info(name, onnx.TypeProto()) for name in outputs]
    weights = [numpy_helper.from_array(np.asarray(x), name) for name, x in known.items()]
    graph = helper.make_graph(nodes, "g", declared, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def model_of(case: Case, seed: int = 0) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The model of a node, and random inputs."""
    rng = np.random.default_rng(seed)
    inputs: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for n, given in enumerate(case.inputs):
        if isinstance(given, tuple):
            x = rng.uniform(0.1 if case.positive else -0.95, 0.95, given)
            inputs[f"i{n}"] = x > 0 if case.of is np.bool_ else x.astype(case.of)
        elif given is not None:
            known[f"i{n}"] = given
    names = [f"i{n}" if given is not None else "" for n, given in enumerate(case.inputs)]
    outputs = [f"o{n}" for n in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, **case.attributes)
    return model([node], inputs, known, outputs), inputs


def resnet_block() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Convolutions with batch normalisation, a shortcut, pooling, and a classifier."""
    rng = np.random.default_rng(1)

    def weights(*dims: int) -> Any:
        return (rng.standard_normal(dims) / np.sqrt(np.prod(dims[1:]) or 1)).astype(F32)

    known: dict[str, Any] = {"fc.w": weights(10, 16), "fc.b": weights(10)}
    nodes = []

    def conv(x: str, out: str, features: int, channels: int, size: int, stride: int) -> None:
        known[f"{out}.w"] = weights(features, channels, size, size)
        pad = size // 2
        nodes.append(helper.make_node(
            "Conv", [x, f"{out}.w"], [f"{out}.c"], name=out, strides=[stride] * 2, pads=[pad] * 4,
        ))  # fmt: skip
        for part in ("scale", "offset", "mean"):
            known[f"{out}.{part}"] = weights(features)
        known[f"{out}.var"] = np.abs(weights(features)) + F32(0.5)
        parts = [f"{out}.{part}" for part in ("scale", "offset", "mean", "var")]
        nodes.append(helper.make_node("BatchNormalization", [f"{out}.c", *parts], [out]))

    conv("x", "a", 8, 3, 3, 1)
    nodes.append(helper.make_node("Relu", ["a"], ["ar"]))
    nodes.append(helper.make_node("MaxPool", ["ar"], ["p"], kernel_shape=[2, 2], strides=[2, 2]))
    conv("p", "b", 16, 8, 3, 2)
    conv("p", "s", 16, 8, 1, 2)
    nodes += [
        helper.make_node("Add", ["b", "s"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "fc.w", "fc.b"], ["y"], transB=1),
    ]
    inputs = {"x": rng.standard_normal((1, 3, 12, 12)).astype(F32)}
    return model(nodes, inputs, known, ["y"]), inputs


def bert_block() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Embeddings, attention of two heads with shapes computed from `Shape`, and a feed-forward layer."""
    rng = np.random.default_rng(2)
    length, width, heads = 6, 16, 2
    known: dict[str, Any] = {
        name: (rng.standard_normal(dims) / 4).astype(F32)
        for name, dims in {
            "table": (20, width), "q": (width, width), "k": (width, width), "v": (width, width), "o": (width, width),
            "up": (width, 4 * width), "down": (4 * width, width), "g1": (width,), "b1": (width,), "g2": (width,),
            "b2": (width,),
        }.items()
    }  # fmt: skip
    known |= {"root": np.array(np.sqrt(width / heads), F32), "split": i64(-1, heads, width // heads), "two": i64(2)}
    known |= {"zero": i64(0), "merge": i64(-1, width)}
    n = helper.make_node
    nodes = [
        n("Gather", ["table", "ids"], ["e3"]),
        n("Shape", ["e3"], ["shape"]),
        n("Slice", ["shape", "zero", "two"], ["outer"]),
        n("Concat", ["outer", "merge"], ["unused"], axis=0),
        n("Squeeze", ["e3", "zero"], ["e"]),
        n("LayerNormalization", ["e", "g1", "b1"], ["h"], axis=-1),
    ]
    for name in "qkv":
        nodes += [
            n("MatMul", ["h", name], [f"{name}m"]),
            n("Reshape", [f"{name}m", "split"], [f"{name}r"]),
            n("Transpose", [f"{name}r"], [f"{name}t"], perm=[1, 2, 0] if name == "k" else [1, 0, 2]),
        ]
    nodes += [
        n("MatMul", ["qt", "kt"], ["scores"]),
        n("Div", ["scores", "root"], ["scaled"]),
        n("Softmax", ["scaled"], ["p"], axis=-1),
        n("MatMul", ["p", "vt"], ["mixed"]),
        n("Transpose", ["mixed"], ["back"], perm=[1, 0, 2]),
        n("Reshape", ["back", "merge"], ["merged"]),
        n("MatMul", ["merged", "o"], ["out"]),
        n("Add", ["out", "e"], ["res"]),
        n("LayerNormalization", ["res", "g2", "b2"], ["h2"], axis=-1),
        n("MatMul", ["h2", "up"], ["u"]),
        n("Gelu", ["u"], ["act"]),
        n("MatMul", ["act", "down"], ["d"]),
        n("Add", ["d", "res"], ["y"]),
    ]
    inputs = {"ids": rng.integers(0, 20, (1, length), np.int64)}
    return model(nodes, inputs, known, ["y"]), inputs
