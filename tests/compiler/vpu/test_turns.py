"""Transposes: the cross-lane unit turns tiles, to the same bits as the evaluator, near the time that HBM takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import BF16, F32, S8, DType
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_prologue import same_bits
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import check, compiled
from tests.examples import examples

V3 = load_chip("tpu_v3")

FORMS = {
    "alone": "ROOT r = {t}[{out}] transpose(x), dimensions={order}",
    "of a slice": "s = {t}[{dims}] slice(x), slice={cut}\n  ROOT r = {t}[{out}] transpose(s), dimensions={order}",
    "with another operand": "y = {t}[{out}] parameter(1)\n  t = {t}[{out}] transpose(x), dimensions={order}\n"
    "  ROOT r = {t}[{out}] subtract(y, t)",
    "repeated": "t = {t}[{out}] transpose(x), dimensions={order}\n  n = {t}[{out}] negate(t)\n"
    "  ROOT r = {t}[3,{out}] broadcast(n), dimensions={last}",
    "reversed": "v = {t}[{dims}] reverse(x), dimensions={{0}}\n  ROOT r = {t}[{out}] transpose(v), dimensions={order}",
}


def text(dims: Sequence[int], order: Sequence[int], dtype: str, form: str = "alone") -> str:
    cut = "{" + ",".join(f"[1:{n + 1}]" for n in dims) + "}"
    given = [n + 2 for n in dims] if form == "of a slice" else dims
    lines = FORMS[form].format(
        t=dtype,
        dims=",".join(map(str, dims)),
        out=",".join(str(dims[d]) for d in order),
        order="{" + ",".join(map(str, order)) + "}",
        last="{" + ",".join(str(d + 1) for d in range(len(dims))) + "}",
        cut=cut,
    )
    return f"HloModule t\nENTRY e {{\n  x = {dtype}[{','.join(map(str, given))}] parameter(0)\n  {lines}\n}}\n"


@st.composite
def transposes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rank = draw(st.integers(2, 4))
    dims = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 7, 8, 16, 33]), min_size=rank, max_size=rank)))
    return dims, tuple(draw(st.permutations(range(rank))))


@given(transposes(), st.sampled_from([F32, BF16, S8]), st.sampled_from(list(FORMS)), st.integers(0, 2**32 - 1))
@examples(20, 40)
def test_any_transpose(case: tuple[tuple[int, ...], tuple[int, ...]], dtype: DType, form: str, seed: int) -> None:
    dims, order = case
    rng = np.random.default_rng(seed)
    shapes = [[n + 2 for n in dims] if form == "of a slice" else list(dims)]
    shapes += [[dims[d] for d in order]] if form == "with another operand" else []
    args = [rng.integers(-60, 60, s).astype(dtype.stored) for s in shapes]
    check(text(dims, order, dtype.name, form), args, most=0)


def test_payloads_of_nans_stay() -> None:
    bits = np.random.default_rng(0).integers(0x7F800001, 0x7FFFFFFF, (40, 24)).astype(np.uint32)
    program = compiled(text((40, 24), (1, 0), "f32"), "tiny").program
    assert any(i.op == "xlu.shuffle" for i in program.code)
    got = simulate(program, load_chip("tiny"), {0: bits.reshape(-1).view(np.uint8)}, "full", hostile=True).outputs[0]
    np.testing.assert_array_equal(got.view(np.uint32), bits.T)


@pytest.mark.parametrize(
    ("dims", "order", "dtype", "most"),
    [
        ((2048, 2048), (1, 0), "f32", 1.25),
        ((1000, 3000), (1, 0), "f32", 1.25),
        ((2048, 2048), (1, 0), "bf16", 1.25),
        ((8, 512, 12, 64), (0, 2, 1, 3), "f32", 1.25),
        ((8, 512, 12, 64), (0, 2, 3, 1), "f32", 1.25),
        ((8, 64, 56, 56), (0, 2, 3, 1), "f32", 1.25),
        ((2048, 2048), (1, 0), "s8", 2.25),
    ],
)
def test_a_transpose_takes_the_time_of_its_bytes(
    dims: tuple[int, ...], order: tuple[int, ...], dtype: str, most: float
) -> None:
    """The cross-lane unit moves 128 elements a cycle, whatever their width: bytes are half as fast as HBM."""
    cycles = simulate(compiled(text(dims, order, dtype), V3).program, V3, mode="time").cycles
    size = {"f32": 4, "bf16": 2, "s8": 1}[dtype]
    bound = 2 * size * prod(dims) * V3.hbm.q / V3.hbm.p
    assert cycles is not None
    assert cycles <= most * bound


def test_a_group_that_reads_nothing_is_computed() -> None:
    """An iota that a product reads is a group without loads: there is nothing to turn, and all to compute."""
    body = "ENTRY e {\n  i = f32[15] iota(), iota_dimension=0\n  ROOT d = f32[] dot(i, i), lhs_contracting_dims={0},"
    check(f"HloModule m\n{body} rhs_contracting_dims={{0}}\n}}\n", [])


SYMMETRIC = """HloModule s
ENTRY e {{
 x = f32[{n},{n}] parameter(0)
 y = f32[{n},{n}] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 t = f32[{n},{n}] transpose(y), dimensions={{1,0}}
 f = f32[{n},{n}] reverse(y), dimensions={{1}}
 s = f32[{n},{n}] subtract(y, t)
 ROOT r = f32[{n},{n}] {root}
}}
"""


@pytest.mark.parametrize("root", ["negate(s)", "multiply(s, f)"])
def test_what_is_read_as_it_lies_and_transposed(root: str) -> None:
    x = np.random.default_rng(0).integers(-4, 5, (48, 48)).astype(np.float32)
    check(SYMMETRIC.format(n=48, root=root), [x], most=0)


def test_a_value_and_its_transpose_take_no_strided_vectors() -> None:
    """A vector of 8 x 128 strided elements takes 128 cycles."""
    made = compiled(SYMMETRIC.format(n=512, root="negate(s)"), V3)
    groups = {g["name"]: g["cycles"] for g in simulate(made.program, V3, mode="time").to_json()["groups"]}
    del groups["y"]
    assert sum(groups.values()) < 0.3 * 128 * 512 * 512 / 1024


def test_tiles_that_lie_in_one_part_of_a_concatenation() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[6,11,2,2] parameter(0)
  y = f32[6,11,1,2] parameter(1)
  z = f32[6,11,1,2] parameter(2)
  both = f32[6,11,2,2] concatenate(y, z), dimensions={2}
  sum = f32[6,11,2,2] add(x, both)
  turned = f32[2,2,6,11] transpose(sum), dimensions={2,3,0,1}
  w = f32[2,2,11,1] parameter(3)
  ROOT p = f32[2,2,6,1] dot(turned, w), lhs_batch_dims={0,1}, rhs_batch_dims={0,1},
    lhs_contracting_dims={3}, rhs_contracting_dims={2}
}"""
    rng = np.random.default_rng(0)
    dims = (6, 11, 2, 2), (6, 11, 1, 2), (6, 11, 1, 2), (2, 2, 11, 1)
    same_bits(text, [rng.standard_normal(d).astype(np.float32) for d in dims], load_chip("tiny"))


