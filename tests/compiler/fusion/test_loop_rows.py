"""Rows that iterations of a loop write: where they are made, what is computed again, that values stay the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.explain import Decision
from systolith.compiler.groups.loop_rows import LoopRows
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.memory.update_places import rows_in_hbm, update_places
from systolith.compiler.ops.group import read_groups
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.simplify.while_trip_count import AnnotateTripCounts
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_loop_residuals import text as rows_of_four
from tests.compiler.machine import TINY, Array, check, compiled, counting, with_vmem
from tests.examples import examples

COUNT, SIZE = 5, 32
ROW, ROWS = f"f32[{SIZE},{SIZE}]", f"f32[{COUNT},{SIZE},{SIZE}]"
"""4 KiB, and all of them."""

CHIPS = {kib: with_vmem(TINY, kib << 10) for kib in (1, 4, 8, 64, 256)}
"""By KiB of VMEM."""

INDICES = {
    "up": "at = s32[] add(i, nothing)",
    "down": f"last = s32[] constant({COUNT - 1})\n  at = s32[] subtract(last, i)",
    "clamped": "two = s32[] constant(2)\n  at = s32[] add(i, two)",
    "read": "picked = s32[1] dynamic-slice(order, i), dynamic_slice_sizes={1}\n  at = s32[] reshape(picked)",
}
"""Where iteration `i` writes its row."""

EXTRAS = {
    "none": (f"after = {ROW} add(row, row)", ""),
    "read before": (
        f"old = f32[1,{SIZE},{SIZE}] dynamic-slice(ys, at, zero, zero), dynamic_slice_sizes={{1,{SIZE},{SIZE}}}\n"
        f"  before = {ROW} reshape(old)\n  after = {ROW} add(row, before)",
        "",
    ),
    "read after": (
        f"after = {ROW} reshape(new)",
        f"new = f32[1,{SIZE},{SIZE}] dynamic-slice(updated, at, zero, zero), dynamic_slice_sizes={{1,{SIZE},{SIZE}}}",
    ),
    "twice": (
        f"after = {ROW} add(row, row)",
        f"again = {ROWS} dynamic-update-slice(updated, wide, i, zero, zero)",
    ),
}
"""What the body does with the array beside: a value, and operations after the update."""


def loop(index: str = "up", extra: str = "none", count: int = COUNT, start: str = "broadcast") -> str:
    """A loop whose iterations multiply x by weights and leave the product as a row of an array."""
    value, after = EXTRAS[extra]
    last = "again" if extra == "twice" else "updated"
    state = f"(s32[], {ROW}, {ROW}, {ROWS}, s32[5])"
    begun = {"broadcast": "broadcast(one), dimensions={}", "given": "parameter(3)"}[start]
    return f"""HloModule m

body {{
  state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = {ROW} get-tuple-element(state), index=1
  w = {ROW} get-tuple-element(state), index=2
  ys = {ROWS} get-tuple-element(state), index=3
  order = s32[5] get-tuple-element(state), index=4
  nothing = s32[] constant(0)
  zero = s32[] constant(0)
  {INDICES[index]}
  row = {ROW} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  wide = f32[1,{SIZE},{SIZE}] reshape(row)
  updated = {ROWS} dynamic-update-slice(ys, wide, at, zero, zero)
  {after}
  {value}
  half = f32[] constant(0.03)
  halves = {ROW} broadcast(half), dimensions={{}}
  next = {ROW} multiply(after, halves)
  step = s32[] constant(1)
  following = s32[] add(i, step)
  ROOT after.all = {state} tuple(following, next, w, {last}, order)
}}

{counting("condition", state, count)}

