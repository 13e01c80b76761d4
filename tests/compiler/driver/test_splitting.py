"""A group too large for one instruction runs as several: limits of streams, bounds, loops and kernels are no user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from systolith.isa.chip import load_chip
from tests.compiler.driver.random_limits import random_wide_module
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import CHIPS, TINY, Array, compare, compiled, error, run, with_vmem

V3 = load_chip("tpu_v3")
ADD = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b)\n}\n"


def integers(*dims: int) -> Array:
    """Small whole numbers, which every order of a sum adds exactly."""
    return np.random.default_rng(len(dims)).integers(-4, 5, dims).astype(np.float32)


def shown(numbers: Any) -> str:
    return ",".join(map(str, numbers))


# Programs of JAX, against XLA.


def lstm_step(state: Any, x: jax.Array, wx: jax.Array, wh: jax.Array, b: jax.Array) -> Any:
    h, c = state
    i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, -1)
    c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def lstm_training(xs: jax.Array, y: jax.Array, *weights: jax.Array) -> Any:
    def loss(weights: Any) -> jax.Array:
        start = jnp.zeros_like(y[0])
        got: jax.Array = lax.scan(lambda s, x: lstm_step(s, x, *weights), (start, start), xs)[1]
        return jnp.mean((got - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return value, [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]


def curvature(f: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], Any]:
    """The gradient of a gradient."""
    first = jax.grad(lambda x: (f(x) * jnp.arange(x.shape[-1])).sum())
    return jax.grad(lambda x: (first(x) ** 2).sum())


def recurrence(a: jax.Array, b: jax.Array) -> Any:
    def combine(x: Any, y: Any) -> Any:
        return x[0] * y[0], y[0] * x[1] + y[1]

    return jax.grad(lambda a, b: (lax.associative_scan(combine, (a, b))[1] ** 2).sum(), (0, 1))(a, b)


LSTM = [(3, 2, 3), (3, 2, 4), (3, 16), (4, 16), (16,)]
PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, ...]]]] = {
    "lstm_training": (lstm_training, LSTM),
    "elu": (curvature(jax.nn.elu), [(4, 6)]),
    "mish": (curvature(jax.nn.mish), [(4, 6)]),
    "squareplus": (curvature(jax.nn.squareplus), [(4, 6)]),
    "scan_rows": (lambda x: lax.associative_scan(jnp.add, x), [(8, 5)]),
    "scan_middle": (lambda x: lax.associative_scan(jnp.multiply, x, axis=2), [(2, 3, 7, 2)]),
    "scan_gradient": (recurrence, [(6, 3), (6, 3)]),
    "sum_of_stack": (lambda *xs: jnp.stack(xs, 2).sum(2), [(5, 7)] * 13),
    "many_operands": (
        lambda *xs: xs[0].T @ xs[1] + sum(x * k for k, x in enumerate(xs[2:])),
        [(5, 7)] * 2 + [(7, 7)] * 16,
    ),
    "sum_of_rolls": (lambda x: sum((jnp.roll(x, k) * k for k in range(25)), x).sum(0), [(40, 3)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_jax(name: str) -> None:
    f, shapes = PROGRAMS[name]
    rng = np.random.default_rng(0)
    args: list[Array] = [(rng.standard_normal(s) / 2).astype(np.float32) for s in shapes]
    text = str(jax.jit(f).lower(*args).compiler_ir("hlo").as_hlo_text(print_large_constants=True))  # type: ignore[union-attr]
    got = run(compiled(text, TINY, "highest").program, TINY, args)
    for a, b in zip(got, run_xla(text, *args), strict=True):
        assert error(a, b) < 2e-5


# One operation, or a few, that ask for too much; against the evaluator.


def pads(*paddings: str) -> str:
    """Pads of a pad; each is low_high_interior of every dimension, with an `x` between those."""
    dims, lines = [3, 4], ["x = f32[3,4] parameter(0)"]
    for k, padding in enumerate(paddings):
        for d, part in enumerate(padding.split("x")):
            low, high, inner = map(int, part.split("_"))
            dims[d] += low + high + (dims[d] - 1) * inner
        lines += [
            f"c{k} = f32[] constant({k + 2})",
            f"y{k} = f32[{shown(dims)}] pad({'xy'[k > 0]}{k - 1 if k else ''}, c{k}), padding={padding}",
        ]
    return "HloModule m\nENTRY e {\n " + "\n ".join(lines[:-1]) + f"\n ROOT {lines[-1]}\n}}\n"


@pytest.mark.parametrize(
    "paddings",
    [
        ("3_-2_0x2_3_0", "-1_3_1x-1_2_0"),
        ("1_1_0x1_1_0", "-1_3_0x-2_2_0", "2_-1_0x3_0_0"),
        ("3_-2_0x2_3_0", "-1_3_1x-1_2_0", "0_1_1x-2_-2_2", "2_3_1x2_-1_1"),
        ("0_0_2x1_0_1", "0_0_1x0_2_2", "1_1_3x0_0_1"),
    ],
)
def test_pads_of_pads(paddings: tuple[str, ...]) -> None:
    compare(pads(*paddings), [integers(3, 4)], TINY)


def test_a_pad_of_a_reshape_of_a_pad() -> None:
    lines = (
        "x = f32[26] parameter(0)", "c = f32[] constant(2)", "d = f32[] constant(3)",
        "p = f32[30] pad(x, c), padding=2_2", "s = f32[5,6] reshape(p)", "ROOT q = f32[7,8] pad(s, d), padding=1_1x1_1",
    )  # fmt: skip
    compare("HloModule m\nENTRY e {\n " + "\n ".join(lines) + "\n}\n", [integers(26)], TINY)


@pytest.mark.parametrize("chip", [TINY, V3], ids=["tiny", "tpu_v3"])
@pytest.mark.parametrize(
    ("given", "dims", "over"),
    [
        ((0,), (5, 256), (1,)),
        ((0, 2), (5, 2, 64), (1, 2)),
        ((0, 2), (5, 3, 8), (1, 2)),
        ((0, 1), (5, 64, 2), (1, 2)),
        ((0, 1, 3), (5, 2, 3, 64), (1, 2, 3)),
        ((), (300, 5), (0, 1)),
    ],
)
def test_reductions_over_what_a_broadcast_repeats(
    chip: Any, given: tuple[int, ...], dims: tuple[int, ...], over: tuple[int, ...]
) -> None:
    own = [dims[d] for d in given]
    kept = [n for d, n in enumerate(dims) if d not in over]
    text = (
        f"HloModule m\n{ADD}ENTRY e {{\n x = f32[{shown(own)}] parameter(0)\n z = f32[] constant(0)\n"
        f" b = f32[{shown(dims)}] broadcast(x), dimensions={{{shown(given)}}}\n"
        f" ROOT r = f32[{shown(kept)}] reduce(b, z), dimensions={{{shown(over)}}}, to_apply=add\n}}\n"
    )
    compare(text, [integers(*own)], chip)


def test_a_window_padded_and_dilated_in_five_dimensions() -> None:
    text = (
        f"HloModule m\n{ADD}ENTRY e {{\n x = f32[2,3,2,2,2] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT r = f32[4,6,4,4,4] reduce-window(x, z), window={size=2x2x2x2x2 pad=1_1x1_1x1_1x1_1x1_1"
        " lhs_dilate=2x2x2x2x2}, to_apply=add\n}\n"
    )
    compare(text, [integers(2, 3, 2, 2, 2)], TINY)


def test_a_convolution_padded_in_five_dimensions() -> None:
    window = "size=2x2x1x1x1 pad=1_1x1_1x1_1x1_1x1_1"
    text = (
        "HloModule m\nENTRY e {\n x = f32[1,1,2,2,1,1,1] parameter(0)\n w = f32[2,1,2,2,1,1,1] parameter(1)\n"
        f" ROOT r = f32[1,2,3,3,3,3,3] convolution(x, w), window={{{window}}},"
        " dim_labels=bf01234_oi01234->bf01234\n}\n"
    )
    compare(text, [integers(1, 1, 2, 2, 1, 1, 1), integers(2, 1, 2, 2, 1, 1, 1)], TINY)


def folding(operands: int, operations: int) -> str:
    """A computation of so many operands, each of which takes part in some operations with large constants."""
    names = [f"{s}{k}" for s in "ab" for k in range(operands)]
    lines = [f"{name} = f32[] parameter({k})" for k, name in enumerate(names)]
    for k in range(operands):
        lines.append(f"s{k}.0 = f32[] {('maximum', 'minimum')[k % 2]}(a{k}, b{k})")
        for n in range(operations):
            lines += [f"c{k}.{n} = f32[] constant({n + 9})", f"s{k}.{n + 1} = f32[] minimum(s{k}.{n}, c{k}.{n})"]
    last = [f"s{k}.{operations}" for k in range(operands)]
    root = f"({shown(['f32[]'] * operands)}) tuple({shown(last)})" if operands > 1 else f"f32[] copy({last[0]})"
    return "fold {\n " + "\n ".join([*lines, f"ROOT t = {root}"]) + "\n}\n"


@pytest.mark.parametrize(("operands", "operations"), [(7, 0), (1, 90), (2, 40)])
@pytest.mark.parametrize("windowed", [False, True], ids=["reduce", "reduce-window"])
def test_reductions_by_a_computation_that_no_kernel_holds(operands: int, operations: int, windowed: bool) -> None:
    given = shown([f"x{k}" for k in range(operands)] + ["z"] * operands)
    how = "window={size=2x3 stride=1x2 pad=1_0x1_1}" if windowed else "dimensions={1}"
    one = "f32[5,5]" if windowed else "f32[5]"
    lines = [f"x{k} = f32[5,9] parameter({k})" for k in range(operands)] + ["z = f32[] constant(1)"]
    shape = f"({shown([one] * operands)})" if operands > 1 else one
    lines.append(f"ROOT r = {shape} reduce{'-window' * windowed}({given}), {how}, to_apply=fold")
    text = f"HloModule m\n{folding(operands, operations)}ENTRY e {{\n " + "\n ".join(lines) + "\n}\n"
    compare(text, [integers(5, 9) + k for k in range(operands)], TINY)


def test_a_map_of_a_hundred_operations() -> None:
    fold = [" a = f32[] parameter(0)", " b = f32[] parameter(1)", " v0 = f32[] add(a, b)"]
    fold += [f" c{k} = f32[] constant({k})\n v{k + 1} = f32[] maximum(v{k}, c{k})" for k in range(100)]
    text = (
        "HloModule m\nf {\n" + "\n".join(fold) + "\n ROOT r = f32[] subtract(v100, a)\n}\nENTRY e {\n"
        " x = f32[3,5] parameter(0)\n y = f32[3,5] parameter(1)\n"
        " ROOT m = f32[3,5] map(x, y), dimensions={0,1}, to_apply=f\n}\n"
    )
    compare(text, [integers(3, 5), integers(3, 5)], TINY)


def test_a_product_of_operands_of_many_dimensions() -> None:
    """Free and contracted dimensions in turns: no two of their loops merge."""
    rank = 11
    dims = (2,) * rank
    odd = tuple(range(1, rank, 2))
    text = (
        f"HloModule m\nENTRY e {{\n x = f32[{shown(dims)}] parameter(0)\n y = f32[{shown(dims)}] parameter(1)\n"
        f" ROOT r = f32[{shown((2,) * (2 * (rank - len(odd))))}] dot(x, y), lhs_contracting_dims={{{shown(odd)}}},"
        f" rhs_contracting_dims={{{shown(odd)}}}\n}}\n"
    )
    compare(text, [integers(*dims), integers(*dims)], V3)


@pytest.mark.parametrize("rank", [8, 9, 11])
def test_movement_of_many_dimensions(rank: int) -> None:
    """Strides of which no two merge: of a copy, a transpose, a broadcast, a sum."""
    dims = (2,) * (rank - 2) + (3, 3)
    odd, even, back = range(1, rank, 2), range(0, rank, 2), range(rank)[::-1]
    some, column, turned = [1 + d % 2 for d in range(rank)], [dims[d] for d in odd], dims[::-1]
    starts = shown(["i"] * rank)
    lines = (
        f"x = f32[{shown(dims)}] parameter(0)", "i = s32[] parameter(1)", f"y = f32[{shown(column)}] parameter(2)",
        f"a = f32[{shown(some)}] dynamic-slice(x, {starts}), dynamic_slice_sizes={{{shown(some)}}}",
        f"b = f32[{shown(turned)}] transpose(x), dimensions={{{shown(back)}}}",
        f"wide = f32[{shown(dims)}] broadcast(y), dimensions={{{shown(odd)}}}",
        f"both = f32[{shown(dims)}] add(x, wide)", "z = f32[] constant(0)",
        f"c = f32[{shown(column)}] reduce(both, z), dimensions={{{shown(even)}}}, to_apply=add",
        f"ROOT r = (f32[{shown(some)}], f32[{shown(turned)}], f32[{shown(column)}]) tuple(a, b, c)",
    )  # fmt: skip
    text = f"HloModule m\n{ADD}ENTRY e {{\n " + "\n ".join(lines) + "\n}\n"
    compare(text, [integers(*dims), np.asarray(1, np.int32), integers(*column)], TINY)


REDUCED_PADS = (
    "HloModule m\n"
    + scalar_computation("maximum", "s32", name="largest")
    + """ENTRY e {
  x = s32[1,2] parameter(0)
  one = s32[] constant(1)
  holes = s32[1,5] pad(x, one), padding=0_0_0x1_1_1
  back = s32[1,5] reverse(holes), dimensions={1}
  more = s32[1,15] pad(back, one), padding=0_0_0x2_0_2
  some = s32[1,5] slice(more), slice={[0:1], [2:7]}
  zero = s32[] constant(0)
  all = s32[] reduce(some, zero), dimensions={0,1}, to_apply=largest
  ROOT t = (s32[1,5], s32[]) tuple(back, all)
}
"""
)


def test_groups_that_do_not_fold_together_stay_apart() -> None:
    compare(REDUCED_PADS, [integers(1, 2).astype(np.int32)], TINY)


REVERSED_PAD = """HloModule m
ENTRY e {
  x = s32[3,9,2,5] parameter(0)
  two = s32[] constant(2)
  wide = s32[3,17,5,8] pad(x, two), padding=0_0_0x-1_1_1x0_1_2x0_3_0
  back = s32[3,17,5,8] reverse(wide), dimensions={1}
  split = s32[2,17,2,2,3,5] reshape(back)
  ROOT r = s32[17,5,2,2,2,3] transpose(split), dimensions={1,5,0,3,2,4}
}
"""


def test_a_row_that_padding_cuts_off_is_not_read() -> None:
    """Bounds of two coordinates of one sum leave it out together."""
    compare(REVERSED_PAD, [integers(3, 9, 2, 5).astype(np.int32)], with_vmem(TINY, 16 << 10))


# The compiler's records, and random modules.


def test_what_is_stored_is_said() -> None:
    args = [jnp.ones((5, 7), jnp.float32)] * 13
    largest = jax.jit(lambda *xs: jnp.stack(xs, 2).argmax(2))
    text = str(largest.lower(*args).compiler_ir("hlo").as_hlo_text())  # type: ignore[union-attr]
    (said,) = (d for d in compiled(text, TINY).explain if d.rejected and d.rejected[0].what == "one group")
    assert said.numbers == {"bytes stored": 5 * 7 * 13 * 4}
    assert "bounds" in said.rejected[0].why


@pytest.mark.parametrize("seed", range(8))
def test_random_modules_beyond_the_limits(seed: int) -> None:
    compare(*random_wide_module(seed), CHIPS[(16, 32, 256)[seed % 3]])
