"""Reductions by any computation, of any element type: the chip, the evaluator, XLA and exact arithmetic."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate, in_any_order
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import dtype
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import Array, compiled, run
from tests.compiler.vpu.harness import run_groups
from tests.examples import THOROUGH, examples, one_in, seeds

SHAPES = [((3, 40), (1,)), ((40, 3), (0,)), ((3, 40), (0, 1)), ((2, 5, 33), (0, 2)), ((129,), (0,)), ((70, 2), (0,))]
NARROW = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}


def show(dims: tuple[int, ...]) -> str:
    return ",".join(map(str, dims))


def module(
    body: str,
    types: Sequence[str],
    inits: Sequence[object],
    dims: tuple[int, ...],
    reduced: tuple[int, ...],
    given: bool = False,
) -> str:
    """A reduction of arrays of some types; accumulators are a0, a1, ..., elements b0, b1, ..., `body` ends in the root.

    Args:
        given: the initial values are parameters of the module.
    """
    n = len(types)
    parameters = [f" {'ab'[k // n]}{k % n} = {types[k % n]}[] parameter({k})" for k in range(2 * n)]
    kept = tuple(size for d, size in enumerate(dims) if d not in reduced)
    shapes = [f"{t}[{show(kept)}]" for t in types]
    lines = [f" x{k} = {t}[{show(dims)}] parameter({k})" for k, t in enumerate(types)]
    start = [f"parameter({n + k})" if given else f"constant({value})" for k, value in enumerate(inits)]
    lines += [f" i{k} = {t}[] {start[k]}" for k, t in enumerate(types)]
    operands = ", ".join(f"{c}{k}" for c in "xi" for k in range(n))
    result = shapes[0] if n == 1 else f"({', '.join(shapes)})"
    lines.append(f" ROOT r = {result} reduce({operands}), dimensions={{{show(reduced)}}}, to_apply=f")
    return "HloModule m\n\nf {\n" + "\n".join([*parameters, body]) + "\n}\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def on_chip(text: str, arrays: list[Array], chip: str = "tiny") -> list[Array]:
    return run(compiled(text, chip).program, load_chip(chip), arrays)


def small(seed: int, t: str, dims: tuple[int, ...]) -> Array:
    """Whole numbers from -4 (or 0) to 4."""
    low, high = (0, 2) if t == "pred" else (0 if t.startswith("u") else -4, 5)
    return np.random.default_rng(seed).integers(low, high, dims).astype(dtype(t).stored)


# Integers.


OF_INTEGERS = [*product(("add", "multiply", "maximum", "xor"), ("u8", "u16", "u32", "s8", "s16", "s32", "pred"))]
OF_INTEGERS.remove(("add", "pred"))  # XLA has it as or; `or` itself is the same row


@pytest.mark.parametrize(
    ("op", "t"), [pytest.param(*p, marks=pytest.mark.slow if n % 3 else ()) for n, p in enumerate(OF_INTEGERS)]
)
def test_integers_along_every_dimension(op: str, t: str) -> None:
    neutral = {"add": 0, "multiply": 1, "maximum": -(2 ** (dtype(t).bits - 1)) if t[0] == "s" else 0, "xor": 0}[op]
    init = str(bool(neutral)).lower() if t == "pred" else neutral
    lines, shapes, arrays = [f" i = {t}[] constant({init})"], list[str](), list[Array]()
    for n, (dims, reduced) in enumerate(SHAPES[:4]):
        shapes.append(f"{t}[{show(tuple(size for d, size in enumerate(dims) if d not in reduced))}]")
        lines.append(f" x{n} = {t}[{show(dims)}] parameter({n})")
        lines.append(f" r{n} = {shapes[-1]} reduce(x{n}, i), dimensions={{{show(reduced)}}}, to_apply=f")
        whole = np.random.default_rng(2).integers(0, 256, dims).astype(dtype(t).stored)
        arrays.append(small(1, t, dims) if t == "pred" else whole)
    lines.append(f" ROOT r = ({', '.join(shapes)}) tuple(r0, r1, r2, r3)")
    text = f"HloModule m\n{scalar_computation(op, t, 'f')}ENTRY e {{\n" + "\n".join(lines) + "\n}\n"
    for got, want in zip(on_chip(text, arrays), run_xla(text, *arrays), strict=True):
        np.testing.assert_array_equal(got, want.reshape(got.shape))


# Sums and products of narrow floats.


def exact(op: str, x: Array, init: float) -> tuple[float, float]:
    """The exact result of a line, and the sum of magnitudes that its error is relative to."""
    values = [init, *map(float, x)]
    if op == "add":
        return math.fsum(values), math.fsum(map(abs, values))
    return math.prod(values), abs(math.prod(values))


def assert_rounded_once(t: str, op: str, got: Array, lines: Array, init: float) -> None:
    """Each result is its line's, accumulated in f32 and rounded once."""
    info = dtype(t).finfo
    for value, line in zip(got.reshape(-1), lines, strict=True):
        want, spread = exact(op, line, init)
        room = float(info.eps) / 2 * abs(want) + len(line) * 2.0**-24 * spread + float(info.smallest_subnormal) / 2
        assert abs(float(value) - want) <= room * (1 + 2.0**-20), (t, op, value, want)


