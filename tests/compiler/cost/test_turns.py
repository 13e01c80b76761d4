"""What runs in loops counts as often as it runs, in predictions of a module and in estimates of its pressure."""

from __future__ import annotations

from systolith.compiler.groups.stats import executed
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.schedule.fitting import turns_of
from systolith.compiler.tile.ir import Block, If, TileOp, VReg, While
from systolith.isa.program import Origin


def op(group: str) -> TileOp:
    return TileOp("li", {"rd": VReg(1), "imm": 0}, Origin(group, group))


def test_groups_in_loops() -> None:
    inner = While(Block(), VReg(2), Block([op("inner")]), "w", 3)
    branch = If(VReg(3), [Block([op("branch")]), Block()])
    outer = While(Block([op("test")]), VReg(2), Block([op("outer"), inner, branch]), "v", 5)
    unknown = While(Block(), VReg(2), Block([op("unknown")]), "u")
    turns = turns_of(Block([op("once"), outer, unknown]))
    assert turns == {"once": 1, "test": 5, "outer": 5, "inner": 15, "branch": 5, "unknown": 1}


def test_instructions_in_loops() -> None:
    module = parse_hlo("""HloModule m
inner { s = (s32[]) parameter(0)
  a = s32[] get-tuple-element(s), index=0
  ROOT t = (s32[]) tuple(a) }
outer { s.1 = (s32[]) parameter(0)
  ROOT w = (s32[]) while(s.1), condition=going, body=inner, backend_config={"known_trip_count":{"n":"3"}} }
going { s.2 = (s32[]) parameter(0)
  ROOT c = pred[] constant(false) }
coming { s.3 = (s32[]) parameter(0)
  ROOT d = pred[] constant(false) }
ENTRY e { p = (s32[]) parameter(0)
  ROOT v = (s32[]) while(p), condition=coming, body=outer, backend_config={"known_trip_count":{"n":"5"}} }
""")
    times = {i.name: times for i, times in executed(module.entry)}
    assert (times["v"], times["w"], times["a"]) == (1, 5, 15)
    assert "d" not in times, "a counted loop tests nothing"
