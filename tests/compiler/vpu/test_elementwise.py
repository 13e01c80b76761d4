"""Every elementwise opcode on every element type, against the reference evaluator."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from systolith.compiler.ops.elementwise import MICRO_OPS
from systolith.isa.dtypes import DTYPES, Kind
from tests.compiler.vpu.harness import Outcome, run_groups, sample

FLOATS = ("f32", "bf16", "f16")
SIGNED = ("s32", "s16", "s8")
UNSIGNED = ("u32", "u16", "u8")
BINARY = frozenset(
    """add subtract multiply divide remainder power atan2 maximum minimum and or xor shift-left shift-right-logical
    shift-right-arithmetic""".split()
)
EXACT = frozenset({"add", "subtract", "multiply", "divide", "remainder", "sqrt", "sign"}) | {
    op for op, micro in MICRO_OPS.items() if micro.exact
}
BITS = ("not", "popcnt", "count-leading-zeros", "shift-right-logical", "shift-right-arithmetic")
TYPES = (*FLOATS, *SIGNED, *UNSIGNED, "pred")
NONE = {*product(("negate", "abs"), UNSIGNED), ("add", "pred"), ("multiply", "pred")}
"""Not in HLO, or not elementwise there."""
CASES = [
    *((op, t) for op, micro in MICRO_OPS.items() for t in TYPES if micro.of(DTYPES[t].kind) and (op, t) not in NONE),
    *product(("sign",), (*FLOATS, *SIGNED)),
    *product(BITS, (*SIGNED, *UNSIGNED)),
    ("not", "pred"),
]
DIMS = (5, 13)


def one(text: str, *arguments: np.ndarray) -> Outcome:
    (outcome,) = run_groups(text, *arguments)
    return outcome


@pytest.mark.parametrize(("opcode", "name"), sorted(set(CASES)))
def test_opcode(opcode: str, name: str) -> None:
    dtype = DTYPES[name]
    n = 2 if opcode in BINARY else 1
    parameters = "".join(f" p{k} = {name}[5,13] parameter({k})\n" for k in range(n))
    operands = ", ".join(f"p{k}" for k in range(n))
    text = f"HloModule m\nENTRY e {{\n{parameters} ROOT r = {name}[5,13] {opcode}({operands})\n}}\n"
    outcome = one(text, *(sample(dtype, DIMS, seed) for seed in range(n)))
    if dtype.is_float and opcode not in EXACT:
        outcome.assert_close(1e-6 if name == "f32" else 8e-3)
    else:
        outcome.assert_same_bits()


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
@pytest.mark.parametrize("name", [*FLOATS, *SIGNED, *UNSIGNED, "pred"])
def test_compare(direction: str, name: str) -> None:
    text = (
        f"HloModule m\nENTRY e {{\n p0 = {name}[5,13] parameter(0)\n p1 = {name}[5,13] parameter(1)\n"
        f" ROOT r = pred[5,13] compare(p0, p1), direction={direction}\n}}\n"
    )
    one(text, sample(DTYPES[name], DIMS, 0), sample(DTYPES[name], DIMS, 1)).assert_same_bits()


def test_compare_in_total_order() -> None:
    text = (
        "HloModule m\nENTRY e {\n p0 = f32[5,13] parameter(0)\n p1 = f32[5,13] parameter(1)\n"
        " ROOT r = pred[5,13] compare(p0, p1), direction=LT, type=TOTALORDER\n}\n"
    )
    one(text, sample(DTYPES["f32"], DIMS, 0), sample(DTYPES["f32"], DIMS, 1)).assert_same_bits()


@pytest.mark.parametrize(("source", "target"), [(a, b) for a in TYPES for b in TYPES if a != b])
def test_convert(source: str, target: str) -> None:
    x = sample(DTYPES[source], DIMS, 3)
    if DTYPES[source].is_float and DTYPES[target].kind is not Kind.FLOAT:
        x = np.where(np.isfinite(x.astype(np.float32)), x, np.asarray(1.5, x.dtype))  # XLA leaves the others open
        if DTYPES[target].kind is Kind.UNSIGNED:
            x = np.abs(x)
    text = f"HloModule m\nENTRY e {{\n p0 = {source}[5,13] parameter(0)\n ROOT r = {target}[5,13] convert(p0)\n}}\n"
    one(text, x).assert_same_bits()


@pytest.mark.parametrize(("exponent", "mantissa"), [(5, 10), (8, 7), (4, 3), (8, 23), (5, 2)])
def test_reduce_precision(exponent: int, mantissa: int) -> None:
    text = (
        "HloModule m\nENTRY e {\n p0 = f32[5,13] parameter(0)\n"
        f" ROOT r = f32[5,13] reduce-precision(p0), exponent_bits={exponent}, mantissa_bits={mantissa}\n}}\n"
    )
    one(text, sample(DTYPES["f32"], DIMS, 5)).assert_same_bits()


def test_clamp_select_and_scalars() -> None:
    text = """HloModule m
ENTRY e {
 x = f32[5,13] parameter(0)
 lo = f32[] parameter(1)
 hi = f32[] constant(2)
 c = f32[5,13] clamp(lo, x, hi)
 p = pred[5,13] parameter(2)
 ROOT r = f32[5,13] select(p, c, x)
}
"""
    x = sample(DTYPES["f32"], DIMS, 7)
    one(text, x, np.asarray(-1.25, np.float32), sample(DTYPES["pred"], DIMS, 8)).assert_same_bits()
