"""Elements of a few parts side by side, as complex numbers have: read and written one part after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.vpu.shuffles import shuffle_cycles
from systolith.hw.lockstep import Case, Lockstep
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DTYPES, dtype
from systolith.isa.instruction import Space, Stream
from systolith.runtime.arrays import random_array
from systolith.runtime.memories import bind
from systolith.sim.simulate import simulate
from tests.compiler.machine import check, compiled, run
from tests.examples import examples

TINY, V3 = load_chip("tiny"), load_chip("tpu_v3")


def movement(t: str, dims: tuple[int, ...], order: tuple[int, ...]) -> str:
    made = [dims[d] for d in order]
    return (
        f"HloModule m\nENTRY e {{\n x = {t}{list(dims)} parameter(0)\n"
        f" ROOT r = {t}{made} transpose(x), dimensions={{{', '.join(map(str, order))}}}\n}}\n"
    )


@given(
    t=st.sampled_from(["f32", "bf16", "s8", "u16", "f64"]),
    n=st.integers(60, 400),
    k=st.integers(2, 5),
    rows=st.integers(1, 3),
    joins=st.booleans(),
)
@examples(12, 200)
def test_transposes_of_short_rows(t: str, n: int, k: int, rows: int, joins: bool) -> None:
    dims = (rows, k, n) if joins else (rows, n, k)
    x = random_array(np.random.default_rng(n), dtype(t), dims)
    (got,) = run(compiled(movement(t, dims, (0, 2, 1))).program, TINY, [x])
    np.testing.assert_array_equal(got.view(np.uint8), np.ascontiguousarray(x.swapaxes(1, 2)).view(np.uint8))


@given(t=st.sampled_from(["c64", "s64", "u64"]), dims=st.lists(st.integers(1, 40), min_size=1, max_size=3))
@examples(4, 100)
def test_elements_of_two_parts(t: str, dims: list[int]) -> None:
    shape = f"{t}{dims}"
    text = (
        f"HloModule m\nENTRY e {{\n x = {shape} parameter(0)\n y = {shape} parameter(1)\n"
        f" s = {shape} add(x, y)\n p = {shape} multiply(s, x)\n ROOT r = ({shape}, {shape}) tuple(s, p)\n}}\n"
    )
    rng = np.random.default_rng(sum(dims))
    check(text, [random_array(rng, DTYPES[t], tuple(dims)) for _ in range(2)])


@pytest.mark.parametrize("parts", [2, 7, 16])
def test_neighbours_along_a_few_short_dimensions_are_a_row_of_lanes(parts: int) -> None:
    """Elements of some parts each, which are to lie apart, or the other way round: 128 a cycle."""
    buf, size = Buf("x", Space.VMEM, 1 << 20), 4

    def array(strides: tuple[int, int]) -> Array:
        return Array(buf, DTYPES["f32"], (16384, parts), tuple(s * size for s in strides), (0, 0))

    together, apart = array((parts, 1)), array((1, 16384))
    cycles = 16384 * parts // V3.vpu.lanes + V3.xlu.latency
    assert shuffle_cycles(V3, together, apart) == shuffle_cycles(V3, apart, together) == cycles


@pytest.mark.parametrize("body", ["negate(x)", "multiply(x, x)"])
def test_pairs_near_the_time_of_their_transfers(body: str) -> None:
    """Read and written a pair at a time by the vector unit, they took 7 times as long."""
    text = f"HloModule m\nENTRY e {{\n x = c64[262144] parameter(0)\n ROOT r = c64[262144] {body}\n}}\n"
    moved = transfer_cycles(2 * 262144 * 8, V3)
    cycles = simulate(compiled(text, V3).program, V3, mode="time").cycles
    assert cycles is not None
    assert cycles < 3 * moved


@pytest.mark.parametrize(("t", "dims", "order"), [("f32", (97, 3), (1, 0)), ("bf16", (5, 6, 40), (2, 0, 1))])
def test_loops_that_merge_on_one_side_only_in_lockstep(t: str, dims: tuple[int, ...], order: tuple[int, ...]) -> None:
    program = compiled(movement(t, dims, order)).program
    copies = [i for i in program.code if i.op == "xlu.shuffle"]
    sides = [[s for s in i.args.values() if isinstance(s, Stream)] for i in copies]
    assert any(len({len(program.patterns[s.pattern].counts) for s in both}) > 1 for both in sides)
    x = random_array(np.random.default_rng(1), dtype(t), dims)
    result = np.zeros(x.nbytes, np.uint8)
    with Lockstep(TINY) as core:
        outcome = core.run(Case(program, bind(program, [x.reshape(-1).view(np.uint8).copy()], [result])))
    assert outcome.ok, outcome.difference
