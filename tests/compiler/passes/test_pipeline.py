"""The canonical form gives the module's values, for the corpus, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.table import OPS
from systolith.compiler.passes.pipeline import CANONICAL, canonicalise
from systolith.compiler.passes.registry import PASSES
from tests.compiler.machine import check
from tests.corpus.load import Case
from tests.examples import with_slow

NAMES = (
    "mlp_infer mlp_infer_bf16 bf16_dot_f32 lenet_infer"
    " lstm_scan cond_switch fori_while_dynamic elementwise_zoo reduce_variants rng_threefry"
    " cumsum_reduce_window mlp_train_sgd gpt2_decode_kvcache sort_topk_argmax gpt2_tiny_infer"
).split()
GONE = {"call", "bitcast", "copy"}


CASES = [(name, False) for name in NAMES]
CASES += [(name, True) for name in NAMES if name != "sort_topk_argmax"]  # XLA's CPU compiler leaves a custom call there


@pytest.mark.parametrize(
    ("name", "optimized"),
    with_slow(CASES, {("rng_threefry", False)}),
)
def test_same_values(name: str, optimized: bool, corpus: Callable[[str], Case]) -> None:
    case = corpus(name)
    text = case.optimized_text if optimized else case.text
    stored = np.load(case.args_path)
    arguments = [stored[f"arg{k}"] for k in range(len(stored.files))]
    want = evaluate(parse_hlo(text), *arguments)
    module = canonicalise(parse_hlo(text))
    assert not GONE & {i.opcode for i in module.instructions()}
    for a, b in zip(evaluate(module, *arguments), want, strict=True):
        np.testing.assert_array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))


def test_canonical_form_is_stable(corpus: Callable[[str], Case]) -> None:
    module = canonicalise(parse_hlo(corpus("gpt2_tiny_infer").text))
    count = len(module.entry.instructions)
    canonicalise(module)
    assert len(module.entry.instructions) == count


def test_every_registered_pass_is_in_the_pipeline_and_so_is_every_expander_of_the_table() -> None:
    run = {type(step) for step in CANONICAL}
    assert sorted(name for name, make in PASSES.items() if type(make()) not in run) == []
    assert {row.expander for row in OPS.values()} - {""} <= PASSES.keys()


def test_a_computation_that_became_another_is_no_obstacle() -> None:
    """The order of c128 as JAX writes it: the computation of parts replaces one that takes real parts, f64."""
    text = """HloModule m
larger {
  a = c128[] parameter(0)
  b = c128[] parameter(1)
  c = f64[] real(a)
  d = f64[] real(b)
  e = pred[] compare(c, d), direction=GT
  ROOT f = c128[] select(e, a, b)
}
ENTRY e {
  x = c128[2,3] parameter(0)
  least = c128[] constant((-inf, 0))
  ROOT r = c128[2] reduce(x, least), dimensions={1}, to_apply=larger
}
"""
    x = np.random.default_rng(0).standard_normal((2, 3, 2)).view(np.complex128)[..., 0]
    check(text, [x], "tiny", most=0.0)
