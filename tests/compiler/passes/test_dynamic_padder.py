"""Arrays of dynamic sizes: the evaluator's values of the actual sizes, whatever lies beyond; and on the chip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.dynamic.dynamic_padder import PadDynamicSizes
from systolith.compiler.passes.dynamic.entry_sizes import EntrySizes
from systolith.compiler.passes.simplify.dead_code import DeadCode
from tests.compiler.machine import Array, compiled
from tests.compiler.passes.differential import transformed
from tests.runtime.command import systolith

HEAD = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
odd { a = f32[] parameter(0) b = f32[] parameter(1) s = f32[] add(a, b) h = f32[] constant(0.5)
  ROOT c = f32[] multiply(s, h) }
place { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE v = f32[] select(g, a, b) k = s32[] select(g, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k) }
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
more { a = f32[] parameter(0) b = f32[] parameter(1) i = s32[] parameter(2) j = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=GT }
"""
PARAMETERS = """  x = f32[<=5,4] parameter(0)
  y = f32[<=5,4] parameter(1)
  w = f32[4,<=6] parameter(2)
  v = f32[5,4] parameter(3)
  z = f32[] constant(0)
  two = f32[] constant(2)
"""
BODIES = {
    "elementwise": "ROOT r = f32[<=5,4] multiply(x, v)",
    "two arrays": "a = f32[<=5,4] add(x, y)\n  b = pred[<=5,4] compare(x, y), direction=LT\n"
    "  ROOT r = (f32[<=5,4], pred[<=5,4]) tuple(a, b)",
    "three arrays": "b = pred[<=5,4] compare(x, v), direction=LT\n  ROOT r = f32[<=5,4] select(b, x, v)",
    "broadcast": "ROOT r = f32[3,<=5,4] broadcast(x), dimensions={1,2}",
    "transpose": "ROOT r = f32[4,<=5] transpose(x), dimensions={1,0}",
    "reduce": "ROOT r = f32[4] reduce(x, z), dimensions={0}, to_apply=add",
    "reduce of rows": "ROOT r = f32[<=5] reduce(x, two), dimensions={1}, to_apply=add",
    "reduce from 2": "ROOT r = f32[] reduce(x, two), dimensions={0,1}, to_apply=add",
    "greatest": "m = f32[] constant(-inf)\n  ROOT r = f32[4] reduce(x, m), dimensions={0}, to_apply=most",
    "reduce by another": "ROOT r = f32[4] reduce(x, z), dimensions={0}, to_apply=odd",
    "argmax": "i = s32[5,4] iota(), iota_dimension=0\n  n = s32[] get-dimension-size(x), dimensions={0}\n"
    "  j = s32[<=5,4] set-dimension-size(i, n), dimensions={0}\n  m = f32[] constant(-inf)\n  k = s32[] constant(0)\n"
    "  ROOT r = (f32[4], s32[4]) reduce(x, j, m, k), dimensions={0}, to_apply=place",
    "window": "ROOT r = f32[<=5,4] reduce-window(x, z), window={size=3x1 pad=1_1x0_0}, to_apply=add",
    "window at a stride": "ROOT r = f32[<=2,3] reduce-window(x, two), window={size=2x2 stride=2x1}, to_apply=add",
    "window of holes": "ROOT r = f32[<=9,4] reduce-window(x, z), window={size=1x1 lhs_dilate=2x1}, to_apply=most",
    "cumulative": "ROOT r = f32[<=5,4] reduce-window(x, z), window={size=5x1 pad=4_0x0_0}, to_apply=add",
    "dot": "ROOT r = f32[<=5,<=6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "dot of sums": "ROOT r = f32[4,4] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "dot of batches": "ROOT r = f32[<=5] dot(x, x), lhs_batch_dims={0}, rhs_batch_dims={0},"
    " lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "convolution": "a = f32[<=5,4,1] reshape(x)\n  k = f32[2,1,3] constant({{{1,2,3}},{{4,5,6}}})\n"
    "  ROOT r = f32[<=5,3,3] convolution(a, k), window={size=2}, dim_labels=b0f_0io->b0f",
    "concatenate": "ROOT r = f32[<=15,4] concatenate(x, v, y), dimensions={0}",
    "concatenate beside": "a = f32[<=5,4] negate(x)\n  ROOT r = f32[<=5,8] concatenate(x, a), dimensions={1}",
    "pad": "ROOT r = f32[<=9,5] pad(x, two), padding=1_3x0_1",
    "pad between": "ROOT r = f32[<=11,4] pad(x, two), padding=2_0_1x0_0",
    "pad of less": "ROOT r = f32[<=5,4] pad(x, two), padding=-1_1x0_0",
    "slice": "ROOT r = f32[3,4] slice(x), slice={[1:4], [0:4]}",
    "slice beside": "ROOT r = f32[<=5,2] slice(x), slice={[0:5], [1:3]}",
    "slice at a stride": "ROOT r = f32[<=3,4] slice(x), slice={[0:5:2], [0:4]}",
    "reverse": "ROOT r = f32[<=5,4] reverse(x), dimensions={0,1}",
    "reshape": "ROOT r = f32[<=5,2,2] reshape(x)",
    "reshape to one dimension": "ROOT r = f32[<=20] reshape(x)",
    "reshape of columns": "ROOT r = f32[<=24] reshape(w)",
    "reshape and back": "a = f32[<=24] reshape(w)\n  ROOT r = f32[4,<=6] reshape(a)",
    "dynamic-reshape": "n = s32[] get-dimension-size(w), dimensions={1}\n  f = s32[] constant(4)\n"
    "  ROOT r = f32[<=6,4] dynamic-reshape(w, n, f)",
    "sort": "ROOT r = f32[<=5,4] sort(x), dimensions={0}, to_apply=less",
    "sort of rows": "ROOT r = f32[<=5,4] sort(x), dimensions={1}, to_apply=less",
    "sort of two": "i = s32[4,6] iota(), iota_dimension=1\n  n = s32[] get-dimension-size(w), dimensions={1}\n"
    "  j = s32[4,<=6] set-dimension-size(i, n), dimensions={1}\n"
    "  ROOT r = (f32[4,<=6], s32[4,<=6]) sort(w, j), dimensions={1}, is_stable=true, to_apply=more",
    "sizes": "n = s32[] constant(3)\n  a = f32[<=5,4] set-dimension-size(x, n), dimensions={0}\n"
    "  b = f32[<=5,<=4] set-dimension-size(a, n), dimensions={1}\n"
    "  c = f32[4] reduce(b, z), dimensions={0}, to_apply=add\n  ROOT r = (f32[<=5,<=4], f32[4]) tuple(b, c)",
    "rows by places": "i = s32[2,1] constant({{1},{0}})\n  ROOT r = f32[2,4] gather(x, i), offset_dims={1},"
    " collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}",
    "columns by places": "i = s32[2,1] constant({{1},{0}})\n  ROOT r = f32[<=5,2] gather(x, i), offset_dims={0},"
    " collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, slice_sizes={5,1}",
    "places": "n = s32[] get-dimension-size(x), dimensions={0}\n  i = s32[5,1] iota(), iota_dimension=0\n"
    "  j = s32[<=5,1] set-dimension-size(i, n), dimensions={0}\n  u = f32[] constant(1)\n"
    "  ROOT r = f32[5,4] scatter(v, j, x), update_window_dims={1}, inserted_window_dims={0},"
    " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    "dynamic-slice": "i = s32[] constant(1)\n  ROOT r = f32[<=5,2] dynamic-slice(x, i, i), dynamic_slice_sizes={5,2}",
    "row put there": "i = s32[] constant(0)\n  n = s32[] constant(3)\n"
    "  d = f32[<=5,4] set-dimension-size(x, n), dimensions={0}\n  u = f32[1,4] slice(v), slice={[2:3], [0:4]}\n"
    "  ROOT r = f32[<=5,4] dynamic-update-slice(d, u, n, i)",
    "to static": "ROOT r = (f32[5,4], s32[], s32[]) custom-call(x), custom_call_target=\"PadToStatic\"",
    "to dynamic": "n = s32[] constant(2)\n  f = s32[] constant(4)\n"
    "  ROOT r = f32[<=5,4] custom-call(v, n, f), custom_call_target=\"SliceToDynamic\"",
}  # fmt: skip

