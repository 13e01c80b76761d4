"""Parts of one array that batched products read and make: as a stack, bit for bit, where blocks gain by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.groups.stacked_heads import StackHeads
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.isa.chip import load_chip
from tests.compiler.gemm.test_transposed import cycles
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import compare
from tests.compiler.passes.differential import assert_unchanged

CHIP = load_chip("tpu_v3")


def gradients(
    batch: int = 2, heads: int = 3, length: int = 8, size: int = 4, parts: int = 3, dtype: str = "f32", op: str = ""
) -> str:
    """Scores times some slices of one array for each head, which are joined again, and the sums of that over rows.

    `op`: elementwise operations between the products and what is joined.
    """
    width, whole = heads * size, parts * heads * size
    lines = []
    for n in range(parts):
        lines += [
            f" s{n} = {dtype}[{batch},{length},{width}] slice(x), slice={{[0:{batch}], [0:{length}],"
            f" [{n * width}:{(n + 1) * width}]}}",
            f" h{n} = {dtype}[{batch},{length},{heads},{size}] reshape(s{n})",
            f" t{n} = {dtype}[{batch},{heads},{length},{size}] transpose(h{n}), dimensions={{0,2,1,3}}",
            f" p{n} = {dtype}[{batch},{heads},{length},{size}] dot(w, t{n}), lhs_batch_dims={{0,1}},"
            " rhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}",
            f" o{n} = {dtype}[{batch},{heads},{length},{size}] {op}(p{n})" if op else "",
            f" b{n} = {dtype}[{batch},{length},{heads},{size}] transpose({'o' if op else 'p'}{n}),"
            " dimensions={0,2,1,3}",
            f" r{n} = {dtype}[{batch},{length},{width}] reshape(b{n})",
        ]
    joined = ", ".join(f"r{n}" for n in range(parts))
    body = "\n".join(line for line in lines if line)
    return f"""HloModule m
{scalar_computation("add", dtype)}
ENTRY e {{
 x = {dtype}[{batch},{length},{whole}] parameter(0)
 w = {dtype}[{batch},{heads},{length},{length}] parameter(1)
 zero = {dtype}[] constant(0)
{body}
 c = {dtype}[{batch},{length},{whole}] concatenate({joined}), dimensions={{2}}
 a = {dtype}[{whole}] reduce(c, zero), dimensions={{0,1}}, to_apply=add
 ROOT t = ({dtype}[{batch},{length},{whole}], {dtype}[{whole}]) tuple(c, a)
}}
"""


def shapes(module: Module, opcode: str) -> set[tuple[int, ...]]:
    return {i.dims for i in module.entry.instructions if i.opcode == opcode}


@given(st.integers(1, 3), st.integers(2, 4), st.integers(1, 6), st.integers(2, 5), st.integers(2, 4), st.booleans())
def test_slices_and_concatenations_of_stacks_give_the_same_bits(
    batch: int, heads: int, length: int, size: int, parts: int, negated: bool
) -> None:
    module = parse_hlo(gradients(batch, heads, length, size, parts, op="negate" if negated else ""))
    made = assert_unchanged(module, StackHeads())
    assert shapes(made, "slice") == {(batch, length, 1, heads, size)}
    assert shapes(made, "concatenate") == {(batch, length, parts, heads, size)}
    assert shapes(made, "reduce") == {(parts, heads, size)}


@pytest.mark.parametrize("dtype", ["bf16", "s32", "u8"])
def test_of_any_type(dtype: str) -> None:
    made = assert_unchanged(parse_hlo(gradients(dtype=dtype)), StackHeads())
    assert shapes(made, "concatenate") == {(2, 8, 3, 3, 4)}


def test_heads_without_elements() -> None:
    made = assert_unchanged(parse_hlo(gradients(size=0)), StackHeads())
    assert shapes(made, "slice") == {(2, 8, 0)}


def test_what_is_not_all_of_products_is_joined_as_it_is() -> None:
    module = parse_hlo(gradients().replace("concatenate(r0, r1, r2)", "concatenate(r0, r1, s2)"))
    made = assert_unchanged(module, StackHeads())
    assert shapes(made, "concatenate") == {(2, 8, 36)}
    assert shapes(made, "slice") == {(2, 8, 12), (2, 8, 1, 3, 4)}


def test_heads_that_no_product_has_as_a_batch_dimension_stay_merged() -> None:
    text = gradients(heads=8, size=8)
    for n in range(3):
        dot = text[text.index(f" p{n} =") : text.index(f" b{n} =")]
        text = text.replace(dot, f" p{n} = f32[2,8,8,8] add(t{n}, t{n})\n")
    assert not StackHeads().run(parse_hlo(text))


def test_slices_that_begin_within_a_part_stay() -> None:
    text = gradients().replace("[2,8,36] parameter", "[2,8,48] parameter")
    for n in range(3):
        text = text.replace(f"[{12 * n}:{12 * n + 12}]", f"[{12 * n + 2}:{12 * n + 14}]")
    assert shapes(assert_unchanged(parse_hlo(text), StackHeads()), "slice") == {(2, 8, 12)}


def test_a_sum_along_what_is_joined_stays() -> None:
    text = gradients().replace("f32[36] reduce(c, zero), dimensions={0,1}", "f32[2,8] reduce(c, zero), dimensions={2}")
    made = assert_unchanged(parse_hlo(text.replace("f32[36])", "f32[2,8])")), StackHeads())
    assert shapes(made, "concatenate") == {(2, 8, 3, 3, 4)}
    assert shapes(made, "reduce") == {(2, 8)}


def test_long_chains_and_many_ways_to_a_product_are_looked_at_once() -> None:
    doubled = "\n".join(f" y{n + 1} = f32[2,3,8,4] add(y{n}, y{n})" for n in range(600))
    text = gradients().replace(" p0 =", f" y0 = f32[2,3,8,4] negate(t0)\n{doubled}\n p0 =")
    text = text.replace("dot(w, t0)", "dot(w, y600)")
    assert (2, 8, 1, 3, 4) in shapes(assert_unchanged(parse_hlo(text), StackHeads()), "slice")


def attention_gradient(batch: int, heads: int, length: int) -> str:
    """The gradient of attention by queries, keys and values, which are parts of one array, as JAX lowers it."""
    rows, scores = f"f32[{batch},{heads},{length},64]", f"f32[{batch},{heads},{length},{length}]"
    width, lines = 64 * heads, f"f32[{batch},{length},"
    names, sides = "qkv", "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}"
    split = "".join(
        f" {name}s = {lines}{width}] slice(x), slice={{[0:{batch}], [0:{length}], [{width * n}:{width * n + width}]}}\n"
        f" {name}h = {lines}{heads},64] reshape({name}s)\n"
        f" {name} = {rows} transpose({name}h), dimensions={{0,2,1,3}}\n"
        for n, name in enumerate(names)
    )
    joined = "".join(
        f" d{name}t = {lines}{heads},64] transpose(d{name}), dimensions={{0,2,1,3}}\n"
        f" d{name}r = {lines}{width}] reshape(d{name}t)\n"
        for name in names
    )
    over_depth = f"{sides}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}"
    over_rows = f"{sides}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}"
    return f"""HloModule m
{scalar_computation("add")}
ENTRY e {{
 x = {lines}{3 * width}] parameter(0)
 p = {scores} parameter(1)
 g = {rows} parameter(2)
 zero = f32[] constant(0)
{split} dv = {rows} dot(p, g), {over_rows}
 dp = {scores} dot(g, v), {over_depth}
 pd = {scores} multiply(p, dp)
 t = f32[{batch},{heads},{length}] reduce(pd, zero), dimensions={{3}}, to_apply=add
 ts = {scores} broadcast(t), dimensions={{0,1,2}}
 d = {scores} subtract(dp, ts)
 ds = {scores} multiply(p, d)
 dq = {rows} dot(ds, k), {sides}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}
 dk = {rows} dot(ds, q), {over_rows}
{joined} ROOT r = {lines}{3 * width}] concatenate(dqr, dkr, dvr), dimensions={{2}}
}}
"""


@pytest.mark.parametrize(
    ("batch", "length", "most"), [(1, 256, 0.75), pytest.param(2, 512, 0.65, marks=pytest.mark.slow)]
)
def test_heads_of_a_gradient_are_blocks(batch: int, length: int, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    text = attention_gradient(batch, 12, length)
    stacked = cycles(text)
    monkeypatch.setattr(StackHeads, "run", lambda self, module: False)
    assert stacked < most * cycles(text)


def test_values_of_the_machine() -> None:
    rng = np.random.default_rng(1)
    text = attention_gradient(2, 3, 64)
    sizes = [p.dims for p in parse_hlo(text).entry.parameters]
    compare(text, [rng.standard_normal(dims).astype(np.float32) for dims in sizes], CHIP)
