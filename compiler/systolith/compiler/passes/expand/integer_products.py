"""Products of integers and of f64 that the matrix units do not have, by those that they or the vector unit have.

- Of at most 8 bits with another result than s32: in s32, converted. Integer sums wrap, so bits are lost once.
- A dot of wider integers, or of f64: dot(a, b) = reduce-add over the contracted dimensions of broadcast(a) *
  broadcast(b). The broadcasts fold into index maps and the product into the reduction, so that nothing of the larger
  shape is stored.
- A convolution of f64: such a dot of what the places of the window see (`convolution_taps.py`).
- Of f64 with a narrower result: in f64, converted.
- Of integers with a result of floats: of the integers as such floats, as XLA's operand upcaster does.
- A convolution of wider integers: convolutions of their bytes, each shifted to its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.blocked_products import in_blocks
from systolith.compiler.passes.expand.convolution_taps import by_taps
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DTYPES, PRED, S8, S32, U8, DType, Kind

DOUBLES = (DTYPES["f64"], DTYPES["c128"])

WIDEST = 8
"""Bits that the matrix units multiply."""


@dataclass(frozen=True)
class ExpandIntegerProducts:
    """Expand dots and convolutions of integers, but for those of at most 8 bits into s32, and of f64."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _expanded(callees, r, i) if i.opcode in _PRODUCTS else None)
        callees.place()
        return changed


_PRODUCTS = ("dot", "convolution")


def _expanded(callees: Callees, r: Rewriter, i: Instruction) -> Instruction | None:
    types = [o.shape.dtype for o in i.operands]
    if any(o.shape.is_dynamic for o in i.operands):
        return None
    double = max((t for t in types if t in DOUBLES), key=lambda t: t.bits, default=None)
    if double is not None and i.shape.dtype not in DOUBLES:
        whole = r.like(i, [r.converted(o, double) for o in i.operands], array(double, i.dims))
        made = _expanded(callees, r, whole)
        r.made.remove(whole)
        return made and r.converted(made, i.shape.dtype)
    if i.shape.dtype in DOUBLES:
        if i.opcode == "dot":
            return in_blocks(callees, r, i, partial(_expand, callees))
        return by_taps(r, i, lambda dot: in_blocks(callees, r, dot, partial(_expand, callees)), i.shape.dtype)
    if not _is_integral(i.shape.dtype):
        given = [r.converted(o, i.shape.dtype) if _is_integral(o.shape.dtype) else o for o in i.operands]
        return r.like(i, given, i.shape) if given != list(i.operands) else None
    if not all(_is_integral(t) for t in types):
        return None
    wide = any(t.bits > WIDEST for t in types) or i.shape.dtype.bits > S32.bits
    if wide:
        return _expand(callees, r, i) if i.opcode == "dot" else _by_bytes(r, i)
    if i.shape.dtype is S32:
        return None
    return r.emit("convert", _product(r, i, *i.operands), shape=i.shape)


def _is_integral(dtype: DType) -> bool:
    return dtype.is_integer or dtype is PRED


def _product(r: Rewriter, i: Instruction, a: Instruction, b: Instruction) -> Instruction:
    """The same product of other operands, in s32."""
    return r.like(i, [a, b], array(S32, i.dims))


def _by_bytes(r: Rewriter, i: Instruction) -> Instruction | None:
    """Sums of convolutions of bytes; None: such a sum may exceed s32 where that matters."""
    wide = i.shape.dtype.bits > S32.bits
    labels = i.conv_dims
    terms = prod(n for d, n in enumerate(i.operands[1].dims) if d != labels.kernel_output)
    if wide and terms * 255 * 255 >= 1 << 31:
        return None
    left, right = ([*enumerate(_bytes(r, o))] for o in i.operands)
    total: Instruction | None = None
    for (j, a), (k, b) in product(left, right):
        place = WIDEST * (j + k)
        if place >= i.shape.dtype.bits:
            continue
        part = _product(r, i, a, b)
        part = part if i.shape.dtype is S32 else r.emit("convert", part, shape=i.shape)
        part = r.emit("shift-left", part, r.full(place, i.shape)) if place else part
        total = part if total is None else r.emit("add", total, part)
    return total


def _bytes(r: Rewriter, x: Instruction) -> list[Instruction]:
    """The bytes of integers, the low ones first; the last one has the sign."""
    dtype, found = x.shape.dtype, []
    if dtype.bits <= WIDEST:
        return [x]
    for k in range(0, dtype.bits, WIDEST):
        last = k + WIDEST == dtype.bits and dtype.kind is Kind.SIGNED
        moved = r.emit("shift-right-logical", x, r.full(k, x.shape)) if k else x
        found.append(r.emit("convert", moved, shape=array(S8 if last else U8, x.dims)))
    return found


def _expand(callees: Callees, r: Rewriter, dot: Instruction) -> Instruction:
    """Over the space of batch, free left, free right and contracted dimensions, in this order."""
    lhs, rhs = dot.operands
    (lb, lc), (rb, rc) = (
        (dot.ints(f"{side}_batch_dims", ()), dot.ints(f"{side}_contracting_dims", ())) for side in ("lhs", "rhs")
    )
    left_free = [d for d in range(len(lhs.dims)) if d not in (*lb, *lc)]
    right_free = [d for d in range(len(rhs.dims)) if d not in (*rb, *rc)]
    kept = len(lb) + len(left_free) + len(right_free)
    sizes = (*dot.dims, *(lhs.dims[d] for d in lc))
    summed = tuple(range(kept, len(sizes)))
    left_places = _places(len(lhs.dims), (lb, range(len(lb))), (left_free, range(len(lb), kept)), (lc, summed))
    first_right = len(lb) + len(left_free)
    right_places = _places(len(rhs.dims), (rb, range(len(rb))), (right_free, range(first_right, kept)), (rc, summed))
    dtype = dot.shape.dtype
    sides = [_spread(r, operand, dtype, sizes, places) for operand, places in ((lhs, left_places), (rhs, right_places))]
    multiplied = r.emit("multiply", *sides, shape=sides[0].shape)
    zero = r.constant(0, dtype)
    adder = callees.reducer("add", dtype)
    return r.emit("reduce", multiplied, zero, shape=dot.shape, name=dot.name, dimensions=summed, to_apply=adder)


def _places(rank: int, *pairs: tuple[Sequence[int], Sequence[int]]) -> tuple[int, ...]:
    """For each dimension of an operand, the one of the product that it becomes."""
    places = [0] * rank
    for dims, targets in pairs:
        for d, target in zip(dims, targets, strict=False):
            places[d] = target
    return tuple(places)


def _spread(
    r: Rewriter, operand: Instruction, dtype: DType, sizes: tuple[int, ...], places: tuple[int, ...]
) -> Instruction:
    """An operand, converted and transposed into order, broadcast over the product's space."""
    if operand.shape.dtype != dtype:
        operand = r.emit("convert", operand, shape=array(dtype, operand.dims))
    order = tuple(sorted(range(len(places)), key=places.__getitem__))
    if order != tuple(range(len(order))):
        operand = r.emit("transpose", operand, dimensions=order)
    return r.emit("broadcast", operand, shape=array(dtype, sizes), dimensions=tuple(sorted(places)))
