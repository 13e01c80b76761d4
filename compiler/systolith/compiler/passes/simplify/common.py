"""Common subexpressions: equal instructions on equal operands are one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.ops.table import Family, family
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.rewrite import Rewriter, Rule

_IGNORED = frozenset({"metadata", "backend_config", "frontend_attributes"})
_KEPT = (Family.CONTROL, Family.CALL, Family.ASYNC)


@dataclass(frozen=True)
class MergeCommon:
    """Let users of an instruction take an equal one that stands before it.

    Equal are opcode, shape with layout, operands, attributes (of computations: the contents) and the bits of constants.
    """

    def run(self, module: Module) -> bool:
        merge = _Merge()
        changes = [Rewriter(c).sweep(merge.in_computation()) for c in module.computations]
        return any(changes)


@dataclass
class _Merge:
    """One run over a module: what was found out about computations, and shapes, by where these are in memory."""

    effects: Effects = field(default_factory=Effects)
    keys: dict[Computation, int] = field(default_factory=dict)
    numbers: dict[Hashable, int] = field(default_factory=dict)
    shapes: dict[int, tuple[Shape, int]] = field(default_factory=dict)

    def in_computation(self) -> Rule:
        first: dict[Hashable, Instruction] = {}

        def equal(r: Rewriter, i: Instruction) -> Instruction | None:
            if i.opcode == "parameter" or family(i) in _KEPT or self.effects.of(i):
                return None
            found = first.setdefault((self._content(i), *map(id, i.operands)), i)
            return found if found is not i else None

        return equal

    def _content(self, i: Instruction) -> Hashable:
        """All of an instruction but its operands and its name."""
        ignored = _IGNORED - {"backend_config"} if i.opcode == "custom-call" else _IGNORED
        attributes = tuple((k, self._attribute(v)) for k, v in sorted(i.attributes.items()) if k not in ignored)
        literal: Hashable = i.literal.tobytes() if isinstance(i.literal, np.ndarray) else repr(i.literal)
        if i.opcode == "constant" and i.literal is None:
            literal = id(i)  # of two values that the text leaves out nothing says that they are equal
        return (i.opcode, self._shape(i.shape), attributes, i.number, literal)

    def _shape(self, shape: Shape) -> int:
        """A number of each shape and layout: most instructions have one of a few, whose text takes long to make."""
        known = self.shapes.get(id(shape))
        if known is None:
            number = self.numbers.setdefault(shape.text(), len(self.numbers))
            known = self.shapes[id(shape)] = shape, number
        return known[1]

    def _attribute(self, value: object) -> Hashable:
        if isinstance(value, Computation):
            return self._number(value)
        if isinstance(value, tuple) and any(isinstance(item, Computation) for item in value):
            return tuple(map(self._attribute, value))
        return repr(value)

    def _number(self, computation: Computation) -> int:
        """Equal for computations that are the same but for names."""
        if computation not in self.keys:
            place = {i: k for k, i in enumerate(computation.instructions)}
            rows = [(self._content(i), *(place[o] for o in i.operands)) for i in computation.instructions]
            key = (tuple(rows), place[computation.result])
            self.keys[computation] = self.numbers.setdefault(key, len(self.numbers))
        return self.keys[computation]
