"""Shape rules of operations in two steps (asynchronous calls, copies, transfers), infeed and outfeed."""

from __future__ import annotations

from typing import cast

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.rules.shape_rules import (
    SCALAR_U32,
    Infer,
    agree,
    listed,
    operand_shapes,
    parameter_shapes,
    require,
    require_token,
)
from systolith.compiler.hlo.shape import TOKEN, Shape, tuple_of


def _is_prefix(part: Shape, whole: Shape) -> bool:
    """Shapes agree, or a tuple has the first elements of the other (operands or results that are bound so far)."""
    if agree(part, whole):
        return True
    if not part.is_tuple or not whole.is_tuple:
        return part.is_tuple and not part.elements
    fits = len(part.elements) <= len(whole.elements)
    return fits and all(map(_is_prefix, part.elements, whole.elements))


def _check_form(shape: Shape) -> None:
    fits = shape.is_tuple and len(shape.elements) >= 2 and shape.elements[0].is_tuple
    require(fits, f"the shape is ((operands), result, contexts...), got {shape}")


def _check_wrapped(i: Instruction, shape: Shape) -> None:
    """The shape is made of the parameters and the result of the computation that runs."""
    if "calls" not in i.attributes:
        return
    computation = i.computation("calls")
    whole = tuple_of(parameter_shapes(computation))
    result = computation.result.shape
    fits = _is_prefix(shape.elements[0], whole) and _is_prefix(shape.elements[1], result)
    require(fits, f"computation {computation.name!r} takes {whole} and gives {result}, got {shape}")


def _async_start(i: Instruction) -> Shape:
    require("calls" in i.attributes, "async-start calls a computation")
    _check_form(i.shape)
    _check_wrapped(i, i.shape)
    return tuple_of([tuple_of(operand_shapes(i)), *i.shape.elements[1:]])


def _under_way(i: Instruction) -> Shape:
    """The shape of the operation under way that an -update or -done takes."""
    require(bool(i.operands), "takes at least one operand, got 0")
    before = i.operands[0]
    started = before.opcode in ("async-start", "async-update")
    require(started, f"the operand is an async-start or async-update, got {before.opcode} {before.name!r}")
    _check_form(before.shape)
    return before.shape


def _async_update(i: Instruction) -> Shape:
    """The operand's shape, or one with more operands bound, which follow the first."""
    before, shape = _under_way(i), i.shape
    _check_form(shape)
    _check_wrapped(i, shape)
    fits = _is_prefix(before.elements[0], shape.elements[0]) and _is_prefix(before.elements[1], shape.elements[1])
    require(fits, f"the shape starts as that of its operand {before}, got {shape}")
    bound = [*before.elements[0].elements, *operand_shapes(i)[1:]]
    return tuple_of([tuple_of(bound), *shape.elements[1:]])


def _async_done(i: Instruction) -> Shape:
    return _under_way(i).elements[1]


def _copy_start(i: Instruction) -> Shape:
    shape = i.operands[0].shape
    return tuple_of([shape, shape, SCALAR_U32])


def _copy_done(i: Instruction) -> Shape:
    shape = i.operands[0].shape
    require(shape.is_tuple and len(shape.elements) == 3, f"the operand is (target, source, context), got {shape}")
    target, source, _ = shape.elements
    require(agree(target, source), f"target and source have one shape, got {listed([target, source])}")
    return target


def _send(i: Instruction) -> Shape:
    data, token = operand_shapes(i)
    require_token(token, "the second operand")
    return tuple_of([data, SCALAR_U32, TOKEN])


def _recv(i: Instruction) -> Shape:
    require_token(i.operands[0].shape, "the operand")
    require(i.shape.is_tuple and bool(i.shape.elements), f"the result is (data, context, token), got {i.shape}")
    return tuple_of([i.shape.elements[0], SCALAR_U32, TOKEN])


def _transfer(i: Instruction) -> Shape:
    """The shape (data, context, token) of the send or recv that is done."""
    shape = i.operands[0].shape
    require(shape.is_tuple and len(shape.elements) == 3, f"the operand is (data, context, token), got {shape}")
    return shape


def _send_done(i: Instruction) -> Shape:
    _transfer(i)
    return TOKEN


def _recv_done(i: Instruction) -> Shape:
    return tuple_of([_transfer(i).elements[0], TOKEN])


def _infeed(i: Instruction) -> Shape:
    for shape in operand_shapes(i):
        require_token(shape, "the operand")
    require(i.shape.is_tuple and len(i.shape.elements) == 2, f"the result is (data, token), got {i.shape}")
    return tuple_of([i.shape.elements[0], TOKEN])


def _outfeed(i: Instruction) -> Shape:
    data, *tokens = operand_shapes(i)
    for shape in tokens:
        require_token(shape, "the second operand")
    stated = cast("Shape | None", i.attributes.get("outfeed_shape"))
    require(not isinstance(stated, Shape) or agree(stated, data), f"outfeed_shape is {data}, got {stated}")
    return TOKEN


ASYNC_RULES: dict[str, Infer] = {
    "async-start": _async_start,
    "async-update": _async_update,
    "async-done": _async_done,
    "copy-start": _copy_start,
    "copy-done": _copy_done,
    "send": _send,
    "send-done": _send_done,
    "recv": _recv,
    "recv-done": _recv_done,
    "infeed": _infeed,
    "outfeed": _outfeed,
}
"""Opcode to rule."""