LOOP = """grow { s = (s32[], f32[<=5,4]) parameter(0) i = s32[] get-tuple-element(s), index=0
  a = f32[<=5,4] get-tuple-element(s), index=1 one = s32[] constant(1) j = s32[] add(i, one)
  n = s32[] get-dimension-size(a), dimensions={0} m = s32[] add(n, one)
  b = f32[<=5,4] add(a, a) c = f32[<=5,4] set-dimension-size(b, m), dimensions={0}
  ROOT t = (s32[], f32[<=5,4]) tuple(j, c) }
test { s = (s32[], f32[<=5,4]) parameter(0) i = s32[] get-tuple-element(s), index=0 two = s32[] constant(2)
  ROOT l = pred[] compare(i, two), direction=LT }
less1 { a = f32[<=5,4] parameter(0) one = s32[] constant(1) n = s32[] get-dimension-size(a), dimensions={0}
  m = s32[] subtract(n, one) ROOT b = f32[<=5,4] set-dimension-size(a, m), dimensions={0} }
same { a = f32[<=5,4] parameter(0) ROOT b = f32[<=5,4] negate(a) }
"""
CONTROL = {
    "while": "i = s32[] constant(0)\n  s = (s32[], f32[<=5,4]) tuple(i, x)\n"
    "  l = (s32[], f32[<=5,4]) while(s), condition=test, body=grow\n"
    "  ROOT r = f32[<=5,4] get-tuple-element(l), index=1",
    "conditional": "t = f32[] reduce(x, z), dimensions={0,1}, to_apply=add\n"
    "  p = pred[] compare(t, z), direction=GT\n"
    "  ROOT r = f32[<=5,4] conditional(p, x, y), true_computation=less1, false_computation=same",
    "branches": "n = s32[] get-dimension-size(y), dimensions={0}\n"
    "  ROOT r = f32[<=5,4] conditional(n, x, y), branch_computations={less1, same}",
}
ALL = {name: f"{HEAD}ENTRY e {{\n{PARAMETERS}  {body}\n}}\n" for name, body in BODIES.items()}
ALL |= {name: f"{HEAD}{LOOP}ENTRY e {{\n{PARAMETERS}  {body}\n}}\n" for name, body in CONTROL.items()}


