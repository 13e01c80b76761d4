"""Every micro-operation against Python's integers, floats and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.microops import MICROOPS
from systolith.isa.numerics.alu import MICROOP_FUNCTIONS, RULES
from systolith.isa.numerics.images import canonical, floats, has_nan, image
from systolith.isa.numerics.transcendental import FUNCTIONS
from tests.isa_numerics.exact import INF, NAN, round_fraction, to_bits, value

MASK = 2**32 - 1
SIGN = 0x80000000
EDGES = [
    *(0, SIGN, 1, SIGN | 1, 0x3F800000, 0xBF800000, 0x3F000000, 0xBF000000, 0x40200000, 0x7F7FFFFF, INF, INF | SIGN),
    *(NAN, 0x7F800001, 0xFFC12345, 0x4F000000, 0xCF000000, 0x4F800000, 0x00800000, 0x7FFFFFFF, MASK, 31, 32, 33),
]
_word = st.one_of(st.sampled_from(EDGES), st.integers(0, MASK), st.integers(0x3E000000, 0x41000000))


def s32(a: int) -> int:
    return a - 2**32 if a & SIGN else a


def run(name: str, *args: int) -> int:
    return int(MICROOP_FUNCTIONS[name](*(np.array([a], np.uint32) for a in args))[0])


def of_floats(function: Callable[..., Any]) -> Callable[..., int]:
    """Bits of a function of Python floats whose result f32 holds or which is a Fraction to round; NaN canonical."""

    def call(*args: int) -> int:
        values = [value(a) for a in args]
        if any(v != v for v in values):
            return NAN
        result = function(*values)
        if isinstance(result, tuple):
            return to_bits(*result)
        if result != result:
            return NAN
        if math.isinf(result):
            return INF | (SIGN if result < 0 else 0)
        return to_bits(Fraction(result), math.copysign(1, result) < 0)

    return call


def arithmetic(op: str) -> Callable[[float, float], Any]:
    def call(a: float, b: float) -> Any:
        rough = {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b}[op]()
        if not all(map(math.isfinite, (a, b))):
            return rough
        x, y = Fraction(a), Fraction(b)
        exact = {"add": x + y, "sub": x - y, "mul": x * y}[op]
        return exact, math.copysign(1, rough) < 0

    return call


def divide(a: float, b: float) -> Any:
    sign = math.copysign(1, a) * math.copysign(1, b)
    if math.isinf(a) or math.isinf(b) or b == 0:
        if (math.isinf(a) and math.isinf(b)) or (a == 0 and b == 0):
            return math.nan
        return sign * (0.0 if math.isinf(b) else math.inf)
    return Fraction(a) / Fraction(b), sign < 0


def square_root(a: float) -> Any:
    if a < 0:
        return math.nan
    if a == 0 or math.isinf(a):
        return a
    return Fraction(math.isqrt(int(Fraction(a) * 2**300)), 2**150), False  # far beyond any tie


def order(v: float) -> tuple[float, float]:
    return v, math.copysign(1, v)


def half_away(a: float) -> float:
    return a if math.isinf(a) else math.copysign(float(math.floor(abs(Fraction(a)) + Fraction(1, 2))), a)


def whole(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda a: a if math.isinf(a) else math.copysign(float(function(a)), a)


def clamp_to_int(lo: int, hi: int) -> Callable[[int], int]:
    def call(a: int) -> int:
        v = value(a)
        if v != v:
            return 0
        return (lo if v <= lo else hi if v >= hi else int(v)) & MASK

    return call


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


REFERENCE: dict[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "select": lambda a, b, c: b if a else c,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: a ^ MASK,
    "shl": lambda a, b: (a << b) & MASK if b < 32 else 0,
    "shr": lambda a, b: a >> b if b < 32 else 0,
    "sra": lambda a, b: (s32(a) >> min(b, 31)) & MASK,
    "clz": lambda a: 32 - a.bit_length(),
    "popc": lambda a: a.bit_count(),
    "add.f32": of_floats(arithmetic("add")),
    "sub.f32": of_floats(arithmetic("sub")),
    "mul.f32": of_floats(arithmetic("mul")),
    "div.f32": of_floats(divide),
    "sqrt.f32": of_floats(square_root),
    "rem.f32": of_floats(lambda a, b: math.nan if math.isinf(a) or b == 0 else math.fmod(a, b)),
    "min.f32": of_floats(lambda a, b: min(a, b, key=order)),
    "max.f32": of_floats(lambda a, b: max(a, b, key=order)),
    "add.s32": lambda a, b: (a + b) & MASK,
    "sub.s32": lambda a, b: (a - b) & MASK,
    "mul.s32": lambda a, b: (a * b) & MASK,
    "mulh.u32": lambda a, b: (a * b) >> 32,
    "min.s32": lambda a, b: min(s32(a), s32(b)) & MASK,
    "max.s32": lambda a, b: max(s32(a), s32(b)) & MASK,
    "min.u32": min,
    "max.u32": max,
    "neg.f32": lambda a: a ^ SIGN,
    "abs.f32": lambda a: a & ~SIGN,
    "neg.s32": lambda a: -a & MASK,
    "abs.s32": lambda a: abs(s32(a)) & MASK,
    "sign.s32": lambda a: ((s32(a) > 0) - (s32(a) < 0)) & MASK,
    "floor.f32": of_floats(whole(math.floor)),
    "ceil.f32": of_floats(whole(math.ceil)),
    "trunc.f32": of_floats(whole(math.trunc)),
    "rne.f32": of_floats(whole(round)),
    "rna.f32": of_floats(half_away),
    "sign.f32": of_floats(lambda a: math.copysign(float(a != 0), a)),
    "isfinite.f32": lambda a: int(math.isfinite(value(a))),
    "cvt.f32.s32": lambda a: to_bits(Fraction(s32(a))),
    "cvt.f32.u32": lambda a: to_bits(Fraction(a)),
    "cvt.s32.f32": clamp_to_int(-(2**31), 2**31 - 1),
    "cvt.u32.f32": clamp_to_int(0, MASK),
    "div.u32": lambda a, b: a // b if b else MASK,
    "rem.u32": lambda a, b: a % b if b else a,
    "div.s32": lambda a, b: quotient(s32(a), s32(b)) & MASK if b else MASK,
    "rem.s32": lambda a, b: (s32(a) - quotient(s32(a), s32(b)) * s32(b)) & MASK if b else a,
}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
for _name, _f in _COMPARE.items():
    for _type, _view in (("f32", value), ("s32", s32), ("u32", int)):
        REFERENCE[f"{_name}.{_type}"] = lambda a, b, f=_f, v=_view: int(f(v(a), v(b)))
for _bits in (4, 8, 16):
    for _letter, _lo in (("u", 0), ("s", -(2 ** (_bits - 1)))):
        _hi = _lo + 2**_bits - 1
        REFERENCE[f"sat.{_letter}{_bits}"] = lambda a, lo=_lo, hi=_hi: min(max(s32(a), lo), hi) & MASK
        REFERENCE[f"wrap.{_letter}{_bits}"] = lambda a, lo=_lo, n=_bits: ((a - lo) % 2**n + lo) & MASK

ROUNDINGS = {name for name in MICROOPS if name.startswith("round.")}
SEQUENCES = {f"{name}.f32" for name in FUNCTIONS}


def test_every_micro_operation_has_a_function_and_a_reference() -> None:
    assert set(RULES) == set(MICROOPS) - {"ld", "st", "coord", "inside"}
    assert set(REFERENCE) >= set(RULES) - ROUNDINGS - SEQUENCES


@pytest.mark.parametrize("name", sorted(set(RULES) - ROUNDINGS - SEQUENCES))
@given(data=st.data())
def test_reference(name: str, data: st.DataObject) -> None:
    args = [data.draw(_word) for _ in range(MICROOPS[name].sources)]
    assert hex(run(name, *args)) == hex(REFERENCE[name](*args)), [hex(a) for a in args]


@pytest.mark.parametrize("name", sorted(set(RULES) - SEQUENCES))
def test_edges_with_all_edges_and_shapes_broadcast(name: str) -> None:
    edges = np.array(EDGES, np.uint32)
    n = MICROOPS[name].sources
    args = [edges.reshape([-1 if k == i else 1 for k in range(n)]) for i in range(n)]
    got = np.broadcast_to(MICROOP_FUNCTIONS[name](*args), (len(EDGES),) * n)
    for at in np.ndindex(got.shape):
        words = [EDGES[i] for i in at]
        one = MICROOP_FUNCTIONS[name](*(np.array(w, np.uint32) for w in words))
        assert int(one) == int(got[at]), words
        if name in REFERENCE:
            assert hex(int(one)) == hex(REFERENCE[name](*words)), [hex(w) for w in words]


@pytest.mark.parametrize("name", sorted(n for n, r in RULES.items() if r.takes_raw))
def test_what_takes_raw_does_not_see_payloads(name: str) -> None:
    n = MICROOPS[name].sources
    rng = np.random.default_rng(3)
    args = [rng.choice(np.array([*EDGES, 0x7F812345, 0xFF812345], np.uint32), 500) for _ in range(n)]
    if name.endswith(("s32", "u32")) and not name.startswith("cvt"):
        return  # integers: every bit counts, and comparisons read them all
    clean = MICROOP_FUNCTIONS[name](*(canonical(a) for a in args))
    assert np.array_equal(MICROOP_FUNCTIONS[name](*args), clean)


def test_canonical_finds_the_only_nan() -> None:
    x = np.zeros((50, 70), np.float32)
    assert not has_nan(x)
    assert canonical(image(x)) is not None
    x.view(np.uint32)[49, 69] = 0xFFC00001
    assert has_nan(x)
    assert int(canonical(image(x))[49, 69]) == NAN
    assert not has_nan(floats(image(np.full(3, np.inf, np.float32))))


def test_the_references_round_as_python_does() -> None:
    rng = np.random.default_rng(1)
    for x in rng.standard_normal(200):
        rounded = round_fraction(Fraction(float(x)), 23, -126, 127)
        assert rounded is not None
        assert float(rounded) == float(np.float32(x))


@pytest.mark.parametrize("op", [op for op, rule in RULES.items() if rule.takes_raw])
def test_which_nan_does_not_matter_where_the_rule_says_so(op: str) -> None:
    others = np.array([0x7FC00000, 0xFFC00000, 0x3F800000, 0x80000000, 0x7F800000, 5], np.uint32)
    for many in product(others, repeat=MICROOPS[op].sources):
        seen = set()
        for nan in (0x7FC00000, 0xFFC00000, 0x7F812345, 0xFFFFFFFF):
            args = [np.array([nan if v & 0x7FC00000 == 0x7FC00000 else v], np.uint32) for v in many]
            seen.add(int(MICROOP_FUNCTIONS[op](*args)[0]))
        assert len(seen) == 1, (many, seen)
