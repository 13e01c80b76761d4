"""The arithmetic of each micro-operation: `RULES` for kernels (raw NaNs), `MICROOP_FUNCTIONS` for everybody else.

Functions take and give 32-bit images (`images.py`); the memory operations ld, st, coord and inside are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from systolith.isa.dtypes import DTYPES, DType, Kind
from systolith.isa.microops import MICROOPS
from systolith.isa.numerics import transcendental
from systolith.isa.numerics.formats import narrow, round_to, widen
from systolith.isa.numerics.images import (
    F32,
    MAGNITUDE,
    S32,
    SIGN,
    U32,
    Bits,
    Floats,
    array,
    canonical,
    choose,
    floats,
    has_nan,
    image,
    mask_of,
    ones_where,
)

Function = Callable[..., Bits]


class Rule(NamedTuple):
    """How a kernel runs a micro-operation.

    Attributes:
        function: images to image.
        takes_raw: NaN payloads of its operands do not matter.
        gives_raw: NaNs in its result stand for the canonical one, whatever their bits.
    """

    function: Function
    takes_raw: bool
    gives_raw: bool


def _f32(ufunc: Callable[..., Any]) -> Rule:
    return Rule(lambda *args: ufunc(*(a.view(F32) for a in args)).view(U32), True, True)


def _s32(ufunc: Callable[..., Any]) -> Rule:
    return Rule(lambda *args: ufunc(*(a.view(S32) for a in args)).view(U32), False, False)


def _bits(function: Function) -> Rule:
    return Rule(function, False, False)


def _compare(ufunc: Callable[..., Any], kind: str) -> Rule:
    view = {"f32": F32, "s32": S32, "u32": U32}[kind]
    return Rule(lambda a, b: ones_where(ufunc(a.view(view), b.view(view))), kind == "f32", False)


def _extreme(ufunc: Callable[..., Any], zero: Callable[..., Any]) -> Function:
    """Minimum or maximum with -0 < +0: where both are equal, their bits differ only in the sign of a zero."""

    def run(a: Bits, b: Bits) -> Bits:
        x, y = a.view(F32), b.view(F32)
        least = image(array(ufunc(x, y)))
        if (a.ndim == 0 and x != 0) or (b.ndim == 0 and y != 0):
            return least
        return choose(mask_of(array(np.equal(x, y))), array(zero(a, b)), least)

    return run


def _maximum(a: Bits, b: Bits) -> Bits:
    if b.ndim == 0 and int(b) == 0:  # relu: adding +0 turns -0 into +0 and changes nothing else
        return image(np.maximum(a.view(F32), np.float32(0)) + np.float32(0))
    return _EXTREME_MAX(a, b)


_EXTREME_MAX = _extreme(np.maximum, np.bitwise_and)


def _select(a: Bits, b: Bits, c: Bits) -> Bits:
    return choose(mask_of(array(a != 0)), array(b), array(c))


def _shift_left(a: Bits, b: Bits) -> Bits:
    return image(array(np.left_shift(a, b & np.uint32(31)) * (b < 32)).astype(U32, copy=False))


def _shift_right(a: Bits, b: Bits) -> Bits:
    return image(array(np.right_shift(a, b & np.uint32(31)) * (b < 32)).astype(U32, copy=False))


def _shift_arithmetic(a: Bits, b: Bits) -> Bits:
    return image(np.right_shift(a.view(S32), np.minimum(b, np.uint32(31)).view(S32)))


def leading_zeros(bits: Bits) -> Bits:
    """Leading zeros of each u32, 32 of 0 (f64 holds every u32 exactly, so its exponent is the top bit's place)."""
    exponent = array(bits.astype(np.float64)).view(np.uint64) >> np.uint64(52)
    zeros: Bits = np.minimum(np.uint64(1023 + 31) - exponent, np.uint64(32)).astype(U32)
    return zeros


def _high_product(a: Bits, b: Bits) -> Bits:
    high: Bits = (np.multiply(a, b, dtype=np.uint64) >> np.uint64(32)).astype(U32)
    return high


def _round_away(x: Floats) -> Floats:
    whole = np.trunc(x)
    up = np.abs(x - whole) >= np.float32(0.5)
    rounded: Floats = array(np.copysign(np.abs(whole) + up.astype(np.float32), x), np.float32)
    return rounded


def _sign(bits: Bits) -> Bits:
    x = array(floats(bits))
    out = np.copysign((x != 0).astype(np.float32), x)
    return choose(mask_of(np.isnan(x)), bits, image(out)) if has_nan(x) else image(out)


def _to_int(
    lo: float, hi: float, top: int, kind: type[np.signedinteger[Any]] | type[np.unsignedinteger[Any]]
) -> Function:
    """Saturating conversion: `hi` is the first value beyond, `top` the largest integer."""
    below = np.nextafter(np.float32(hi), np.float32(0))

    def run(a: Bits) -> Bits:
        x = array(a.view(F32))
        if has_nan(x):
            x = np.where(np.isnan(x), np.float32(0), x)
        out = image(np.minimum(np.maximum(x, np.float32(lo)), below).astype(kind))
        beyond = np.greater_equal(x, np.float32(hi))
        return choose(mask_of(beyond), array(top, U32), out) if beyond.any() else out

    return run


def _quotient(kind: Any) -> Callable[[Bits, Bits], Any]:
    """Truncated quotient in f64: it differs from any integer by more than the rounding, so truncation is exact."""

    def run(a: Bits, b: Bits) -> Any:
        divisor = b.view(kind).astype(np.float64)
        safe = divisor + (divisor == 0)
        return np.trunc(a.view(kind).astype(np.float64) / safe).astype(np.int64).astype(np.uint32)

    return run


def _divide(kind: Any) -> Function:
    quotient = _quotient(kind)
    return lambda a, b: array(quotient(a, b)) | mask_of(array(b == 0))


def _remainder(kind: Any) -> Function:
    quotient = _quotient(kind)
    return lambda a, b: array(a - np.multiply(quotient(a, b), b), U32)


def _wrap(dtype: DType) -> Function:
    return lambda a: widen(narrow(a, dtype), dtype)


def _saturate(dtype: DType) -> Function:
    lo = -(1 << (dtype.bits - 1)) if dtype.kind is Kind.SIGNED else 0
    hi = lo + (1 << dtype.bits) - 1
    return lambda a: image(np.minimum(np.maximum(a.view(S32), np.int32(lo)), np.int32(hi)))


def _rules() -> dict[str, Rule]:
    rules = {
        "mov": _bits(lambda a: a),
        "select": _bits(_select),
        "and": _bits(np.bitwise_and),
        "or": _bits(np.bitwise_or),
        "xor": _bits(np.bitwise_xor),
        "not": _bits(np.bitwise_not),
        "shl": _bits(_shift_left),
        "shr": _bits(_shift_right),
        "sra": _bits(_shift_arithmetic),
        "clz": _bits(leading_zeros),
        "popc": _bits(lambda a: np.bitwise_count(a).astype(U32)),
        "add.f32": _f32(np.add),
        "sub.f32": _f32(np.subtract),
        "mul.f32": _f32(np.multiply),
        "div.f32": _f32(np.divide),
        "sqrt.f32": _f32(np.sqrt),
        "rem.f32": _f32(np.fmod),
        "min.f32": Rule(_extreme(np.minimum, np.bitwise_or), True, True),
        "max.f32": Rule(_maximum, True, True),
        "add.s32": _bits(np.add),
        "sub.s32": _bits(np.subtract),
        "mul.s32": _bits(np.multiply),
        "mulh.u32": _bits(_high_product),
        "min.s32": _s32(np.minimum),
        "max.s32": _s32(np.maximum),
        "min.u32": _bits(np.minimum),
        "max.u32": _bits(np.maximum),
        "neg.f32": _bits(lambda a: a ^ SIGN),
        "abs.f32": _bits(lambda a: a & MAGNITUDE),
        "neg.s32": _bits(np.negative),
        "abs.s32": _s32(np.abs),
        "floor.f32": _f32(np.floor),
        "ceil.f32": _f32(np.ceil),
        "rne.f32": _f32(np.rint),
        "rna.f32": _f32(_round_away),
        "trunc.f32": _f32(np.trunc),
        "sign.f32": Rule(_sign, True, True),
        "isfinite.f32": Rule(lambda a: ones_where(np.isfinite(a.view(F32))), True, False),
        "sign.s32": _s32(np.sign),
        "cvt.f32.s32": _bits(lambda a: image(a.view(S32).astype(F32))),
        "cvt.f32.u32": _bits(lambda a: image(a.astype(F32))),
        "cvt.s32.f32": Rule(_to_int(-(2.0**31), 2.0**31, 0x7FFFFFFF, np.int32), True, False),
        "cvt.u32.f32": Rule(_to_int(0.0, 2.0**32, 0xFFFFFFFF, np.uint32), True, False),
        "div.s32": _bits(_divide(S32)),
        "div.u32": _bits(_divide(U32)),
        "rem.s32": _bits(_remainder(S32)),
        "rem.u32": _bits(_remainder(U32)),
    }
    comparisons = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
    for name, ufunc in (comparisons | {"ge": np.greater_equal}).items():
        rules |= {f"{name}.{t}": _compare(ufunc, t) for t in ("f32", "s32", "u32")}
    for t in DTYPES.values():
        if t.is_float:
            rules[f"round.{t}"] = _bits(lambda a, t=t: round_to(a, t))
        elif t.is_integer:
            rules[f"wrap.{t}"] = _bits(_wrap(t))
            rules[f"sat.{t}"] = _bits(_saturate(t))
    for name, function in transcendental.FUNCTIONS.items():
        rules[f"{name}.f32"] = _f32(function)
    return {name: rules[name] for name in MICROOPS if name in rules}


RULES: dict[str, Rule] = _rules()


def _finished(rule: Rule) -> Function:
    @wraps(rule.function)
    def run(*args: Bits) -> Bits:
        with np.errstate(all="ignore"):
            out = np.asarray(rule.function(*(np.asarray(a, U32) for a in args)))
            return canonical(out) if rule.gives_raw else out

    return run


MICROOP_FUNCTIONS: dict[str, Function] = {name: _finished(rule) for name, rule in RULES.items()}
