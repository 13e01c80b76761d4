"""The interface of rules of elementwise operations: nodes for one HLO instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from systolith.compiler.errors import CompileError, compile_error
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.ops.expression import Graph, Node
from systolith.isa.dtypes import F32, PRED, S32, U32, DType, Kind


@dataclass(frozen=True)
class Builder:
    """Makes the nodes of one HLO instruction.

    Attributes:
        graph: where nodes are made.
        instruction: for shapes, attributes and errors.
    """

    graph: Graph
    instruction: Instruction

    @property
    def dtype(self) -> DType:
        """Element type of the result."""
        return self.instruction.shape.dtype

    @property
    def operand_dtype(self) -> DType:
        """Element type of the first operand."""
        return self.instruction.operands[0].shape.dtype

    def fail(self, message: str) -> CompileError:
        return compile_error(self.instruction, message)

    def rounded(self, value: Node, dtype: DType) -> Node:
        """`value`, computed in f32 or 32-bit integers, as an element of `dtype`."""
        if dtype in (F32, S32, U32, PRED):
            return value
        return self.graph.micro(f"round.{dtype}" if dtype.is_float else f"wrap.{dtype}", value)

    def zero_extended(self, value: Node, dtype: DType) -> Node:
        """An integer's bits without its sign extension."""
        if dtype.kind is Kind.SIGNED and dtype.bits < 32:
            return self.graph.micro("and", value, self.graph.const((1 << dtype.bits) - 1))
        return value


Rule = Callable[[Builder, Sequence[Node]], Node]
