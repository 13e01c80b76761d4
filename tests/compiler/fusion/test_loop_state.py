"""The state of a loop: what all else takes elements of, and that asking is not the more work for each operation."""

from __future__ import annotations

import pytest

from systolith.compiler.groups.loop_state import loops_of, plain
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.text.parser import parse_hlo
from tests.compiler.machine import counting

STATE = "(s32[], f32[8])"


def text(operations: int, reader: str = "", start: str = "tuple(zero, x)", result: str = "done") -> str:
    """A loop whose body is a chain of so many operations."""
    chain = "\n  ".join(f"x{n + 1} = f32[8] add(x{n}, x{n})" for n in range(operations))
    return f"""HloModule m

body {{
  state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x0 = f32[8] get-tuple-element(state), index=1
  {chain}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  {reader}
  ROOT all = {STATE} tuple(next, x{operations})
}}

{counting("condition", STATE, 3)}

ENTRY main {{
  x = f32[8] parameter(0)
  given = {STATE} parameter(1)
  zero = s32[] constant(0)
  start = {STATE} {start}
  done = {STATE} while(start), condition=condition, body=body
  ROOT out = ({STATE}, {STATE}) tuple({result}, done)
}}
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (text(3), True),
        (text(3, reader=f"whole = {STATE} copy(state)"), False),
        (text(3, start="copy(given)"), False),
        (text(3, result="start"), False),
    ],
)
def test_plain_loops(source: str, expected: bool) -> None:
    ((outer, loop),) = loops_of(parse_hlo(source))
    assert plain(outer, loop) is expected


def test_parameters_are_looked_up_as_often_in_a_long_body(monkeypatch: pytest.MonkeyPatch) -> None:
    found = vars(Computation)["parameters"].fget
    lookups = []

    def counted(computation: Computation) -> list[Instruction]:
        lookups.append(computation)
        parameters: list[Instruction] = found(computation)
        return parameters

    def count(operations: int) -> int:
        ((outer, loop),) = loops_of(parse_hlo(text(operations)))
        lookups.clear()
        assert plain(outer, loop)
        return len(lookups)

    monkeypatch.setattr(Computation, "parameters", property(counted))
    assert count(200) == count(2)
