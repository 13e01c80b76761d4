"""Products of slices for slices of products: the same values, where copies are saved."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import models
from bench.modules import lowered
from systolith.compiler.groups.slice_hoisting import HoistSlices
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.tiling.pipeline import GROUPING
from systolith.isa.chip import load_chip
from tests.compiler.machine import check
from tests.compiler.passes.differential import assert_unchanged
from tests.examples import examples

CHIP = load_chip("tpu_v3")
READ = "ROOT s = f32[256,256] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
CUTS = "q = f32[256,128] slice(y), slice={[0:256], [0:128]}  k = f32[256,128] slice(y), slice={[0:256], [128:256]}"
NARROW = "q = f32[256,64] slice(y), slice={[0:256], [0:64]}  k = f32[256,64] slice(y), slice={[0:256], [64:128]}"


def module(cuts: str = CUTS, read: str = READ, width: int = 256, epilogue: str = "tanh(p)") -> Module:
    """A product of 256 rows, an elementwise operation on it, two slices and what reads them."""
    return parse_hlo(f"""HloModule m
ENTRY e {{
  x = f32[256,64] parameter(0)
  w = f32[64,{width}] parameter(1)
  z = f32[256,{width}] parameter(2)
  p = f32[256,{width}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  y = f32[256,{width}] {epilogue}
  {cuts}
  {read}
}}""")


def products(made: Module) -> list[tuple[int, ...]]:
    """Dimensions of the results of products, in order."""
    return [i.dims for i in made.entry.instructions if i.opcode == "dot"]


def test_a_product_for_each_slice() -> None:
    made = module()
    (decision,) = run_pass(made, HoistSlices(CHIP)).decisions
    assert decision.chosen == "2 products of 128, 128 of 256 columns"
    assert decision.numbers["cycles saved"] == 256 * 256 // 1024
    assert products(made) == [(256, 128), (256, 128), (256, 256)]


@pytest.mark.parametrize("kernel", ["reshape", "sine"])
def test_slices_that_a_product_and_a_kernel_read(kernel: str) -> None:
    """As when a loop leaves q and k, whose product attention takes: products store both for all readers."""
    read = f"""qm = f32[256,128] reshape(q)
  km = f32[256,128] reshape(k)
  ql = f32[256,128] {kernel}(q)
  kl = f32[256,128] {kernel}(k)
  s = f32[256,256] dot(qm, km), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  ROOT t = (f32[256,256], f32[256,128], f32[256,128]) tuple(s, ql, kl)"""
    assert run_pass(module(read=read), HoistSlices(CHIP)).changed


@pytest.mark.parametrize(
    "kept",
    [
        module(NARROW, width=128),  # of 64 columns each takes a tile, as both do
        module(CUTS.replace("128:256", "64:192")),  # they overlap
        module(CUTS.replace("slice={[0:256], [128:256]}", "slice={[0:256], [0:256:2]}")),
        module(CUTS.replace("k = f32[256,128]", "k = f32[128,256]").replace("[0:256], [128:256]", "[0:128], [0:256]"),
               "ROOT t = (f32[256,128], f32[128,256]) tuple(q, k)"),
        module(read="ROOT s = f32[256,128] multiply(q, k)"),  # a kernel reads them where they are
        module(epilogue="add(p, z)"),  # a third array would be sliced
        module(read="ROOT t = (f32[256,128], f32[256,256]) tuple(k, y)"),  # the whole is stored, too
    ],
)  # fmt: skip
def test_others_stay(kept: Module) -> None:
    assert not run_pass(kept, HoistSlices(CHIP)).changed


@st.composite
def sliced(draw: st.DrawFn) -> tuple[str, list[np.ndarray]]:
    """A product of small integers, with a bias, along whose free dimensions slices are taken; and its arguments."""
    batch, m, n, k = (draw(st.integers(1, 9)) for _ in range(4))
    rows = draw(st.booleans())
    width = m if rows else n
    ends = sorted(draw(st.lists(st.integers(0, width), min_size=2, max_size=4, unique=True)))
    bias = draw(st.sampled_from([0, 1, 2]))
    lines, names = [], []
    for number, (a, b) in enumerate(pairwise(ends)):
        dims = (batch, b - a, n) if rows else (batch, m, b - a)
        cut = [f"[0:{batch}]", f"[{a}:{b}]" if rows else f"[0:{m}]", f"[0:{n}]" if rows else f"[{a}:{b}]"]
        turned = ",".join(map(str, (dims[0], dims[2], dims[1])))
        lines.append(f"s{number} = f32[{','.join(map(str, dims))}] slice(y), slice={{{', '.join(cut)}}}")
        lines.append(f"t{number} = f32[{turned}] transpose(s{number}), dimensions={{0,2,1}}")
        names.append((f"f32[{turned}]", f"t{number}"))
    size = (batch, m, n)[bias]
    text = f"""HloModule m
ENTRY e {{
  x = f32[{batch},{m},{k}] parameter(0)
  w = f32[{batch},{k},{n}] parameter(1)
  b = f32[{size}] parameter(2)
  p = f32[{batch},{m},{n}] dot(x, w), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{0}},
    rhs_contracting_dims={{1}}
  bs = f32[{batch},{m},{n}] broadcast(b), dimensions={{{bias}}}
  y = f32[{batch},{m},{n}] add(p, bs)
  {chr(10).join(lines)}
  ROOT t = ({", ".join(t for t, _ in names)}) tuple({", ".join(n for _, n in names)})
}}"""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return text, [rng.integers(-8, 9, s).astype(np.float32) for s in ((batch, m, k), (batch, k, n), (size,))]


@examples(30, 60)
@given(sliced())
def test_no_bit_changes(case: tuple[str, list[np.ndarray]]) -> None:
    text, arguments = case
    assert_unchanged(parse_hlo(text), HoistSlices(CHIP), arguments=arguments)


@examples(5, 10)
@given(sliced())
def test_values_on_the_chip(case: tuple[str, list[np.ndarray]]) -> None:
    check(*case, "tiny")


def test_a_loop_over_a_batch_is_chosen_first() -> None:
    """Its estimate takes three products for slower, with blocks of two sequences; in its body they are faster."""
    made = canonicalise(parse_hlo(lowered(*models.bert(8, 512, 2))))
    decisions = [d for make in GROUPING.values() for d in run_pass(made, make(CHIP, Options())).decisions]
    chosen = {d.kind: d.chosen for d in decisions if d.kind in ("loop", "slices")}
    assert "8 iterations of 1 of 8 indices" in chosen["loop"]
    assert chosen["slices"] == "3 products of 768, 768, 768 of 2,304 columns"
