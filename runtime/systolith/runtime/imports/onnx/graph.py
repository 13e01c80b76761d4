"""The graph of an ONNX model under way: which of its values are known, which are of the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from systolith.compiler.hlo.shape import array
from systolith.compiler.xla_builder import XlaBuilder, XlaOp
from systolith.isa.dtypes import DType, dtype
from systolith.isa.errors import SystolithError
from systolith.runtime.arrays import Array

LARGEST_CONSTANT = 1024
"""Elements of an initializer that stands in the module; larger ones are parameters."""

_TYPES = {
    "FLOAT": "f32", "FLOAT16": "f16", "BFLOAT16": "bf16", "DOUBLE": "f64", "INT8": "s8", "INT16": "s16",
    "INT32": "s32", "INT64": "s64", "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "UINT64": "u64", "BOOL": "pred",
}  # fmt: skip


class OnnxError(SystolithError):
    """A model cannot be read, or has no counterpart in HLO."""


Value = XlaOp | Array
"""A value of the graph: known, or of the run."""


@dataclass
class Graph:
    """The graph under way.

    Attributes:
        b: builds the module.
        opset: version of the operators.
        values: by name.
        weights: initializers that have become parameters.
        parameters: how many there are.
    """

    b: XlaBuilder
    opset: int
    values: dict[str, Value] = field(default_factory=dict)
    weights: list[Array] = field(default_factory=list)
    parameters: int = 0

    def op(self, value: Value, name: str = "") -> XlaOp:
        """A value as one of the builder: an initializer becomes a parameter, or a constant if it is small."""
        if isinstance(value, XlaOp):
            return value
        if value.size <= LARGEST_CONSTANT:
            return self.b.constant(value)
        made = self.b.parameter(self.parameters, array(_stored(value), value.shape), name)
        self.weights.append(value)
        self.parameters += 1
        return made

    def named(self, name: str) -> XlaOp:
        """The value of a name as one of the builder, once."""
        found = self.values[name] = self.op(self.values[name], name)
        return found


def element_type(number: int, where: str) -> DType:
    """The element type of ONNX's number of it."""
    from onnx import TensorProto

    name = TensorProto.DataType.Name(number)
    if name not in _TYPES:
        raise OnnxError(f"{where}: type {name}: there are {', '.join(_TYPES)}")
    return dtype(_TYPES[name])


def _stored(value: Array) -> DType:
    found = next((dtype(t) for t in _TYPES.values() if dtype(t).stored == value.dtype), None)
    if found is None:
        raise OnnxError(f"an initializer of {value.dtype}: there are {', '.join(_TYPES)}")
    return found
