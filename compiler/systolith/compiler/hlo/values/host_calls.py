"""Custom calls of functions of the host (`isa/host_functions.py`), and the transfers that they become."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np

from systolith.compiler.hlo.attributes import Fields
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.feed_configs import HOST_CALL
from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.shape import Shape
from systolith.isa import routines
from systolith.isa.host_functions import Array, ArrayType, HostFunctionError, Signature, call, is_known


def is_host_call(i: Instruction) -> bool:
    """Whether a custom call is one of a function of the host that is registered, between arrays of static sizes."""
    if i.opcode != "custom-call" or not is_known(str(i.attributes.get("custom_call_target", ""))):
        return False
    return not any(s.is_dynamic for s in (i.shape, *(o.shape for o in i.operands)))


def signature(i: Instruction) -> Signature:
    """What a custom call sends and takes: the arrays of its operands and results, depth first; no tokens."""
    operands = tuple(array for o in i.operands for array in _arrays(o.shape))
    return Signature(i.word("custom_call_target"), operands, tuple(_arrays(i.shape)))


def marked(i: Instruction) -> Signature | None:
    """The call that an infeed or outfeed is a part of; None: it is none.

    Raises:
        HloError: the attribute says nothing that makes sense.
    """
    text = cast(Fields, i.attributes.get("frontend_attributes", {})).get(HOST_CALL)
    if text is None:
        return None
    try:
        return Signature.from_bytes(str(text).encode())
    except HostFunctionError as problem:
        raise HloError(f"{i.opcode} {i.name}: frontend attribute {HOST_CALL}: {problem}") from None


def host_call(i: Instruction, operands: list[Literal]) -> Literal:
    """The results of a custom call of a function of the host.

    Raises:
        HostFunctionError: as `isa.host_functions.call`.
    """
    return _called(call, i, operands)


def routine_call(i: Instruction, operands: list[Literal]) -> Literal:
    """The results of a custom call that runs a routine, by its reference.

    Raises:
        RoutineError: as `isa.routines.call`.
        HostFunctionError: as `isa.routines.call`.
    """
    return _called(routines.call, i, operands)


_Function = Callable[[Signature, list[Array]], list[Array]]


def _called(function: _Function, i: Instruction, operands: list[Literal]) -> Literal:
    called = signature(i)
    given = iter(function(called, given_arrays(called, tuple(operands))))

    def value(shape: Shape) -> Literal:
        if shape.is_tuple:
            return tuple(value(s) for s in shape.elements)
        return next(given) if shape.is_array else ()

    return value(i.shape)


def given_arrays(called: Signature, value: Literal) -> list[Array]:
    """The operands of a call, among tokens and in tuples; of the word that a call without operands sends none."""
    return [np.array(x) for x in _leaves(value)][: len(called.operands)]


def _leaves(value: Literal) -> Iterator[Array]:
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield np.asarray(value)


def _arrays(shape: Shape) -> Iterator[ArrayType]:
    return ((leaf.dtype.name, leaf.dims) for leaf in shape.arrays)
