"""Reductions of short innermost dimensions: the cross-lane unit turns operands, so that lanes hold kept elements."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.hw.lockstep import Case, Lockstep
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DTYPES
from systolith.runtime.memories import bind
from systolith.sim.simulate import simulate
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import check, compiled, with_vmem
from tests.examples import examples, one_in

CHIPS = {name: load_chip(name) for name in ("tiny", "small", "tpu_v3")}
V3 = CHIPS["tpu_v3"]

ARGMAX = """best {{
 a = {t}[] parameter(0)
 i = s32[] parameter(1)
 b = {t}[] parameter(2)
 j = s32[] parameter(3)
 more = pred[] compare(b, a), direction=GT
 same = pred[] compare(b, a), direction=EQ
 before = pred[] compare(j, i), direction=LT
 first = pred[] and(same, before)
 take = pred[] or(more, first)
 v = {t}[] select(take, b, a)
 w = s32[] select(take, j, i)
 ROOT r = ({t}[], s32[]) tuple(v, w)
}}
"""

FORMS = {
    "sum": " ROOT r = {out} reduce(x, zero), dimensions={{{last}}}, to_apply=add",
    "mean": " s = {out} reduce(x, zero), dimensions={{{last}}}, to_apply=add\n"
    " k = {t}[] constant(2)\n kb = {out} broadcast(k), dimensions={{}}\n ROOT r = {out} multiply(s, kb)",
    "products": " y = {whole} parameter(1)\n p = {whole} multiply(x, y)\n"
    " ROOT r = {out} reduce(p, zero), dimensions={{{last}}}, to_apply=add",
    "distances": " m = {out} parameter(1)\n mb = {whole} broadcast(m), dimensions={{{kept}}}\n"
    " d = {whole} subtract(x, mb)\n p = {whole} multiply(d, d)\n"
    " ROOT r = {out} reduce(p, zero), dimensions={{{last}}}, to_apply=add",
    "added": " m = {out} parameter(1)\n s = {out} reduce(x, zero), dimensions={{{last}}}, to_apply=add\n"
    " ROOT r = {out} subtract(s, m)",
    "argmax": " i = s32[{dims}] iota(), iota_dimension={last}\n none = s32[] constant(0)\n"
    " ROOT r = ({out}, s32[{rest}]) reduce(x, i, low, none), dimensions={{{last}}}, to_apply=best",
    "first dims": " ROOT r = {t}[{n}] reduce(x, zero), dimensions={{{others}}}, to_apply=add",
}
FULL = [(128 * 40, 7), (3, 1000, 16), (89 * 23, 3), (4096, 32), (2053, 8)]
"""Dimensions, of which a tile has full vectors."""


def text(t: str, dims: tuple[int, ...], form: str) -> str:
    last = len(dims) - 1
    rest = ",".join(map(str, dims[:-1]))
    return (
        f"HloModule m\n{scalar_computation('add', t)}{ARGMAX.format(t=t)}ENTRY e {{\n"
        f" x = {t}[{','.join(map(str, dims))}] parameter(0)\n zero = {t}[] constant(0)\n low = {t}[] constant(-99)\n"
        + FORMS[form].format(
            t=t,
            dims=",".join(map(str, dims)),
            rest=rest,
            whole=f"{t}[{','.join(map(str, dims))}]",
            out=f"{t}[{rest}]",
            last=last,
            kept=",".join(map(str, range(last))),
            n=dims[-1],
            others=",".join(map(str, range(last))),
        )
        + "\n}\n"
    )


def arguments(t: str, dims: tuple[int, ...], form: str, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    more = {"products": [dims], "distances": [dims[:-1]], "added": [dims[:-1]]}.get(form, [])
    return [rng.integers(-3, 4, n).astype(DTYPES[t].stored) for n in (dims, *more)]


@given(
    st.lists(st.integers(1, 9), max_size=2),
    st.one_of(st.integers(1, 90), st.integers(1, 40).map(lambda n: 8 * n)),
    st.integers(1, 13),
    st.sampled_from(["f32", "bf16", "s32"]),
    st.sampled_from(list(FORMS)),
    st.sampled_from(["tiny", "small"]),
    st.integers(0, 99),
)
@examples(15, 500)
def test_any_rows(outer: list[int], n: int, k: int, t: str, form: str, chip: str, seed: int) -> None:
    dims = (*outer, n, k)
    check(text(t, dims, form), arguments(t, dims, form, seed), CHIPS[chip], most=0)


@pytest.mark.parametrize(("form", "dims"), one_in(4, dict.fromkeys(FORMS, FULL)))
def test_rows_of_full_vectors(dims: tuple[int, ...], form: str) -> None:
    check(text("f32", dims, form), arguments("f32", dims, form, 1), V3, most=0)


@pytest.mark.parametrize(
    ("dims", "form", "most"),
    [
        ((1 << 20, 2), "sum", 1.25),
        ((1 << 18, 8), "mean", 1.25),
        ((1 << 16, 32), "sum", 1.25),
        ((1 << 15, 33), "sum", 1.25),
        ((1 << 15, 64), "sum", 1.25),
        ((1 << 15, 96), "mean", 1.25),
        ((1 << 16, 16), "products", 1.25),
        ((1 << 16, 16), "distances", 1.75),
        ((700_000, 3), "argmax", 1.75),
    ],
)
def test_near_the_time_of_the_bytes(dims: tuple[int, ...], form: str, most: float) -> None:
    """A vector of elements that are not neighbours takes the vector unit 128 cycles."""
    cycles = simulate(compiled(text("f32", dims, form), V3).program, V3, mode="time").cycles
    moved = 4 * (2 if form == "products" else 1) * (dims[0] * dims[1]) + 4 * dims[0]
    assert cycles is not None
    assert cycles <= most * moved * V3.hbm.q / V3.hbm.p + 2 * V3.hbm.latency


@pytest.mark.parametrize("k", [64, 128])
def test_rows_of_narrow_types_up_to_a_whole_vector(k: int) -> None:
    """The cross-lane unit converts no type, but turns any."""
    dims = (1 << 15, k)
    cycles = simulate(compiled(text("bf16", dims, "sum"), V3).program, V3, mode="time").cycles
    assert cycles is not None
    assert cycles <= 2.1 * 2 * prod(dims) * V3.hbm.q / V3.hbm.p + 2 * V3.hbm.latency


def distances(rows: int, columns: int, k: int, other: str) -> str:
    """Of all pairs of rows of `x`, or of one of `x` and one of `y`."""
    n = rows if other == "x" else columns
    return f"""HloModule m
{scalar_computation("add")}
ENTRY e {{
 x = f32[{rows},{k}] parameter(0)
 y = f32[{columns},{k}] parameter(1)
 xb = f32[{rows},{n},{k}] broadcast(x), dimensions={{0,2}}
 yb = f32[{rows},{n},{k}] broadcast({other}), dimensions={{1,2}}
 d = f32[{rows},{n},{k}] subtract(xb, yb)
 p = f32[{rows},{n},{k}] multiply(d, d)
 zero = f32[] constant(0)
 ROOT r = f32[{rows},{n}] reduce(p, zero), dimensions={{2}}, to_apply=add
}}
"""


@pytest.mark.parametrize("k", [16, 64])
@pytest.mark.parametrize("other", ["x", "y"])
def test_distances_of_all_pairs(k: int, other: str) -> None:
    """What is repeated for all rows is turned, once, not the differences: 100 times as fast as rows across lanes."""
    program = compiled(distances(512, 256, k, other), V3).program
    cycles = simulate(program, V3, mode="time").cycles
    n = 512 if other == "x" else 256
    assert cycles is not None
    assert cycles < 2 * 512 * n * k * 3 / (V3.vpu.alu_slots * V3.vpu.lanes * V3.vpu.sublanes)


@pytest.mark.parametrize(
    ("rows", "columns", "k", "other", "kib", "turns"),
    [
        (136, 72, 64, "x", 16 << 10, 1),
        pytest.param(256, 128, 16, "y", 16 << 10, 1, marks=pytest.mark.slow),
        (136, 72, 64, "y", 128, 14),
        pytest.param(256, 128, 16, "x", 16 << 10, 1, marks=pytest.mark.slow),
        *(
            pytest.param(512, 256, *p, marks=pytest.mark.slow)
            for p in ((64, "x", 16 << 10, 64), (64, "y", 16 << 10, 32))
        ),
    ],
)
def test_values_of_distances(rows: int, columns: int, k: int, other: str, kib: int, turns: int) -> None:
    """Of one tile of columns, and of several."""
    rng = np.random.default_rng(0)
    args = [rng.integers(-3, 4, (n, k)).astype(np.float32) for n in (rows, columns)]
    chip = with_vmem(V3, kib << 10)
    program = check(distances(rows, columns, k, other), args, chip, most=0).program
    assert sum(i.op == "xlu.shuffle" for i in program.code) == turns


@pytest.fixture(scope="module")
def core() -> Iterator[Lockstep]:
    with Lockstep(CHIPS["tiny"]) as both:
        yield both


@pytest.mark.parametrize(("dims", "form"), [((8 * 24, 5), "sum"), ((97, 3), "products"), ((64, 4), "argmax")])
def test_lockstep(core: Lockstep, dims: tuple[int, ...], form: str) -> None:
    program = compiled(text("f32", dims, form)).program
    assert any(i.op == "xlu.shuffle" for i in program.code)
    given = [a.reshape(-1).view(np.uint8).copy() for a in arguments("f32", dims, form, 3)]
    results = [np.zeros(b.bytes, np.uint8) for b in program.buffers if b.role == "result"]
    result = core.run(Case(program, bind(program, given, results)))
    assert result.ok, result.difference


def test_pieces_of_short_rows_are_read_where_they_lie() -> None:
    """Cross products of many vectors: three pieces of columns, which become rows. Tiles were of four vectors each."""
    column, row = "f32[30000,1]", "f32[1,30000]"
    lines = [f" {x}{k} = {column} slice({x}), slice={{[0:30000], [{k}:{k + 1}]}}" for x in "ab" for k in range(3)]
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        lines += [f" p{k} = {column} multiply(a{i}, b{j})", f" q{k} = {column} multiply(a{j}, b{i})"]
        lines += [f" d{k} = {column} subtract(p{k}, q{k})", f" r{k} = {row} reshape(d{k})"]
    module = (
        "HloModule m\nENTRY e {\n a = f32[30000,3] parameter(0)\n b = f32[30000,3] parameter(1)\n"
        + "\n".join(lines)
        + "\n c = f32[3,30000] concatenate(r0, r1, r2), dimensions={0}\n"
        " ROOT t = f32[30000,3] transpose(c), dimensions={1,0}\n}\n"
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, (30000, 3)).astype(np.float32) for _ in range(2))
    assert len(compiled(module, V3).program.code) < 300
    check(module, [a, b], chip="small")
