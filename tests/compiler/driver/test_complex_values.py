"""Complex numbers on the chip, as pairs of f32: functions, data movement, products, loops, against XLA."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.words.complex_numbers import SplitComplexNumbers
from systolith.isa.chip import load_chip
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import compiled, run
from tests.compiler.passes.differential import transformed

Array = npt.NDArray[Any]

UNARY = """negate exponential exponential-minus-one log log-plus-one sqrt rsqrt sine cosine tan tanh logistic
sign""".split()
BINARY = "add subtract multiply divide power".split()
REAL = "abs real imag".split()
SPECIAL = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, 1e-30, 1e30, -2.5, 3e38]

# Here XLA loses digits, or an infinity meets an overflow on the way.
EXCEPT = {
    "sine": "0+1e-30j -0+1e-30j 1e-30+1e-30j",
    "log-plus-one": "-1+1e-30j",
    "divide": "1+infj",
    "power": "0-2.5j 3e+38+3e+38j",
}


def numbers(count: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return (4 * (rng.standard_normal(count) + 1j * rng.standard_normal(count))).astype(np.complex64)


def functions(names: list[str], count: int) -> str:
    """All functions of two arrays, in one module."""
    kinds = ["f32" if n in REAL else "c64" for n in names]
    lines = [
        f" r{k} = {t}[{count}] {n}({'x, y' if n in (*BINARY, 'atan2') else 'x'})\n"
        for k, (n, t) in enumerate(zip(names, kinds, strict=True))
    ]
    shapes, made = ", ".join(f"{t}[{count}]" for t in kinds), ", ".join(f"r{k}" for k in range(len(names)))
    given = f" x = c64[{count}] parameter(0)\n y = c64[{count}] parameter(1)\n"
    return f"HloModule m\nENTRY e {{\n{given}{''.join(lines)} ROOT t = ({shapes}) tuple({made})\n}}\n"


def both(text: str, given: list[Array]) -> list[tuple[Array, Array]]:
    """Results of the chip, and of XLA."""
    got = run(compiled(text, "tiny", "highest").program, load_chip("tiny"), given)
    return [(np.atleast_1d(a), np.atleast_1d(b)) for a, b in zip(got, run_xla(text, *given), strict=True)]


def parts(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


def test_powers_of_every_pair_of_special_values() -> None:
    """Zeros, ones, infinities and NaN in each part of both operands, as XLA's CPU backend has them."""
    ends = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, -2.5]
    special = np.array([complex(a, b) for a in ends for b in ends], np.complex64)
    x, y = np.repeat(special, len(special)), np.tile(special, len(special))
    ((got, want),) = both(functions(["power"], len(x)), [x, y])
    a, b = parts(got), parts(want)
    finite = np.isfinite(b).all(-1)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    error, size = np.abs(a[finite] - b[finite]), np.abs(want[finite])[:, None]
    assert (error <= 1e-5 * size).all()


def test_functions() -> None:
    """Of random numbers, and of zeros, infinities and NaN in each part."""
    special = np.array([complex(a, b) for a in SPECIAL for b in SPECIAL], np.complex64)
    x, y = np.concatenate([special, numbers(200, 0)]), np.concatenate([np.roll(special, 37), numbers(200, 1)])
    names = [*UNARY, *BINARY, *REAL]
    for name, (got, want) in zip(names, both(functions(names, len(x)), [x, y]), strict=True):
        kept = np.array([f"{z.real:g}{z.imag:+g}j" not in EXCEPT.get(name, "").split() for z in x])
        a, b = (parts(v)[kept] for v in (got, want))
        finite = np.isfinite(b).all(-1)
        np.testing.assert_array_equal(a[~finite], b[~finite], err_msg=name)
        error = np.abs(got[kept][finite] - want[kept][finite])
        assert (error <= 1e-5 * np.abs(want[kept][finite]) + 1e-37).all(), name


def test_arc_tangent_of_two() -> None:
    ((got, want),) = both(functions(["atan2"], 500), [numbers(500, 3), numbers(500, 4)])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


INVERSE = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "sinh": np.sinh, "cosh": np.cosh,
}  # fmt: skip
"""Functions that XLA's CPU backend does not have."""


