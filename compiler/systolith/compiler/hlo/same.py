"""Whether two modules are the same in all that a pass, or a person, can see of them."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Literal, Module

_COMPARED_HERE = {"operands", "attributes", "literal"}


def same(a: Module, b: Module) -> bool:
    """Whether two modules are the same: operations, names, order of attributes, literals, places in the text."""
    if a is b:
        return True
    if len(a.computations) != len(b.computations) or (a.name, a.preamble, a.style) != (b.name, b.preamble, b.style):
        return False
    return _Comparison(a, b).holds()


class _Comparison:
    """Compares modules; what stands for what is known by its place."""

    def __init__(self, a: Module, b: Module) -> None:
        self._a, self._b = a, b
        self._twin = dict(zip(a.computations, b.computations, strict=True))

    def holds(self) -> bool:
        if self._twin.get(self._a.entry) is not self._b.entry or not self._attributes(self._a, self._b):
            return False
        return all(self._computations(a, b) for a, b in self._twin.items())

    def _computations(self, a: Computation, b: Computation) -> bool:
        if len(a.instructions) != len(b.instructions) or (a.name, a.line) != (b.name, b.line):
            return False
        if not self._attributes(a, b):
            return False
        twin = dict(zip(a.instructions, b.instructions, strict=True))
        if (None if a.root is None else twin[a.root]) is not b.root:
            return False
        return all(self._instructions(i, j) and [twin[o] for o in i.operands] == j.operands for i, j in twin.items())

    def _instructions(self, a: Instruction, b: Instruction) -> bool:
        kind: Any = type(a)
        plain = _plain(kind)
        if kind is not type(b) or any(getattr(a, n) != getattr(b, n) for n in plain):
            return False
        return _literals(a.literal, b.literal) and self._attributes(a, b)

    def _attributes(self, a: Module | Computation | Instruction, b: Module | Computation | Instruction) -> bool:
        """Whether they have the same attributes in the same order, which is that of their text."""
        if [*a.attributes] != [*b.attributes]:
            return False
        return all(map(self._values, a.attributes.values(), b.attributes.values()))

    def _values(self, a: Any, b: Any) -> bool:
        if isinstance(a, Computation):
            return self._twin.get(a, a) is b
        if isinstance(a, tuple) and isinstance(b, tuple):
            return len(a) == len(b) and all(map(self._values, a, b))
        return a is b or (type(a) is type(b) and bool(a == b))


@cache
def _plain(kind: Any) -> tuple[str, ...]:
    """The fields of a kind of instruction that are compared as they are."""
    return tuple(f.name for f in fields(kind) if f.name not in _COMPARED_HERE)


def _literals(a: Literal | None, b: Literal | None) -> bool:
    """Whether two literals have the same bits."""
    if a is b or a is None or b is None:
        return a is b
    if isinstance(a, tuple) or isinstance(b, tuple):
        return isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and all(map(_literals, a, b))
    return a.dtype == b.dtype and a.shape == b.shape and np.asarray(a).tobytes() == np.asarray(b).tobytes()
