"""Shape rules of control flow, calls, tuples and tokens."""

from __future__ import annotations

from typing import cast

from systolith.compiler.hlo.attributes import Alias
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.rules.shape_rules import (
    SCALAR_PRED,
    SCALAR_U32,
    Infer,
    agree,
    check_call,
    flags_of,
    listed,
    operand_shapes,
    parameter_shapes,
    part_of,
    require,
    require_token,
    show_alias,
    sized,
)
from systolith.compiler.hlo.shape import TOKEN, Shape, ShapeKind, array, tuple_of
from systolith.isa.dtypes import DTYPES


def _parameter(i: Instruction) -> Shape:
    require(i.number is not None and i.number >= 0, "a parameter has a number of 0 or more")
    return i.shape


def _declared(i: Instruction) -> Shape:
    return i.shape


def _tuple(i: Instruction) -> Shape:
    return tuple_of(operand_shapes(i))


def _get_tuple_element(i: Instruction) -> Shape:
    shape, index = i.operands[0].shape, i.integer("index")
    require(shape.is_tuple, f"the operand is a tuple, got {shape}")
    require(0 <= index < len(shape.elements), f"index is 0 to {len(shape.elements) - 1}, got {index}")
    return shape.elements[index]


def _call(i: Instruction) -> Shape:
    if i.flag("is_composite"):
        _check_composite(i)
    return check_call(i.computation("to_apply"), operand_shapes(i))


def _check_composite(i: Instruction) -> None:
    """A composite has a name, and may have attributes and a version."""
    fields = i.attributes.get("frontend_attributes")
    values = {key: str(value) for key, value in fields.items()} if isinstance(fields, dict) else {}
    require(bool(values.get("composite.name")), "a composite has the frontend attribute composite.name")
    require(values.get("composite.attributes") != "", "composite.attributes of a composite are {} or more")
    version = values.get("composite.version", "0")
    require(version.isascii() and version.isdigit(), f"composite.version is a number of at least 0, got {version!r}")


def _check_buffers(i: Instruction) -> None:
    """`output_to_operand_aliasing`: a part of the result takes the buffer of an operand's part, of the same shape."""
    value = i.attributes.get("output_to_operand_aliasing", ())
    for alias in value if isinstance(value, tuple) else ():
        if not isinstance(alias, Alias):
            continue
        where = f"output_to_operand_aliasing {show_alias(alias)}"
        require(0 <= alias.number < len(i.operands), f"{where} names one of {len(i.operands)} operands")
        target = _array_of(part_of(i.shape, alias.output))
        source = _array_of(part_of(i.operands[alias.number].shape, alias.index))
        require(agree(source, target), f"{where} has one shape, got {source} for {target}")


def _array_of(shape: Shape) -> Shape:
    """The array of a buffer, as pinning takes one for the other; any other shape as it is."""
    return shape.elements[0] if shape.kind is ShapeKind.BUFFER else shape


def _fusion(i: Instruction) -> Shape:
    """As a call; the fused computation may leave out the last operands."""
    computation, shapes = i.computation("calls"), operand_shapes(i)
    count = len(parameter_shapes(computation))
    _check_buffers(i)
    return check_call(computation, shapes[:count] if count <= len(shapes) else shapes)


def _custom_call(i: Instruction) -> Shape:
    """The result of a target has the declared shape."""
    target = i.word("custom_call_target")
    require(bool(target), "custom_call_target names a target")
    stated = i.attributes.get("operand_layout_constraints")
    if isinstance(stated, tuple):
        fits = len(stated) == len(i.operands) and all(map(agree, cast("tuple[Shape, ...]", stated), operand_shapes(i)))
        require(fits, f"operand_layout_constraints are the operands' shapes, got {listed(cast('list[Shape]', stated))}")
    seed = not i.operands and agree(i.shape, array(DTYPES["u64"]))
    require(target != "GetRngSeed" or seed, f"GetRngSeed takes nothing and gives u64[], got {i.shape}")
    _check_buffers(i)
    return i.shape


def _while(i: Instruction) -> Shape:
    (state,) = operand_shapes(i)
    condition = check_call(i.computation("condition"), [state], "condition")
    require(agree(condition, SCALAR_PRED), f"the condition gives pred[], got {condition}")
    body = check_call(i.computation("body"), [state], "body")
    require(agree(body, state), f"the body gives its argument's shape {state}, got {body}")
    return body


def branches(i: Instruction) -> tuple[Computation, ...]:
    """The branches of a `conditional` in order of their index; of the pred form, false first."""
    value = i.attributes.get("branch_computations")
    if value is not None:
        return cast("tuple[Computation, ...]", value)
    return i.computation("false_computation"), i.computation("true_computation")


def _conditional(i: Instruction) -> Shape:
    selector, *arguments = operand_shapes(i)
    found = branches(i)
    named = "branch_computations" in i.attributes
    require(selector.is_array and not selector.dims and selector.dtype.name in ("pred", "s32"),
            f"the branch index is pred[] or s32[], got {selector}")  # fmt: skip
    require(bool(found), "there is at least one branch")
    require(selector.dtype.name == "s32" or len(found) == 2, f"a pred[] chooses from 2 branches, got {len(found)}")
    require(len(found) == len(arguments), f"{len(found)} branches take as many operands, got {len(arguments)}")
    if not named:
        arguments.reverse()  # the pred form lists the true operand first
    results = [check_call(b, [a], "branch") for b, a in zip(found, arguments, strict=True)]
    require(all(agree(r, results[0]) for r in results), f"branches give one shape, got {listed(results)}")
    return _widest(results)


def _widest(shapes: list[Shape]) -> Shape:
    """The shape whose dimensions are dynamic where those of any are."""
    first = shapes[0]
    if not any(s.is_dynamic for s in shapes):
        return first
    if first.is_tuple:
        return tuple_of([_widest([s.elements[k] for s in shapes]) for k in range(len(first.elements))])
    if not first.is_array:
        return first
    flags = zip(*(flags_of(s) for s in shapes), strict=True)
    return sized(first.dtype, first.dims, [any(f) for f in flags])


def _after_all(i: Instruction) -> Shape:
    return TOKEN


def _add_dependency(i: Instruction) -> Shape:
    shape, token = operand_shapes(i)
    require_token(token, "the second operand")
    return shape


def _same_as_operand(i: Instruction) -> Shape:
    return i.operands[0].shape


def _device_number(i: Instruction) -> Shape:
    return SCALAR_U32


CONTROL_RULES: dict[str, Infer] = {
    "parameter": _parameter,
    "constant": _declared,
    "tuple": _tuple,
    "get-tuple-element": _get_tuple_element,
    "call": _call,
    "fusion": _fusion,
    "custom-call": _custom_call,
    "while": _while,
    "conditional": _conditional,
    "after-all": _after_all,
    "add-dependency": _add_dependency,
    "opt-barrier": _same_as_operand,
    "domain": _same_as_operand,
    "partition-id": _device_number,
    "replica-id": _device_number,
}
"""Opcode to rule."""
