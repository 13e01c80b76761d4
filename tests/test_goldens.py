"""Cycles of compiled modules change only where a change means it: compiler and simulator are deterministic.

`runtime/test_corpus_runs.py` compares those of the modules that it runs in any case; here are those that it takes long
for.
"""

from __future__ import annotations

import pytest

from tests.goldens import CORPUS, PROGRAMS, check, corpus_cycles, corpus_keys, known
from tests.programs.cases import CASES, CHIPS
from tests.runtime.test_corpus_runs import HEAVY, cases

LONG = (
    "mlp_infer tiny default", "mlp_infer tiny highest", "mlp_infer_bf16 tiny default", "mlp_infer_bf16 tiny highest",
    "mlp_infer small highest", "lenet_infer tiny default", "lenet_infer tiny highest",
    "gpt2_decode_kvcache tiny highest",
)  # fmt: skip


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, marks=pytest.mark.slow) if key in LONG else key
        for key in corpus_keys()
        if tuple(key.split()) in HEAVY
    ],
)
def test_corpus(key: str) -> None:
    check(CORPUS, key, corpus_cycles(key))


def test_nothing_is_recorded_that_nobody_compares() -> None:
    assert sorted(known(CORPUS)) == sorted(corpus_keys())
    assert {" ".join(map(str, case.values)) for case in cases()} >= known(CORPUS).keys()
    assert sorted(known(PROGRAMS)) == sorted(f"{name} {chip}" for name in CASES for chip in CHIPS)
