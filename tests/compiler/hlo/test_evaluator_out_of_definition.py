"""Cases that the definitions leave open, where we follow XLA's CPU backend (docs/hlo.md, "Out of definition").

Each case stands with its result, which XLA has to give as well.
"""

from typing import Any

import numpy as np
import pytest

from systolith.compiler.hlo import evaluate, parse_hlo
from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from tests.compiler.hlo.compare import Array
from tests.compiler.hlo.oracle import run_xla

pytest.importorskip("jax")

INF, NAN = float("inf"), float("nan")


def both(text: str, *arrays: Array) -> list[Array]:
    """Our results, which are XLA's too."""
    actual, expected = evaluate(parse_hlo(text), *arrays), run_xla(text, *arrays)
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == b.dtype
        same(a, b)
    return actual


def same(actual: Array, expected: Array) -> None:
    """Equal, NaN and the signs of zeros too."""
    if actual.dtype.kind not in "biuc":
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_array_equal(np.signbit(actual[actual == 0]), np.signbit(expected[expected == 0]))
    np.testing.assert_array_equal(actual, expected)


def elementwise(source: str, target: str, operation: str, operands: tuple[list[float], ...]) -> Array:
    arrays = [np.array(x).astype(ELEMENT_TYPES[source].stored) for x in operands]
    n = len(arrays[0])
    head = " ".join(f"p{k} = {source}[{n}] parameter({k})" for k in range(len(arrays)))
    opcode, _, rest = operation.partition(",")
    call = f"{opcode}({', '.join(f'p{k}' for k in range(len(arrays)))}){',' + rest if rest else ''}"
    (result,) = both(f"HloModule m\nENTRY e {{ {head} ROOT r = {target}[{n}] {call} }}", *arrays)
    return result


CASES: list[tuple[str, str, str, tuple[list[float], ...], list[float]]] = [
    # source, target, operation, operands, result
    ("s32", "s32", "divide", ([7, 0, -7], [0, 0, 0]), [-1, -1, -1]),
    ("u8", "u8", "divide", ([7, 0], [0, 0]), [255, 255]),
    ("s32", "s32", "divide", ([-(2**31)], [-1]), [-(2**31)]),
    ("s32", "s32", "remainder", ([7, 0, -7], [0, 0, 0]), [7, 0, -7]),
    ("s32", "s32", "remainder", ([-(2**31)], [-1]), [0]),
    ("f32", "f32", "remainder", ([5, INF, 5], [0, 3, INF]), [NAN, NAN, 5]),
    ("s8", "s8", "abs", ([-128],), [-128]),
    ("s8", "s8", "add", ([127], [1]), [-128]),
    ("s4", "s4", "multiply", ([-8], [-8]), [0]),
    ("s32", "s32", "shift-left", ([1, 1, 1], [31, 32, -1]), [-(2**31), 0, 0]),
    ("s32", "s32", "shift-right-logical", ([-1, -1, -1], [31, 32, -1]), [1, 0, 0]),
    ("s32", "s32", "shift-right-arithmetic", ([-8, -8, 8], [32, -1, 99]), [-1, -1, 0]),
    ("s32", "s32", "power", ([2, -1, 1, 0, -3], [-1, -3, -5, -2, -1]), [0, -1, 1, 0, 0]),
    ("s32", "s32", "power", ([3, 2, 0], [65, 64, 64]), [3, 1, 1]),
    ("u8", "u8", "power", ([3, 255], [255, 255]), [0, 255]),
    ("f32", "f32", "power", ([0, -8, NAN, 1], [0, 1 / 3, 0, NAN]), [1, NAN, 1, 1]),
    ("f32", "f32", "maximum", ([NAN, 1, -0.0], [1, NAN, 0.0]), [NAN, NAN, 0.0]),
    ("f32", "f32", "minimum", ([NAN, 1, 0.0], [1, NAN, -0.0]), [NAN, NAN, -0.0]),
    ("f32", "f32", "clamp", ([NAN, 0, 0, 2, 0], [1, NAN, 1, 3, 1], [2, 1, NAN, 1, -1]), [NAN, NAN, NAN, 1, -1]),
    ("f32", "s32", "convert", ([NAN, INF, -INF, 3e9, -3e9, -1.9],), [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), -1]),
    ("f32", "u8", "convert", ([NAN, 300, -5, 255.9],), [0, 255, 0, 255]),
    ("f32", "s4", "convert", ([NAN, 9, -9],), [0, 7, -8]),
    ("s32", "s8", "convert", ([300, -129],), [44, 127]),
    ("f32", "pred", "convert", ([NAN, -0.0, 0.25],), [1, 0, 1]),
    ("f32", "f8e4m3fn", "convert", ([1e9, INF],), [NAN, NAN]),
    ("f32", "f8e5m2", "convert", ([1e9, -INF],), [INF, -INF]),
    ("f32", "f4e2m1fn", "convert", ([1e9, -INF],), [6, -6]),
    ("f32", "f8e8m0fnu", "convert", ([-1, 3],), [NAN, 4]),
    ("f32", "f32", "sign", ([NAN, -0.0],), [NAN, -0.0]),
    ("f32", "pred", "compare, direction=LT, type=TOTALORDER", ([-NAN, -0.0, INF, NAN], [-INF, 0, NAN, INF]),
     [1, 1, 1, 0]),
    ("f32", "pred", "compare, direction=NE", ([NAN, NAN], [NAN, 1]), [1, 1]),
    ("f32", "f32", "reduce-precision, exponent_bits=8, mantissa_bits=0", ([3, 1.5, 0.75],), [2, 2, 0.5]),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow", "ignore:divide by zero")
