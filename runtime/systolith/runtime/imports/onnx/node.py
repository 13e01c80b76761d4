"""A node of a graph, its inputs and attributes, as the rules of operations (`table.py`) see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from systolith.compiler.xla_builder import XlaOp
from systolith.runtime.imports.onnx.graph import ChannelsLast, Graph, OnnxError, Value

if TYPE_CHECKING:
    from onnx import NodeProto


class Node:
    """An operation and its inputs.

    Attributes:
        b: builds the module.
        graph: where it is.
        where: names it in errors.
        last: inputs with as many dimensions as images are given with their channels last.
    """

    def __init__(self, graph: Graph, proto: NodeProto, where: str, last: bool = False) -> None:
        self.b, self.graph, self.proto, self.where, self.last = graph.b, graph, proto, where, last

    def has(self, n: int) -> bool:
        """Whether there is an input."""
        return n < len(self.proto.input) and bool(self.proto.input[n])

    def name(self, n: int) -> str:
        """The name of an input.

        Raises:
            OnnxError: it is left out.
        """
        if not self.has(n):
            raise OnnxError(f"{self.where}: input {n} is missing")
        return self.proto.input[n]

    def x(self, n: int = 0) -> XlaOp:
        """An input."""
        name = self.name(n)
        return self.graph.last(name) if self.last and prod(self.graph.dims(name)) > 1 else self.graph.named(name)

    def image(self, n: int = 0) -> tuple[XlaOp, int]:
        """An input, with its channels last if it is so already; and the dimension of its channels."""
        if self.has(n) and isinstance(self.graph.values[self.proto.input[n]], ChannelsLast):
            x = self.graph.last(self.proto.input[n])
            return x, len(x.shape.dims) - 1
        return self.x(n), 1

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


def image(op: XlaOp, channels: int) -> Value:
    """A result whose channels are that dimension: the second, or the last."""
    return op if channels == 1 else ChannelsLast(op)


Made = Sequence[Value]
Rule = Callable[[Node], Made]
"""The results of a node."""