@pytest.mark.parametrize("t", NARROW)
@pytest.mark.parametrize("op", ["add", "multiply"])
@pytest.mark.parametrize("variadic", [False, True])
def test_sums_and_products_accumulate_in_f32_and_round_once(t: str, op: str, variadic: bool) -> None:
    init, low, high = (0, -1.5, 2.0) if op == "add" else (1, 0.8, 1.2)
    for dims, reduced in (((3, 100), (1,)), ((100, 3), (0,))):
        x = np.random.default_rng(3).uniform(low, high, dims).astype(NARROW[t])
        body = f" ROOT s = {t}[] {op}(a0, b0)"
        if variadic:
            body = f" s = {t}[] {op}(a0, b0)\n m = f32[] maximum(a1, b1)\n ROOT r = ({t}[], f32[]) tuple(s, m)"
        types, arrays = ([t, "f32"], [x, np.ones(dims, np.float32)]) if variadic else ([t], [x])
        text = module(body, types, [init, 0][: len(types)], dims, reduced)
        lines = np.moveaxis(x, reduced[0], -1).reshape(3, 100)
        for got in (on_chip(text, arrays), evaluate(parse_hlo(text), *arrays)):
            assert_rounded_once(t, op, got[0], lines, init)


@pytest.mark.parametrize("t", NARROW)
def test_running_sums_accumulate_in_f32_and_round_once(t: str) -> None:
    n = 96
    text = (
        f"HloModule m\nf {{\n a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n ROOT s = {t}[] add(a, b)\n}}\n"
        "ENTRY e {\n"
        f" x = {t}[{n},2] parameter(0)\n i = {t}[] constant(0)\n ROOT r = {t}[{n},2] reduce-window(x, i),"
        f" window={{size={n}x1 pad={n - 1}_0x0_0}}, to_apply=f\n}}\n"
    )
    x = np.random.default_rng(3).uniform(0.5, 1.5, (n, 2)).astype(NARROW[t])
    for (got,) in (on_chip(text, [x]), evaluate(parse_hlo(text), x)):
        for k in (0, 1, n // 2, n - 1):
            assert_rounded_once(t, "add", got[k], x[: k + 1].T, 0)


# Any computation.

Values = tuple[int, ...]
FREE: dict[str, tuple[list[str], str, Callable[[Values, Values], Values]]] = {
    "sum and one more": (
        ["s32"],
        " s = s32[] add(a0, b0)\n k = s32[] constant(1)\n ROOT r = s32[] add(s, k)",
        lambda a, b: (a[0] + b[0] + 1,),
    ),
    "circle": (
        ["s32"],
        " s = s32[] add(a0, b0)\n p = s32[] multiply(a0, b0)\n ROOT r = s32[] add(s, p)",
        lambda a, b: (a[0] + b[0] + a[0] * b[0],),
    ),
    "complex product": (
        ["s32", "s32"],
        " p = s32[] multiply(a0, b0)\n q = s32[] multiply(a1, b1)\n x = s32[] multiply(a0, b1)\n"
        " y = s32[] multiply(a1, b0)\n"
        " re = s32[] subtract(p, q)\n im = s32[] add(x, y)\n ROOT r = (s32[], s32[]) tuple(re, im)",
        lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]),
    ),
    "sum and product": (
        ["f32", "s32"],
        " s = f32[] add(a0, b0)\n p = s32[] multiply(a1, b1)\n ROOT r = (f32[], s32[]) tuple(s, p)",
        lambda a, b: (a[0] + b[0], a[1] * b[1]),
    ),
    "argmax": (
        ["f32", "s32"],
        " gt = pred[] compare(a0, b0), direction=GT\n eq = pred[] compare(a0, b0), direction=EQ\n"
        " lt = pred[] compare(a1, b1), direction=LT\n tie = pred[] and(eq, lt)\n p = pred[] or(gt, tie)\n"
        " v = f32[] select(p, a0, b0)\n k = s32[] select(p, a1, b1)\n ROOT r = (f32[], s32[]) tuple(v, k)",
        lambda a, b: a if (a[0], -a[1]) > (b[0], -b[1]) else b,
    ),
}
"""Associative and commutative: element types, the computation, and the same on integers."""