def arguments(rows: int, others: int, columns: int, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    dims = (rows, 4), (others, 4), (4, columns), (5, 4)
    return [rng.standard_normal(d).astype(np.float32) for d in dims]


def evaluated(made: Module, given: list[Array]) -> list[Array]:
    """Results of a padded module, of which parameters have NaN beyond their sizes, cut to theirs."""
    sizes = EntrySizes.of(made)
    taken: dict[int, Array] = {}
    for number, x in enumerate(given):
        bounds = made.entry.parameters[number].dims
        edges = [(0, bound - n) for n, bound in zip(x.shape, bounds, strict=True)]
        taken[number] = np.pad(x, edges, constant_values=np.nan)
        for place, n in sizes.parameters.items():
            if place.number == number:
                taken[n] = np.asarray(x.shape[place.dimension], np.int32)
    found = evaluate(made, *(taken[k] for k in sorted(taken)), precision="highest")
    hidden = set(sizes.results.values())
    results = []
    for number, x in enumerate(found):
        ends = [sizes.results.get((number, d)) for d in range(x.ndim)]  # type: ignore[call-overload]
        if number not in hidden:
            results.append(x[tuple(slice(None if n is None else int(found[n])) for n in ends)])
    return results


def agree(got: list[Array], wanted: list[Array], what: str) -> None:
    assert len(got) == len(wanted), what
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape, f"{what}: {a.shape} instead of {b.shape}"
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=what)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([*ALL]), st.integers(0, 5), st.integers(0, 5), st.integers(0, 6))
def test_values_of_the_actual_sizes(name: str, rows: int, others: int, columns: int) -> None:
    module = parse_hlo(ALL[name])
    made = transformed(module, PadDynamicSizes(), DeadCode())
    assert not any(i.shape.is_dynamic for i in made.instructions())
    given_ = arguments(rows, others, columns)
    agree(evaluated(made, given_), evaluate(module, *given_, precision="highest"), f"{name} {rows} {others} {columns}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_every_operation_of_many_sizes(name: str) -> None:
    module = parse_hlo(ALL[name])
    made = transformed(module, PadDynamicSizes(), DeadCode())
    executable = sl.Client("tiny").compile(ALL[name], sl.Options(precision="highest"))
    for rows, others, columns in ((0, 0, 0), (1, 1, 1), (1, 3, 5), (3, 1, 6), (5, 5, 6), (4, 2, 0), (2, 5, 3)):
        given_ = arguments(rows, others, columns)
        wanted, what = evaluate(module, *given_, precision="highest"), f"{name} {rows} {others} {columns}"
        agree(evaluated(made, given_), wanted, what)
        agree([b.numpy() for b in executable(*given_, hostile=True)], wanted, f"{what} on the chip")


@pytest.mark.parametrize("name", ["concatenate", "sort", "while", "reshape of columns"])
def test_on_the_chip(name: str) -> None:
    executable = sl.Client("tiny").compile(ALL[name], sl.Options(precision="highest"))
    for rows, others, columns in ((2, 3, 5), (5, 0, 6)):
        given_ = arguments(rows, others, columns)
        wanted = evaluate(parse_hlo(ALL[name]), *given_, precision="highest")
        agree([b.numpy() for b in executable(*given_, hostile=True)], wanted, name)


def test_results_are_arguments_of_the_next_run() -> None:
    client = sl.Client("tiny")
    double = client.compile("HloModule m\nENTRY e { x = f32[<=5] parameter(0) ROOT y = f32[<=5] add(x, x) }")
    (once,) = double(np.arange(3, dtype=np.float32))
    (twice,) = double(once)
    np.testing.assert_array_equal(twice.numpy(), [0, 4, 8])
    with pytest.raises(sl.SystolithError, match=r"the module takes f32\[<=5\], got \[6\]"):
        double(np.arange(6, dtype=np.float32))


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the module and from its binary, with results of the actual sizes."""
    module, given_, binary, out = (tmp_path / name for name in ("m.hlo", "a.npz", "m.slb", "out.npz"))
    module.write_text(ALL["concatenate"])
    values = arguments(2, 3, 5)
    named: dict[str, Any] = {f"arg{k}": x for k, x in enumerate(values)}
    np.savez(given_, **named)
    assert systolith(capsys, "compile", module, "--chip", "tiny", "-o", binary, "--dump-dir", tmp_path / "d").code == 0
    (wanted,) = evaluate(parse_hlo(ALL["concatenate"]), *values)
    for file in (module, binary):
        ran = systolith(capsys, "run", file, "--chip", "tiny", "--args", given_, "--out", out, "--hostile")
        assert ran.code == 0, ran.err
        np.testing.assert_allclose(np.load(out)["out0"], wanted, rtol=1e-6)
    again = tmp_path / "again.slb"
    words = ("compile", tmp_path / "d" / "canonical.hlo", "--from", "canonical", "--chip", "tiny", "-o", again)
    assert systolith(capsys, *words).code == 0
    assert again.read_bytes() == binary.read_bytes()
    assert systolith(capsys, "run", module, "--chip", "tiny", "--random", 3, "--check", "--hostile").code == 0


def test_what_has_no_lowering_is_refused_by_name() -> None:
    text = "HloModule m\nENTRY e { x = f32[<=4,4] parameter(0) ROOT c = f32[<=4,4] cholesky(x), lower=true }"
    with pytest.raises(CompileError, match=r"cholesky 'c' \(f32\[<=4,4\]\): of dynamic sizes has no lowering"):
        compiled(text)


def test_a_module_without_dynamic_sizes_stays_as_it_is() -> None:
    text = "HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] add(x, x)\n}\n\n"
    module = parse_hlo(text)
    assert not PadDynamicSizes().run(module)
    assert print_hlo(module) == text


def test_tuples_with_arrays_of_dynamic_sizes_as_parameters() -> None:
    text = (
        "HloModule m\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
        "ENTRY e {\n  first = f32[<=3] parameter(0)\n  t = (f32[4], (f32[<=5,4], f32[<=5,<=6])) parameter(1)\n"
        "  last = f32[<=6] parameter(2)\n  row = f32[4] get-tuple-element(t), index=0\n"
        "  u = (f32[<=5,4], f32[<=5,<=6]) get-tuple-element(t), index=1\n"
        "  x = f32[<=5,4] get-tuple-element(u), index=0\n  y = f32[<=5,<=6] get-tuple-element(u), index=1\n"
        "  z = f32[] constant(0)\n  a = f32[<=5,4] add(x, x)\n  b = f32[4] reduce(a, z), dimensions={0}, to_apply=add\n"
        "  c = f32[4] add(b, row)\n  d = f32[<=6] reduce(y, z), dimensions={0}, to_apply=add\n"
        "  f = f32[<=6] add(d, last)\n  g = f32[] reduce(first, z), dimensions={0}, to_apply=add\n"
        "  ROOT r = (f32[4], f32[<=6], f32[]) tuple(c, f, g)\n}\n"
    )
    executable = sl.Client("tiny").compile(text, sl.Options(precision="highest"))
    rng = np.random.default_rng(0)
    for n, rows, columns in ((2, 3, 5), (0, 5, 1), (3, 0, 6)):
        dims = (n,), (4,), (rows, 4), (rows, columns), (columns,)
        first, row, x, y, last = (rng.standard_normal(d).astype(np.float32) for d in dims)
        got = [b.numpy() for b in executable(first, row, x, y, last, hostile=True)]
        agree(got, [2 * x.sum(0) + row, y.sum(0) + last, np.asarray(first.sum())], f"{n} {rows} {columns}")