def _rotated(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


@pytest.mark.parametrize(
    ("function", "shapes", "most"),
    [
        (lambda x, y: jnp.stack([x, y], -1), [(2, 512, 16, 32)] * 2, 1.1),
        (lambda x: x[..., ::2] - x[..., 1::2], [(2, 512, 16, 64)], 1.25),
        (_rotated, [(2, 512, 16, 64), (512, 1, 32), (512, 1, 32)], 1.6),
    ],
    ids=["stacked", "alternate", "rotated"],
)
def test_pairs_take_the_time_of_their_bytes(
    function: Callable[..., jax.Array], shapes: Sequence[tuple[int, ...]], most: float
) -> None:
    """As interleaved rotary embeddings read and make them: one part after the other, with lanes of neighbours."""
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    made = hlo(function, args)
    (result,) = (array.nbytes for array in evaluate(parse_hlo(made), *args))
    cycles = simulate(compiled(made, V3).program, V3, mode="time").cycles
    assert cycles is not None
    assert cycles <= most * (sum(a.nbytes for a in args) + result) * V3.hbm.q / V3.hbm.p + 2 * V3.hbm.latency
    small = [a[:, :6] if a.ndim == 4 else a[:6] for a in args]
    check(hlo(function, small), small, "small", most=1e-6)
