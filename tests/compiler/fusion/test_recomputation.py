"""Values that are computed again where later products' users need them: the same bits, and fewer of them moved."""

from __future__ import annotations

import numpy as np
import pytest

from bench import models
from bench.modules import lowered
from systolith.compiler.groups.recomputation import Recompute
from systolith.compiler.groups.stats import group_infos
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.tiling.pipeline import GROUPING
from systolith.isa.chip import load_chip
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import check
from tests.compiler.passes.differential import arguments_of, assert_same_bits, transformed

CHIP = load_chip("tiny")


def module(body: str) -> Module:
    """Two products; between them a mean, from which values differ."""
    return parse_hlo(f"""HloModule m
{scalar_computation("add")}ENTRY e {{
  x = f32[64,32] parameter(0)
  w = f32[32,64] parameter(1)
  v = f32[64,64] parameter(2)
  p = f32[64,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  zero = f32[] constant(0)
  sum = f32[64] reduce(p, zero), dimensions={{0}}, to_apply=add
  sums = f32[64,64] broadcast(sum), dimensions={{1}}
  apart = f32[64,64] subtract(p, sums)
  q = f32[64,64] dot(v, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
{body}
}}
""")


def again(made: Module) -> list[str]:
    """What the copies are called, in order."""
    return [i.name for i in made.entry.instructions if ".again" in i.name and i.opcode != "opt-barrier"]


LATER = """
  r = f32[64,64] dot(v, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  half = f32[64,64] multiply(apart, r)
  twice = f32[64,64] add(apart, r)
  ROOT s = f32[64,64] subtract(half, twice)
"""


def test_a_difference_for_a_later_product() -> None:
    made = module(LATER)
    (decision,) = run_pass(made, Recompute(CHIP)).decisions
    assert decision.chosen == "apart from p"
    assert decision.numbers == {"bytes not stored": 4 * 64 * 64, "bytes read more": 4 * 64 * 64}
    assert again(made) == ["sums.again", "apart.again"]
    users = [i.name for i in made.entry.instructions if any(o.name == "apart.again" for o in i.operands)]
    assert users == ["half", "twice"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("apart = f32[64,64] subtract(p, sums)", "apart = f32[64,64] power(p, sums)"),  # many cycles
        ("dot(v, v)", "dot(apart, v)"),  # a product reads it from memory
        ("subtract(p, sums)", "subtract(p, v)"),  # of two large values
        ("reduce(p, zero)", "reduce(v, zero)"),  # the product itself may be nowhere in memory
        ("dot(v, q)", "dot(v, v)"),  # its users are as near
    ],
)
def test_others_are_stored(old: str, new: str) -> None:
    text = print_hlo(module(LATER)).replace(old, new)
    assert text != print_hlo(module(LATER))
    made = parse_hlo(text)
    run_pass(made, Recompute(CHIP))
    assert not [name for name in again(made) if name.startswith("apart")]


CAUSAL = """
  at = s32[64] iota(), iota_dimension=0
  row = s32[1,64,64] broadcast(at), dimensions={1}
  column = s32[1,64,64] broadcast(at), dimensions={2}
  mask = pred[1,64,64] compare(row, column), direction=GE
  flat = pred[64,64] reshape(mask)
  low = f32[] constant(-1)
  lows = f32[64,64] broadcast(low), dimensions={}
  ROOT s = f32[64,64] select(flat, q, lows)
"""


def test_a_mask_of_indices_is_not_kept() -> None:
    """JAX broadcasts masks by a reshape that leaves out a dimension of one."""
    text = print_hlo(module(CAUSAL)).replace("64", "128")
    made = parse_hlo(text)
    (decision,) = run_pass(made, Recompute(CHIP)).decisions
    assert decision.chosen == "flat from few bytes"
    assert again(made) == ["row.again", "column.again", "mask.again", "flat.again"]
    given = arguments_of(made)
    assert_same_bits(evaluate(parse_hlo(text), *given), evaluate(made, *given))


def test_values_on_the_chip() -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(p.dims).astype(np.float32) for p in module(LATER).entry.parameters]
    check(print_hlo(module(LATER)), given, "tiny", "highest", 1e-5)


@pytest.mark.slow
def test_a_training_step() -> None:
    """No bit changes, and groups move a twentieth less at least; regions in blocks compute some of it again without."""
    step = canonicalise(parse_hlo(lowered(*models.resnet_train(1, 48, (1,)))))
    made = clone(step)
    outcome = run_pass(made, Recompute(CHIP))
    assert len(outcome.decisions) > 5
    given = arguments_of(step)
    with np.errstate(all="ignore"):
        assert_same_bits(evaluate(step, *given), evaluate(transformed(made), *given))
    assert moved(step) < 0.95 * moved(step, "recomputation")


def moved(step: Module, without: str = "") -> int:
    """Bytes that the groups of a module read and write."""
    grouped = clone(step)
    for name, make in GROUPING.items():
        if name != without:
            run_pass(grouped, make(CHIP, Options()))
    return sum(g.bytes for g in group_infos(grouped, {}))
