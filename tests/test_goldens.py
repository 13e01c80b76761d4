"""Cycles of compiled modules change only where a change means it: compiler and simulator are deterministic."""

from __future__ import annotations

import pytest

from tests.goldens import CORPUS, PROGRAMS, check, corpus_cycles, corpus_keys, known
from tests.programs.cases import CASES, CHIPS


@pytest.mark.parametrize("key", corpus_keys())
def test_corpus(key: str) -> None:
    check(CORPUS, key, corpus_cycles(key))


def test_nothing_is_recorded_that_nobody_compares() -> None:
    assert sorted(known(CORPUS)) == sorted(corpus_keys())
    assert sorted(known(PROGRAMS)) == sorted(f"{name} {chip}" for name in CASES for chip in CHIPS)
