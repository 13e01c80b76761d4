"""Reductions, contractions, sorting and moves on every element type against XLA."""

import numpy as np
import pytest

from systolith.compiler.hlo import evaluate, parse_hlo
from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.values.convert import store
from systolith.isa.dtypes import Kind
from tests.compiler.hlo.compare import Array, assert_close
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.hlo.test_evaluator_types import FLOATS, INTEGERS, each, values

pytest.importorskip("jax")

COMPLEX = ["c64", "c128"]


def drawn(name: str, *dims: int, seed: int = 0) -> Array:
    dtype, rng = ELEMENT_TYPES[name], np.random.default_rng(seed)
    if dtype.kind is Kind.PRED:
        return rng.integers(0, 2, dims).astype(np.bool_)
    if dtype.is_integer:
        return store(rng.integers(-(2**63), 2**63 - 1, dims, dtype=np.int64), dtype)
    imaginary = 1j * rng.standard_normal(dims) if dtype.kind is Kind.COMPLEX else 0
    numbers = rng.standard_normal(dims) + imaginary
    return numbers.astype(np.float32 if dtype.bits < 32 else dtype.stored).astype(dtype.stored)


def tolerance(name: str) -> float:
    dtype = ELEMENT_TYPES[name]
    return 0 if dtype.is_integer or dtype.kind is Kind.PRED else 4 * float(dtype.finfo.eps)


def check(body: str, tolerances: list[float], *arrays: Array, head: str = "") -> None:
    text = f"HloModule m\n{head}\nENTRY e {{\n{body}\n}}"
    actual, expected = evaluate(parse_hlo(text), *arrays, precision="highest"), run_xla(text, *arrays)
    for bound, a, b in zip(tolerances, actual, expected, strict=True):
        assert_close(a, b, bound, text)


@pytest.mark.parametrize("name", each([n for n in (*FLOATS, *INTEGERS, *COMPLEX) if n != "f8e8m0fnu"]))
def test_reductions(name: str) -> None:
    """Over one dimension and over a window, by every operation that has a shortcut; integers wrap."""
    kind = ELEMENT_TYPES[name].kind
    ops = ["add", "multiply"] + ([] if kind is Kind.COMPLEX else ["maximum", "minimum"])
    ops += ["and", "or", "xor"] if ELEMENT_TYPES[name].is_integer else []
    head, lines, results = "", [f"x = {name}[3,6] parameter(0)", f"z = {name}[] parameter(1)"], []
    for op in ops:
        head += f"f{op} {{ a = {name}[] parameter(0) b = {name}[] parameter(1) ROOT c = {name}[] {op}(a, b) }}\n"
        lines.append(f"r{op} = {name}[3] reduce(x, z), dimensions={{1}}, to_apply=f{op}")
        lines.append(f"w{op} = {name}[3,2] reduce-window(x, z), window={{size=1x3 stride=1x2}}, to_apply=f{op}")
        results += [(f"{name}[3]", f"r{op}"), (f"{name}[3,2]", f"w{op}")]
    shapes, names = (", ".join(part) for part in zip(*results, strict=True))
    lines.append(f"ROOT t = ({shapes}) tuple({names})")
    x = drawn(name, 3, 6)
    check("\n".join(lines), [tolerance(name)] * len(results), x, x[0, 0], head=head)


NARROW = frozenset({"s4", "u4", "s2", "u2", "f4e2m1fn"})
"""Types that contractions have as results as well: for others XLA's CPU backend has no layout."""

DOTS = [(n, r) for n in (*FLOATS, *INTEGERS, *COMPLEX, "pred") if n not in ("s2", "u2", "f8e8m0fnu")
        for r in dict.fromkeys((n, *([] if n in COMPLEX or n in NARROW else ["f32", "f64"]),
                                *(["s32"] if ELEMENT_TYPES[n].is_integer and n not in NARROW else [])))]  # fmt: skip


@pytest.mark.parametrize("name", each(list(dict.fromkeys(n for n, _ in DOTS))))
def test_contractions_with_every_result_type(name: str) -> None:
    """Of integers with floats as results the sum is one of floats; results narrower than the sum round or wrap once."""
    for result in (r for n, r in DOTS if n == name):
        bound = max(tolerance(result), tolerance(name) if result == name else 0)
        check(
            f"""a = {name}[4,6] parameter(0)
            b = {name}[6,3] parameter(1)
            x = {name}[2,6,2] parameter(2)
            w = {name}[3,2,4] parameter(3)
            d = {result}[4,3] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
            c = {result}[2,4,4] convolution(x, w), window={{size=3}}, dim_labels=b0f_0io->b0f
            ROOT t = ({result}[4,3], {result}[2,4,4]) tuple(d, c)""",
            [bound, bound], drawn(name, 4, 6), drawn(name, 6, 3, seed=1), drawn(name, 2, 6, 2), drawn(name, 3, 2, 4),
        )  # fmt: skip


@pytest.mark.parametrize("name", each([n for n in (*FLOATS, *INTEGERS) if n not in ("s2", "u2")]))
def test_sorting(name: str) -> None:
    """XLA's CPU backend aborts on a sort of two-bit integers."""
    x = np.resize(values(name), 40)
    order = ", type=TOTALORDER" if ELEMENT_TYPES[name].is_float else ""
    head = f"""lt {{ a = {name}[] parameter(0) b = {name}[] parameter(1)
      ROOT c = pred[] compare(a, b), direction=LT{order} }}"""
    body = f"x = {name}[40] parameter(0)\nROOT s = {name}[40] sort(x), dimensions={{0}}, is_stable=true, to_apply=lt"
    check(body, [0], x, head=head)
    if ELEMENT_TYPES[name].bits < 8:
        return  # XLA's CPU backend has no topk of them
    for largest in ("true", "false"):
        check(f"x = {name}[40] parameter(0)\nROOT t = ({name}[7], s32[7]) topk(x), k=7, largest={largest}", [0, 0], x)


@pytest.mark.parametrize("name", each([*FLOATS, *INTEGERS, *COMPLEX]))
def test_iota_wraps_and_rounds(name: str) -> None:
    check(f"x = f32[] parameter(0)\nROOT i = {name}[2,300] iota(), iota_dimension=1", [0], np.zeros((), np.float32))


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("lengths", [[1], [7], [12], [3, 10], [4, 1, 6]])
def test_fft_of_doubles(kind: str, lengths: list[int]) -> None:
    half = [*lengths[:-1], lengths[-1] // 2 + 1]
    source, target = {"RFFT": ("f64", "c128"), "IRFFT": ("c128", "f64")}.get(kind, ("c128", "c128"))
    dims, results = [3, *(half if kind == "IRFFT" else lengths)], [3, *(half if kind == "RFFT" else lengths)]
    shape = f"{target}[{','.join(map(str, results))}]"
    text = f"""x = {source}[{",".join(map(str, dims))}] parameter(0)
    ROOT f = {shape} fft(x), fft_type={kind}, fft_length={{{",".join(map(str, lengths))}}}"""
    check(text, [1e-14], drawn(source, *dims))
