"""The operations of a computation as a key, whatever they are called."""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import sha256
from typing import Any

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Literal
from systolith.compiler.ops.group import Group


def structure(computation: Computation) -> Hashable:
    """Equal for computations of the same operations, groups by how they are made included; names do not count."""
    number = {i: n for n, i in enumerate(computation.instructions)}
    rows = [
        (i.opcode, str(i.shape), i.number, tuple(number[o] for o in i.operands), _value(i), _attributes(i), _tiled(i))
        for i in computation.instructions
    ]
    return (*rows, number[computation.result])


def _tiled(i: Instruction) -> Hashable:
    return (i.unit, i.tiling) if isinstance(i, Group) else None


def _value(i: Instruction) -> Hashable:
    return None if i.opcode != "constant" else "" if i.literal is None else _bytes(i.literal)


def _bytes(literal: Literal) -> Hashable:
    if isinstance(literal, tuple):
        return tuple(map(_bytes, literal))
    value = np.ascontiguousarray(literal)
    return value.dtype.str, value.shape, sha256(value.tobytes()).digest()


def _attributes(i: Instruction) -> Hashable:
    return tuple(sorted((name, _attribute(v)) for name, v in i.attributes.items() if name != "metadata"))


def _attribute(value: Any) -> Any:
    if isinstance(value, Computation):
        return structure(value)
    if isinstance(value, tuple) and any(isinstance(v, Computation) for v in value):
        return tuple(map(_attribute, value))
    return repr(value)
