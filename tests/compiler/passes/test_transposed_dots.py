"""A transposed product is the product of its operands the other way around, and ends in what follows the transpose."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.ops.group import read_groups
from systolith.compiler.passes.simplify.algebraic import Simplify
from systolith.compiler.passes.simplify.dead_code import DeadCode
from tests.compiler.machine import CHIPS, compare
from tests.compiler.passes.differential import assert_unchanged, opcodes
from tests.compiler.passes.texts import module_of

TWO = " a = s32[2,3] parameter(0)\n b = s32[3,4] parameter(1)\n p = s32[2,4] dot(a, b), lhs_contracting_dims={1}, "


@given(st.data())
def test_of_any_dot(data: st.DataObject) -> None:
    """Batch dimensions first, then those of one operand, then of the other: any order of them, any place in them."""
    batch, summed = (data.draw(st.lists(st.integers(1, 3), max_size=2), label=name) for name in ("batch", "k"))
    rows, columns = (data.draw(st.lists(st.integers(2, 3), min_size=1, max_size=2), label=name) for name in "mn")
    kinds = [[("b", n) for n in range(len(batch))], [("k", n) for n in range(len(summed))]]
    sizes = {**{("b", n): s for n, s in enumerate(batch)}, **{("k", n): s for n, s in enumerate(summed)}}
    operands = []
    for name, free in (("m", rows), ("n", columns)):
        sizes |= {(name, n): s for n, s in enumerate(free)}
        every = [*kinds[0], *kinds[1], *((name, n) for n in range(len(free)))]
        operands.append(data.draw(st.permutations(every), label=f"dimensions of {name}"))
    places = [[[order.index(kind) for kind in group] for group in kinds] for order in operands]
    attributes = ", ".join(
        f"{side}_{what}_dims={{{','.join(map(str, dims))}}}"
        for side, found in zip(("lhs", "rhs"), places, strict=True)
        for what, dims in zip(("batch", "contracting"), found, strict=True)
    )
    shapes = ["s32[" + ",".join(str(sizes[kind]) for kind in order) + "]" for order in operands]
    whole = (*batch, *(sizes[kind] for order in operands for kind in order if kind[0] in "mn"))
    first, last = len(batch), len(batch) + len(rows)
    swap = (*range(first), *range(last, len(whole)), *range(first, last))
    order = data.draw(st.sampled_from([swap, *permutations(range(len(whole)))]), label="order")
    turned = [whole[d] for d in order]
    made = assert_unchanged(
        module_of(
            f" a = {shapes[0]} parameter(0)\n b = {shapes[1]} parameter(1)\n"
            f" p = s32[{','.join(map(str, whole))}] dot(a, b), {attributes}\n"
            f" ROOT r = s32[{','.join(map(str, turned))}] transpose(p), dimensions={{{','.join(map(str, order))}}}"
        ),
        Simplify(),
        DeadCode(),
    )
    assert (opcodes(made) == ["dot"]) == (order in (swap, tuple(sorted(order)))) or 1 in batch
    left = [i.ints("dimensions") for i in made.entry.instructions if i.opcode == "transpose"]
    assert not left or order[-1] != last - 1 or left[0][-1] == len(whole) - 1


def test_precision_goes_with_its_operand() -> None:
    made = assert_unchanged(
        module_of(
            TWO + "rhs_contracting_dims={0}, operand_precision={highest,default}\n"
            " ROOT r = s32[4,2] transpose(p), dimensions={1,0}"
        ),
        Simplify(),
        DeadCode(),
    )
    assert opcodes(made) == ["dot"]
    assert made.entry.result.attributes["operand_precision"] == ("default", "highest")
    assert [o.name for o in made.entry.result.operands] == ["b", "a"]


def test_a_product_that_is_used_as_it_is_stays() -> None:
    made = assert_unchanged(
        module_of(
            TWO + "rhs_contracting_dims={0}\n t = s32[4,2] transpose(p), dimensions={1,0}\n"
            " ROOT r = (s32[2,4], s32[4,2]) tuple(p, t)"
        ),
        Simplify(),
        DeadCode(),
    )
    assert opcodes(made) == ["dot", "transpose", "tuple"]


@pytest.mark.parametrize("width", [24, 33])
def test_a_step_of_weights_ends_the_product_that_makes_their_gradient(width: int) -> None:
    text = f"""HloModule step
ENTRY e {{
 x = f32[40,16] parameter(0)
 d = f32[40,{width}] parameter(1)
 w = f32[16,{width}] parameter(2)
 g = f32[{width},16] dot(d, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
 t = f32[16,{width}] transpose(g), dimensions={{1,0}}
 c = f32[] constant(0.01)
 rate = f32[16,{width}] broadcast(c), dimensions={{}}
 s = f32[16,{width}] multiply(rate, t)
 ROOT r = f32[16,{width}] subtract(w, s)
}}
"""
    rng = np.random.default_rng(width)
    given = [rng.standard_normal(dims).astype(np.float32) for dims in ((40, 16), (40, width), (16, width))]
    compiled = compare(text, given, CHIPS[32])
    grouped = read_groups(parse_hlo(compiled.stages["grouped.hlo"])).entry
    assert [i.attributes["kind"] for i in grouped.instructions if i.opcode == "fusion"] == ["kOutput"]
