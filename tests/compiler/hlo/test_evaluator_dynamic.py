"""Arrays of dynamic sizes against XLA: results depend on the actual sizes alone, and on no padding."""

import numpy as np
import pytest

from systolith.compiler.hlo import HloError, evaluate, parse_hlo
from systolith.isa.chip import load_chip
from systolith.runtime.client import Client
from tests.compiler.hlo.compare import assert_close
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import compiled, run

pytest.importorskip("jax")

TEXT = """HloModule m
f {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
after {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=GT }}
ENTRY e {{
  x = f32[4,6] parameter(0)
  n = s32[] parameter(1)
  z = f32[] constant(0)
  six = s32[] constant(6)
  all = s32[] multiply(n, six)
  d = f32[<=4,6] set-dimension-size(x, n), dimensions={{0}}
{body}
}}
"""
MATRIX = np.arange(24, dtype=np.float32).reshape(4, 6) - 5

COLUMNS = "ROOT r = f32[6] reduce(y, z), dimensions={0}, to_apply=f"
COUNTED = """g = s32[] get-dimension-size(y), dimensions={0}
  s = f32[6] reduce(y, z), dimensions={0}, to_apply=f
  ROOT r = (s32[], f32[6]) tuple(g, s)"""
FLAT = """g = s32[] get-dimension-size(y), dimensions={0}
  s = f32[] reduce(y, z), dimensions={0}, to_apply=f
  ROOT r = (s32[], f32[]) tuple(g, s)"""

