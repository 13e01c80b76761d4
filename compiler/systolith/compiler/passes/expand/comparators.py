"""Comparators of sorts, split into what they compute of each element alone and what they compute of two.

A *feature* is a value of one element that a comparator combines with one of another: an operand of the sort as it is,
or a function of operands (the sign of a zero dropped, say).  Features are computed once an element rather than in every
comparison.  Those of floats that are compared in total order are integers of the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from systolith.compiler.hlo.ir import Attribute, Computation, Instruction
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.on_arrays import on_array
from systolith.compiler.passes.rewrite import INHERITED, Rewriter
from systolith.isa.dtypes import DTYPES, PRED, DType

_SCALAR_OPS = ELEMENTWISE | {"parameter", "constant", "bitcast-convert"}

_FLIPPED = {"LT": "GT", "GT": "LT"}


@dataclass(frozen=True)
class Feature:
    """A value of one element.

    Attributes:
        of: the instruction of the comparator that computes it, for one of the two elements.
        number: of the operand of the sort that it is; None: it is computed of operands.
        total: whether it is a float that is compared in total order, and so carried as an integer.
    """

    of: Instruction
    number: int | None
    total: bool

    def carried(self, r: Rewriter, operands: Sequence[Instruction]) -> Instruction:
        """The feature of every element of a sort's operands."""
        value = _applied(r, self.of, operands)
        return ordered(r, value) if self.total else value

    def restored(self, r: Rewriter, carried: Instruction) -> Instruction:
        """The operand that it is."""
        return unordered(r, carried, self.of.shape.dtype) if self.total else carried


