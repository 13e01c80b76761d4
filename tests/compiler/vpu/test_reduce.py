"""Reductions on the machine against the reference evaluator, over shapes, dimensions, functions and tilings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DTYPES
from systolith.isa.kernel import Kernel
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import CHIPS, check, run
from tests.compiler.vpu.harness import Values, limits, run_groups, sample
from tests.compiler.vpu.movement import show
from tests.examples import examples

INIT = {"add": "0", "multiply": "1", "maximum": "-inf", "minimum": "inf", "and": "-1", "or": "0", "xor": "0"}
BUDGETS = (600, 1 << 14)


def init_of(op: str, element: str) -> str:
    t = DTYPES[element]
    if t.is_integer and op in ("maximum", "minimum"):
        return str(limits(t)[0 if op == "maximum" else 1])
    if op == "and":
        return {"pred": "true", "u8": "255"}.get(element, "-1")
    return {"0": "false"}.get(INIT[op], INIT[op]) if element == "pred" else INIT[op]


def finite(x: Values) -> Values:
    return x if x.dtype.kind in "biu" else np.where(np.isfinite(x.astype(np.float32)), x, np.asarray(2, x.dtype))


SHAPES = st.lists(st.integers(1, 24), min_size=1, max_size=3).map(tuple)
FLOATING = [(op, t) for op in ("add", "multiply", "maximum", "minimum") for t in ("f32", "bf16")]
EXACT = [(op, t) for op in ("add", "maximum", "minimum", "and", "or", "xor") for t in ("s32", "u8")]
LOGICAL = [("and", "pred"), ("or", "pred")]


def test_the_smallest_chunk_need_not_fit_twice() -> None:
    """Of 77 rows none is a chunk of its own, as bits do not depend on tiles: 312 bytes of a budget of 600."""
    text = (
        f"HloModule m\n{scalar_computation('add', 'f32', 'f')}ENTRY e {{\n x = f32[11,7,2] parameter(0)\n"
        " i = f32[] constant(0)\n ROOT r = f32[2] reduce(x, i), dimensions={0,1}, to_apply=f\n}\n"
    )
    (outcome,) = run_groups(text, np.ones((11, 7, 2), np.float32), chip="small", budget=600)
    np.testing.assert_array_equal(outcome.got[0], np.full(2, 77, np.float32))


@given(SHAPES, st.sampled_from([*FLOATING, *EXACT, *LOGICAL]), st.sampled_from(BUDGETS), st.data())
def test_reduce(dims: tuple[int, ...], what: tuple[str, str], budget: int, data: st.DataObject) -> None:
    op, element = what
    reduced = data.draw(st.lists(st.sampled_from(range(len(dims))), min_size=1, unique=True).map(sorted))
    kept = tuple(n for d, n in enumerate(dims) if d not in reduced)
    text = (
        f"HloModule m\n{scalar_computation(op, element, 'f')}ENTRY e {{\n x = {element}[{show(dims)}] parameter(0)\n"
        f" i = {element}[] constant({init_of(op, element)})\n"
        f" ROOT r = {element}[{show(kept)}] reduce(x, i), dimensions={{{show(tuple(reduced))}}}, to_apply=f\n}}\n"
    )
    x = finite(sample(DTYPES[element], dims, 1))
    if op == "multiply":
        x = np.asarray((1 + 0.05 * x.astype(np.float32)).astype(x.dtype))
    chip = data.draw(st.sampled_from(("tiny", "small")))
    # Errors of a sum grow with its terms, however small the sum.
    added = float(np.abs(x.astype(np.float64)).sum(axis=tuple(reduced)).max(initial=0)) if op == "add" else 0.0
    for outcome in run_groups(text, x, chip=chip, budget=budget):
        outcome.assert_close(1e-5 if element == "f32" else 8e-3, 1e-7 * added if element == "f32" else 0.0)


@given(st.integers(1, 30), st.integers(1, 40), st.sampled_from(BUDGETS))
def test_producers_and_epilogue(rows: int, columns: int, budget: int) -> None:
    """Tails of reduced lanes take part as the identity, not as the producer's value of nothing."""
    text = f"""HloModule m
{scalar_computation("add", "f32", "f")}ENTRY e {{
 x = f32[{rows},{columns}] parameter(0)
 i = f32[] constant(0)
 m = f32[{rows}] parameter(1)
 s = f32[{rows},{columns}] broadcast(m), dimensions={{0}}
 d = f32[{rows},{columns}] subtract(x, s)
 c = f32[{rows},{columns}] cosine(d)
 r = f32[{rows}] reduce(c, i), dimensions={{1}}, to_apply=f
 ROOT q = f32[{rows}] multiply(r, m)
}}
"""
    x, m = finite(sample(DTYPES["f32"], (rows, columns), 1)), finite(sample(DTYPES["f32"], (rows,), 2))
    outcomes = list(run_groups(text, x, m, budget=budget))
    assert [o.group.reduces for o in outcomes] == [columns > 1]
    outcomes[0].assert_close(1e-5)


