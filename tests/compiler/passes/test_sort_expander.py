"""Sorts and `topk` as networks give the evaluator's bits, whatever they compare and wherever they sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand import sort_blocks, topk
from systolith.compiler.passes.expand.sort_expander import ExpandSorts
from systolith.compiler.passes.expand.topk import DecomposeTopK
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.inline import Inline
from systolith.compiler.passes.simplify.tuples import SimplifyTuples
from systolith.isa.dtypes import DTYPES
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.passes.differential import Array, assert_same_bits, assert_unchanged, opcodes, transformed
from tests.compiler.passes.texts import module_of

TOTAL = "ROOT r = pred[] compare({a}, {b}), direction={d}, type=TOTALORDER"
PLAIN = "ROOT r = pred[] compare({a}, {b}), direction={d}"
# As JAX compares floats: one zero, one NaN.
ONE_ZERO = """{t}none = {t}[] constant(0)
 {t}nan = {t}[] constant(nan)
 za = pred[] compare({a}, {t}none), direction=EQ
 na = pred[] compare({a}, {a}), direction=NE
 fa = {t}[] select(za, {t}none, {a})
 ga = {t}[] select(na, {t}nan, fa)
 zb = pred[] compare({b}, {t}none), direction=EQ
 nb = pred[] compare({b}, {b}), direction=NE
 fb = {t}[] select(zb, {t}none, {b})
 gb = {t}[] select(nb, {t}nan, fb)
 ROOT r = pred[] compare(ga, gb), direction={d}, type=TOTALORDER"""
DIFFERENCE = """s{t} = {t}[] subtract({a}, {b})
 zero = {t}[] constant(0)
 ROOT r = pred[] compare(s{t}, zero), direction={d}"""
MAPPED = """ROOT r = pred[] map({a}, {b}), dimensions={{}}, to_apply=least"""

FLOATS = ("f32", "bf16", "f16", "f8e5m2", "f8e4m3fn")
INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")


def comparator(kind: str, types: list[str], direction: str, by: int, turned: bool) -> str:
    """A computation that compares operands of some types, by one of them; `turned`: the second with the first."""
    lines = [f"p{k} = {types[k // 2]}[] parameter({k})" for k in range(2 * len(types))]
    a, b = (f"p{2 * by + (side ^ turned)}" for side in (0, 1))
    body = kind.format(a=a, b=b, t=types[by], d=direction)
    least = f"least {{\n x = {types[by]}[] parameter(0)\n y = {types[by]}[] parameter(1)\n"
    least += " ROOT r = pred[] compare(x, y), direction=LT\n}"
    return f"{least}\nbefore {{\n " + "\n ".join(lines) + f"\n {body}\n}}"


def values(rng: np.random.Generator, name: str, dims: tuple[int, ...], nans: bool = True) -> Array:
    """Few different values, so that many are equal; of floats both zeros, infinities and NaNs of both signs."""
    dtype = DTYPES[name].stored
    found = rng.integers(-3 if name[0] not in "up" else 0, 2 if name == "pred" else 4, dims).astype(dtype)
    if name in FLOATS:
        infinities = [np.inf, -np.inf] * (name != "f8e4m3fn")
        odd = np.array([-0.0, 0.0, *infinities, *[np.nan, -np.nan] * nans], dtype)
        at = rng.random(dims) < 0.4
        found[at] = rng.choice(odd, int(at.sum()))
    return np.asarray(found)


def sort_of(dims: tuple[int, ...], dim: int, types: list[str]) -> str:
    shapes = [f"{t}[{','.join(map(str, dims))}]" for t in types]
    lines = [f" x{k} = {s} parameter({k})" for k, s in enumerate(shapes)]
    whole = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    operands = ", ".join(f"x{k}" for k in range(len(shapes)))
    return "\n".join([*lines, f" ROOT s = {whole} sort({operands}), dimensions={{{dim}}}, to_apply=before"])


@given(st.data())
def test_any_sort(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 5))
    dim = data.draw(st.integers(0, rank - 1))
    n = data.draw(st.integers(1, 70))
    dims = tuple(n if d == dim else data.draw(st.integers(0 if rank < 3 else 1, 3)) for d in range(rank))
    types = data.draw(st.lists(st.sampled_from((*FLOATS, *INTEGERS, "pred")), min_size=1, max_size=4))
    by = data.draw(st.integers(0, len(types) - 1))
    kinds = [TOTAL, ONE_ZERO, PLAIN] if types[by] in FLOATS else [PLAIN, MAPPED]
    kind = data.draw(st.sampled_from(kinds + [DIFFERENCE] * (types[by] in INTEGERS[4:5])))
    direction = data.draw(st.sampled_from(["LT", "GT"]))
    before = comparator(kind, types, direction, by, data.draw(st.booleans()))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    ordered = kind in (TOTAL, ONE_ZERO)  # NaNs have no place among floats that are compared as numbers
    arguments = [values(rng, t, dims, nans=ordered or k != by) for k, t in enumerate(types)]
    made = assert_unchanged(module_of(sort_of(dims, dim, types), before), ExpandSorts(), arguments=arguments)
    assert "sort" not in opcodes(made)


TWO_KEYS = """before {
 a = s32[] parameter(0)
 b = s32[] parameter(1)
 c = f32[] parameter(2)
 d = f32[] parameter(3)
 e = s8[] parameter(4)
 f = s8[] parameter(5)
 first = pred[] compare(a, b), direction=LT
 same = pred[] compare(a, b), direction=EQ
 second = pred[] compare(c, d), direction=GT, type=TOTALORDER
 then = pred[] and(same, second)
 ROOT r = pred[] or(first, then)
}"""


@pytest.mark.parametrize("n", [2, 5, 33, 64])
def test_two_keys(n: int) -> None:
    rng = np.random.default_rng(n)
    types = ["s32", "f32", "s8"]
    arguments = [values(rng, t, (n, 3)) for t in types]
    made = assert_unchanged(module_of(sort_of((n, 3), 0, types), TWO_KEYS), ExpandSorts(), arguments=arguments)
    assert "sort" not in opcodes(made)


def test_xla_agrees_about_equal_elements_and_nans() -> None:
    rng = np.random.default_rng(0)
    for kind, t in ((TOTAL, "f32"), (ONE_ZERO, "f32"), (ONE_ZERO, "bf16"), (PLAIN, "u8")):
        body, before = sort_of((5, 41), 1, [t, "s32"]), comparator(kind, [t, "s32"], "LT", 0, False)
        text = f"HloModule m\n{before}\nENTRY e {{\n{body.replace('to_apply', 'is_stable=true, to_apply')}\n}}\n"
        arguments = [values(rng, t, (5, 41)), np.arange(205, dtype=np.int32).reshape(5, 41)]
        made = transformed(module_of(body, before), ExpandSorts())
        assert_same_bits(run_xla(text, *arguments), evaluate(made, *arguments))


def test_comparators_that_call_are_inlined_first() -> None:
    operands = "{\n a = s32[] parameter(0)\n b = s32[] parameter(1)\n ROOT r = pred[]"
    before = f"less {operands} compare(a, b), direction=LT\n}}\nbefore {operands} call(a, b), to_apply=less\n}}"
    module = module_of(sort_of((9, 128), 0, ["s32"]), before)
    made = assert_unchanged(module, Inline(), ExpandSorts(), DeadCode())
    assert {"sort", "map", "iota"}.isdisjoint(opcodes(made))


def test_integers_and_total_orders_of_one_array_need_no_places() -> None:
    for kind, t in ((PLAIN, "s32"), (TOTAL, "f32"), (TOTAL, "bf16")):
        made = transformed(module_of(sort_of((8, 300), 0, [t]), comparator(kind, [t], "GT", 0, False)), ExpandSorts())
        assert "iota" not in opcodes(made)
        assert opcodes(made).count("minimum") == opcodes(made).count("maximum") == 6


def test_numbers_along_the_dimension_are_the_places() -> None:
    body = (
        " x = u32[37,3] parameter(0)\n i = s32[37] iota(), iota_dimension=0\n"
        " p = s32[37,3] broadcast(i), dimensions={0}\n q = u32[37,3] iota(), iota_dimension=1\n"
        " s = (u32[37,3], s32[37,3], u32[37,3]) sort(x, p, q), dimensions={0}, to_apply=before\n"
        " ROOT g = s32[37,3] get-tuple-element(s), index=1"
    )
    module = module_of(body, comparator(PLAIN, ["u32", "s32", "u32"], "LT", 0, False))
    made = assert_unchanged(module, ExpandSorts(), SimplifyTuples(), DeadCode())
    assert opcodes(made).count("concatenate") == 2 * 21 - 1  # keys and places; the last keys are not used


@pytest.mark.parametrize("dims", [(300,), (64,), (70, 3), (7, 40)])
@pytest.mark.parametrize(("kind", "t"), [(PLAIN, "s32"), (TOTAL, "bf16"), (ONE_ZERO, "f32")])
def test_large_sorts_run_in_loops(kind: str, t: str, dims: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Over parts of the lines, or over blocks of one line, which are merged in loops, too."""
    monkeypatch.setattr(sort_blocks, "AT_ONCE", 256)
    rng = np.random.default_rng(len(dims))
    dim, types = int(np.argmax(dims)), [t, "s32"]
    arguments = [values(rng, name, dims) for name in types]
    before = comparator(kind, types, "LT", 0, False)
    made = assert_unchanged(module_of(sort_of(dims, dim, types), before), ExpandSorts(), arguments=arguments)
    loops = opcodes(made).count("while")
    assert loops == 1 if len(dims) > 1 else loops > 1
    assert "sort" not in {i.opcode for i in made.instructions()}