@examples(8, 16)
@given(st.sampled_from(sorted(FREE)), st.sampled_from(SHAPES), st.booleans(), st.integers(-3, 3))
@example("sum and product", SHAPES[2], False, 2)
@example("complex product", SHAPES[0], True, 2)
def test_initial_values_come_in_once(
    name: str, shape: tuple[tuple[int, ...], tuple[int, ...]], given_: bool, init: int
) -> None:
    types, body, function = FREE[name]
    dims, reduced = shape
    inits = (init, 1)[: len(types)]
    text = module(body, types, inits, dims, reduced, given_)
    arrays = [small(k + 5, t, dims) for k, t in enumerate(types)]
    starts = [np.asarray(v, dtype(t).stored) for v, t in zip(inits, types, strict=True)]
    assert in_any_order(parse_hlo(text).computation("f"))
    kept = tuple(d for d in range(len(dims)) if d not in reduced)
    rows = np.prod([dims[d] for d in kept], dtype=int)
    lines = [x.transpose(*kept, *reduced).reshape(rows, -1).astype(int).tolist() for x in arrays]
    exact_ = [reduce(function, zip(*(line[k] for line in lines), strict=True), inits) for k in range(rows)]
    given_arrays = [*arrays, *starts] if given_ else arrays
    for results in (on_chip(text, given_arrays), evaluate(parse_hlo(text), *given_arrays)):
        for n, (got, t) in enumerate(zip(results, types, strict=True)):
            want = np.array([(r[n] + 2**31) % 2**32 - 2**31 for r in exact_]).astype(dtype(t).stored)
            np.testing.assert_array_equal(got.reshape(-1), want)


