"""Operations that the vector unit has to do: issue slots of elementwise operations, reductions, windows and sorts.

One operation of HLO is one issue slot an element.  Conversions, copies and negations count nothing: loads, stores and
the operations that take their results can do them.
Only distinct elements count: a value that is the same along a broadcast dimension is computed once, one that depends
on constants alone never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import log2, prod

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.ops.elementwise import MICRO_OPS
from systolith.isa.chip import Chip
from systolith.isa.microops import MICROOPS, Slot

FREE = frozenset({"convert", "copy", "negate", "not", "real", "imag", "complex"})
SLOTS = {"clamp": 2}
"""Elementwise operations of other than one slot an element."""


@dataclass(frozen=True)
class Slots:
    """Issue slots for one element each: of the arithmetic slots, and of the transcendental ones."""

    alu: float = 0
    trans: float = 0

    def __add__(self, other: Slots) -> Slots:
        return Slots(self.alu + other.alu, self.trans + other.trans)

    def __mul__(self, n: float) -> Slots:
        return Slots(self.alu * n, self.trans * n)

    def alu_cycles(self, chip: Chip) -> float:
        """With the cross-lane unit's adder tree helping."""
        return self.alu / (chip.vpu.alu_slots * chip.vpu.lanes * chip.vpu.sublanes + chip.vpu.lanes)

    def trans_cycles(self, chip: Chip) -> float:
        return self.trans / (chip.vpu.trans_slots * chip.vpu.lanes * chip.vpu.sublanes)


NOTHING = Slots()


@dataclass(frozen=True)
class Distinct:
    """How much of a value differs.

    Attributes:
        dims: dimensions along which it varies.
        count: elements that differ, at most.
        known: it depends on constants alone, and needs no work.
    """

    dims: frozenset[int]
    count: int
    known: bool = False


def vector_slots(computation: Computation) -> dict[Instruction, Slots]:
    """The slots of each instruction that has any, run once; not those of computations that it calls in a loop."""
    distinct: dict[Instruction, Distinct] = {}
    found = {}
    for i in computation.instructions:
        if not i.shape.is_array:
            leaf = next(i.shape.leaves(), None) if i.opcode in ("reduce", "sort", "reduce-window") else None
            if leaf is None:
                continue
        distinct[i] = _distinct(i, distinct)
        slots = _slots(i, distinct)
        if slots.alu or slots.trans:
            found[i] = slots
    return found


def _distinct(i: Instruction, known: Mapping[Instruction, Distinct]) -> Distinct:
    rule = _DISTINCT.get(i.opcode)
    if rule is not None:
        return rule(i, known)
    operands = [known[o] for o in i.operands if o in known]
    if i.opcode in ELEMENTWISE:
        dims = frozenset(d for o in operands for d in o.dims)
        count = min(prod(i.dims[d] for d in dims), prod(o.count for o in operands))
        return Distinct(dims, count, bool(operands) and all(o.known for o in operands))
    leaf = next(i.shape.leaves())
    return Distinct(frozenset(range(leaf.rank)), leaf.size, bool(operands) and all(o.known for o in operands))


def _made(i: Instruction, known: Mapping[Instruction, Distinct]) -> Distinct:
    """A constant: of an `iota` the numbers along its dimension."""
    dims = (i.integer("iota_dimension"),) if i.opcode == "iota" else range(i.shape.rank)
    return Distinct(frozenset(dims), prod(i.dims[d] for d in dims), known=True)


def _broadcast(i: Instruction, known: Mapping[Instruction, Distinct]) -> Distinct:
    dims, o = i.ints("dimensions", ()), known[i.operands[0]]
    return Distinct(frozenset(dims[d] for d in o.dims), o.count, o.known)


def _transpose(i: Instruction, known: Mapping[Instruction, Distinct]) -> Distinct:
    o = known[i.operands[0]]
    return Distinct(frozenset(e for e, d in enumerate(i.ints("dimensions")) if d in o.dims), o.count, o.known)


def _reshape(i: Instruction, known: Mapping[Instruction, Distinct]) -> Distinct:
    return replace(known[i.operands[0]], dims=frozenset(range(i.shape.rank)))


_DISTINCT: Mapping[str, Callable[[Instruction, Mapping[Instruction, Distinct]], Distinct]] = {
    "constant": _made,
    "iota": _made,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "bitcast": _reshape,
}


def _slots(i: Instruction, distinct: Mapping[Instruction, Distinct]) -> Slots:
    if i.opcode in ELEMENTWISE:
        return NOTHING if distinct[i].known else _element(i) * distinct[i].count
    rule = _COUNTED.get(i.opcode)
    operand = distinct.get(i.operands[0]) if rule is not None else None
    return NOTHING if rule is None or operand is None or operand.known else rule(i, operand.count)


def _element(i: Instruction) -> Slots:
    """Of one element of an elementwise operation."""
    if i.opcode in FREE or not i.operands:
        return NOTHING
    micro = MICRO_OPS.get(i.opcode)
    name = micro.of(i.operands[-1].shape.dtype.kind) if micro is not None else ""
    if name and MICROOPS[name].slot is Slot.TRANS:
        return Slots(trans=1)
    return Slots(alu=SLOTS.get(i.opcode, 1))


def _reducer(i: Instruction) -> Slots:
    body = i.computation()
    return sum((_element(j) for j in body.instructions if j.opcode in ELEMENTWISE), NOTHING)


def _reduce(i: Instruction, count: int) -> Slots:
    return _reducer(i) * max(0, count - next(i.shape.leaves()).size)


def _window(i: Instruction, count: int) -> Slots:
    """One step an element of the result: sums along a window can be had from running ones."""
    moves = any(d.size > 1 for d in i.window.dims)
    return _reducer(i) * next(i.shape.leaves()).size if moves else NOTHING


def _sort(i: Instruction, count: int) -> Slots:
    """log2(n!) comparisons of a row of n: n (log2 n - log2 e) at least."""
    n = i.operands[0].dims[i.ints("dimensions")[0]]
    return Slots(alu=count * max(0.0, log2(max(n, 1)) - 1.4427))


_COUNTED: Mapping[str, Callable[[Instruction, int], Slots]] = {
    "reduce": _reduce,
    "reduce-window": _window,
    "sort": _sort,
}