@pytest.mark.parametrize(("source", "target", "operation", "operands", "expected"), CASES)
def test_elementwise(
    source: str, target: str, operation: str, operands: tuple[list[float], ...], expected: list[float]
) -> None:
    with np.errstate(all="ignore"):
        result = elementwise(source, target, operation, operands)
        same(result, np.array(expected).astype(ELEMENT_TYPES[target].stored))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1 + 1j, 0, complex(INF, INF)),
        (1 - 1j, complex(INF, INF), complex(0, 0)),
        (complex(-INF, 1), 2, complex(-INF, NAN)),
    ],
)
def test_division_of_complex_numbers(a: complex, b: complex, expected: complex) -> None:
    text = "HloModule m\nENTRY e { a = c64[1] parameter(0) b = c64[1] parameter(1) ROOT r = c64[1] divide(a, b) }"
    (result,) = both(text, np.array([a], np.complex64), np.array([b], np.complex64))
    assert abs(result[0]) == abs(expected)


X = np.arange(5, dtype=np.int32) * 10
STARTS = np.array([-7, 3, 4, 2**31 - 1], np.int32)


def test_gather_and_dynamic_slice_clamp_their_starts() -> None:
    text = """HloModule m
ENTRY e {
  x = s32[5] parameter(0)
  i = s32[4] parameter(1)
  u = u32[4] bitcast-convert(i)
  g = s32[4,2] gather(x, i), offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={2}
  h = s32[4,2] gather(x, u), offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={2}
  f = s32[1] slice(i), slice={[0:1]}
  s = s32[] reshape(f)
  d = s32[2] dynamic-slice(x, s), dynamic_slice_sizes={2}
  t = s32[5] dynamic-update-slice(x, d, s)
  ROOT r = (s32[4,2], s32[4,2], s32[2], s32[5]) tuple(g, h, d, t)
}"""
    signed, unsigned, block, updated = both(text, X, STARTS)
    assert signed.tolist() == [[0, 10], [30, 40], [30, 40], [30, 40]]
    assert unsigned[0].tolist() == [30, 40]  # -7 is a large number
    assert block.tolist() == [0, 10]
    assert updated.tolist() == X.tolist()