class Comparator:
    """A comparator: true where its first element comes before its second.

    Attributes:
        features: what it combines, in the order in which elements carry them.
    """

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self._used = _reached(computation.result)
        self._plain = all(map(_is_plain, self._used))
        self._side: dict[Instruction, frozenset[int]] = {}
        self._form: dict[Instruction, int] = {}
        self._place: dict[tuple[int, bool], int] = {}
        self.features: list[Feature] = []
        if self._plain:
            self._split()
        else:
            self.features = [Feature(p, k, False) for k, p in enumerate(computation.parameters[::2])]

    def _split(self) -> None:
        forms: dict[tuple[object, ...], int] = {}
        for i in self._used:
            self._form[i] = forms.setdefault(_key(i, self._form), len(forms))
            own = {i.number % 2} if i.number is not None else set[int]()
            self._side[i] = frozenset(own).union(*(self._side[o] for o in i.operands))
        for i in self._used:
            if len(self._side[i]) == 2:
                for o in i.operands:
                    self._add(o, self._is_total(i))
        if len(self._side[self._computation.result]) == 1:
            self._add(self._computation.result, False)

    def _add(self, i: Instruction, total: bool) -> None:
        key = self._form[i], total
        if len(self._side[i]) == 1 and key not in self._place:
            self._place[key] = len(self.features)
            self.features.append(Feature(i, None if i.number is None else i.number // 2, total))

    @cached_property
    def direction(self) -> str:
        """LT or GT where it compares one integer of both elements so; empty where it does something else."""
        root = self._computation.result
        if not self._plain or root.opcode != "compare" or len(self.features) != 1:
            return ""
        direction, sides = root.word("direction"), [self._side[o] for o in root.operands]
        (feature,) = self.features
        if sorted(map(sorted, sides)) != [[0], [1]] or not (feature.total or feature.of.shape.dtype.is_integer):
            return ""
        return (direction if 0 in sides[0] else _FLIPPED[direction]) if direction in _FLIPPED else ""

    def holds(self, r: Rewriter, a: Sequence[Instruction], b: Sequence[Instruction]) -> Instruction:
        """Whether a comes before b, of each pair of elements; `a`, `b`: their features."""
        dims = a[0].dims
        if not self._plain:
            pairs = [x for pair in zip(a, b, strict=True) for x in pair]
            every = tuple(range(len(dims)))
            called = self._computation
            return r.emit("map", *pairs, shape=array(PRED, dims), dimensions=every, to_apply=called)
        value: dict[Instruction, Instruction] = {}

        def taken(o: Instruction, total: bool) -> Instruction:
            side = self._side[o]
            return value[o] if len(side) != 1 else (a, b)[min(side)][self._place[self._form[o], total]]

        for i in self._used:
            if len(self._side[i]) != 1:
                total = self._is_total(i)
                value[i] = _emitted(r, i, [taken(o, total) for o in i.operands], dims, total)
        return taken(self._computation.result, False)

    def _is_total(self, i: Instruction) -> bool:
        """Whether it compares floats, one of each element, in total order, so that integers can stand for them."""
        if i.opcode != "compare" or i.attributes.get("type") != "TOTALORDER":
            return False
        return has_order(i.operands[0].shape.dtype) and all(len(self._side[o]) == 1 for o in i.operands)


def has_order(dtype: DType) -> bool:
    """Whether integers of as many bits can stand for the floats of a type in total order."""
    return dtype.is_float and dtype.bits in _SIGNED


def ordered(r: Rewriter, x: Instruction) -> Instruction:
    """Floats as integers in total order: the bits, those below the sign flipped in negative numbers."""
    integers = array(_SIGNED[x.shape.dtype.bits], x.dims)
    return _flipped(r, r.emit("bitcast-convert", x, shape=integers), x.shape.dtype)


def unordered(r: Rewriter, x: Instruction, dtype: DType) -> Instruction:
    """The floats of which `ordered` made integers."""
    return r.emit("bitcast-convert", _flipped(r, x, dtype), shape=array(dtype, x.dims))


def _flipped(r: Rewriter, x: Instruction, dtype: DType) -> Instruction:
    bits = x.shape.dtype.bits
    if not has_sign(dtype):
        return r.emit("xor", x, r.full(x.shape.dtype.least, x.shape))
    sign = r.emit("shift-right-arithmetic", x, r.full(bits - 1, x.shape))
    return r.emit("xor", x, r.emit("and", sign, r.full((1 << (bits - 1)) - 1, x.shape)))


def has_sign(dtype: DType) -> bool:
    """Whether floats of a type can be negative."""
    return dtype.name != "f8e8m0fnu"


_SIGNED = {bits: DTYPES[f"s{bits}"] for bits in (4, 8, 16, 32, 64)}
"""Integers of as many bits as the floats that can be carried so."""


def _is_plain(i: Instruction) -> bool:
    return i.opcode in _SCALAR_OPS and i.shape.is_array and (i.opcode != "constant" or i.literal is not None)


def _reached(root: Instruction) -> list[Instruction]:
    """The instructions that a value is computed from, and itself, operands first."""
    found: dict[Instruction, None] = {}
    stack: list[tuple[Instruction, Iterator[Instruction]]] = [(root, iter(root.operands))]
    while stack:
        i, rest = stack[-1]
        below = next((o for o in rest if o not in found), None)
        if below is None:
            found[i] = None
            stack.pop()
        else:
            stack.append((below, iter(below.operands)))
    return list(found)


def _key(i: Instruction, form: Mapping[Instruction, int]) -> tuple[object, ...]:
    """Equal for instructions that compute the same of either element."""
    number = None if i.number is None else i.number // 2
    literal = None if i.literal is None else np.asarray(i.literal).tobytes()
    return i.opcode, i.shape.dtype.name, number, literal, repr(_own(i)), *(form[o] for o in i.operands)


def _own(i: Instruction) -> dict[str, Attribute]:
    return {k: v for k, v in i.attributes.items() if k not in INHERITED}


def _applied(r: Rewriter, root: Instruction, operands: Sequence[Instruction]) -> Instruction:
    """A value of one element, for every element of a sort's operands."""
    value: dict[Instruction, Instruction] = {}
    for i in _reached(root):
        if i.number is not None:
            value[i] = operands[i.number // 2]
        else:
            value[i] = _emitted(r, i, [value[o] for o in i.operands], operands[0].dims, False)
    return value[root]


def _emitted(
    r: Rewriter, i: Instruction, operands: Sequence[Instruction], dims: tuple[int, ...], total: bool
) -> Instruction:
    """An instruction on scalars as one on arrays; `total`: floats are carried as integers."""
    made = on_array(r, i, operands, dims)
    made.attributes = {k: v for k, v in made.attributes.items() if k not in INHERITED and not (total and k == "type")}
    return made
