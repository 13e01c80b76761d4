"""Reductions of data that a wrong identity would show in: of one sign, of extremes, of zeros of one sign.

An accumulation starts from the operation's identity, in the lanes beyond a row's end too; among values of both signs a
wrong one is seldom the greatest or the least.  numpy's own reductions are the oracle, and results are compared by their
bits: values are such that sums and products are exact, or overflow, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.ops.reduction_builder import PLAIN
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DTYPES, DType, Kind
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import Array, compiled, run
from tests.compiler.vpu.harness import limits
from tests.compiler.vpu.movement import show
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")
"""Sums and products overflow in numpy as they should, where they are accumulated and where they are rounded."""

TYPES = {
    Kind.FLOAT: ("f32", "bf16", "f16"),
    Kind.SIGNED: ("s32", "s8", "s16"),
    Kind.UNSIGNED: ("u32", "u8", "u16"),
    Kind.PRED: ("pred",),
}
UFUNCS: dict[str, Any] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
ROWS = sorted(PLAIN, key=lambda row: (row[1].name, row[0]))


def data_of(t: DType) -> list[list[float]]:
    """Sets of values to draw arrays from."""
    if t.kind is Kind.PRED:
        return [[0], [1], [0, 1]]
    if t.is_float:
        most = float(t.finfo.max)
        one_sign: list[list[float]] = [[-1, -2], [1, 2], [-0.0], [0.0], [np.inf], [-np.inf], [most], [-most]]
        return [*one_sign, [-1, -np.inf], [1, np.inf]]
    least, greatest = limits(t)
    signed: list[list[float]] = [[-1], [-1, -2], [least, -1]] if least else []
    return [[0], [1], [1, 2], [least], [greatest], [least, least + 1], [greatest, greatest - 1], *signed]


def arrays(t: DType, dims: Sequence[int]) -> Array:
    """An array of each set of values, all in one."""
    rng = np.random.default_rng(0)
    return np.stack([rng.choice(np.asarray(values), dims).astype(t.stored) for values in data_of(t)])


def wide(op: str, x: Array) -> Array:
    """Values in their type of accumulation: narrow floats in f32, rounded once, as XLA does it."""
    return x.astype(np.float32) if x.dtype.kind not in "biu" and op in ("add", "multiply") else x


def neutral(op: str, t: DType) -> list[float]:
    """Initial values that change nothing, or only the sign of a zero."""
    if t.kind is Kind.PRED:
        return [op in ("and", "multiply", "minimum")]
    least, greatest = (-np.inf, np.inf) if t.is_float else limits(t)
    table: dict[str, list[float]] = {"multiply": [1], "maximum": [least], "minimum": [greatest], "and": [-1]}
    return [greatest] if (op, t.kind) == ("and", Kind.UNSIGNED) else table.get(op, [-0.0, 0.0] if t.is_float else [0])


def module(op: str, t: DType, operation: str, dims: Sequence[int], result: Sequence[int]) -> str:
    return (
        f"HloModule m\n{scalar_computation(op, t.name, 'f')}ENTRY e {{\n"
        f" x = {t.name}[{show(tuple(dims))}] parameter(0)\n"
        f" i = {t.name}[] parameter(1)\n ROOT r = {t.name}[{show(tuple(result))}] {operation}, to_apply=f\n}}\n"
    )


def assert_bits(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.tobytes() == want.tobytes(), f"{got}, not {want}"


def on_chip(op: str, t: DType, operation: str, x: Array, first: float, result: Sequence[int]) -> Array:
    program = compiled(module(op, t, operation, x.shape, result)).program
    (got,) = run(program, load_chip("tiny"), [x, np.asarray(first).astype(t.stored)])
    return got


SIZES = st.sampled_from([70, 131, 33, 17, 9, 5])
"""None a whole number of vectors, of the cross-lane unit's rows or of chunks."""
LAST = st.sampled_from([True, False])
"""Whether along the last dimension, so that the cross-lane unit takes part."""
EVEN_ROWS, ODD_ROWS = (
    pytest.mark.parametrize(
        ("op", "kind"),
        [pytest.param(*row, marks=pytest.mark.slow if n % 2 != rest else ()) for n, row in enumerate(ROWS)],
    )
    for rest in (0, 1)
)
"""All rows; the even ones, or the odd ones, in the quick run."""