ENTRY main {{
  x = {ROW} parameter(0)
  w = {ROW} parameter(1)
  order = s32[5] parameter(2)
  first = s32[] constant(0)
  one = f32[] constant(1)
  ys = {ROWS} {begun}
  start = {state} tuple(first, x, w, ys, order)
  done = {state} while(start), condition=condition, body=body
  rows = {ROWS} get-tuple-element(done), index=3
  x.last = {ROW} get-tuple-element(done), index=1
  ROOT all = ({ROWS}, {ROW}) tuple(rows, x.last)
}}
"""


def arguments(start: str = "broadcast") -> list[Array]:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(2))
    given = [x, w, np.array([3, 1, 4, 0, 2], np.int32)]
    return given if start == "broadcast" else [*given, rng.standard_normal((COUNT, SIZE, SIZE)).astype(np.float32)]


def written(decisions: list[Decision]) -> list[dict[str, float]]:
    return [dict(d.numbers) for d in decisions if d.chosen == "rows are written where they are made"]


@pytest.mark.parametrize("index", ["up", "down"])
def test_a_row_is_made_where_its_update_puts_it(index: str) -> None:
    chip = CHIPS[8]
    text = loop(index)
    made = check(text, arguments(), chip)
    assert written(made.explain)[0]["arrays without contents"] == 1
    groups = {g["name"]: g for g in simulate(made.program, chip, mode="time").groups()}
    assert "updated" not in groups, "nothing is left to do, and the index is counted in a register"
    rows = COUNT * SIZE * SIZE * 4
    assert sum(groups["row"]["hbm_bytes"].values()) >= rows, "the product stores its result"


def test_an_array_of_which_not_all_rows_are_written_keeps_its_contents() -> None:
    for text in (loop("clamped"), loop("read"), loop(count=3)):
        made = check(text, arguments(), CHIPS[8])
        assert [numbers["arrays without contents"] for numbers in written(made.explain)] == [0]


@examples(4, 30)
@given(
    st.sampled_from([*INDICES]), st.sampled_from([*EXTRAS]), st.integers(1, 5), st.sampled_from(["broadcast", "given"]),
    st.sampled_from([64, 8, 4]),
)  # fmt: skip
def test_rows_are_what_they_are_without_loops(index: str, extra: str, count: int, start: str, kib: int) -> None:
    check(loop(index, extra, count, start), arguments(start), CHIPS[kib])


def test_stores_to_a_place_that_the_run_knows_do_not_wait_for_each_other() -> None:
    """A product of 9 MB, of which a loop leaves twelve; what the loop reads has to have a place beside it in VMEM.

    What is turned in each iteration keeps it a loop.
    """
    text = """HloModule m

