"""Rows that a loop leaves to a later one: which of them are computed again, that values stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.modules import lowered
from systolith.compiler.groups import loop_residuals
from systolith.compiler.groups.loop_residuals import RecomputeRows
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import Chip
from tests.compiler.machine import TINY, Array, check, counting, with_vmem

LITTLE = {kib: with_vmem(TINY, kib << 10) for kib in (8, 16)}
"""Less memory, by KiB."""
ROW, ROWS = "f32[16,16]", "f32[4,16,16]"
SCALES = "f32[4,16]"
FORWARD = f"(s32[], {ROW}, {ROW}, {SCALES}, {ROWS}, {ROWS}, {ROWS}, {ROWS})"
BACKWARD = f"(s32[], {ROW}, {ROWS}, {ROWS}, {ROWS}, {ROWS}, {ROWS})"


def forward(count: int, other: str, scales: str) -> str:
    """The body of the loop that leaves rows; arguments as for `text`."""
    puts = "\n  ".join(
        f"wide{n} = f32[1,16,16] reshape({value})\n"
        f"  rows{n} = {ROWS} get-tuple-element(state), index={4 + n}\n"
        f"  put{n} = {ROWS} dynamic-update-slice(rows{n}, wide{n}, {at}, zero, zero)"
        for n, (value, at) in enumerate([("sum", "i"), ("tanh", "i"), ("square", other), ("scaled", "i")])
    )
    return f"""forward {{
  state = {FORWARD} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = {ROW} get-tuple-element(state), index=1
  w = {ROW} get-tuple-element(state), index=2
  scales = {SCALES} get-tuple-element(state), index=3
  zero = s32[] constant(0)
  end = s32[] constant({count - 1})
  turned = s32[] subtract(end, i)
  product = {ROW} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  sum = {ROW} add(product, x)
  tanh = {ROW} tanh(sum)
  square = {ROW} multiply(tanh, sum)
  scale = f32[1,16] dynamic-slice({scales}, i, zero), dynamic_slice_sizes={{1,16}}
  flat = f32[16] reshape(scale)
  wide = {ROW} broadcast(flat), dimensions={{1}}
  scaled = {ROW} multiply(square, wide)
  {puts}
  step = s32[] constant(1)
  next = s32[] add(i, step)
  ROOT all = {FORWARD} tuple(next, scaled, w, scales, put0, put1, put2, put3)
}}"""


def backward(count: int) -> str:
    """The body of the loop that reads them, the last one first."""
    takes = "\n  ".join(
        f"rows{n} = {ROWS} get-tuple-element(state), index={2 + n}\n"
        f"  wide{n} = f32[1,16,16] dynamic-slice(rows{n}, at, zero, zero), dynamic_slice_sizes={{1,16,16}}\n"
        f"  row{n} = {ROW} reshape(wide{n})"
        for n in range(4)
    )
    return f"""backward {{
  state = {BACKWARD} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  g = {ROW} get-tuple-element(state), index=1
  grads = {ROWS} get-tuple-element(state), index=6
  zero = s32[] constant(0)
  end = s32[] constant({count - 1})
  at = s32[] subtract(end, i)
  {takes}
  a = {ROW} multiply(g, row1)
  b = {ROW} multiply(a, row2)
  c = {ROW} subtract(b, row3)
  product = {ROW} dot(c, row0), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  wide = f32[1,16,16] reshape(product)
  put = {ROWS} dynamic-update-slice(grads, wide, at, zero, zero)
  step = s32[] constant(1)
  next = s32[] add(i, step)
  ROOT all = {BACKWARD} tuple(next, product, rows0, rows1, rows2, rows3, put)
}}"""


def text(count: int = 4, other: str = "i", result: bool = False, scales: str = "scales") -> str:
    """A loop that leaves rows of a sum, of two functions of it, and of one that layers scale; a loop that reads them.

    Args:
        count: iterations of both.
        other: where the rows of the second function are written.
        result: whether the rows of the first function are a result, too.
        scales: what each layer takes its scale of.
    """
    last = ", ".join(f"got{n}" for n in range(4))
    gots = "\n  ".join(f"got{n} = {ROWS} get-tuple-element(done), index={4 + n}" for n in range(4))
    known = f', backend_config={{"known_trip_count":{{"n":"{count}"}}}}'
    results = f"({ROW}, {ROWS}, {ROWS})" if result else f"({ROW}, {ROWS})"
    return f"""HloModule m

