"""Products of integers and of f64 that the matrix units do not have, by those that they or the vector unit have.

- Of at most 8 bits with another result than s32: in s32, converted. Integer sums wrap, so bits are lost once.
- A dot of wider integers, or of f64: sums of products of elements (`element_products.py`).
- A convolution of f64: such a dot of what the places of the window see (`convolution_taps.py`).
- Of f64 with a narrower result: in f64, converted.
- Of integers with a result of floats: of the integers as such floats, as XLA's operand upcaster does.
- A convolution of wider integers: convolutions of their bytes, each shifted to its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.blocked_products import in_blocks
from systolith.compiler.passes.expand.convolution_taps import by_taps
from systolith.compiler.passes.expand.element_products import summed_products
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
    return summed_products(callees, r, dot, dot.shape.dtype)