def test_inverse_and_hyperbolic_functions() -> None:
    """Of random numbers of every size, of points near the branches, and of zeros and infinities in each part."""
    parts_of = [x for x in SPECIAL if not np.isnan(x)] + [1 + 2**-20, 1 - 2**-22, 1e-3, 1e-12, -1e4, 3e9, 88, 89.2]
    special = np.array([complex(a, b) for a in parts_of for b in parts_of], np.complex64)
    sizes = np.exp2(np.random.default_rng(5).uniform(-30, 30, 400))
    x = np.concatenate([special, numbers(400, 0), (numbers(400, 1) * sizes).astype(np.complex64)])
    program = compiled(functions(list(INVERSE), len(x))).program
    with np.errstate(all="ignore"):
        for (name, exact), got in zip(INVERSE.items(), run(program, load_chip("tiny"), [x, x]), strict=True):
            # Of sinh and cosh a part that overflows may be smaller by what it is multiplied with.
            kept = (np.abs(x.real) < 89.4) | np.isinf(x.real) | (name not in ("sinh", "cosh"))
            want = exact(x[kept].astype(np.complex128)).astype(np.complex64)
            whole = np.isfinite(parts(want)).all(-1)
            a, b = parts(got[kept]), parts(want)
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=name)
            error = np.abs(a[whole] - b[whole])
            bad = error > 1e-5 * np.abs(want[whole])[:, None] + 1e-37
            assert not bad.any(), (name, x[kept][whole][bad.any(-1)][:5])
            np.testing.assert_allclose(np.abs(a[~whole]), np.abs(b[~whole]), rtol=1e-5, err_msg=name)
            signed = ~np.isnan(b).any(-1)  # C99 leaves that of a part beside NaN open
            np.testing.assert_array_equal(np.signbit(a[signed]), np.signbit(b[signed]), err_msg=name)


REDUCERS = scalar_computation("add", "c64") + scalar_computation("multiply", "c64")
OTHERS = """largest {
 a = c64[] parameter(0)
 f = f32[] parameter(1)
 b = c64[] parameter(2)
 g = f32[] parameter(3)
 p = pred[] compare(f, g), direction=GE
 c = c64[] select(p, a, b)
 h = f32[] select(p, f, g)
 ROOT t = (c64[], f32[]) tuple(c, h)
}
above {
 a = c64[] parameter(0)
 b = c64[] parameter(1)
 c = f32[] real(a)
 d = f32[] real(b)
 ROOT p = pred[] compare(c, d), direction=GE
}
nearer {
 a = c64[] parameter(0)
 b = c64[] parameter(1)
 e = c64[] parameter(2)
 f = c64[] parameter(3)
 c = f32[] abs(a)
 d = f32[] abs(b)
 ROOT p = pred[] compare(c, d), direction=LT
}
step {
 x = c64[6] parameter(0)
 c = c64[6] parameter(1)
 s = c64[6] add(c, x)
 d = c64[6] multiply(s, x)
 ROOT t = (c64[6], c64[6]) tuple(d, s)
}
"""
LOOP = """test {
 s = (s32[], c64[4,6]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT p = pred[] compare(i, n), direction=LT
}
once {
 s = (s32[], c64[4,6]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = c64[4,6] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = c64[4,6] tanh(x)
 ROOT t = (s32[], c64[4,6]) tuple(j, y)
}
twice {
 a = c64[] parameter(0)
 b = c64[] parameter(1)
 c = c64[] constant((0.5, -2))
 d = c64[] multiply(a, c)
 ROOT r = c64[] add(d, b)
}
"""
BODIES = {
    "handed on": "ROOT t = (c64[4,6], (c64[4,6], s32[5])) tuple(x, u)",
    "product": "ROOT r = c64[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "convolution": (
        "a = c64[1,4,6] reshape(x)\n b = c64[2,3,6] slice(k), slice={[0:2],[0:3],[0:6]}\n"
        " ROOT r = c64[1,3,3] convolution(a, b), window={size=2}, dim_labels=b0f_0oi->b0f"
    ),
    "sum of rows": "z = c64[] constant((1, 2))\n ROOT r = c64[4] reduce(x, z), dimensions={1}, to_apply=add",
    "product of columns": (
        "z = c64[] constant((1, 0))\n ROOT r = c64[6] reduce(x, z), dimensions={0}, to_apply=multiply"
    ),
    "running sum": (
        "z = c64[] constant((0, 0))\n"
        " ROOT r = c64[4,6] reduce-window(x, z), window={size=1x6 pad=0_0x5_0}, to_apply=add"
    ),
    "rows taken": (
        "ROOT r = c64[5,6] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
        " index_vector_dim=1, slice_sizes={1,6}"
    ),
    "rows put": (
        "j = c64[5] convert(i)\n v = c64[5,6] broadcast(j), dimensions={0}\n"
        " ROOT r = c64[4,6] scatter(x, i, v), update_window_dims={1}, inserted_window_dims={0},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=multiply"
    ),
    "loop": (
        "z = s32[] constant(0)\n s = (s32[], c64[4,6]) tuple(z, x)\n"
        " w = (s32[], c64[4,6]) while(s), condition=test, body=once\n ROOT r = c64[4,6] get-tuple-element(w), index=1"
    ),
    "map": "ROOT r = c64[4,6] map(x, y), dimensions={0,1}, to_apply=twice",
    "moved": (
        "a = c64[6,4] transpose(x), dimensions={1,0}\n z = c64[] constant((3, -4))\n b = c64[7,6] pad(a, z),"
        " padding=1_0x1_1\n c = c64[14,3] reshape(b)\n ROOT r = c64[14,3] reverse(c), dimensions={0}"
    ),
    "compared": "p = pred[4,6] compare(x, y), direction=NE\n ROOT r = c64[4,6] select(p, x, y)",
    "of other types": "f = bf16[4,6] parameter(4)\n ROOT r = c64[4,6] convert(f)",
    "of 64-bit integers": "f = s64[4,6] parameter(4)\n ROOT r = c64[4,6] convert(f)",
    "of unsigned 64-bit integers": "f = u64[4,6] parameter(4)\n ROOT r = c64[4,6] convert(f)",
    "iota": "ROOT r = c64[4,6] iota(), iota_dimension=1",
    "sum by another computation": "z = c64[] constant((0.5, 1))\n ROOT r = c64[4] reduce(x, z), dimensions={1},"
    " to_apply=twice",
    "the largest real part": "z = c64[] constant((0, 0))\n w = f32[] constant(-9)\n f = f32[4,6] real(x)\n"
    " ROOT r = (c64[4], f32[4]) reduce(x, f, z, w), dimensions={1}, to_apply=largest",
    "windows": "z = c64[] constant((1, 0))\n"
    " ROOT r = c64[3,5] reduce-window(x, z), window={size=2x2}, to_apply=multiply",
    "windows by another computation": "z = c64[] constant((1, 0))\n"
    " ROOT r = c64[3,5] reduce-window(x, z), window={size=2x2}, to_apply=twice",
    "select and scatter": "z = c64[] constant((0, 0))\n s = c64[3,5] slice(y), slice={[0:3],[0:5]}\n"
    " ROOT r = c64[4,6] select-and-scatter(x, s, z), window={size=2x2}, select=above, scatter=add",
    "rows put by another computation": "v = c64[5,6] broadcast(o), dimensions={}\n ROOT r = c64[4,6] scatter(x, i, v),"
    " update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1,"
    " to_apply=twice",
    "sorted": "ROOT r = (c64[4,6], c64[4,6]) sort(x, y), dimensions={0}, is_stable=true, to_apply=nearer",
    "scan": "z = c64[6] broadcast(o), dimensions={}\n ROOT r = (c64[4,6], c64[6]) scan(x, z), dimensions={0},"
    " num_carries=1, to_apply=step",
    "product with real numbers": "f = f32[4,6] real(y)\n"
    " ROOT r = c64[4,4] dot(x, f), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "product of real numbers with others": "f = f32[4,6] real(y)\n"
    " ROOT r = c64[4,4] dot(f, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "convolution in groups": "a = c64[1,4,6] reshape(x)\n b = c64[2,1,6] slice(k), slice={[0:2],[0:1],[0:6]}\n"
    " ROOT r = c64[1,3,6] convolution(a, b), window={size=2}, dim_labels=b0f_0io->b0f, feature_group_count=6",
}


