"""Products of a softmax: its divisions are done on their results, of which there are fewer.

Attention multiplies weights, the exponentials of a row over their sum, by values.  The sum varies along rows only, so
the row of results may be divided instead (as FlashAttention does).  The division of exponentials is a pass of the
vector unit over an array that grows with the square of the sequence, and its result needs memory of its own.  Results
are rounded elsewhere then.  The greatest element of a row is subtracted before, so that exponentials are at most one
and their sum is between one and their number: products overflow only where values are within that of the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.isa.dtypes import F32, Kind


@dataclass(frozen=True)
class SoftmaxProducts:
    """Divide products of exponentials, not the exponentials, by the sums of these."""

    def run(self, module: Module) -> bool:
        changed = False
        for c in module.computations:
            users = c.users()
            once = {i for i, using in users.items() if len(using) == 1 and i is not c.result}
            changed |= Rewriter(c).sweep(lambda r, i, once=once: _divided(r, i, once))  # type: ignore[misc]
        return changed and (DeadCode().run(module) or True)


def _divided(r: Rewriter, i: Instruction, once: set[Instruction]) -> Instruction | None:
    """What a product is rewritten to one of whose operands is an exponential over a sum that varies along its rows."""
    if i.opcode != "dot" or i.shape.dtype.kind is not Kind.FLOAT:
        return None
    for side, name in enumerate(("lhs", "rhs")):
        outer = i.operands[side]
        quotient = outer.operands[0] if outer.opcode == "convert" else outer
        if quotient.opcode != "divide" or not {outer, quotient} <= once:
            continue
        weights, repeated = quotient.operands
        batch, contracted = i.ints(f"{name}_batch_dims", ()), i.ints(f"{name}_contracting_dims", ())
        places = _places(i, side, batch, contracted)
        if not _is_at_most_one(weights) or repeated.opcode != "broadcast" or not _is_smaller(i, weights):
            continue
        if not {*repeated.ints("dimensions", ())} <= {*places} or not _is_sum_of(repeated.operands[0], weights):
            continue
        operand = weights if outer is quotient else r.emit("convert", weights, shape=outer.shape)
        operands = [operand if n == side else o for n, o in enumerate(i.operands)]
        wide = array(F32, i.dims)
        product, total = r.like(i, operands, wide), repeated.operands[0]
        if total.shape.dtype is not F32:
            total = r.emit("convert", total, shape=array(F32, total.dims))
        dims = tuple(places[d] for d in repeated.ints("dimensions", ()))
        divided = r.emit("divide", product, r.emit("broadcast", total, shape=wide, dimensions=dims))
        return divided if i.shape.dtype is F32 else r.emit("convert", divided, shape=i.shape)
    return None


def _places(i: Instruction, side: int, batch: tuple[int, ...], contracted: tuple[int, ...]) -> dict[int, int]:
    """The dimension of a product that each dimension of an operand becomes; those that are summed become none."""
    free = [d for d in range(i.operands[side].shape.rank) if d not in (*batch, *contracted)]
    first = len(batch) if side == 0 else i.shape.rank - len(free)
    return {**{d: n for n, d in enumerate(batch)}, **{d: first + n for n, d in enumerate(free)}}


def _is_smaller(i: Instruction, operand: Instruction) -> bool:
    return 0 < prod(i.dims) < prod(operand.dims)


def _is_at_most_one(i: Instruction) -> bool:
    """Whether it is the exponential of what the greatest element was subtracted from."""
    if i.opcode != "exponential" or i.operands[0].opcode != "subtract":
        return False
    value, greatest = i.operands[0].operands
    while greatest.opcode in ("reshape", "broadcast", "convert", "bitcast", "maximum"):
        greatest = next((o for o in greatest.operands if o.opcode != "constant"), greatest.operands[0])
    return _is_fold(greatest, value, "maximum")


def _is_sum_of(total: Instruction, weights: Instruction) -> bool:
    """Whether a value is made of the sum of these weights by what only changes its type or shape."""
    while total.opcode in ("reshape", "broadcast", "convert", "bitcast"):
        total = total.operands[0]
    return _is_fold(total, weights, "add")


def _is_fold(i: Instruction, value: Instruction, opcode: str) -> bool:
    """Whether an operation is the reduction of a value, or of it in another type, by an operation."""
    if i.opcode != "reduce" or len(i.operands) != 2 or i.computation().result.opcode != opcode:
        return False
    folded = i.operands[0]
    return value in (folded, folded.operands[0] if folded.opcode == "convert" else folded)
