"""Bytes held in memories over time, against the bytes that instructions touch."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from systolith.isa.access import accesses
from systolith.isa.instruction import Space
from systolith.reports.run_data import from_json
from systolith.runtime.jobs.job import Outcome, Request, run
from systolith.runtime.records.held import LINES, held
from tests.corpus.load import load


@pytest.fixture(scope="module", params=["mlp_infer small", "lstm_scan tpu_v3", "cumsum_reduce_window tiny"])
def outcome(request: pytest.FixtureRequest) -> Outcome:
    name, chip = request.param.split()
    return run(Request(load(name).path, chip, mode="time"))


def test_instructions_find_what_they_touch_held(outcome: Outcome) -> None:
    assert outcome.memory
    result = outcome.result
    trace = result.trace
    assert trace
    steps = held(result, outcome.memory)["vmem"]
    assert steps.times[0] == 0
    touched: dict[int, int] = {}
    for index in np.unique(trace.index).tolist():
        spans = [a for a in accesses(result.program.code[index], result.program, result.chip) if a.space is Space.VMEM]
        touched[index] = sum(b - a for a, b in union([(s.lo, s.hi) for s in spans if not s.dynamic]))
    assert any(touched.values())
    for index, start in zip(trace.index.tolist(), trace.start.tolist(), strict=True):
        now = steps.held[np.searchsorted(steps.times, start, side="right") - 1]
        assert now >= touched[index], result.program.code[index]


def union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for a, b in sorted(spans):
        if found and a <= found[-1][1]:
            found[-1] = (found[-1][0], max(b, found[-1][1]))
        else:
            found.append((a, b))
    return found


def test_no_more_is_held_than_was_planned(outcome: Outcome) -> None:
    assert outcome.memory
    found = held(outcome.result, outcome.memory)
    line = max(1, outcome.result.chip.vmem.bytes // LINES)
    assert 0 < found["vmem"].held.max() <= -(-outcome.memory.vmem // line) * line
    assert outcome.memory.parameters + outcome.memory.constants <= found["hbm"].held[0]
    assert found["hbm"].held.max() <= outcome.memory.hbm
    for steps in found.values():
        assert steps.held.min() >= 0
        assert steps.held[-1] == 0


def test_the_record_has_the_most_of_each_part(outcome: Outcome) -> None:
    assert outcome.memory
    line = from_json(outcome.record()).timeline
    for space, most in (("vmem", line.vmem), ("hbm", line.hbm)):
        steps = held(outcome.result, outcome.memory)[space]
        assert max(most) == steps.held.max()
        for (start, end), value in zip(pairwise(line.edges), most, strict=True):
            inside = (steps.times > start) & (steps.times < end)
            first = steps.held[np.searchsorted(steps.times, start, side="right") - 1]
            assert value == max([first, *steps.held[inside]])


def test_a_binary_has_no_record_of_it(tmp_path: Path) -> None:
    text = tmp_path / "a.s"
    text.write_text("halt\n")
    found = run(Request(text, mode="time")).record()["timeline"]
    assert "vmem" not in found
