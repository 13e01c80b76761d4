"""The compiler's records of its choices."""

from __future__ import annotations

import json

import pytest

from systolith.compiler.driver import Compiled
from systolith.compiler.explain import Alternative, Decision, as_text, each_once
from tests.compiler.gemm.test_predict import gemm
from tests.compiler.machine import compiled

SHARED = """HloModule t
ENTRY e {
  x = f32[96,96] parameter(0)
  a = f32[96,96] exponential(x)
  b = f32[96,96] negate(a)
  c = f32[96,96] transpose(a), dimensions={1,0}
  s = f32[96,96] sine(b)
  t = f32[96,96] cosine(c)
  ROOT r = (f32[96,96], f32[96,96]) tuple(s, t)
}
"""


@pytest.fixture(scope="module")
def big() -> Compiled:
    return compiled(gemm(1024, 1024, 1024), "tpu_v3")


def test_tiles_beat_what_was_rejected(big: Compiled) -> None:
    (tiles,) = (d for d in big.explain if d.kind == "tiles")
    assert tiles.rejected
    # Candidates within a hundredth are alike.
    assert all(tiles.numbers["cycles"] <= 1.01 * r.numbers["cycles"] for r in tiles.rejected)
    assert all(r.why for r in tiles.rejected)
    assert tiles.numbers["cycles"] == big.program.groups[0].planned


def test_padding_is_counted() -> None:
    (tiles,) = (d for d in compiled(gemm(256, 64, 128), "tpu_v3").explain if d.kind == "tiles")
    assert tiles.numbers["useful MACs"] == 0.5


def test_a_stored_value_says_why() -> None:
    fusions = {d.group: d for d in compiled(SHARED, "small").explain if d.kind == "fusion"}
    assert fusions.keys() == {"s.outputs", "transpose"}  # the groups that run: `a` has joined that of `s`
    stored, result = fusions["s.outputs"].why.split("; ")
    assert stored == "stored: 2 users, 1 operations, transcendental"
    assert result == "stored: its users read it from memory"
    assert "negate" in fusions["s.outputs"].chosen
    assert "cosine" in fusions["transpose"].chosen  # the transpose has sunk below it


def test_memory_and_schedule_are_told(big: Compiled) -> None:
    kinds = [d.kind for d in big.explain]
    assert kinds.count("memory") == 1
    assert kinds.count("schedule") == 1


def test_every_group_has_a_decision(big: Compiled) -> None:
    assert {g.name for g in big.program.groups} <= {d.group for d in big.explain}


def test_texts() -> None:
    decision = Decision("tiles", "g", "four", "few", {"cycles": 1000, "share": 0.5}, (Alternative("five", "many"),))
    assert as_text([decision]) == "tiles g: four (few); cycles 1,000, share 50.0%\n    not five (many)\n"
    assert json.loads(json.dumps(decision.to_json()))["rejected"][0]["what"] == "five"
    assert each_once([decision, decision]) == [decision]
