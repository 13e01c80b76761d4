"""Every pass on random modules in random order, and on the corpus: valid after each, and the same values."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.registry import PASSES, find_pass, summary
from tests.compiler.driver.random_modules import random_module
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.passes.differential import Array, assert_same_bits, assert_unchanged, transformed
from tests.corpus.load import Case
from tests.examples import seeds, with_slow

QUICK = (
    "mlp_infer mlp_infer_bf16 bf16_dot_f32 int8_dot_i32 lstm_scan cond_switch fori_while_dynamic elementwise_zoo"
    " reduce_variants rng_threefry cumsum_reduce_window mlp_train_sgd complex_ops fft_all cholesky_trisolve"
).split()
EXACT = sorted(
    PASSES.keys()
    - set(
        "argmax-commuter batchnorm_expander channels-last cholesky_expander complex-rewriter dot-strength-reducer"
        " fft-expander lapack-expander"
        " reduce-window-rewriter rng-expander strided-window-transposer"
        " triangular_solve_expander".split()
    )
)
"""Passes that keep the order of every sum, and every rounding, and choose between a zero and a negative one alike."""


def freeze(module: Module, arguments: list[Array], rng: random.Random) -> None:
    """Let users of some parameters take constants of the arguments' values."""
    entry = module.entry
    entry.root = entry.result
    for p, value in zip(entry.parameters, arguments, strict=True):
        if rng.random() < 0.5:
            constant = Instruction(f"frozen.{p.number}", "constant", p.shape, literal=value.reshape(p.dims))
            entry.replace(p, constant)
            entry.instructions.insert(entry.instructions.index(p) + 1, constant)


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_random_modules(seed: int) -> None:
    text, arguments = random_module(seed)
    module = parse_hlo(text)
    with np.errstate(all="ignore"):
        want = evaluate(module, *arguments)
        rng = random.Random(seed)
        freeze(module, arguments, rng)
        steps = [find_pass(rng.choice(sorted(PASSES))) for _ in range(25)]
        assert_same_bits(want, evaluate(transformed(module, *steps), *arguments))


@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_xla_takes_the_result_and_agrees(seed: int) -> None:
    text, arguments = random_module(seed)
    module = parse_hlo(text)
    steps = [find_pass(name) for name in PASSES]
    made = print_hlo(transformed(module, *steps, *steps))
    for want, got in zip(evaluate(module, *arguments), run_xla(made, *arguments), strict=True):
        np.testing.assert_array_equal(got, want)


SLOW = [("rng_threefry", False), ("rng_threefry", True), ("elementwise_zoo", True)]
MODULES = [(name, optimized) for name in QUICK for optimized in (False, True)]


@pytest.mark.parametrize(("name", "optimized"), with_slow(MODULES, SLOW))
def test_corpus(name: str, optimized: bool, corpus: Callable[[str], Case]) -> None:
    case = corpus(name)
    stored = np.load(case.args_path)
    arguments = [stored[f"arg{k}"] for k in range(len(stored.files))]
    module = parse_hlo(case.optimized_text if optimized else case.text)
    for pass_name in EXACT:
        if find_pass(pass_name).run(clone(module)):
            assert_unchanged(module, find_pass(pass_name), arguments=arguments)
    assert_unchanged(module, *map(find_pass, EXACT), arguments=arguments)


def test_names_and_what_they_are_told_as() -> None:
    assert type(find_pass("while_loop_trip_count_annotator")) is type(find_pass("while-loop-trip-count-annotator"))
    assert all(summary(name) and len(summary(name)) < 110 for name in PASSES)
    with pytest.raises(CompileError, match="did you mean 'algsimp'"):
        find_pass("algsmip")
    with pytest.raises(CompileError, match="--list"):
        find_pass("zzz")


def test_no_pass_is_quadratic() -> None:
    """Of 10,000 instructions with one name stem, calls and equal constants, each pass takes seconds, not minutes."""
    lines = ["x0 = f32[4] parameter(0)"]
    for k in range(1, 2500):
        lines += [
            f"c{k} = f32[] constant({k % 9})",
            f"b{k} = f32[4] broadcast(c{k}), dimensions={{}}",
            f"a{k} = f32[4] add(x{k - 1}, b{k})",
            f"x{k} = f32[4] call(a{k}), to_apply=f",
        ]
    lines[-1] = "ROOT " + lines[-1]
    callee = "f {\n p = f32[4] parameter(0)\n q = f32[4] negate(p)\n ROOT r = f32[4] abs(q)\n}\n"
    module = parse_hlo("HloModule m\n\n" + callee + "\nENTRY e {\n " + "\n ".join(lines) + "\n}\n")
    for name in PASSES:
        find_pass(name).run(module)
    assert 1 < len(module.entry.instructions) < 20_000
