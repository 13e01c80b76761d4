"""Custom calls that the evaluator knows, by target; others are refused by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.shape import Shape, tuple_of
from systolith.compiler.hlo.values.dynamic import pad_to_static, slice_to_dynamic
from systolith.compiler.hlo.values.host_calls import routine_call
from systolith.compiler.hlo.values.lapack import LAPACK
from systolith.compiler.hlo.values.sorting import largest
from systolith.isa import routines

CustomCall = Callable[[Instruction, list[Literal]], Literal]
"""From the instruction and its operands' values to its result's value."""


def _top_k(i: Instruction, operands: list[Literal]) -> Literal:
    """XLA's own target for `topk`: values and indices of the k largest along the last dimension."""
    (x,) = operands
    return largest(np.asarray(x), i.shape.elements[0].dims[-1])


def _as_it_is(i: Instruction, operands: list[Literal]) -> Literal:
    if i.shape.is_tuple and not i.shape.elements:
        return ()
    return operands[0] if len(operands) == 1 else tuple(operands)


def _without_contents(i: Instruction, operands: list[Literal]) -> Literal:
    """Memory that nothing has been written to: all bits set (in floats a NaN), so that a read of it shows."""
    dtype = i.shape.dtype.stored
    ones = np.full((*i.dims, dtype.itemsize), 0xFF, np.uint8)
    return np.asarray(ones.view(dtype)[..., 0]) if dtype != np.bool_ else np.ones(i.dims, np.bool_)


def _stack(i: Instruction, operands: list[Literal]) -> Literal:
    """Arrays as one, with a new first dimension."""
    return np.stack([np.asarray(x) for x in operands])


def _unstack(i: Instruction, operands: list[Literal]) -> Literal:
    """An array of a stack."""
    whole = np.asarray(operands[0])
    return np.asarray(whole[int(i.word("opaque"))])


MARKERS = frozenset(
    """LayoutConstraint MoveToDevice MoveToHost SPMDFullToShardShape SPMDShardToFullShape Sharding
    annotate_device_placement""".split()
)
"""Targets of markers; those that begin with `xla.sdy.` are some, too."""


def is_marker(i: Instruction) -> bool:
    """Whether a custom call says where values are to be (a sharding, say), and gives its operands as they are.

    Pieces of an array are none, so that on one device every sharding is a marker.
    """
    target = str(i.attributes.get("custom_call_target", ""))
    if target not in MARKERS and not target.startswith("xla.sdy."):
        return False
    given = tuple(o.shape for o in i.operands)
    results = (i.shape,) if len(given) == 1 and i.shape.same(given[0]) else i.shape.elements
    return i.shape.same(tuple_of(())) or (len(results) == len(given) and all(map(Shape.same, results, given)))


CUSTOM_CALLS: dict[str, CustomCall] = {
    "AllocateBuffer": _without_contents,
    "Pin": _as_it_is,
    "Stack": _stack,
    "TopK": _top_k,
    "Unpin": _as_it_is,
    "Unstack": _unstack,
    "PadToStatic": pad_to_static,
    "SliceToDynamic": slice_to_dynamic,
    **LAPACK,
}
"""Target to function; `register` adds to it."""


def register(target: str, function: CustomCall) -> None:
    """Let the evaluator run `custom-call`s of a target.

    Raises:
        HloError: the target is registered already.
    """
    if target in CUSTOM_CALLS:
        raise HloError(f"custom-call target {target!r} is registered already")
    CUSTOM_CALLS[target] = function


def custom_call(i: Instruction, operands: list[Literal]) -> Literal:
    """`custom-call` of a registered target."""
    target = i.word("custom_call_target")
    function = CUSTOM_CALLS.get(target, _as_it_is if is_marker(i) else None)
    if function is None and routines.is_known(target):
        return routine_call(i, operands)
    if function is None:
        raise HloError(f"no custom-call target {target!r} is registered; registered: {', '.join(CUSTOM_CALLS)}")
    return function(i, operands)
