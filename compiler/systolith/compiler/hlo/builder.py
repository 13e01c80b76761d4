"""Making new instructions: shapes inferred, names unique, the place in the list chosen."""

from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Literal
from systolith.compiler.hlo.rules.shape_rules import agree
from systolith.compiler.hlo.rules.shapes import READS_SHAPE, infer
from systolith.compiler.hlo.shape import TOKEN, Shape, array
from systolith.isa.dtypes import DTYPES, DType


def emit(
    computation: Computation,
    opcode: str,
    *operands: Instruction,
    shape: Shape | None = None,
    name: str | None = None,
    before: Instruction | None = None,
    **attributes: Attribute,
) -> Instruction:
    """Append an instruction to a computation.

    Args:
        computation: where.
        opcode: XLA's name.
        operands: instructions of the same computation.
        shape: shape of the result; may be left out where the operands give it.
        name: wanted name, made unique; the opcode if None.
        before: put it before this instruction, not at the end; its line is taken over.
        attributes: such as `dimensions=(0, 1)`.

    Raises:
        HloError: no shape is given and none can be inferred, or a rule of the operation is broken.
    """
    if shape is None and opcode in READS_SHAPE:
        raise HloError(f"{opcode} needs a shape, which says {READS_SHAPE[opcode]} of its result")
    made = Instruction(computation.fresh_name(name or opcode), opcode, shape or TOKEN, list(operands), attributes)
    inferred = infer(made)
    if shape is not None and not agree(shape, inferred):
        raise HloError(f"{opcode} is to have shape {shape}, its operands give {inferred}")
    made.shape = shape or inferred
    if before is None:
        computation.instructions.append(made)
    else:
        made.line = before.line
        computation.instructions.insert(computation.instructions.index(before), made)
    return made


def parameter(computation: Computation, shape: Shape, name: str | None = None) -> Instruction:
    """Append the next parameter."""
    number = len(computation.parameters)
    made = Instruction(computation.fresh_name(name or "parameter"), "parameter", shape, number=number)
    computation.instructions.append(made)
    return made


def constant(
    computation: Computation, value: Literal, dtype: DType | None = None, before: Instruction | None = None
) -> Instruction:
    """Append a constant array, of the element type that its numpy type is unless one is given."""
    if isinstance(value, tuple):
        raise HloError("a constant is an array; make a tuple of constants instead")
    if dtype is None:
        dtype = next((t for t in DTYPES.values() if t.stored == value.dtype), None)
        if dtype is None:
            raise HloError(f"no element type is stored as {value.dtype}")
    value = np.asarray(value, dtype=dtype.stored)
    made = Instruction(computation.fresh_name("constant"), "constant", array(dtype, value.shape), literal=value)
    if before is None:
        computation.instructions.append(made)
    else:
        made.line = before.line
        computation.instructions.insert(computation.instructions.index(before), made)
    return made
