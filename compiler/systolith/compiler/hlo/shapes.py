"""Shape inference: a table from opcode to the function that gives the result's shape.

Each function takes an instruction (operands and attributes; its own declared shape only where the operation's result is
not determined by them, as in `reshape`) and returns the shape, layout aside, or raises `HloError` with the rule that is
broken.  Opcodes without an entry are accepted as declared.  Source: XLA's `shape_inference.cc` and its operation
semantics.
"""

from __future__ import annotations

from typing import cast

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import TOKEN, Shape, array, tuple_of
from systolith.compiler.hlo.shape_rules import Infer, check_call, listed, operand_shapes, require
from systolith.compiler.hlo.shapes_contraction import CONTRACTION_RULES
from systolith.compiler.hlo.shapes_elementwise import ELEMENTWISE_RULES
from systolith.compiler.hlo.shapes_movement import MOVEMENT_RULES
from systolith.isa.dtypes import PRED


def infer(instruction: Instruction) -> Shape:
    """The shape that an instruction must have; its declared one for opcodes without a rule.

    Raises:
        HloError: its operands or attributes break a rule of the operation.
    """
    rule = INFER.get(instruction.opcode)
    return instruction.shape if rule is None else rule(instruction)


def _parameter(i: Instruction) -> Shape:
    require(i.number is not None and i.number >= 0, "a parameter has a number of 0 or more")
    return i.shape


def _constant(i: Instruction) -> Shape:
    require(i.literal is not None, "a constant has a value")
    return i.shape


def _tuple(i: Instruction) -> Shape:
    return tuple_of(operand_shapes(i))


def _get_tuple_element(i: Instruction) -> Shape:
    shape, index = i.operands[0].shape, i.integer("index")
    require(shape.is_tuple, f"the operand is a tuple, got {shape}")
    require(0 <= index < len(shape.elements), f"index is 0 to {len(shape.elements) - 1}, got {index}")
    return shape.elements[index]


def _call(i: Instruction) -> Shape:
    return check_call(i.computation("to_apply"), operand_shapes(i))


def _fusion(i: Instruction) -> Shape:
    return check_call(i.computation("calls"), operand_shapes(i))


def _while(i: Instruction) -> Shape:
    (state,) = operand_shapes(i)
    condition = check_call(i.computation("condition"), [state], "condition")
    require(condition.same(array(PRED)), f"the condition gives pred[], got {condition}")
    body = check_call(i.computation("body"), [state], "body")
    require(body.same(state), f"the body gives its argument's shape {state}, got {body}")
    return state


def branches(i: Instruction) -> tuple[Computation, ...]:
    """The branches of a `conditional` in order of their index; of the pred form, false first."""
    value = i.attributes.get("branch_computations")
    if value is not None:
        return cast("tuple[Computation, ...]", value)
    return i.computation("false_computation"), i.computation("true_computation")


def _conditional(i: Instruction) -> Shape:
    selector, *arguments = operand_shapes(i)
    found = branches(i)
    require(selector.is_array and selector.rank == 0 and selector.dtype.name in ("pred", "s32"),
            f"the branch index is pred[] or s32[], got {selector}")  # fmt: skip
    require(len(found) == len(arguments), f"{len(found)} branches take as many operands, got {len(arguments)}")
    if "branch_computations" not in i.attributes:
        arguments.reverse()  # the pred form lists the true operand first
    results = [check_call(b, [a], "branch") for b, a in zip(found, arguments, strict=True)]
    require(all(r.same(results[0]) for r in results), f"branches give one shape, got {listed(results)}")
    return results[0]


def _after_all(i: Instruction) -> Shape:
    return TOKEN


def _same_as_operand(i: Instruction) -> Shape:
    return i.operands[0].shape


INFER: dict[str, Infer] = {
    **ELEMENTWISE_RULES,
    **MOVEMENT_RULES,
    **CONTRACTION_RULES,
    "parameter": _parameter,
    "constant": _constant,
    "tuple": _tuple,
    "get-tuple-element": _get_tuple_element,
    "call": _call,
    "fusion": _fusion,
    "while": _while,
    "conditional": _conditional,
    "after-all": _after_all,
    "opt-barrier": _same_as_operand,
}
"""Opcode to rule."""
