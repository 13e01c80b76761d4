from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.integer_products import ExpandIntegerProducts
from systolith.isa.chip import load_chip
from systolith.runtime.arrays import random_array
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import check, compiled, run


def text(draw: st.DataObject) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """A dot with its dimensions in any order."""
    counts = [
        draw.draw(st.integers(0, n), label=what) for what, n in (("batch", 1), ("contracted", 2), ("m", 1), ("n", 2))
    ]
    sizes = [[draw.draw(st.integers(1, 5)) for _ in range(n)] for n in counts]
    batch, contracted, m, n = sizes
    left = (
        [("b", i) for i in range(len(batch))]
        + [("k", i) for i in range(len(contracted))]
        + [("m", i) for i in range(len(m))]
    )
    right = left[: len(batch) + len(contracted)] + [("n", i) for i in range(len(n))]
    left, right = draw.draw(st.permutations(left)), draw.draw(st.permutations(right))
    size = {"b": batch, "k": contracted, "m": m, "n": n}

    def dims(side: list[tuple[str, int]]) -> tuple[int, ...]:
        return tuple(size[axis][i] for axis, i in side)

    def where(side: list[tuple[str, int]], axis: str, count: int) -> str:
        return ",".join(str(side.index((axis, i))) for i in range(count))

    # Free dimensions come in the operand's order.
    free = [size["m"][i] for a, i in left if a == "m"] + [size["n"][i] for a, i in right if a == "n"]
    shape = ",".join(map(str, [*batch, *free]))
    body = (
        f"HloModule d\nENTRY e {{\n a = s32[{','.join(map(str, dims(left)))}] parameter(0)\n"
        f" b = s16[{','.join(map(str, dims(right)))}] parameter(1)\n"
        f" ROOT d = s32[{shape}] dot(a, b), lhs_batch_dims={{{where(left, 'b', len(batch))}}},"
        f" lhs_contracting_dims={{{where(left, 'k', len(contracted))}}},"
        f" rhs_batch_dims={{{where(right, 'b', len(batch))}}},"
        f" rhs_contracting_dims={{{where(right, 'k', len(contracted))}}}\n}}\n"
    )
    return body, dims(left), dims(right)


def arguments(left: tuple[int, ...], right: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(-(2**31), 2**31, left).astype(np.int32),
        rng.integers(-(2**15), 2**15, right).astype(np.int16),
    ]


@given(st.data())
def test_the_expansion_has_the_same_value(draw: st.DataObject) -> None:
    body, left, right = text(draw)
    arrays = arguments(left, right)
    (want,) = evaluate(parse_hlo(body), *arrays)
    module = parse_hlo(body)
    assert ExpandIntegerProducts().run(module)
    verify(module)
    assert not any(i.opcode == "dot" for i in module.instructions())
    (got,) = evaluate(module, *arrays)
    np.testing.assert_array_equal(got, want)


def test_dots_of_eight_bits_stay() -> None:
    body = (
        "HloModule d\nENTRY e {\n a = s8[4,5] parameter(0)\n b = s8[5,6] parameter(1)\n"
        " ROOT d = s32[4,6] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    assert not ExpandIntegerProducts().run(parse_hlo(body))


def test_on_the_chip() -> None:
    body = (
        "HloModule d\nENTRY e {\n a = s32[9,33] parameter(0)\n b = s16[33,7] parameter(1)\n"
        " ROOT d = s32[9,7] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    check(body, arguments((9, 33), (33, 7)), "tiny")


PRODUCTS = {
    "dot": "ROOT r = {r}[5,6] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    "convolution": (
        "a = {t}[1,5,7,1] reshape(x)\n b = {u}[2,3,1,7] reshape(y)\n"
        " ROOT r = {r}[1,3,5,7] convolution(a, b), window={{size=2x3 pad=0_0x0_0 rhs_dilate=2x1}},"
        " dim_labels=b01f_01io->b01f"
    ),
}
QUICK = [
    ("s8", "s8", "s8"),
    ("u16", "u16", "s32"),
    ("s32", "s32", "s32"),
    ("pred", "pred", "pred"),
    ("s16", "s16", "f32"),
    ("u8", "u8", "f32"),
    ("s64", "s64", "s64"),
    ("f64", "f64", "f32"),
    ("f32", "f64", "bf16"),
]
NARROW = 6
"""So many of them have no words of 64 bits."""
TYPES = [
    *((t, t, t) for t in ("u8", "s16", "u16", "u32", "s64", "u64")),
    *((t, t, "s32") for t in ("u8", "s16", "u32", "s64")),
    ("s8", "s32", "s32"), ("u8", "u64", "u64"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "t", "u", "r"),
    [
        pytest.param(name, *types, marks=() if n < (len(QUICK) if name == "dot" else NARROW) else pytest.mark.slow)
        for name in PRODUCTS
        for n, types in enumerate((*QUICK, *TYPES))
    ],
)
def test_products_of_all_types_as_xla_computes_them(name: str, t: str, u: str, r: str) -> None:
    head = f" x = {t}[5,7] parameter(0)\n y = {u}[7,6] parameter(1)\n"
    body = PRODUCTS[name].format(t=t, u=u, r=r)
    module = f"HloModule m\nENTRY e {{\n{head} {body}\n}}\n"
    rng = np.random.default_rng(3)
    given = [random_array(rng, p.shape.dtype, p.dims) for p in parse_hlo(module).entry.parameters]
    (got,) = run(compiled(module).program, load_chip("tiny"), given)
    (wanted,) = run_xla(module, *given)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("t", "sizes", "most"),
    [
        ("s32", (1, 512, 512, 512), 400_000),  # along lanes it took 17 M cycles
        ("s32", (64, 128, 256, 128), 700_000),  # and partial sums of all results at once, which did not fit
        ("s64", (64, 128, 256, 128), 5_000_000),
    ],
)
def test_sums_of_large_dots_are_beside_each_other_in_lanes(t: str, sizes: tuple[int, int, int, int], most: int) -> None:
    b, m, k, n = sizes
    module = (
        f"HloModule m\nENTRY e {{\n x = {t}[{b},{m},{k}] parameter(0)\n y = {t}[{b},{k},{n}] parameter(1)\n"
        f" ROOT r = {t}[{b},{m},{n}] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},"
        " lhs_contracting_dims={2}, rhs_contracting_dims={1}\n}\n"
    )
    chip = load_chip("tpu_v3")
    cycles = simulate(compiled(module, chip).program, chip, mode="time").cycles
    assert cycles is not None
    assert cycles < most