{forward(count, other, scales)}

{backward(count)}

{counting("going", FORWARD, count)}

{counting("coming", BACKWARD, count)}

ENTRY main {{
  x = {ROW} parameter(0)
  w = {ROW} parameter(1)
  scales = {SCALES} parameter(2)
  first = s32[] constant(0)
  one = f32[] constant(1)
  empty = {ROWS} broadcast(one), dimensions={{}}
  start = {FORWARD} tuple(first, x, w, scales, empty, empty, empty, empty)
  done = {FORWARD} while(start), condition=going, body=forward{known}
  {gots}
  begun = {BACKWARD} tuple(first, x, {last}, empty)
  back = {BACKWARD} while(begun), condition=coming, body=backward{known}
  g = {ROW} get-tuple-element(back), index=1
  grads = {ROWS} get-tuple-element(back), index=6
  ROOT all = {results} tuple(g, grads{", got1" if result else ""})
}}
"""


def arguments() -> list[Array]:
    rng = np.random.default_rng(0)
    return [0.3 * rng.standard_normal(dims).astype(np.float32) for dims in ((16, 16), (16, 16), (4, 16))]


def again(module: Module, chip: Chip = LITTLE[8]) -> list[str]:
    """The rows that a pass computes again."""
    found = run_pass(module, RecomputeRows(chip)).decisions
    return [d.chosen.split()[2] for d in found]


ALL = ["tanh", "square", "scaled"]


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ({}, ALL),
        ({"count": 3}, []),  # not every row is written: what the last one has is from before the loop
        ({"other": "turned"}, ["tanh", "scaled"]),  # rows that lie elsewhere are of other iterations
        ({"result": True}, ["square", "scaled"]),
        ({"scales": "x"}, ["tanh", "square"]),  # a row of what the writer changes
        ({"scales": "w"}, ["tanh", "square"]),  # of more rows: an index that is out of bounds means another one
    ],
)
def test_rows_that_others_give_are_computed_again(given: dict[str, object], rows: list[str]) -> None:
    source = text(**given)  # type: ignore[arg-type]
    module = parse_hlo(source)
    assert again(module) == rows
    for got, want in zip(evaluate(module, *arguments()), evaluate(parse_hlo(source), *arguments()), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    check(source, arguments(), LITTLE[8])


def test_what_is_not_read_any_more_is_not_carried() -> None:
    module = parse_hlo(text())
    run_pass(module, RecomputeRows(LITTLE[8]))
    forward, backward = (i for i in module.entry.instructions if i.opcode == "while")
    updates = [i for i in forward.computation("body").instructions if i.opcode == "dynamic-update-slice"]
    assert len(updates) == 1
    rows = [s for s in backward.shape.elements if s.dims == (4, 16, 16)]
    assert len(rows) == 2, "those that are left, and the gradients"


def attention(layers: int = 4, tokens: int = 64, features: int = 8) -> tuple[Callable[..., Any], list[Array]]:
    """The gradient of layers of attention in a scan, and its arguments."""

    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        q, k, v = (x @ part for part in w)
        scores = jnp.where(jnp.tri(tokens) > 0, q @ k.T, -1e9)
        return x + jax.nn.softmax(scores, axis=-1) @ v, None

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(jax.lax.scan(layer, x, w)[0] ** 2)

    rng = np.random.default_rng(1)
    shapes = (layers, 3, features, features), (tokens, features)
    return jax.value_and_grad(loss), [0.4 * rng.standard_normal(dims).astype(np.float32) for dims in shapes]


def test_scores_of_attention_are_multiplied_again() -> None:
    """Their product is over few features, so that the matrix units take less for it than HBM for the array."""
    step, given = attention(layers=2, tokens=16)
    with jax.default_matmul_precision("highest"):
        source = lowered(step, given)
    module = canonicalise(parse_hlo(source))
    assert again(module), "rows of 16 x 16"
    loops = [i for i in module.entry.instructions if i.opcode == "while"]
    assert not [s for loop in loops for s in loop.shape.elements if s.dims[1:] == (16, 16)]
    check(source, given, LITTLE[8])


def test_rows_are_left_as_they_are_made() -> None:
    """Heads of q, k and v, which attention takes transposed, are rows of the product that makes them."""

    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        q, k, v = (part.reshape(16, 2, 8).transpose(1, 0, 2) for part in jnp.split(x @ w, 3, axis=1))
        scores = jax.nn.softmax(q @ k.transpose(0, 2, 1), axis=-1)
        return x + jnp.tanh((scores @ v).transpose(1, 0, 2).reshape(16, 16)), None

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(jax.lax.scan(layer, x, w)[0] ** 2)

    rng = np.random.default_rng(1)
    given = [0.4 * rng.standard_normal(dims).astype(np.float32) for dims in ((2, 16, 48), (16, 16))]
    with jax.default_matmul_precision("highest"):
        source = lowered(jax.value_and_grad(loss), given)
    module = canonicalise(parse_hlo(source))
    again(module, LITTLE[16])
    rows = [s.dims for i in module.entry.instructions if i.opcode == "while" for s in i.shape.elements if s.dims]
    assert (2, 2, 16, 8) not in rows
    assert rows.count((2, 16, 16)) >= 2 * 4, "x, q, k and v, of both loops"
    check(source, given, LITTLE[16])


def test_products_over_many_features_are_not() -> None:
    step, given = attention(tokens=16, features=64)
    module = canonicalise(parse_hlo(lowered(step, given)))
    before = [i.opcode for i in module.instructions()].count("dot")
    again(module)
    assert [i.opcode for i in module.instructions()].count("dot") == before


@pytest.mark.parametrize("rows", [("0", "1"), pytest.param(("2", "3"), marks=pytest.mark.slow)])
def test_slices_of_rows_after_the_loops_are_computed_again(rows: tuple[str, str]) -> None:
    """As the gradient of the first layer, written out; a value of what the loop keeps is not there after it."""
    whole = ", ".join(f"[0:{n}]" for n in (16, 16))
    cut = "\n  ".join(
        f"cut{k} = f32[1,16,16] slice(got{n}), slice={{[{n}:{int(n) + 1}], {whole}}}\n  flat{k} = {ROW} reshape(cut{k})"
        for k, n in enumerate(rows)
    )
    end = f"ROOT all = ({ROW}, {ROWS}) tuple(g, grads)"
    beside = f"{cut}\n  beside = {ROW} add(flat0, flat1)\n  ROOT all = ({ROW}, {ROWS}, {ROW}) tuple(g, grads, beside)"
    source = text().replace(end, beside)
    assert source != text()
    module = parse_hlo(source)
    assert again(module) == (ALL if rows == ("0", "1") else ["tanh", "square"])
    for got, want in zip(evaluate(module, *arguments()), evaluate(parse_hlo(source), *arguments()), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    check(source, arguments(), LITTLE[8])


def test_only_loops_that_give_rows_to_others_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten loops, each of which begins with what the one before it leaves, nine pairs and not forty-five."""

    def chained(x: jax.Array) -> jax.Array:
        for _ in range(10):
            x = jax.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) + i, x)
        return x

    pairs = []
    whole = loop_residuals._Again.rows

    def counted(pair: loop_residuals._Again) -> Iterator[tuple[str, int]]:
        pairs.append(pair)
        return whole(pair)

    monkeypatch.setattr(loop_residuals._Again, "rows", counted)
    module = canonicalise(parse_hlo(lowered(chained, [jnp.zeros(64)])))
    assert sum(i.opcode == "while" for i in module.entry.instructions) == 10
    again(module)
    assert len(pairs) == 9
