"""Times of runs of a program after its first one: they are those that a run of its own would have."""

from __future__ import annotations

import numpy as np
import pytest

from systolith import api as sl
from systolith.sim import repeated
from systolith.sim.simulate import simulate

HALVES = """HloModule halves
body {
 p = (s32[], s32[]) parameter(0)
 x = s32[] get-tuple-element(p), index=0
 n = s32[] get-tuple-element(p), index=1
 one = s32[] constant(1)
 h = s32[] shift-right-logical(x, one)
 m = s32[] add(n, one)
 ROOT t = (s32[], s32[]) tuple(h, m)
}
more {
 p = (s32[], s32[]) parameter(0)
 x = s32[] get-tuple-element(p), index=0
 one = s32[] constant(1)
 ROOT c = pred[] compare(x, one), direction=GT
}
ENTRY main {
 x = s32[] parameter(0)
 zero = s32[] constant(0)
 s = (s32[], s32[]) tuple(x, zero)
 w = (s32[], s32[]) while(s), condition=more, body=body
 ROOT n = s32[] get-tuple-element(w), index=1
}
"""


def _measured(exe: sl.Executable) -> dict[str, object]:
    assert exe.last_run is not None
    return {key: value for key, value in exe.last_run.record().items() if key != "wall_seconds"}


def test_every_run_has_the_times_of_a_first_one() -> None:
    client = sl.Client("tiny")
    exe = client.load(client.compile(HALVES).program)
    cycles = {}
    for x in (9, 9, 3, 9, 1, 12, 100, 5000, 7, 3):
        (n,) = exe(np.array(x, np.int32))
        assert int(n.numpy()) == max(x.bit_length() - 1, 0)
        alone = client.load(exe.program)
        alone(np.array(x, np.int32))[0].block()
        assert _measured(exe) == _measured(alone)
        assert exe.last_run is not None
        cycles[x] = exe.last_run.cycles
    assert len({*cycles.values()}) > 4


def test_a_run_that_goes_the_same_way_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []

    def noted(*args: object, **kwargs: object) -> object:
        modes.append(str(kwargs.get("mode", args[3] if len(args) > 3 else "full")))
        return simulate(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(repeated, "simulate", noted)
    exe = sl.Client("tiny").compile(HALVES)
    for x in (8, 9, 8, 2):
        exe(np.array(x, np.int32))[0].block()
    assert modes == ["full", "values", "values", "values", "time"]


def test_other_hosts_and_limits_are_timed_for_themselves() -> None:
    exe = sl.Client("tiny").compile(HALVES)
    exe(np.array(64, np.int32))[0].block()
    with pytest.raises(sl.SystolithError, match="cycles"):
        exe(np.array(64, np.int32), max_cycles=10)[0].block()
    hostile = exe(np.array(64, np.int32), hostile=True)[0]
    assert int(hostile.numpy()) == 6
