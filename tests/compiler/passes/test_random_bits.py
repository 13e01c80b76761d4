"""Random bits as arithmetic: those of the evaluator and of XLA, with the new state, also on the chip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.random_bits import ExpandRandomBits
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import Array, check
from tests.compiler.passes.differential import assert_same_bits, assert_unchanged, opcodes, transformed
from tests.examples import examples
from tests.runtime.command import systolith

STATES = [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3), ("rng_default", 2), ("rng_default", 3)]
WORDS = st.sampled_from([0, 1, 2**32 - 2, 2**64 - 3]) | st.integers(0, 2**64 - 1)
DIMS = st.lists(st.integers(0, 6), max_size=3) | st.just([129])


def text(algorithm: str, words: int, dtype: str, dims: list[int]) -> str:
    kinds = f"(u64[{words}], {dtype}[{','.join(map(str, dims))}])"
    return (
        f"HloModule m\nENTRY e {{\n s = u64[{words}] parameter(0)\n"
        f" ROOT r = {kinds} rng-bit-generator(s), algorithm={algorithm}\n}}\n"
    )


@examples(7, 40)
@given(
    st.sampled_from(STATES),
    st.sampled_from(["u8", "u16", "u32", "u64", "s8", "s4", "u2", "s32", "s64", "f32", "bf16", "f64"]),
    DIMS,
    st.tuples(WORDS, WORDS, WORDS),
)
def test_bits_and_states(kind: tuple[str, int], dtype: str, dims: list[int], state: tuple[int, ...]) -> None:
    algorithm, words = kind
    module = parse_hlo(text(algorithm, words, dtype, dims))
    made = assert_unchanged(module, ExpandRandomBits(), arguments=[np.array(state[:words], np.uint64)])
    assert "rng-bit-generator" not in opcodes(made)
    assert not ExpandRandomBits().run(made)


@pytest.mark.parametrize(("algorithm", "words"), STATES)
@pytest.mark.parametrize(("dtype", "dims"), [("u32", [3, 6]), ("u16", [7, 5]), ("u64", [5])])
def test_as_xla_computes_it(algorithm: str, words: int, dtype: str, dims: list[int]) -> None:
    """Also across a carry out of the counter's words."""
    given = text(algorithm, words, dtype, dims)
    state = np.array([2**64 - 1, 2**64 - 2, 7][:words], np.uint64)
    made = transformed(parse_hlo(given), ExpandRandomBits())
    assert_same_bits(run_xla(given, state), evaluate(made, state))


@examples(2, 4)
@given(
    st.sampled_from(STATES), st.sampled_from(["u8", "u16", "u32", "u64", "s32"]), DIMS, st.tuples(WORDS, WORDS, WORDS)
)
def test_bits_of_the_chip(kind: tuple[str, int], dtype: str, dims: list[int], state: tuple[int, ...]) -> None:
    algorithm, words = kind
    arguments: list[Array] = [np.array(state[:words], np.uint64)]
    check(text(algorithm, words, dtype, dims), arguments, most=0)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "bits.hlo"
    module.write_text(text("rng_default", 3, "u32", [5, 7]))
    assert systolith(capsys, "run", module, "--random", 3, "--chip", "tiny", "--check", "--hostile").code == 0
