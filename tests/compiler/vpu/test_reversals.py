"""What is read in reverse along its innermost dimension, or at every second index: to the same bits as the evaluator,
near the time that HBM takes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.vpu.shuffles import shuffle_cycles
from systolith.hw.lockstep import Case, Lockstep
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import BF16, F32, S8, DType
from systolith.isa.instruction import Space
from systolith.runtime.memories import bind
from systolith.sim.simulate import simulate
from tests.compiler.machine import check, compiled
from tests.examples import examples

TINY, V3 = load_chip("tiny"), load_chip("tpu_v3")

FORMS = {
    "alone": "ROOT r = {t}[{dims}] reverse(x), dimensions={{{last}}}",
    "all": "ROOT r = {t}[{dims}] reverse(x), dimensions={{{every}}}",
    "with itself": "v = {t}[{dims}] reverse(x), dimensions={{{last}}}\n  ROOT r = {t}[{dims}] subtract(v, x)",
    "with another": "n = {t}[{dims}] negate(x)\n  v = {t}[{dims}] reverse(n), dimensions={{{last}}}\n"
    "  y = {t}[{dims}] parameter(1)\n  ROOT r = {t}[{dims}] subtract(v, y)",
    "twice": "v = {t}[{dims}] reverse(x), dimensions={{{last}}}\n  w = {t}[{dims}] reverse(x), dimensions={{{every}}}\n"
    "  ROOT r = {t}[{dims}] subtract(v, w)",
}


def reversal(t: str, dims: tuple[int, ...], form: str) -> str:
    shown, every = ",".join(map(str, dims)), ",".join(map(str, range(len(dims))))
    lines = FORMS[form].format(t=t, dims=shown, last=len(dims) - 1, every=every)
    return f"HloModule m\nENTRY e {{\n  x = {t}[{shown}] parameter(0)\n  {lines}\n}}\n"


def strided(t: str, dims: tuple[int, ...], steps: tuple[int, ...], back: bool = False) -> str:
    made = [-(-n // s) for n, s in zip(dims, steps, strict=True)]
    cut = ", ".join(f"[0:{n}:{s}]" for n, s in zip(dims, steps, strict=True))
    body = f"s = {t}{made} slice(x), slice={{{cut}}}\n  ROOT r = {t}{made} "
    body += f"reverse(s), dimensions={{{len(dims) - 1}}}" if back else "negate(s)"
    return f"HloModule m\nENTRY e {{\n  x = {t}{list(dims)} parameter(0)\n  {body}\n}}\n"


DIMS = st.one_of(
    st.lists(st.integers(1, 40), min_size=1, max_size=4).filter(lambda d: np.prod(d) <= 20_000),
    st.tuples(st.integers(1, 900)),
)


@given(DIMS, st.sampled_from([F32, BF16, S8]), st.sampled_from(list(FORMS)), st.integers(0, 2**32 - 1))
@examples(20, 300)
def test_any_reversal(dims: list[int], t: DType, form: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    args = [rng.integers(-60, 60, dims).astype(t.stored) for _ in range(2 if form == "with another" else 1)]
    check(reversal(t.name, tuple(dims), form), args, most=0)


@given(DIMS, st.data(), st.sampled_from([F32, BF16, S8]), st.booleans(), st.integers(0, 2**32 - 1))
@examples(20, 300)
def test_any_strided_slice(dims: list[int], data: st.DataObject, t: DType, back: bool, seed: int) -> None:
    steps = tuple(data.draw(st.lists(st.integers(1, 5), min_size=len(dims), max_size=len(dims))))
    x = np.random.default_rng(seed).integers(-60, 60, dims).astype(t.stored)
    check(strided(t.name, tuple(dims), steps, back), [x], most=0)


def interleaved(t: str, dims: tuple[int, ...], step: int, firsts: tuple[int, int], flip: bool) -> str:
    """The difference of two slices of every `step`-th element."""
    count = (dims[-1] - max(firsts) - 1) // step + 1
    made = [*dims[:-1], count]
    lines = []
    for name, first in zip("ab", firsts, strict=True):
        cut = ", ".join([f"[0:{n}]" for n in dims[:-1]] + [f"[{first}:{first + (count - 1) * step + 1}:{step}]"])
        lines.append(f" {name} = {t}{made} slice(x), slice={{{cut}}}")
    if flip:
        lines.append(f" c = {t}{made} reverse(b), dimensions={{{len(dims) - 1}}}")
    lines.append(f" ROOT r = {t}{made} subtract(a, {'c' if flip else 'b'})")
    return f"HloModule m\nENTRY e {{\n x = {t}{list(dims)} parameter(0)\n" + "\n".join(lines) + "\n}\n"


@given(DIMS, st.integers(2, 5), st.data(), st.sampled_from([F32, BF16, S8]), st.booleans(), st.integers(0, 2**32 - 1))
@examples(30, 400)
def test_elements_that_alternate(
    dims: list[int], step: int, data: st.DataObject, t: DType, flip: bool, seed: int
) -> None:
    most = st.integers(0, min(step, dims[-1]) - 1)
    text = interleaved(t.name, tuple(dims), step, (data.draw(most), data.draw(most)), flip)
    check(text, [np.random.default_rng(seed).integers(-60, 60, dims).astype(t.stored)], most=0)


def array(strides: tuple[int, ...], dims: tuple[int, ...], offset: int = 0) -> Array:
    steps = tuple(4 * s for s in strides)
    return Array(Buf("x", Space.VMEM, 1 << 20), F32, dims, steps, (0,) * len(dims), 4 * offset)


@pytest.mark.parametrize("dims", [(256, 1024), (65536,), (65536 + 77,), (4096, 64)])
def test_two_copies_turn_a_tile_around(dims: tuple[int, ...]) -> None:
    """Each at 128 elements a cycle (or a row), where one copy would take one at a time."""
    n = int(np.prod(dims))
    rows = (dims[1],) if len(dims) == 2 else ()
    one, other = array((*rows, 1), dims), array((*rows, -1), dims, dims[-1] - 1)
    assert shuffle_cycles(V3, one, other) <= 2 * n // min(dims[-1], V3.vpu.lanes) + 3 * V3.xlu.latency + 77
    assert shuffle_cycles(V3, other, one) == shuffle_cycles(V3, one, other)


@pytest.mark.parametrize(
    ("text", "moved", "most"),
    [
        (reversal("f32", (2048, 1024), "alone"), 2.0, 1.1),
        (reversal("f32", (2097152,), "alone"), 2.0, 1.1),
        (reversal("f32", (2000001,), "alone"), 2.0, 1.1),
        (reversal("f32", (64, 512, 64), "all"), 2.0, 2.1),
        (reversal("f32", (2048, 1024), "with another"), 3.0, 1.1),
        (strided("f32", (2048, 1024), (2, 1)), 1.0, 1.1),
        (strided("f32", (2048, 1024), (2, 1), True), 1.0, 1.1),
        (strided("f32", (2048, 1024), (1, 2), True), 1.5, 1.25),
        (strided("f32", (32, 8, 8, 1024), (1, 3, 4, 1)), 1.0 / 4, 1.25),
        (interleaved("f32", (2048, 1024), 2, (0, 1), False), 1.5, 2.1),
    ],
)
def test_near_the_time_of_the_bytes(text: str, moved: float, most: float) -> None:
    """A vector of 8 x 128 elements that are not neighbours takes the vector unit 128 cycles."""
    cycles = simulate(compiled(text, V3).program, V3, mode="time").cycles
    assert cycles is not None
    assert cycles <= most * moved * 4 * 2048 * 1024 * V3.hbm.q / V3.hbm.p + 2 * V3.hbm.latency


def test_only_the_rows_that_are_read_are_moved() -> None:
    """In a sum, too."""
    adder = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}\n"
    text = f"""HloModule m
{adder}ENTRY e {{
  x = f32[64,128] parameter(0)
  s = f32[16,128] slice(x), slice={{[3:64:4], [0:128]}}
  z = f32[] constant(0)
  ROOT r = f32[16] reduce(s, z), dimensions={{1}}, to_apply=add
}}
"""
    check(text, [np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)])
    moved = sum(simulate(compiled(text).program, TINY, mode="time").groups()[0]["hbm_bytes"].values())
    assert moved < 1.1 * 4 * 16 * 129


@pytest.fixture(scope="module")
def core() -> Iterator[Lockstep]:
    with Lockstep(TINY) as both:
        yield both


@pytest.mark.parametrize(
    "text",
    [
        reversal("f32", (24, 40), "alone"),
        reversal("bf16", (203,), "alone"),
        reversal("s8", (9, 33), "with another"),
        strided("f32", (12, 45), (1, 2), True),
        interleaved("f32", (24, 64), 2, (0, 1), True),
    ],
)
def test_lockstep(core: Lockstep, text: str) -> None:
    program = compiled(text).program
    assert any(i.op == "xlu.shuffle" for i in program.code)
    rng = np.random.default_rng(0)
    buffers = [b for b in program.buffers if b.role == "parameter"]
    args = [rng.integers(0, 200, b.bytes).astype(np.uint8) for b in buffers]
    results = [np.zeros(b.bytes, np.uint8) for b in program.buffers if b.role == "result"]
    result = core.run(Case(program, bind(program, args, results)))
    assert result.ok, result.difference
