"""Computations on scalars that the builder itself needs."""

from __future__ import annotations

from collections.abc import Sequence

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.xla_builder.computation import XlaComputation
from systolith.isa.dtypes import PRED, DType, Kind


def _parameters(shapes: Sequence[Shape]) -> list[Instruction]:
    return [Instruction(f"p{n}", "parameter", shape, number=n) for n, shape in enumerate(shapes)]


def add_computation(dtype: DType) -> XlaComputation:
    """The sum of two scalars; of pred, or."""
    scalar = array(dtype)
    parameters = _parameters([scalar, scalar])
    opcode = "or" if dtype == PRED else "add"
    root = Instruction(opcode, opcode, scalar, list(parameters))
    return XlaComputation("add", Computation("add", [*parameters, root], root))


def less_than_computation(dtypes: Sequence[DType]) -> XlaComputation:
    """A sort's comparator: whether the first of the first pair of scalars is less than the second, in total order."""
    shapes = [array(dtype) for dtype in dtypes for _ in range(2)]
    parameters = _parameters(shapes)
    kind = "TOTALORDER" if dtypes[0].kind is Kind.FLOAT else None
    root = Instruction("compare", "compare", array(PRED), parameters[:2], {"direction": "LT"})
    if kind:
        root.attributes["type"] = kind
    return XlaComputation("less-than", Computation("less-than", [*parameters, root], root))
