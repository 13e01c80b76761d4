"""Results of blocks that products compute in their tiles from values of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler import driver
from systolith.compiler.driver import Compiled, compile_module
from systolith.compiler.explain import Decision
from systolith.compiler.groups.block_tails import without_tail
from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.groups.producer_fusion import FusePrologues
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.group import Group, read_groups
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass, run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.tiling.blocking import BlockNormalisations
from systolith.hw.lockstep import Lockstep
from systolith.isa.chip import Chip, load_chip
from systolith.sim.simulate import simulate
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import Array, error, run
from tests.examples import THOROUGH, examples
from tests.hw.bound import bound

HEAD = "HloModule m\n" + scalar_computation("maximum") + scalar_computation("add", name="sum")

LOSS = """ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  labels = s32[{rows}] parameter(1)
  w = f32[{columns},{out}] parameter(2)
  v = f32[{rows},{out}] parameter(3)
  least = f32[] constant(-inf)
  zero = f32[] constant(0)
  most = f32[{rows}] reduce(x, least), dimensions={{1}}, to_apply=maximum
  mosts = f32[{rows},{columns}] broadcast(most), dimensions={{0}}
  apart = f32[{rows},{columns}] subtract(x, mosts)
  e = f32[{rows},{columns}] exponential(apart)
  total = f32[{rows}] reduce(e, zero), dimensions={{1}}, to_apply=sum
  totals = f32[{rows},{columns}] broadcast(total), dimensions={{0}}
  softmax = f32[{rows},{columns}] divide(e, totals)
  numbers = s32[{rows},{columns}] iota(), iota_dimension=1
  label = s32[{rows},{columns}] broadcast(labels), dimensions={{0}}
  is = pred[{rows},{columns}] compare(numbers, label), direction=EQ
  hot = f32[{rows},{columns}] convert(is)
  gradient = f32[{rows},{columns}] subtract(softmax, hot)
  {products}
}}
"""
"""The gradient of a cross entropy, and what products make of it."""

HIGHEST = "operand_precision={highest,highest}"

BACK = (
    "ROOT d = f32[{rows},{out}] dot(gradient, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},"
    " operand_precision={{highest,highest}}"
)

BOTH = """back = f32[{rows},{out}] dot(gradient, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  weights = f32[{columns},{out}] dot(gradient, v), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT both = (f32[{rows},{out}], f32[{columns},{out}], f32[{rows}]) tuple(back, weights, total)"""


def text(products: str, rows: int, columns: int, out: int) -> str:
    return HEAD + LOSS.format(
        products=products.format(rows=rows, columns=columns, out=out), rows=rows, columns=columns, out=out
    )


def grouped(hlo: str, chip: Chip, inside: bool) -> tuple[Module, list[Decision]]:
    """A module in groups, blocks among them, and the decisions about tails; `inside`: whatever they cost."""
    module = run_passes(canonicalise(parse_hlo(hlo)), [BlockNormalisations(chip), Fuse()])
    return module, list(run_pass(module, FusePrologues(chip, Options(), always=True)).decisions) if inside else []


def compiled(hlo: str, chip: Chip, inside: bool) -> Compiled:
    module, decisions = grouped(hlo, chip, inside)
    return driver.compile_grouped(module, chip, Options(), decisions)


def arguments(rows: int, columns: int, out: int, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    x, w, v = (rng.standard_normal(d).astype(np.float32) for d in ((rows, columns), (columns, out), (rows, out)))
    return [x, rng.integers(-1, columns + 1, rows).astype(np.int32), w, v]


def blocks(module: Module) -> Group:
    (found,) = [i for i in module.entry.instructions if isinstance(i, Group) and i.tiling is not None]
    return found


def test_blocks_are_left_with_values_of_rows() -> None:
    module, decisions = grouped(text(BOTH, 64, 512, 16), load_chip("tiny"), inside=True)
    assert [s.dims for s in blocks(module).shape.leaves()] == [(64,), (64,)]
    products = [i for i in module.entry.instructions if isinstance(i, Group) and i.root.opcode == "dot"]
    assert all({"exponential", "iota"} <= {i.opcode for i in p.body.instructions} for p in products)
    (decision,) = decisions
    assert decision.chosen == "gradient is computed in tiles of back, weights"
    assert decision.why == "131,072 bytes are not stored"
    again = read_groups(parse_hlo(print_hlo(module)))
    assert blocks(again).tiling == blocks(module).tiling


def test_cycles_are_saved_as_expected() -> None:
    """HBM has most to do in these blocks: not storing the result saves all that storing it takes."""
    chip, hlo = load_chip("tpu_v3"), text(BOTH, 512, 16384, 128)
    stored, inside = (simulate(compiled(hlo, chip, i).program, chip, mode="time").cycles or 0 for i in (False, True))
    _, (decision,) = grouped(hlo, chip, inside=True)
    (other,) = decision.rejected
    saved = other.numbers["cycles"] - decision.numbers["cycles"]
    assert saved == pytest.approx(stored - inside, rel=0.25)


def test_other_readers_keep_the_result() -> None:
    read = BACK.replace("ROOT d", "d") + "\n  ROOT r = (f32[{rows},{out}], f32[{rows},{columns}]) tuple(d, gradient)"
    module, decisions = grouped(text(read, 64, 512, 16), load_chip("tiny"), inside=True)
    assert not decisions
    assert blocks(module).shape.dims == (64, 512)


def test_a_result_of_a_product_in_the_block_is_no_tail() -> None:
    """Attention: the result of the block is not made elementwise of what lies in memory."""
    chip = load_chip("tiny")
    hlo = (
        HEAD
        + """ENTRY e {
  q = f32[8,32,16] parameter(0)
  k = f32[8,64,16] parameter(1)
  w = f32[64,16] parameter(2)
  s = f32[8,32,64] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  least = f32[] constant(-inf)
  most = f32[8,32] reduce(s, least), dimensions={2}, to_apply=maximum
  mosts = f32[8,32,64] broadcast(most), dimensions={0,1}
  a = f32[8,32,64] subtract(s, mosts)
  ROOT d = f32[8,32,16] dot(a, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
}
"""
    )
    module = run_passes(canonicalise(parse_hlo(hlo)), [BlockNormalisations(chip), Fuse()])
    group = blocks(module)
    assert without_tail(group, 0, (group,)) is None


@given(
    st.integers(1, 70 if THOROUGH else 40),
    st.integers(65, 300 if THOROUGH else 140),
    st.integers(1, 20),
    st.sampled_from(
        [BACK, BOTH.replace("={{0}}\n", "={{0}}, " + HIGHEST.replace("{", "{{").replace("}", "}}") + "\n")]
    ),
    st.integers(0, 2**32),
)
@examples(3, 25)
def test_values_are_the_evaluators(rows: int, columns: int, out: int, products: str, seed: int) -> None:
    chip, hlo, args = load_chip("tiny"), text(products, rows, columns, out), arguments(rows, columns, out, seed)
    wanted = evaluate(parse_hlo(hlo), *args)
    for inside in (True, False):
        for a, b in zip(run(compiled(hlo, chip, inside).program, chip, args), wanted, strict=True):
            assert error(a, b) <= 1e-5


def test_blocks_along_a_dimension_that_is_reduced_stay_as_they_are() -> None:
    """Lowering refuses such a group by name; that it has no tail is all that is asked here."""
    grouped = """group {
  x = f32[8,16] parameter(0)
  z = f32[] constant(0)
  s = f32[8] reduce(x, z), dimensions={1}, to_apply=sum
  rows = f32[8,16] broadcast(s), dimensions={0}
  ROOT r = f32[8,16] divide(x, rows)
}
ENTRY e {
  x = f32[8,16] parameter(0)
  ROOT y = f32[8,16] fusion(x), kind=kCustom, calls=group, backend_config={"tiling":{"dims":[1]}}
}
"""
    group = read_groups(parse_hlo(HEAD + grouped)).entry.result
    assert isinstance(group, Group)
    assert without_tail(group, 0, (group,)) is None


def test_lockstep() -> None:
    """Coordinates of tiles move with loops: 0 bits and 0 cycles apart from the RTL."""
    chip, sizes = load_chip("tiny"), (16, 260, 4)
    hlo, args = text(BACK, *sizes), arguments(*sizes, seed=1)
    program = compiled(hlo, chip, inside=True).program
    with Lockstep(chip) as both:
        result = both.run(bound(program, [a.reshape(-1).view(np.uint8) for a in args]))
    assert result.ok, result.difference


@pytest.mark.parametrize(
    ("rows", "columns", "out", "most"),
    [
        (512, 12000, 512, 2000),
        pytest.param(1024, 24576, 768, 11000, marks=pytest.mark.slow),
        pytest.param(1024, 32000, 768, 11000, marks=pytest.mark.slow),
    ],
)
def test_a_loss_stores_no_gradient_of_its_logits(rows: int, columns: int, out: int, most: int) -> None:
    """Nor is it made in a batch loop, which would load the weights in each iteration; tiles repeat."""
    chip = load_chip("tpu_v3")
    done = compile_module(parse_hlo(text(BOTH, rows, columns, out)), chip)
    (decision,) = [d for d in done.explain if d.kind == "prologue"]
    assert decision.chosen == "gradient.bf16 is computed in tiles of back, weights"
    assert not any(d.kind == "loop" for d in done.explain)
    moved = simulate(done.program, chip, mode="time").to_json()["hbm_bytes"]
    weights = columns * out * 4
    assert moved["written"] - weights < rows * columns * 2
    assert len(done.program.code) < most