body {
  state = (s32[], f32[512,3072], f32[512,768], f32[12,3072,768], f32[128]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  a = f32[512,3072] get-tuple-element(state), index=1
  b = f32[512,768] get-tuple-element(state), index=2
  rows = f32[12,3072,768] get-tuple-element(state), index=3
  product = f32[3072,768] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  wide = f32[1,3072,768] reshape(product)
  zero = s32[] constant(0)
  updated = f32[12,3072,768] dynamic-update-slice(rows, wide, i, zero, zero)
  c = f32[128] get-tuple-element(state), index=4
  turned = f32[128] reverse(c), dimensions={0}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT all = (s32[], f32[512,3072], f32[512,768], f32[12,3072,768], f32[128]) tuple(next, a, b, updated, turned)
}

condition {
  state = (s32[], f32[512,3072], f32[512,768], f32[12,3072,768], f32[128]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  end = s32[] constant(12)
  ROOT less = pred[] compare(i, end), direction=LT
}

ENTRY main {
  a = f32[512,3072] parameter(0)
  b = f32[512,768] parameter(1)
  c = f32[128] parameter(2)
  first = s32[] constant(0)
  one = f32[] constant(0)
  rows = f32[12,3072,768] broadcast(one), dimensions={}
  start = (s32[], f32[512,3072], f32[512,768], f32[12,3072,768], f32[128]) tuple(first, a, b, rows, c)
  done = (s32[], f32[512,3072], f32[512,768], f32[12,3072,768], f32[128]) while(start), condition=condition, body=body
  made = f32[12,3072,768] get-tuple-element(done), index=3
  last = f32[128] get-tuple-element(done), index=4
  ROOT result = (f32[12,3072,768], f32[128]) tuple(made, last)
}
"""
    chip = load_chip("tpu_v3")
    result = simulate(compiled(text, chip).program, chip, mode="time")
    groups = {g["name"]: g for g in result.groups()}
    assert groups["product"]["cycles"] <= 1.02 * groups["product"]["planned"]
    assert result.cycles <= 1.05 * groups["product"]["cycles"], "nothing is copied, nor filled"


@pytest.mark.parametrize("products", [1, 4])
def test_rows_wait_in_hbm_for_layers_alone(products: int) -> None:
    """An array of 40 KiB beside VMEM of 256 KiB stays there as long as iterations are short."""
    chip = CHIPS[256]
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    names = ["row", *(f"p{n}" for n in range(1, products))]
    more = [f"{name} = {ROW} dot({of}, w), {dims}" for of, name in itertools.pairwise(names)]
    more.append(f"after = {ROW} add(row, {names[-1]})")
    text = loop().replace(f"after = {ROW} add(row, row)", "\n  ".join(more))
    text = (
        text.replace(ROWS, f"f32[10,{SIZE},{SIZE}]").replace("s32[5]", "s32[10]").replace("constant(5)", "constant(10)")
    )
    made = check(text, [*arguments()[:2], np.zeros(10, np.int32)], chip, most=1e-4)
    groups = {g["name"]: g for g in simulate(made.program, chip, mode="time").groups()}
    stored = sum(groups["updated"]["hbm_bytes"].values())
    assert (stored >= 10 * SIZE * SIZE * 4) == (products == 4)


@pytest.mark.parametrize("part", ["part = u32[2] constant({7, 8})", "part = u32[2] parameter(1)"])
def test_an_update_may_have_constants_in_its_group(part: str) -> None:
    """The group has no operand for them."""
    operands = "b, a" if "parameter" in part else "b"
    text = f"""HloModule m
group {{
  whole = u32[4] parameter(0)
  {part}
  start = s32[] constant(1)
  ROOT updated = u32[4] dynamic-update-slice(whole, part, start)
}}
ENTRY main {{
  b = u32[4] parameter(0)
  a = u32[2] parameter(1)
  ROOT all = u32[4] fusion({operands}), kind=kCustom, calls=group
}}
"""
    assert update_places(read_groups(parse_hlo(text)).entry) == {}


def test_updates_come_early_in_one_order() -> None:
    """Whatever the addresses of instructions are, by which a set orders them."""
    kept = []
    for _ in range(10):
        kept.append(parse_hlo(rows_of_four()))
        run_pass(kept[-1], LoopRows(CHIPS[8]))
    assert len(set(map(print_hlo, kept))) == 1


@pytest.mark.parametrize(("kib", "rows"), [(16, ["row"]), (32, []), (256, [])])
def test_rows_of_arrays_in_hbm_take_no_room(kib: int, rows: list[str]) -> None:
    """A row of 4 KiB, that nothing else reads, of an array of 20 KiB."""
    text = loop().replace(f"after = {ROW} add(row, row)", f"after = {ROW} reverse(x), dimensions={{0}}")
    made = compiled(text, CHIPS[8])
    grouped = read_groups(parse_hlo(made.stages["grouped.hlo"]))
    found = {leaf[0].name for c in grouped.computations for leaf in rows_in_hbm(c, kib << 10)}
    assert sorted(found) == rows


def test_rows_that_others_read_do() -> None:
    made = compiled(loop(), CHIPS[8])
    grouped = read_groups(parse_hlo(made.stages["grouped.hlo"]))
    assert not any(rows_in_hbm(c, 16 << 10) for c in grouped.computations)


SECOND = f"ys.2 = {ROWS} get-tuple-element(state), index=3"
HALF = "half = f32[] constant(0.03)"
READ_TWICE = f"""{SECOND}
  older = f32[1,{SIZE},{SIZE}] dynamic-slice(ys.2, at, zero, zero), dynamic_slice_sizes={{1,{SIZE},{SIZE}}}
  old = {ROW} reshape(older)
  both = {ROW} add(after, old)
  {HALF}"""


def test_an_array_that_is_read_under_another_name_keeps_its_contents() -> None:
    text = loop("up").replace(HALF, READ_TWICE).replace("multiply(after, halves)", "multiply(both, halves)")
    module = parse_hlo(text)
    run_pass(module, AnnotateTripCounts())
    assert not written([*run_pass(module, LoopRows(CHIPS[1])).decisions])
    for got, want in zip(evaluate(module, *arguments()), evaluate(parse_hlo(text), *arguments()), strict=True):
        np.testing.assert_array_equal(got, want)
