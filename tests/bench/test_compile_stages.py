"""`bench/bench_compile.py` times functions by name: each is there."""

from __future__ import annotations

from bench.bench_compile import STAGES


def test_stages_are_functions() -> None:
    assert [stage for stage, where, function in STAGES if not callable(getattr(where, function, None))] == []