@pytest.mark.parametrize(
    "body",
    [
        " ROOT r = f32[] constant(3)",
        " z = f32[] constant(0)\n ROOT r = f32[] maximum(a0, z)",
        " ROOT r = f32[] copy(a0)",
        " ROOT r = f32[] copy(b0)",
        " ROOT r = f32[] negate(b0)",
        " h = f32[] constant(0.5)\n p = f32[] multiply(a0, h)\n ROOT r = f32[] add(p, b0)",
        " ROOT r = f32[] subtract(a0, b0)",
    ],
)
def test_computations_that_ignore_an_operand_or_depend_on_the_order(body: str) -> None:
    for k, t in enumerate(("f32", "bf16")):
        for dims, reduced in SHAPES if THOROUGH else SHAPES[k::2]:
            text = module(body.replace("f32", t), [t], [7], dims, reduced)
            x = small(9, t, dims)
            (got,), (want,) = on_chip(text, [x]), evaluate(parse_hlo(text), x)
            np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def random_body(rng: random.Random, types: list[str]) -> str:
    """Expressions over accumulators and elements; results may be equal, swapped, constant, or parameters."""
    n = len(types)
    values = {t: [f"{c}{k}" for c in "ab" for k in range(n) if types[k] == t] for t in types}
    lines: list[str] = []

    def new(t: str, call: str) -> None:
        values[t].append(f"v{len(lines)}")
        lines.append(f" v{len(lines)} = {t}[] {call}")

    for _ in range(rng.randint(1, 5)):
        t = rng.choice(types)
        pick = rng.random()
        a, b = rng.choice(values[t]), rng.choice(values[t])
        if pick < 0.15:
            new(t, f"constant({'true' if t == 'pred' else rng.randint(0, 3)})")
        elif pick < 0.3:
            lines.append(f" p{len(lines)} = pred[] compare({a}, {b}), direction={rng.choice(('LT', 'EQ', 'GE'))}")
            name = lines[-1].split()[0]
            new(t, f"select({name}, {rng.choice(values[t])}, {rng.choice(values[t])})")
        else:
            logic = ("and", "or", "xor") if t != "f32" else ()
            arithmetic = () if t == "pred" else ("add", "subtract", "multiply", "maximum", "minimum")
            new(t, f"{rng.choice((*logic, *arithmetic))}({a}, {b})")
    roots = [rng.choice(values[t]) for t in types]
    if n == 1:
        return "\n".join([*lines, f" ROOT r = {types[0]}[] copy({roots[0]})"])
    return "\n".join([*lines, f" ROOT r = ({', '.join(f'{t}[]' for t in types)}) tuple({', '.join(roots)})"])


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_random_computations(seed: int) -> None:
    rng = random.Random(seed)
    types = rng.choices(("s32", "u32", "f32", "u8", "s16", "pred"), k=rng.choice((1, 1, 2, 2, 3)))
    dims, reduced = rng.choice(SHAPES)
    text = module(
        random_body(rng, types), types, ["false" if t == "pred" else rng.randint(0, 2) for t in types], dims, reduced
    )
    arrays = [small(seed + k, t, dims) for k, t in enumerate(types)]
    got, want = on_chip(text, arrays), evaluate(parse_hlo(text), *arrays)
    for a, b, t in zip(got, want, types, strict=True):
        if t == "f32" and in_any_order(parse_hlo(text).computation("f")):
            np.testing.assert_allclose(a, b, rtol=1e-5)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("t", ["pred", "s32"])
def test_conditionals_inside_scalar_computations(t: str) -> None:
    """In `map` and in reductions: every branch is computed, one is selected."""
    choice = "compare(a, b), direction=LT" if t == "pred" else "convert(a)"
    named = "true_computation=up, false_computation=down" if t == "pred" else "branch_computations={up, down}"
    text = (
        "HloModule m\nup {\n x = f32[] parameter(0)\n ROOT y = f32[] negate(x)\n}\n"
        "down {\n x = f32[] parameter(0)\n ROOT y = f32[] add(x, x)\n}\n"
        f"f {{\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n p = {t}[] {choice}\n"
        f" ROOT r = f32[] conditional(p, a, b), {named}\n}}\n"
        "ENTRY e {\n x = f32[4,9] parameter(0)\n y = f32[4,9] parameter(1)\n z = f32[] constant(1)\n"
        " m = f32[4,9] map(x, y), dimensions={0,1}, to_apply=f\n"
        " s = f32[4] reduce(m, z), dimensions={1}, to_apply=f\n ROOT r = (f32[4,9], f32[4]) tuple(m, s)\n}\n"
    )
    arrays = [small(3, "f32", (4, 9)), small(4, "f32", (4, 9))]
    for got, want, theirs in zip(
        on_chip(text, arrays), evaluate(parse_hlo(text), *arrays), run_xla(text, *arrays), strict=True
    ):
        np.testing.assert_array_equal(got, want)
        if got.ndim == 2:
            np.testing.assert_array_equal(got, theirs)


CHOSEN = {
    "() to an array": ("()", "tuple()", " ROOT r = f32[] constant({k})", "f32[]", ""),
    "a tuple to an array": (
        "(f32[], (f32[], f32[]))",
        "tuple(a, pair)",
        " q = (f32[], f32[]) get-tuple-element(t), index=1\n v = f32[] get-tuple-element(t), index=0\n"
        " w = f32[] get-tuple-element(q), index=1\n o = {op}(v, w)\n ROOT r = f32[] copy(o)",
        "f32[]",
        "",
    ),
    "an array to a tuple": (
        "f32[]",
        "copy(b)",
        " o = {op}(t, t)\n ROOT r = (f32[], f32[]) tuple(o, t)",
        "(f32[], f32[])",
        " l = f32[] get-tuple-element(c), index=0\n h = f32[] get-tuple-element(c), index=1\n"
        " ROOT r = f32[] subtract(l, h)",
    ),
    "() to ()": ("()", "tuple()", " ROOT r = () tuple()", "()", " ROOT r = f32[] add(a, b)"),
}