@given(st.integers(1, 14), st.integers(1, 30), st.integers(1, 20), st.sampled_from(BUDGETS), st.booleans())
def test_rows_that_share_an_operand(rows: int, terms: int, columns: int, budget: int, epilogue: bool) -> None:
    """Weighted sums: a kernel takes vectors of several rows beside each other, of all weights each once."""
    out = f"f32[{rows},{columns}]"
    last = f" b = {out} broadcast(w.0), dimensions={{1}}\n ROOT q = {out} add(r, b)\n" if epilogue else ""
    text = f"""HloModule m
{scalar_computation("add", "f32", "f")}ENTRY e {{
 x = f32[{rows},{terms},{columns}] parameter(0)
 w = f32[{terms},{columns}] parameter(1)
 w.0 = f32[{columns}] parameter(2)
 i = f32[] constant(0)
 s = f32[{rows},{terms},{columns}] broadcast(w), dimensions={{1,2}}
 p = f32[{rows},{terms},{columns}] multiply(x, s)
 {"" if epilogue else "ROOT "}r = {out} reduce(p, i), dimensions={{1}}, to_apply=f
{last}}}
"""
    rng = np.random.default_rng(rows)
    args = [rng.integers(-8, 9, n).astype(np.float32) for n in ((rows, terms, columns), (terms, columns), (columns,))]
    for outcome in run_groups(text, *args, budget=budget):
        outcome.assert_close(0.0)


def _argmax(rows: int, columns: int, dim: int) -> str:
    kept = (rows, columns)[1 - dim]
    return f"""HloModule m
f {{
 a = f32[] parameter(0)
 i = s32[] parameter(1)
 b = f32[] parameter(2)
 j = s32[] parameter(3)
 gt = pred[] compare(a, b), direction=GT
 eq = pred[] compare(a, b), direction=EQ
 lt = pred[] compare(i, j), direction=LT
 tie = pred[] and(eq, lt)
 p = pred[] or(gt, tie)
 v = f32[] select(p, a, b)
 k = s32[] select(p, i, j)
 ROOT t = (f32[], s32[]) tuple(v, k)
}}
ENTRY e {{
 x = f32[{rows},{columns}] parameter(0)
 at = s32[{rows},{columns}] iota(), iota_dimension={dim}
 least = f32[] constant(-inf)
 last = s32[] constant(2147483647)
 n = (f32[{kept}], s32[{kept}]) reduce(x, at, least, last), dimensions={{{dim}}}, to_apply=f
 v = f32[{kept}] get-tuple-element(n), index=0
 k = s32[{kept}] get-tuple-element(n), index=1
 ROOT t = (f32[{kept}], s32[{kept}]) tuple(v, k)
}}
"""


@pytest.mark.parametrize(("rows", "columns", "dim"), [(5, 70, 1), (70, 5, 0), (1, 33, 1), (40, 3, 0)])
@pytest.mark.parametrize("budget", BUDGETS)
def test_argmax(rows: int, columns: int, dim: int, budget: int) -> None:
    x = np.round(np.random.default_rng(3).standard_normal((rows, columns)) * 4).astype(np.float32)
    for outcome in run_groups(_argmax(rows, columns, dim), x, budget=budget):
        outcome.assert_same_bits()
        np.testing.assert_array_equal(outcome.got[1], x.argmax(axis=dim))


