"""The graph of an ONNX model under way: which of its values are known, which are of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

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


@dataclass(frozen=True)
class ChannelsLast:
    """An image of the run with its channels as the last dimension; the model has them as the second.

    A row of a convolution's operands then holds all channels of a place, so that it fills rows of the array.
    """

    op: XlaOp


Value = XlaOp | ChannelsLast | Array
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
        turned: values by name and whether their channels are last, made of values in the other order.
    """

    b: XlaBuilder
    opset: int
    values: dict[str, Value] = field(default_factory=dict)
    weights: list[Array] = field(default_factory=list)
    parameters: int = 0
    turned: dict[tuple[str, bool], XlaOp] = field(default_factory=dict)

    def op(self, value: XlaOp | Array, name: str = "") -> XlaOp:
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
        """The value of a name as one of the builder, once, in the order of the model."""
        value = self.values[name]
        if isinstance(value, ChannelsLast):
            return self._turned(name, False, value.op)
        found = self.values[name] = self.op(value, name)
        return found

    def last(self, name: str) -> XlaOp:
        """The value of a name with its second dimension as the last."""
        value = self.values[name]
        return value.op if isinstance(value, ChannelsLast) else self._turned(name, True, self.named(name))

    def _turned(self, name: str, last: bool, op: XlaOp) -> XlaOp:
        if (name, last) not in self.turned:
            rank = len(op.shape.dims)
            order = [0, *range(2, rank), 1] if last else [0, rank - 1, *range(1, rank - 1)]
            self.turned[name, last] = self.b.transpose(op, order)
        return self.turned[name, last]

    def kernel(self, name: str) -> XlaOp:
        """The window of a convolution with its input and output channels last; an initializer is turned beforehand."""
        value = self.values[name]
        if (name, True) not in self.turned:
            rank = len(self.dims(name))
            order = [*range(2, rank), 1, 0]
            if isinstance(value, XlaOp | ChannelsLast):
                self.turned[name, True] = self.b.transpose(self.named(name), order)
            else:
                self.turned[name, True] = self.op(np.ascontiguousarray(value.transpose(order)), name)
        return self.turned[name, True]

    def dims(self, name: str) -> tuple[int, ...]:
        """The dimensions of a value in the model."""
        value = self.values[name]
        if isinstance(value, ChannelsLast):
            batch, *spatial, channels = value.op.shape.dims
            return (batch, channels, *spatial)
        return tuple(value.shape.dims if isinstance(value, XlaOp) else value.shape)

    def together_last(self, names: Sequence[str]) -> bool:
        """Whether an elementwise operation on these values is best done with channels last: one has them there."""
        ranks = {len(self.dims(name)) for name in names if isinstance(self.values[name], ChannelsLast)}
        others = [self.dims(name) for name in names]
        return len(ranks) == 1 and all(len(have) in ranks or prod(have) == 1 for have in others)


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
