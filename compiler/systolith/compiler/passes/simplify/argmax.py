"""Reductions that give a largest or smallest value with its index, as JAX lowers argmax and argmin.

JAX's computation takes its first value where that is a NaN, whatever the second is: of several NaNs the index depends
on the order in which a reduction combines them.  XLA's CPU backend goes from the first element to the last, so the
lowest index is its answer (numpy's, too), and a computation that says so may be applied in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.passes.rewrite import Rewriter, rewrite

Term: TypeAlias = Instruction | tuple[Any, ...]
"""An instruction itself, or an opcode (of a comparison, with its direction) and its operands' terms."""

EXTREMES = {"GT": "maximum", "LT": "minimum"}
"""The direction in which the first value wins, and the operation that gives the value."""


@dataclass(frozen=True)
class CommuteArgmax:
    """Write JAX's argmax and argmin as the extreme value, a NaN if there is one, and the lowest index of it."""

    def run(self, module: Module) -> bool:
        return rewrite(module, _commutative)


def _commutative(r: Rewriter, root: Instruction) -> Instruction | None:
    extreme = _extreme(r.computation) if root is r.computation.result and root not in r.pinned else None
    if extreme is None:
        return None
    value, index, other_value, other_index = _parameters(r.computation)
    best = r.emit(extreme, value, other_value)
    none = r.constant(index.shape.dtype.greatest, index.shape.dtype)
    candidates = [
        r.emit("select", _stands(r, x, best), k, none) for x, k in ((value, index), (other_value, other_index))
    ]
    return r.emit("tuple", best, r.emit("minimum", *candidates), shape=root.shape)


def _stands(r: Rewriter, x: Instruction, best: Instruction) -> Instruction:
    """Whether a value is the extreme one."""
    equal = r.emit("compare", x, best, direction="EQ")
    return r.emit("or", equal, r.emit("compare", x, x, direction="NE")) if x.shape.dtype.is_float else equal


def _parameters(computation: Computation) -> list[Instruction]:
    return sorted(computation.parameters, key=lambda p: p.number or 0)


def _extreme(computation: Computation) -> str | None:
    """`maximum` or `minimum` where a computation is JAX's argmax or argmin, else None."""
    parameters = _parameters(computation)
    if len(parameters) != 4 or any(p.shape.is_tuple or p.shape.rank for p in parameters):
        return None
    value, index, other_value, other_index = parameters
    if value.shape != other_value.shape or index.shape != other_index.shape or not index.shape.dtype.is_integer:
        return None
    for direction, extreme in EXTREMES.items():
        wins = ("or", _compare(value, other_value, direction), _compare(value, value, "NE"))
        tie = ("and", _compare(value, other_value, "EQ"), _compare(index, other_index, "LT"))
        values = ("select", wins, value, other_value)
        if _matches(computation.result, ("tuple", values, ("select", ("or", wins, tie), index, other_index))):
            return extreme
    return None


def _compare(x: Instruction, y: Instruction, direction: str) -> Term:
    return (f"compare {direction}", x, y)


def _matches(i: Instruction, term: Term) -> bool:
    if isinstance(term, Instruction):
        return i is term
    opcode, *operands = term
    total = i.word("type", "FLOAT") == "TOTALORDER"
    found = f"compare {i.word('direction')}" if i.opcode == "compare" and not total else i.opcode
    if found != opcode or len(i.operands) != len(operands):
        return False
    orders = [i.operands, i.operands[::-1]] if opcode in ("and", "or") else [i.operands]
    return any(all(map(_matches, order, operands)) for order in orders)