@pytest.mark.parametrize(("chip", "rows", "columns"), [("tpu_v3", 300, 520), ("small", 100, 96), ("tiny", 24, 40)])
def test_partial_results_of_rows_are_turned_to_be_read(chip: str, rows: int, columns: int) -> None:
    """The vector unit reads neighbouring rows a few lanes at a time, the cross-lane unit a row of lanes at once."""
    x = np.round(np.random.default_rng(rows).standard_normal((rows, columns)) * 4).astype(np.float32)
    program = check(_argmax(rows, columns, 1), [x], chip).program
    made = [program.origins[o].what for i, o in zip(program.code, program.debug, strict=True) if i.op == "xlu.shuffle"]
    assert "across lanes" in made
    values, places = run(program, load_chip(chip), [x])
    np.testing.assert_array_equal(values, x.max(axis=1))
    np.testing.assert_array_equal(places, x.argmax(axis=1))


@pytest.mark.parametrize(("chip", "rows", "columns"), [("tpu_v3", 3, 9000), ("tpu_v3", 1, 5000), ("small", 5, 3000)])
def test_partial_results_of_few_rows_are_combined_in_lanes(chip: str, rows: int, columns: int) -> None:
    """With lanes of rows alone each partial result of a row would be a step of its own."""
    x = np.round(np.random.default_rng(rows).standard_normal((rows, columns)) * 4).astype(np.float32)
    program = check(_argmax(rows, columns, 1), [x], chip).program
    made = [i for i, o in zip(program.code, program.debug, strict=True) if program.origins[o].what == "across lanes"]
    assert len(made) > 1
    values, places = run(program, load_chip(chip), [x])
    np.testing.assert_array_equal(values, x.max(axis=1))
    np.testing.assert_array_equal(places, x.argmax(axis=1))


WINDOWS = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2), st.integers(1, 2))