def test_scatter_leaves_out_blocks_that_do_not_lie_inside() -> None:
    text = """HloModule m
add { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] add(a, b) }
ENTRY e {
  x = s32[5] parameter(0)
  i = s32[4] parameter(1)
  u = s32[4,2] iota(), iota_dimension=0
  one = s32[] constant(1)
  ones = s32[4,2] broadcast(one), dimensions={}
  v = s32[4,2] add(u, ones)
  ROOT r = s32[5] scatter(x, i, v), update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0},
    index_vector_dim=1, to_apply=add
}"""
    (result,) = both(text, X, STARTS)
    assert result.tolist() == [0, 10, 20, 32, 42]  # only that at 3


def sorted_by(comparison: str, x: Array) -> Array:
    text = f"""HloModule m
before {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), {comparison} }}
ENTRY e {{ x = f32[{len(x)}] parameter(0) ROOT s = f32[{len(x)}] sort(x), dimensions={{0}}, is_stable=true,
  to_apply=before }}"""
    (result,) = both(text, x)
    return result


def test_nan_in_sort_and_topk() -> None:
    x = np.array([3, NAN, -INF, -NAN, 0, -0.0, 7], np.float32)
    ordered = sorted_by("direction=LT, type=TOTALORDER", x)
    np.testing.assert_array_equal(ordered, [NAN, -INF, 0, 0, 3, 7, NAN])
    assert np.signbit(ordered[:3]).all()
    for largest, first in (("true", [NAN, 7, 3]), ("false", [NAN, -INF, 0])):
        text = f"""HloModule m
ENTRY e {{ x = f32[7] parameter(0) ROOT t = (f32[3], s32[3]) topk(x), k=3, largest={largest} }}"""
        values, places = both(text, x)
        np.testing.assert_array_equal(values, first)
        assert places[0] == (1 if largest == "true" else 3)


def test_select_and_scatter_takes_the_first_of_equals_and_never_padding() -> None:
    text = """HloModule m
ge { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=GE }
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[4] parameter(0)
  s = f32[3] constant({1, 2, 4})
  z = f32[] constant(0)
  ROOT r = f32[4] select-and-scatter(x, s, z), window={size=3 stride=2 pad=1_2}, select=ge, scatter=add
}"""
    (result,) = both(text, np.array([-1, -1, -5, -5], np.float32))
    assert result.tolist() == [1, 2, 0, 4]


def test_while_and_conditional_of_an_index_out_of_range() -> None:
    text = """HloModule m
a { x = s32[] parameter(0) ROOT y = s32[] negate(x) }
b { x = s32[] parameter(0) ROOT y = s32[] add(x, x) }
ENTRY e { i = s32[] parameter(0) x = s32[] parameter(1)
  ROOT r = s32[] conditional(i, x, x), branch_computations={a, b} }"""
    for index in (-1, 2, 2**31 - 1):
        (result,) = both(text, np.array(index, np.int32), np.array(21, np.int32))
        assert int(result) == 42


def test_reductions_of_nothing_are_the_initial_value() -> None:
    text = """HloModule m
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
ENTRY e { x = f32[2,0] parameter(0) i = f32[] constant(-inf)
  ROOT r = f32[2] reduce(x, i), dimensions={1}, to_apply=max }"""
    (result,) = both(text, np.zeros((2, 0), np.float32))
    assert result.tolist() == [-INF, -INF]


def test_a_singular_triangle_is_an_infinity_or_nan_not_an_error() -> None:
    """XLA's blocks make NaN of more elements of such a system than the substitution does: all of its column."""
    text = """HloModule m
ENTRY e { a = f32[2,2] parameter(0) b = f32[2,1] parameter(1) ROOT x = f32[2,1] triangular-solve(a, b), left_side=true,
  lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE }"""
    arguments: list[Any] = [np.array([[0, 9], [1, 1]], np.float32), np.array([[1], [1]], np.float32)]
    (ours,), (theirs,) = evaluate(parse_hlo(text), *arguments), run_xla(text, *arguments)
    assert not np.isfinite(ours).any()
    assert not np.isfinite(theirs).any()
