"""A node of a graph, its inputs and attributes, as the rules of operations (`table.py`) see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from systolith.compiler.xla_builder import XlaOp
from systolith.runtime.imports.onnx.graph import Graph, OnnxError, Value

if TYPE_CHECKING:
    from onnx import NodeProto


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


Made = Sequence[Value]
Rule = Callable[[Node], Made]
"""The results of a node."""