BODIES = {
    "reduce": "ROOT r = f32[] reduce(d, z), dimensions={0,1}, to_apply=f",
    "beside a static array": f"y = f32[<=4,6] add(d, x)\n{COLUMNS}",
    "select": f"c = pred[<=4,6] compare(d, d), direction=EQ\ny = f32[<=4,6] select(c, d, x)\n{COLUMNS}",
    "reshape to one dimension": f"y = f32[<=24] reshape(d)\n{FLAT}",
    "reshape of another dimension": "y = f32[<=4,2,3] reshape(d)\n"
    "ROOT r = f32[2,3] reduce(y, z), dimensions={0}, to_apply=f",
    "dynamic-reshape": f"y = f32[<=24] dynamic-reshape(d, all)\n{FLAT}",
    "transpose": "y = f32[6,<=4] transpose(d), dimensions={1,0}\n"
    "ROOT r = f32[6] reduce(y, z), dimensions={1}, to_apply=f",
    "broadcast": "y = f32[2,<=4,6] broadcast(d), dimensions={1,2}\n"
    "ROOT r = f32[2,6] reduce(y, z), dimensions={1}, to_apply=f",
    "concatenate": f"y = f32[<=8,6] concatenate(d, d), dimensions={{0}}\n{COUNTED}",
    "pad": f"y = f32[<=7,6] pad(d, z), padding=1_2x0_0\n{COUNTED}",
    "contracted": "ROOT r = f32[6,6] dot(d, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "free dimension of a dot": "y = f32[<=4,4] dot(d, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
    "ROOT r = f32[4] reduce(y, z), dimensions={0}, to_apply=f",
    "sort": f"y = f32[<=4,6] sort(d), dimensions={{0}}, to_apply=after\n{COLUMNS}",
    "two dimensions": "two = s32[] constant(2)\ny = f32[<=4,<=6] set-dimension-size(d, two), dimensions={1}\n"
    "ROOT r = f32[] reduce(y, z), dimensions={0,1}, to_apply=f",
}


@pytest.mark.parametrize("name", BODIES)
def test_operations_see_the_actual_sizes(name: str) -> None:
    text = TEXT.format(body=BODIES[name])
    for size in (0, 1, 3, 4):
        arguments = MATRIX, np.array(size, np.int32)
        results = evaluate(parse_hlo(text), *arguments, precision="highest")
        for actual, expected in zip(results, run_xla(text, *arguments), strict=True):
            assert_close(actual, expected, 1e-6, f"{name} of {size} rows")


@pytest.mark.parametrize(("first", "second"), [(1, 3), (3, 1), (4, 1), (1, 1), (1, 0), (0, 2), (2, 3)])
def test_a_dynamic_size_of_1_is_repeated_beside_another(first: int, second: int) -> None:
    text = TEXT.format(
        body="""k = s32[] parameter(2)
  b = f32[<=4,6] set-dimension-size(x, k), dimensions={0}
  y = f32[<=4,6] subtract(d, b)
  p = pred[<=4,6] compare(d, b), direction=LT
  q = f32[<=4,6] convert(p)
  g = s32[] get-dimension-size(y), dimensions={0}
  s = f32[6] reduce(y, z), dimensions={0}, to_apply=f
  t = f32[6] reduce(q, z), dimensions={0}, to_apply=f
  ROOT r = (s32[], f32[6], f32[6]) tuple(g, s, t)"""
    )
    arguments = MATRIX, np.array(first, np.int32), np.array(second, np.int32)
    for actual, expected in zip(evaluate(parse_hlo(text), *arguments), run_xla(text, *arguments), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("shape", ["f32[<=4]", "f32[4]"])
@pytest.mark.parametrize("asked", [2, 0, 9, -1])
def test_the_size_that_is_set_is_the_size_whatever_is_declared(shape: str, asked: int) -> None:
    text = f"""HloModule m
ENTRY e {{
  x = f32[4] parameter(0)
  n = s32[] constant({asked})
  d = {shape} set-dimension-size(x, n), dimensions={{0}}
  ROOT g = s32[] get-dimension-size(d), dimensions={{0}}
}}"""
    x, wanted = np.zeros(4, np.float32), min(max(asked, 0), 4)
    assert int(evaluate(parse_hlo(text), x)[0]) == wanted
    assert int(run(compiled(text).program, load_chip("tiny"), [x])[0]) == wanted
    used = text.replace("ROOT g = s32[] get-dimension-size(d), dimensions={0}", f"ROOT y = {shape} abs(d)")
    (y,) = Client("tiny").compile(used)(x)
    assert y.numpy().shape == (wanted,)


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_within_the_actual_size(rows: int) -> None:
    """Reversal turns the actual rows round; gather and dynamic-slice count places within the bound."""
    body = """v = f32[<=4,6] reverse(d), dimensions={0}
  a = f32[1,6] slice(v), slice={[0:1], [0:6]}
  i = s32[2] constant({0, 0})
  b = f32[2,6] gather(d, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,6}
  o = s32[] constant(0)
  c = f32[1,6] dynamic-slice(d, o, o), dynamic_slice_sizes={1,6}
  ROOT r = (f32[1,6], f32[2,6], f32[1,6]) tuple(a, b, c)"""
    text = TEXT.format(body=body)
    arguments = MATRIX, np.array(rows, np.int32)
    for actual, expected in zip(evaluate(parse_hlo(text), *arguments), run_xla(text, *arguments), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_results_and_arguments_have_actual_sizes() -> None:
    text = TEXT.format(body="ROOT y = f32[<=4,6] negate(d)")
    (result,) = evaluate(parse_hlo(text), MATRIX, np.array(3, np.int32))
    np.testing.assert_array_equal(result, -MATRIX[:3])
    takes = parse_hlo("HloModule m\nENTRY e { x = f32[<=4] parameter(0) ROOT y = f32[<=4] add(x, x) }")
    np.testing.assert_array_equal(evaluate(takes, np.ones(2, np.float32))[0], [2, 2])
    with pytest.raises(HloError, match=r"expected f32\[<=4\], got an array of sizes \[5\]"):
        evaluate(takes, np.ones(5, np.float32))


def test_sizes_are_kept_within_their_bounds_and_growth_is_zero() -> None:
    text = TEXT.format(body="four = s32[] constant(4)\nROOT y = f32[4,6] set-dimension-size(d, four), dimensions={0}")
    (result,) = evaluate(parse_hlo(text), MATRIX, np.array(2, np.int32))
    np.testing.assert_array_equal(result, [*MATRIX[:2], np.zeros(6), np.zeros(6)])
    counted = parse_hlo(TEXT.format(body="ROOT g = s32[] get-dimension-size(d), dimensions={0}"))
    for asked, given in ((-3, 0), (9, 4)):
        assert int(evaluate(counted, MATRIX, np.array(asked, np.int32))[0]) == given


def test_calls_between_bounded_arrays_and_full_ones() -> None:
    text = """HloModule m
ENTRY e {
  x = s32[<=5] parameter(0)
  p = (s32[5], s32[]) custom-call(x), custom_call_target="PadToStatic"
  full = s32[5] get-tuple-element(p), index=0
  size = s32[] get-tuple-element(p), index=1
  more = s32[5] add(full, full)
  back = s32[<=5] custom-call(more, size), custom_call_target="SliceToDynamic"
  ROOT t = (s32[5], s32[], s32[<=5]) tuple(full, size, back)
}"""
    full, size, back = evaluate(parse_hlo(text), np.array([3, 4], np.int32))
    np.testing.assert_array_equal(full, [3, 4, 0, 0, 0])
    assert int(size) == 2
    np.testing.assert_array_equal(back, [6, 8])


def test_reshapes_that_sizes_do_not_determine_are_refused() -> None:
    text = TEXT.format(body="ROOT y = f32[<=8,<=3] reshape(d)")
    with pytest.raises(HloError, match=r"reshape 'y' .*: sizes \[3, 6\] of f32\[<=4,6\] do not tell those of f32"):
        evaluate(parse_hlo(text), MATRIX, np.array(3, np.int32))
    wrong = TEXT.format(body="ROOT y = f32[<=24] dynamic-reshape(d, n)")
    with pytest.raises(HloError, match=r"18 elements do not have sizes \[3\]"):
        evaluate(parse_hlo(wrong), MATRIX, np.array(3, np.int32))


def test_a_bitcast_of_dynamic_sizes_is_a_reshape_and_keeps_type_and_order() -> None:
    """XLA's backend has no bitcast of dynamic sizes; its reshape is in `BODIES`."""
    shown = [TEXT.format(body=f"ROOT y = f32[<=4,2,3] {op}(d)") for op in ("bitcast", "reshape")]
    same, reshaped = (evaluate(parse_hlo(text), MATRIX, np.array(3, np.int32))[0] for text in shown)
    np.testing.assert_array_equal(same, reshaped)
    for body in ("ROOT y = s32[<=4,6] bitcast(d)", "ROOT y = f32[6,<=4]{0,1} bitcast(d)"):
        with pytest.raises(HloError, match="a bitcast of dynamic sizes keeps type and row-major order"):
            evaluate(parse_hlo(TEXT.format(body=body)), MATRIX, np.array(3, np.int32))