@pytest.mark.parametrize("selector", ["pred", "s32"])
@pytest.mark.parametrize("name", CHOSEN)
def test_branches_of_scalar_computations_take_and_give_tuples(name: str, selector: str) -> None:
    """In `map`, also through a call: any number of values, none too."""
    given, argument, body, result, after = CHOSEN[name]
    branches = "".join(
        f"{branch} {{\n t = {given} parameter(0)\n{body.format(k=k, op=f'f32[] {op}')}\n}}\n"
        for k, (branch, op) in enumerate((("up", "add"), ("down", "multiply")))
    )
    choice = "compare(a, b), direction=LT" if selector == "pred" else "convert(a)"
    named = (
        "true_computation=up, false_computation=down" if selector == "pred" else "branch_computations={up, down, up}"
    )
    arguments = ", ".join("u" for _ in range(2 if selector == "pred" else 3))
    scalar = (
        f" a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        f" pair = (f32[], f32[]) tuple(b, a)\n u = {given} {argument}\n p = {selector}[] {choice}\n"
        f" {'c' if after else 'ROOT c'} = {result} conditional(p, {arguments}), {named}\n{after}\n}}\n"
    )
    text = (
        f"HloModule m\n{branches}f {{\n{scalar}"
        "g {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] call(a, b), to_apply=f\n}\n"
        "ENTRY e {\n x = f32[4] parameter(0)\n y = f32[4] parameter(1)\n"
        " ROOT m = f32[4] map(x, y), dimensions={0}, to_apply=g\n}\n"
    )
    x, y = np.array([-1, 0, 1.25, 3], np.float32), np.array([0.5, 0, 1.5, -2], np.float32)
    (got,), (want,) = on_chip(text, [x, y]), evaluate(parse_hlo(text), x, y)
    alone = f"HloModule m\n{branches}ENTRY e {{\n{scalar}"  # XLA's own map takes no such branches
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got, [run_xla(alone, *pair)[0] for pair in zip(x, y, strict=True)])


def test_a_loop_in_a_scalar_computation_is_refused_by_name() -> None:
    text = (
        "HloModule m\nc {\n s = (f32[], f32[]) parameter(0)\n a = f32[] get-tuple-element(s), index=0\n"
        " z = f32[] constant(3)\n ROOT p = pred[] compare(a, z), direction=LT\n}\n"
        "b {\n s = (f32[], f32[]) parameter(0)\n a = f32[] get-tuple-element(s), index=0\n"
        " n = f32[] add(a, a)\n ROOT t = (f32[], f32[]) tuple(n, a)\n}\n"
        "f {\n a = f32[] parameter(0)\n t = (f32[], f32[]) tuple(a, a)\n"
        " w = (f32[], f32[]) while(t), condition=c, body=b\n ROOT r = f32[] get-tuple-element(w), index=0\n}\n"
        "ENTRY e {\n x = f32[9] parameter(0)\n ROOT r = f32[9] map(x), dimensions={0}, to_apply=f\n}\n"
    )
    with pytest.raises(CompileError, match=r":17:2: while 'w' .* not an operation of the vector unit"):
        on_chip(text, [small(3, "f32", (9,))])


@pytest.mark.parametrize(("name", "budget"), one_in(2, dict.fromkeys((*sorted(FREE), "halving sum"), (200, 700))))
def test_chunks_change_neither_order_nor_initial_values(name: str, budget: int) -> None:
    halving = " h = f32[] constant(0.5)\n p = f32[] multiply(a0, h)\n ROOT r = f32[] add(p, b0)"
    types, body = (["f32"], halving) if name == "halving sum" else FREE[name][:2]
    for dims, reduced in SHAPES if THOROUGH else SHAPES[budget == 700 :: 2]:
        text = module(body, types, [3, 2][: len(types)], dims, reduced)
        for outcome in run_groups(text, *(small(k, t, dims) for k, t in enumerate(types)), budget=budget):
            outcome.assert_same_bits()