@pytest.mark.parametrize("name", BODIES)
def test_operations(name: str) -> None:
    given = " x = c64[4,6] parameter(0)\n y = c64[4,6] parameter(1)\n i = s32[5] parameter(2)\n"
    given += " k = c64[2,3,6] parameter(3)\n o = c64[] constant((2, -1))\n"
    u = " u = (c64[4,6], s32[5]) tuple(y, i)\n" if name == "handed on" else ""
    text = f"HloModule m\n{REDUCERS}{OTHERS}{LOOP}ENTRY e {{\n{given}{u} {BODIES[name]}\n}}\n"
    arrays = [numbers(24, 0).reshape(4, 6), numbers(24, 1).reshape(4, 6), np.array([3, 0, 9, 3, -1], np.int32)]
    arrays.append(numbers(36, 2).reshape(2, 3, 6))
    for p in parse_hlo(text).entry.parameters[len(arrays) :]:
        arrays.append((np.arange(24) ** 9).reshape(4, 6).astype(p.shape.dtype.stored))
    if name == "compared":
        arrays[1][::2] = arrays[0][::2]
    for got, want in both(text, arrays):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_the_pass_keeps_values_and_finds_nothing_more_to_do() -> None:
    text = functions([*UNARY, *BINARY, *REAL], 30)
    given = [numbers(30, 0), numbers(30, 1)]
    made = transformed(parse_hlo(text), SplitComplexNumbers())
    edge = ("parameter", "bitcast", "tuple")
    assert not any("c64" in s.text() for i in made.instructions() if i.opcode not in edge for s in i.shape.leaves())
    assert not SplitComplexNumbers().run(made)
    for got, want in zip(evaluate(made, *given), evaluate(parse_hlo(text), *given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(
    ("t", "line", "why"),
    [
        ("c64", "maximum(x, x)", r"maximum 'r'.*c64 has no form on pairs of f32"),
        ("c128", "maximum(x, x)", r"maximum 'r'.*c128 has no form on pairs of f64"),
    ],
)
def test_what_has_no_form_on_pairs_is_refused_by_name(t: str, line: str, why: str) -> None:
    with pytest.raises(CompileError, match=why):
        compiled(f"HloModule m\nENTRY e {{\n x = {t}[3] parameter(0)\n ROOT r = {t}[3] {line}\n}}\n")