@given(st.data())
def test_any_topk(data: st.DataObject) -> None:
    long = data.draw(st.sampled_from([4, 16, 512]))
    dims = (*data.draw(st.lists(st.integers(0, 3), max_size=3)), data.draw(st.integers(1, 70)))
    k = data.draw(st.integers(0, dims[-1]))
    t = data.draw(st.sampled_from((*FLOATS, *INTEGERS, "pred")))
    largest = data.draw(st.booleans())
    x, found = array(DTYPES[t], dims), (*dims[:-1], k)
    call = f"topk(x), k={k}, largest={str(largest).lower()}"
    if largest and data.draw(st.booleans()):
        call = 'custom-call(x), custom_call_target="TopK"'
    shapes = f"({array(DTYPES[t], found)}, {array(DTYPES['s32'], found)})"
    module = module_of(f" x = {x} parameter(0)\n ROOT r = {shapes} {call}")
    argument = values(np.random.default_rng(data.draw(st.integers(0, 99))), t, dims)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topk, "LONG", long)
        made = assert_unchanged(module, DecomposeTopK(), arguments=[argument])
    assert {"topk", "custom-call"}.isdisjoint(opcodes(made))


def test_topk_of_many_long_lines_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topk, "LESS", 4)
    monkeypatch.setattr(topk, "LANES", 8)
    for place in (topk, sort_blocks):
        monkeypatch.setattr(place, "AT_ONCE", 1 << 10)
    module = module_of(" x = f32[37,64] parameter(0)\n ROOT r = (f32[37,3], s32[37,3]) topk(x), k=3, largest=false")
    made = assert_unchanged(module, DecomposeTopK(), arguments=[values(np.random.default_rng(0), "f32", (37, 64))])
    assert "while" in opcodes(made)
    assert "gather" in {i.opcode for i in made.instructions()}