@given(
    st.tuples(st.integers(5, 10), st.integers(5, 10), st.integers(1, 12)),
    WINDOWS,
    WINDOWS,
    st.sampled_from([("maximum", "f32"), ("add", "f32"), ("add", "s32"), ("maximum", "bf16")]),
    st.sampled_from(BUDGETS),
    st.integers(1, 2),
)
def test_reduce_window(
    dims: tuple[int, int, int],
    first: tuple[int, ...],
    second: tuple[int, ...],
    what: tuple[str, str],
    budget: int,
    base: int,
) -> None:
    op, element = what
    windows = [first, second, (1, 1, 0, 0, 1)]
    bases = (base, 1, 1)
    sizes = []
    for n, (size, stride, low, high, dilation), b in zip(dims, windows, bases, strict=True):
        sizes.append(((n - 1) * b + 1 + low + high - (size - 1) * dilation - 1) // stride + 1)
    text_of = {
        "size": "x".join(str(w[0]) for w in windows),
        "stride": "x".join(str(w[1]) for w in windows),
        "pad": "x".join(f"{w[2]}_{w[3]}" for w in windows),
        "rhs_dilate": "x".join(str(w[4]) for w in windows),
        "lhs_dilate": "x".join(map(str, bases)),
    }
    window = " ".join(f"{k}={v}" for k, v in text_of.items())
    text = (
        f"HloModule m\n{scalar_computation(op, element, 'f')}ENTRY e {{\n x = {element}[{show(dims)}] parameter(0)\n"
        f" i = {element}[] constant({init_of(op, element)})\n"
        f" ROOT r = {element}[{show(tuple(sizes))}] reduce-window(x, i), window={{{window}}}, to_apply=f\n}}\n"
    )
    for outcome in run_groups(text, finite(sample(DTYPES[element], dims, 1)), budget=budget):
        outcome.assert_close(1e-5)


def test_scalar_initial_value_from_a_parameter() -> None:
    text = f"""HloModule m
{scalar_computation("add", "f32", "f")}ENTRY e {{
 x = f32[3,50] parameter(0)
 i = f32[] parameter(1)
 ROOT r = f32[3] reduce(x, i), dimensions={{1}}, to_apply=f
}}
"""
    for budget in BUDGETS:
        (outcome,) = run_groups(text, np.ones((3, 50), np.float32), np.asarray(7, np.float32), budget=budget)
        np.testing.assert_array_equal(outcome.got[0], np.full(3, 57, np.float32))


def test_nothing_to_reduce_gives_the_initial_value() -> None:
    text = f"""HloModule m
{scalar_computation("add", "f32", "f")}ENTRY e {{
 x = f32[3,0] parameter(0)
 i = f32[] parameter(1)
 ROOT r = f32[3] reduce(x, i), dimensions={{1}}, to_apply=f
}}
"""
    (outcome,) = run_groups(text, np.ones((3, 0), np.float32), np.asarray(7, np.float32))
    np.testing.assert_array_equal(outcome.got[0], np.full(3, 7, np.float32))


def row_sums(rows: int, columns: int, producer: str = "copy") -> str:
    return f"""HloModule m
{scalar_computation("add", "f32", "f")}ENTRY e {{
 x = f32[{rows},{columns}] parameter(0)
 i = f32[] constant(0)
 y = f32[{rows},{columns}] {producer}(x)
 ROOT r = f32[{rows}] reduce(y, i), dimensions={{1}}, to_apply=f
}}
"""


@pytest.mark.parametrize(
    ("rows", "columns", "producer", "expected"),
    [
        (16, 3, "copy", ["vpu.run"]),  # unrolled: a stream for each of three elements
        (64, 3, "copy", ["xlu.shuffle", "vpu.run"]),  # turned, so that lanes hold rows
        (64, 32, "copy", ["xlu.reduce", "vpu.run"]),  # rows of one vector: the cross-lane unit reads them in place
        (64, 96, "cosine", ["vpu.run", "xlu.reduce", "vpu.run"]),
        (16, 640, "copy", ["vpu.run", "xlu.reduce", "vpu.run"]),
    ],
)
def test_way_of_reducing(rows: int, columns: int, producer: str, expected: list[str]) -> None:
    x = np.random.default_rng(5).standard_normal((rows, columns)).astype(np.float32)
    (outcome,) = run_groups(row_sums(rows, columns, producer), x, chip="small", budget=1 << 20, in_hbm=False)
    assert [op.op for op in outcome.ops] == expected
    outcome.assert_close(1e-5)


@pytest.mark.parametrize("producer", ["copy", "cosine"])
def test_order_does_not_depend_on_what_is_fused(producer: str) -> None:
    """Rows whose elements lie apart are slow to read for the cross-lane unit; nor are they reduced so if computed."""
    text = f"""HloModule m
{scalar_computation("add", "f32", "f")}ENTRY e {{
 x = f32[1,7,7,512] parameter(0)
 i = f32[] constant(0)
 y = f32[1,7,7,512] {producer}(x)
 ROOT r = f32[1,512] reduce(y, i), dimensions={{1,2}}, to_apply=f
}}
"""
    x = np.random.default_rng(5).standard_normal((1, 7, 7, 512)).astype(np.float32)
    (outcome,) = run_groups(text, x, chip="tpu_v3", budget=1 << 20, in_hbm=False)
    assert [op.op for op in outcome.ops] == ["vpu.run"]
    outcome.assert_close(1e-5)


@pytest.mark.parametrize(("columns", "loops"), [(32, False), (33, True), (88, False), (96, True)])
def test_few_vectors_are_one_iteration(columns: int, loops: bool) -> None:
    """Up to eleven loads and a store; lanes beyond a row need the loop's last turn."""
    (outcome,) = run_groups(row_sums(16, columns), np.ones((16, columns), np.float32))
    outcome.assert_same_bits()
    kernel = next(op.args["kernel"] for op in outcome.ops if op.op == "vpu.run")
    assert isinstance(kernel, Kernel)
    assert bool(kernel.prologue.ops) == loops


def test_outer_dimension_is_carried() -> None:
    text = row_sums(64, 40).replace("f32[64] reduce", "f32[40] reduce").replace("dimensions={1}", "dimensions={0}")
    x = np.random.default_rng(5).standard_normal((64, 40)).astype(np.float32)
    (outcome,) = run_groups(text, x, chip="small", budget=1 << 20, in_hbm=False)
    (op,) = outcome.ops
    assert op.args["inner"] == 1
    outcome.assert_close(1e-5)


def reducer(opcode: str, dtype: str) -> str:
    return scalar_computation(opcode, dtype, "f")


@examples(6, 25)
@given(
    st.lists(st.integers(1, 14), min_size=2, max_size=4).map(tuple).filter(lambda dims: 100 < np.prod(dims) < 3000),
    st.sampled_from(("tiny", "small")),
    st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    st.data(),
)
def test_bits_depend_on_what_is_reduced_alone(
    dims: tuple[int, ...], chip: str, along: tuple[bool, ...], data: st.DataObject
) -> None:
    """Not on operations fused with it, where operands lie, or how large its tiles are.

    Lanes of a reduced dimension are left out: those are combined tile by tile.
    """
    reduced = data.draw(st.lists(st.sampled_from(range(len(dims) - 1)), min_size=1, unique=True).map(sorted))
    scaled = [d for d in range(len(dims)) if along[d]]
    x = np.random.default_rng(7).standard_normal(dims).astype(np.float32)
    s = np.exp2(np.random.default_rng(8).integers(-3, 4, [dims[d] for d in scaled])).astype(np.float32)
    kept = [d for d in range(len(dims)) if d not in reduced]
    text = f"""HloModule m
{reducer("add", "f32")}ENTRY e {{
 x = f32[{show(dims)}] parameter(0)
 s = f32[{show(s.shape)}] parameter(1)
 i = f32[] constant(0)
 b = f32[{show(dims)}] broadcast(s), dimensions={{{show(tuple(scaled))}}}
 y = f32[{show(dims)}] multiply(x, b)
 ROOT r = f32[{show(tuple(dims[d] for d in kept))}] reduce(y, i), dimensions={{{show(tuple(reduced))}}}, to_apply=f
}}
"""
    y = x * s.reshape([dims[d] if d in scaled else 1 for d in range(len(dims))])
    (plain,) = run_groups(text, y, np.ones_like(s), chip=chip, budget=1 << 20, in_hbm=False)
    if any(op.op == "xlu.reduce" for op in plain.ops):
        return
    for budget in (1 << 12, 1 << 20):
        (fused,) = run_groups(text, x, s, chip=chip, budget=budget)
        np.testing.assert_array_equal(fused.got[0], plain.got[0])


def test_bits_do_not_depend_on_what_keeps_lanes_of_a_sum_apart() -> None:
    """A factor along one reduced dimension keeps the three from being one row of lanes, as they are in the array."""
    text = f"""HloModule m
{reducer("add", "f32")}ENTRY e {{
 x = f32[2,8,11,3] parameter(0)
 s = f32[11] parameter(1)
 i = f32[] constant(0)
 b = f32[2,8,11,3] broadcast(s), dimensions={{2}}
 y = f32[2,8,11,3] multiply(x, b)
 ROOT r = f32[3] reduce(y, i), dimensions={{0,1,2}}, to_apply=f
}}
"""
    x = np.random.default_rng(7).standard_normal((2, 8, 11, 3)).astype(np.float32)
    s = np.exp2(np.random.default_rng(8).integers(-3, 4, 11)).astype(np.float32)
    (many,), (one,) = (run_groups(text, x, s, chip="tiny", budget=budget) for budget in (1 << 12, 1 << 20))
    np.testing.assert_array_equal(many.got[0], one.got[0])


@pytest.mark.parametrize("reduced", [(0, 1), (0, 1, 2), (2,)])
def test_operands_are_computed_to_memory_in_parts_where_it_does_not_hold_them(reduced: tuple[int, ...]) -> None:
    """No kernel has loops and conditions for three padded dimensions and interior padding: 42,000 bytes, in 16 KiB."""
    kept = [n for d, n in enumerate((300, 7, 5)) if d not in reduced]
    text = f"""HloModule m
{reducer("add", "f32")}ENTRY e {{
 x = f32[148,3,1] parameter(0)
 z = f32[] constant(0)
 p = f32[300,7,5] pad(x, z), padding=2_3_1x1_3x1_3
 ROOT r = f32[{show(tuple(kept))}] reduce(p, z), dimensions={{{show(reduced)}}}, to_apply=f
}}
"""
    check(text, [np.random.default_rng(0).standard_normal((148, 3, 1)).astype(np.float32)], CHIPS[16], most=1e-6)


def test_several_reductions_whose_operand_is_a_result_too_have_room() -> None:
    text = f"""HloModule m
{reducer("add", "f32")}ENTRY e {{
 x = bf16[7,16,7] parameter(0)
 z = f32[] constant(0)
 y = bf16[7,16,7] exponential(x)
 c = f32[7,16,7] convert(y)
 r = f32[7,7] reduce(c, z), dimensions={{1}}, to_apply=f
 s = bf16[7,1,7] slice(y), slice={{[0:7],[8:9],[0:7]}}
 ROOT t = (f32[7,7], bf16[7,16,7], bf16[7,1,7]) tuple(r, y, s)
}}
"""
    x = np.random.default_rng(0).standard_normal((7, 16, 7)).astype(DTYPES["bf16"].stored)
    check(text, [x], CHIPS[16], most=1e-2)