@EVEN_ROWS
@examples(2, 15)
@given(SIZES, st.sampled_from([(3,), (1,), ()]), LAST, st.data())
def test_reduce(op: str, kind: Kind, n: int, beside: tuple[int, ...], last: bool, data: st.DataObject) -> None:
    t = DTYPES[data.draw(st.sampled_from(TYPES[kind]))]
    x = arrays(t, (*beside, n) if last else (n, *beside))
    axis = x.ndim - 1 if last else 1
    kept = tuple(size for d, size in enumerate(x.shape) if d != axis)
    for first in neutral(op, t):
        got = on_chip(op, t, f"reduce(x, i), dimensions={{{axis}}}", x, first, kept)
        values = wide(op, x)
        want = UFUNCS[op].reduce(values, axis=axis, dtype=values.dtype, initial=values.dtype.type(first))
        assert_bits(got, want.astype(x.dtype))


@ODD_ROWS
@examples(1, 15)
@given(st.data())
def test_reduce_to_a_scalar_in_chunks(op: str, kind: Kind, data: st.DataObject) -> None:
    """Of more than VMEM holds at once."""
    t = DTYPES[data.draw(st.sampled_from(TYPES[kind]))]
    x = arrays(t, (data.draw(st.sampled_from([9001, 12345])),))[data.draw(st.integers(0, len(data_of(t)) - 1))]
    first = neutral(op, t)[-1]
    got = on_chip(op, t, "reduce(x, i), dimensions={0}", x, first, ())
    values = wide(op, x)
    want = UFUNCS[op].reduce(values, dtype=values.dtype, initial=values.dtype.type(first))
    assert_bits(got, np.asarray(want).astype(x.dtype))


@ODD_ROWS
@examples(2, 15)
@given(SIZES, st.integers(2, 12), st.integers(1, 3), st.integers(0, 2), LAST, st.data())
def test_reduce_window(
    op: str, kind: Kind, n: int, size: int, stride: int, pad: int, last: bool, data: st.DataObject
) -> None:
    t = DTYPES[data.draw(st.sampled_from(TYPES[kind]))]
    x = arrays(t, (3, n) if last else (n, 3))
    size, pads = min(size, n), tuple((pad, pad) if d == (2 if last else 1) else (0, 0) for d in range(3))
    axis = 2 if last else 1
    first = neutral(op, t)[0]
    values = np.pad(wide(op, x), pads, constant_values=first)
    windows = np.lib.stride_tricks.sliding_window_view(values, size, axis=axis)
    windows = np.moveaxis(np.moveaxis(windows, axis, 0)[::stride], 0, axis)
    want = UFUNCS[op].reduce(windows, axis=-1, dtype=values.dtype, initial=values.dtype.type(first))
    along = [("1", "1", "0_0")] * 3
    along[axis] = (str(size), str(stride), f"{pad}_{pad}")
    sizes, strides, padding = ("x".join(words) for words in zip(*along, strict=True))
    window = f"reduce-window(x, i), window={{size={sizes} stride={strides} pad={padding}}}"
    assert_bits(on_chip(op, t, window, x, first, want.shape), want.astype(x.dtype))


@EVEN_ROWS
@examples(2, 15)
@given(SIZES, LAST, st.data())
def test_scan(op: str, kind: Kind, n: int, last: bool, data: st.DataObject) -> None:
    t = DTYPES[data.draw(st.sampled_from(TYPES[kind]))]
    x = arrays(t, (3, n) if last else (n, 3))
    axis, values = 2 if last else 1, wide(op, x)
    along = [("1", "0_0")] * 3
    along[axis] = (str(n), f"{n - 1}_0")
    sizes, padding = ("x".join(words) for words in zip(*along, strict=True))
    window = f"reduce-window(x, i), window={{size={sizes} pad={padding}}}"
    want = UFUNCS[op].accumulate(values, axis=axis, dtype=values.dtype).astype(x.dtype)
    assert_bits(on_chip(op, t, window, x, neutral(op, t)[0], x.shape), want)
