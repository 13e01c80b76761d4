"""A loop without end in the evaluator: given up at a number of iterations, and named with its count so far."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.hlo import evaluate_devices, parse_hlo
from systolith.compiler.hlo.rules.verifier import verify
from tests.runtime.command import systolith

NESTED = """HloModule m
less {{ s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({inner})
  ROOT c = pred[] compare(i, n), direction=LT }}
step {{ s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  k = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], s32[]) tuple(j, k) }}
more {{ s = (s32[], s32[]) parameter(0)
  k = s32[] get-tuple-element(s), index=1
  n = s32[] constant({outer})
  ROOT c = pred[] compare(k, n), direction=NE }}
body {{ s = (s32[], s32[]) parameter(0)
  k = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  zero = s32[] constant(0)
  l = s32[] add(k, one)
  t = (s32[], s32[]) tuple(zero, l)
  ROOT w = (s32[], s32[]) while(t), condition=less, body=step }}
ENTRY e {{ a = (s32[], s32[]) parameter(0)
  v = (s32[], s32[]) while(a), condition=more, body=body
  ROOT r = s32[] get-tuple-element(v), index=1 }}
"""
START = np.zeros((), np.int32)


def module(inner: int, outer: int) -> sl.Module:
    parsed = parse_hlo(NESTED.format(inner=inner, outer=outer), "m.hlo")
    verify(parsed)
    return parsed


@pytest.mark.parametrize("limit", [1, 4, 5, 1000])
def test_the_loops_that_run_are_named_outermost_first(limit: int) -> None:
    endless = module(inner=3, outer=-1)  # of four iterations: one of v, three of w
    with pytest.raises(sl.SystolithError) as caught:
        sl.evaluate(endless, START, START, max_iterations=limit)
    turns, inner = divmod(limit, 4)
    where = f"iteration {turns + 1} of while 'v'" + f", iteration {inner} of while 'w'" * (inner > 0)
    assert str(caught.value).endswith(f": not done after {limit} iterations, the limit; in {where}")
    assert re.match(r"m\.hlo:\d+:\d+: while '[vw]' ", str(caught.value))


def test_an_inner_loop_without_end_is_named_with_the_outer_one() -> None:
    with pytest.raises(sl.SystolithError, match=r"in iteration 1 of while 'v', iteration 50 of while 'w'$"):
        sl.evaluate(module(inner=2**31 - 1, outer=7), START, START, max_iterations=50)


def test_loops_may_take_their_iterations_and_no_fewer() -> None:
    finite = module(inner=3, outer=5)
    (got,) = sl.evaluate(finite, START, START, max_iterations=20)
    assert got == 5
    with pytest.raises(sl.SystolithError, match="not done after 19 iterations"):
        sl.evaluate(finite, START, START, max_iterations=19)
    with pytest.raises(sl.SystolithError, match="max_iterations 0: must be at least 1"):
        sl.evaluate(finite, START, START, max_iterations=0)


def test_each_device_has_the_limit_for_itself() -> None:
    finite, arguments = module(inner=3, outer=5), [[START, START]] * 3
    results = evaluate_devices(finite, arguments, replicas=3, max_iterations=20)
    assert [int(r.values[0]) for r in results] == [5, 5, 5]
    with pytest.raises(sl.SystolithError, match=r"in iteration 5 of while 'v', iteration 3 of while 'w'$"):
        evaluate_devices(finite, arguments, replicas=3, max_iterations=19)


def test_opt_gives_up_at_the_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.hlo"
    words = ["opt", path, "--passes", "dce", "--check", 1, "-o", tmp_path / "out.hlo"]
    path.write_text(NESTED.format(inner=2**31 - 1, outer=0))
    turns = []
    for limit in (30, 90):
        ran = systolith(capsys, *words, "--max-iterations", limit)
        assert ran.code == 2
        found = re.search(rf"not done after {limit} iterations, the limit; in .*iteration (\d+) of while", ran.err)
        assert found, ran.err
        turns.append(int(found[1]))
    assert turns == [30, 90]
