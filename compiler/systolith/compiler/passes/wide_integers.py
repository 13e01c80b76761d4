"""64-bit integers become pairs of u32, as XLA rewrites them for chips that have none (X64 rewriting).

A value of u64 or s64 is two arrays of u32, its low and its high word; in a tuple, as the state of a loop and as the
result of a branch it is the tuple of the two.  The rules of the opcodes are in `wide_rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, tuple_of
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.compiler.passes.rewrite import Rewriter
from systolith.compiler.passes.wide_rules import RULES, Value, is_wide
from systolith.isa.dtypes import U32

STRUCTURE = frozenset({"parameter", "tuple", "get-tuple-element", "while", "conditional", "call", "opt-barrier"})
"""Opcodes that hand values on, and take and give tuples."""


@dataclass(frozen=True)
class SplitWideIntegers:
    """Replace integers of 64 bits by pairs of u32, if every operation on them can be.

    What the module takes and gives keeps its types: 64-bit parameters and results of the module stay.
    """

    def run(self, module: Module) -> bool:
        touched = [c for c in module.computations if any(map(_touches, c.instructions))]
        if not touched or obstacle(module) is not None:
            return False
        for computation in touched:
            _Splitter(computation).split()
        return True


def obstacle(module: Module) -> Instruction | None:
    """The first instruction on 64-bit integers that cannot be on pairs."""
    return next((i for c in module.post_order() for i in _obstacles(c, c is module.entry)), None)


def _obstacles(computation: Computation, entry: bool) -> Iterator[Instruction]:
    before = control_predecessors(computation)
    pinned = set(before).union(*before.values())
    for i in computation.instructions:
        outside = entry and (i.opcode == "parameter" or i is computation.result) and _has_wide(i.shape)
        if _touches(i) and (outside or i in pinned or not _possible(i)):
            yield i


def _possible(i: Instruction) -> bool:
    if any(s.is_dynamic for s in (i.shape, *(o.shape for o in i.operands))):
        return False
    if i.opcode in STRUCTURE:
        return True
    found = RULES.get(i.opcode) if i.shape.is_array else None
    return found is not None and (found.takes is None or found.takes(i))


def _touches(i: Instruction) -> bool:
    return _has_wide(i.shape) or any(_has_wide(o.shape) for o in i.operands)


def _has_wide(shape: Shape) -> bool:
    return any(map(is_wide, shape.leaves()))


def _split_shape(shape: Shape) -> Shape:
    """The shape that stands for one with 64-bit integers."""
    if shape.is_tuple:
        return tuple_of([_split_shape(e) for e in shape.elements])
    return tuple_of([replace(shape, element=U32)] * 2) if is_wide(shape) else shape


class _Splitter(Rewriter):
    """Rewrites one computation.

    Attributes:
        of: what stands for an instruction: another (or itself), or the words of a 64-bit array.
    """

    def __init__(self, computation: Computation) -> None:
        super().__init__(computation)
        self.of: dict[Instruction, Value] = {}

    def split(self) -> None:
        for i in self.computation.instructions:
            self._at = i
            if not _touches(i):
                i.operands = [self._whole(o) for o in i.operands]
                self._out.append(i)
                self.of[i] = i
            elif i.opcode in STRUCTURE:
                self.of[i] = self._structure(i)
            else:
                self.of[i] = RULES[i.opcode].rule(self, i, [self.of[o] for o in i.operands])
        self.computation.root = self._whole(self.computation.result)
        self.computation.instructions = self._out

    def _structure(self, i: Instruction) -> Value:
        made = replace(i, shape=_split_shape(i.shape), operands=[self._whole(o) for o in i.operands])
        made.attributes = {k: v for k, v in i.attributes.items() if k != "sharding"}
        self._out.append(made)
        if not is_wide(i.shape):
            return made
        low, high = (self.emit("get-tuple-element", made, name=f"{i.name}.{w}", index=k) for k, w in enumerate(_WORDS))
        return low, high

    def _whole(self, i: Instruction) -> Instruction:
        """Its replacement as one instruction."""
        value = self.of[i]
        return value if isinstance(value, Instruction) else self.emit("tuple", *value, name=f"{i.name}.words")

    def _append(self, made: Instruction) -> Instruction:
        if self._at is not None and "metadata" in self._at.attributes:
            made.attributes.setdefault("metadata", self._at.attributes["metadata"])
        return super()._append(made)


_WORDS = ("low", "high")
