"""Each operation in each element type through the whole path: compiled, run in hostile mode, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.isa.dtypes import Kind, dtype
from systolith.runtime.arrays import random_array
from tests.compiler.machine import Array, check
from tests.examples import one_in

FLOATS, INTEGERS = ("f32", "bf16", "f16"), ("s32", "u32", "s16", "s8", "u8")
NUMBERS = FLOATS + INTEGERS
TYPES = (*NUMBERS, "pred")
SIZES = (5, 19)

UNARY = {
    **dict.fromkeys(("abs", "sign"), (*FLOATS, "s32", "s16", "s8")),
    "negate": NUMBERS,
    **dict.fromkeys("floor ceil round-nearest-even round-nearest-afz".split(), FLOATS),
    **dict.fromkeys("exponential tanh logistic sine cosine exponential-minus-one cbrt erf".split(), FLOATS),
    **dict.fromkeys("log rsqrt sqrt log-plus-one".split(), FLOATS),
    **dict.fromkeys("asin acos atan sinh cosh asinh acosh atanh real imag".split(), FLOATS),
    "not": (*INTEGERS, "pred"),
    **dict.fromkeys(("popcnt", "count-leading-zeros"), INTEGERS),
    "copy": TYPES,
}
BINARY = {
    **dict.fromkeys("add subtract multiply divide maximum minimum remainder".split(), NUMBERS),
    "power": (*NUMBERS, "u4", "s4"),
    "mulhi": INTEGERS,
    "atan2": FLOATS,
    **dict.fromkeys("and or xor".split(), (*INTEGERS, "pred")),
    **dict.fromkeys("shift-left shift-right-arithmetic shift-right-logical".split(), INTEGERS),
}
POSITIVE = frozenset({"log", "rsqrt", "sqrt", "log-plus-one", "power"})
SHAPED = {
    "broadcast": "ROOT r = {t}[3,5,19] broadcast(x), dimensions={{1,2}}",
    "reshape": "ROOT r = {t}[19,5] reshape(x)",
    "transpose": "ROOT r = {t}[19,5] transpose(x), dimensions={{1,0}}",
    "slice": "ROOT r = {t}[2,6] slice(x), slice={{[1:5:2], [0:18:3]}}",
    "reverse": "ROOT r = {t}[5,19] reverse(x), dimensions={{0,1}}",
    "concatenate": "ROOT r = {t}[5,38] concatenate(x, y), dimensions={{1}}",
    "pad": "z = {t}[] constant(1)\n ROOT r = {t}[8,40] pad(x, z), padding=1_2x-1_4_1",
    "select": "p = pred[5,19] compare(x, y), direction=LT\n ROOT r = {t}[5,19] select(p, x, y)",
    "dynamic-slice": "i = s32[] constant(9)\n j = s32[] parameter(2)\n"
    " ROOT r = {t}[2,4] dynamic-slice(x, i, j), dynamic_slice_sizes={{2,4}}",
    "dynamic-update-slice": "j = s32[] parameter(2)\n u = {t}[2,4] slice(y), slice={{[0:2], [3:7]}}\n"
    " ROOT r = {t}[5,19] dynamic-update-slice(x, u, j, j)",
    "reduce": "z = {t}[] constant(0)\n ROOT r = {t}[5] reduce(x, z), dimensions={{1}}, to_apply=largest",
    "reduce-window": "z = {t}[] constant(0)\n"
    " ROOT r = {t}[3,10] reduce-window(x, z), window={{size=3x2 stride=2x2 pad=1_1x1_0}}, to_apply=largest",
}
LARGEST = "largest {{ a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n ROOT m = {t}[] {op}(a, b) }}\n"


def inputs(t: str, positive: bool = False) -> list[Array]:
    rng = np.random.default_rng(5)
    arrays = [random_array(rng, dtype(t), SIZES) for _ in range(2)]
    return [np.abs(a.astype(np.float32)).astype(a.dtype) if positive else a for a in arrays]


def tolerance(t: str) -> float:
    """One rounding of the element type, or ten of f32's for the transcendental functions."""
    return max(1e-6, float(dtype(t).finfo.eps)) if dtype(t).is_float else 0.0


def module(t: str, body: str, head: str = "") -> str:
    parameters = f" x = {t}[5,19] parameter(0)\n y = {t}[5,19] parameter(1)\n"
    return f"HloModule m\n{head}ENTRY e {{\n{parameters} {body}\n}}\n"


@pytest.mark.parametrize(("op", "t"), one_in(2, UNARY))
def test_unary(op: str, t: str) -> None:
    check(module(t, f"ROOT r = {t}[5,19] {op}(x)"), inputs(t, op in POSITIVE), most=tolerance(t))


@pytest.mark.parametrize(("op", "t"), one_in(2, BINARY))
def test_binary(op: str, t: str) -> None:
    check(module(t, f"ROOT r = {t}[5,19] {op}(x, y)"), inputs(t, op in POSITIVE), most=tolerance(t))


@pytest.mark.parametrize(("direction", "t"), one_in(3, dict.fromkeys(("EQ", "NE", "LT", "LE", "GT", "GE"), TYPES)))
def test_compare(direction: str, t: str) -> None:
    check(module(t, f"ROOT r = pred[5,19] compare(x, y), direction={direction}"), inputs(t))


@pytest.mark.parametrize("t", NUMBERS)
def test_clamp(t: str) -> None:
    body = f"l = {t}[] constant(1)\n h = {t}[] constant(2)\n ROOT r = {t}[5,19] clamp(l, x, h)"
    check(module(t, body), inputs(t))


@pytest.mark.parametrize(("t", "to"), one_in(3, dict.fromkeys(TYPES, TYPES)))
def test_convert(t: str, to: str) -> None:
    check(module(t, f"ROOT r = {to}[5,19] convert(x)"), inputs(t), most=0.0)


@pytest.mark.parametrize(("op", "t"), one_in(3, dict.fromkeys(SHAPED, TYPES)))
def test_shaped(op: str, t: str) -> None:
    combine = "or" if dtype(t).kind is Kind.PRED else "maximum"
    arguments = inputs(t)
    if op.startswith("dynamic"):
        arguments.append(np.asarray(2, np.int32))
    check(module(t, SHAPED[op].format(t=t), LARGEST.format(t=t, op=combine)), arguments, most=0.0)


@pytest.mark.parametrize("t", [*NUMBERS])
def test_iota(t: str) -> None:
    check(
        module(t, f"i = {t}[5,19] iota(), iota_dimension=1\n ROOT r = {t}[5,19] add(i, x)"),
        inputs(t),
        most=tolerance(t),
    )


@pytest.mark.parametrize("t", ["f32", "bf16", "f16", "s32", "s16", "s8", "u8"])
def test_dot(t: str) -> None:
    out = "s32" if t in ("s8", "u8") else t
    body = f"ROOT r = {out}[5,5] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"
    check(module(t, body), inputs(t), most=1e-5 if t == "f32" else tolerance(t))


@pytest.mark.parametrize("t", ["f32", "bf16", "s8"])
def test_convolution(t: str) -> None:
    out = "s32" if t == "s8" else t
    body = (
        f"i = {t}[1,5,19,1] reshape(x)\n s = {t}[3,4] slice(y), slice={{[0:3], [0:4]}}\n k = {t}[3,2,1,2] reshape(s)\n"
        f" ROOT r = {out}[1,5,9,2] convolution(i, k), window={{size=3x2 stride=1x2 pad=1_1x0_0}},"
        " dim_labels=b01f_01io->b01f"
    )
    check(module(t, body), inputs(t), most=1e-5 if t == "f32" else tolerance(t))
