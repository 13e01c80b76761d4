"""Donated parameters without an alias: results and temporaries that the compiler puts into their memory."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.driver import Compiled
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.memory.aliasing import read_donors
from systolith.isa.program import Role
from tests.compiler.machine import TINY, Array, check, compare, compiled, with_vmem
from tests.compiler.memory.random_donations import random_donation
from tests.compiler.memory.test_aliasing import draw, shared
from tests.examples import seeds

SMALL = with_vmem(TINY, 4 << 10)
BYTES = 32 * 52 * 4


def module(donors: str, body: str, more: str = "") -> str:
    return f"HloModule t, {more}buffer_donor={{ {donors} }}\nENTRY e {{\n{body}}}\n"


def inside(result: Compiled) -> dict[str, str]:
    """The buffer in whose memory each temporary lies that has none of its own."""
    buffers = result.program.buffers
    return {b.name: buffers[b.alias].name for b in buffers if b.role is Role.TEMP and b.alias >= 0}


TWO = """  a = (f32[3], (s32[2], f32[5])) parameter(0)
  b = f32[5] parameter(1)
  x = (s32[2], f32[5]) get-tuple-element(a), index=1
  y = f32[5] get-tuple-element(x), index=1
  ROOT s = f32[5] add(y, b)
"""


def test_donors_are_numbered_among_the_leaves() -> None:
    assert read_donors(parse_hlo(module("(1, {}), (0, {1,0})", TWO))) == [3, 1]


@pytest.mark.parametrize(
    ("donors", "more", "message"),
    [
        ("(2, {})", "", "parameter 2: the module has 2"),
        ("(0, {3})", "", r"parameter 0 \{3\}: there is no such element"),
        ("(0, {1})", "", r"parameter 0 \{1\}: is no array"),
        ("(1, {}), (1, {})", "", "parameter 1.*named twice"),
        ("(1, {})", "input_output_alias={ {}: (1, {}, may-alias) }, ", "parameter 1.*has an input_output_alias"),
    ],
)
def test_impossible_donors_are_refused(donors: str, more: str, message: str) -> None:
    with pytest.raises(CompileError, match=f"buffer_donor: {message}") as caught:
        compiled(module(donors, TWO, more))
    assert "\n" not in str(caught.value)


CHOICE = """  a = f32[32,52] parameter(0)
  b = f32[32,52] parameter(1)
  n = f32[32,52] reverse(a), dimensions={0}
  s = f32[32,52] subtract(a, b)
  ROOT r = (f32[32,52], f32[32,52]) tuple(n, s)
"""


def test_what_is_made_in_place_is_preferred() -> None:
    result = check(module("(0, {})", CHOICE), [draw(32, 52), draw(32, 52) + 1])
    assert shared(result) == {1: 0}
    assert result.memory.aliased == BYTES


UPDATED = """  a = f32[32,52] parameter(0)
  u = f32[1,52] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  n = f32[32,52] reverse(a), dimensions={0}
  d = f32[32,52] dynamic-update-slice(a, u, i, z)
  ROOT r = (f32[32,52], f32[32,52]) tuple(n, d)
"""


def test_an_update_of_a_donor_is_made_where_it_lies() -> None:
    args = [draw(32, 52), draw(1, 52), np.array(5, np.int32)]
    assert shared(check(module("(0, {})", UPDATED), args)) == {1: 0}


LATER = """  a = f32[32,52] parameter(0)
  w = f32[52,52] parameter(1)
  m = f32[32,52] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n = f32[32,52] dot(m, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[52,32] transpose(n), dimensions={1,0}
"""


def test_a_result_of_other_dimensions_and_as_many_bytes_is_made_in_a_donor_that_is_not_needed_any_more() -> None:
    result = check(module("(0, {})", LATER), [draw(32, 52), draw(52, 52) / np.float32(10)])
    assert shared(result) == {0: 0}
    assert result.memory.results == 0


def test_a_donor_that_is_a_result_stays_where_it_is() -> None:
    body = "  a = f32[32,52] parameter(0)\n  b = f32[32,52] parameter(1)\n"
    body += "  ROOT r = (f32[32,52], f32[32,52]) tuple(b, a)\n"
    result = check(module("(0, {}), (1, {})", body), [draw(32, 52), draw(32, 52) + 1])
    assert shared(result) == {0: 1, 1: 0}
    assert not any(i.op.startswith("dma") for i in result.program.code)


def test_what_is_read_until_the_end_gives_its_memory_to_nothing() -> None:
    body = "  a = f32[32,52] parameter(0)\n  n = f32[32,52] reverse(a), dimensions={0}\n"
    body += "  ROOT r = (f32[32,52], f32[32,52]) tuple(n, n)\n"
    assert shared(check(module("(0, {})", body), [draw(32, 52)])) == {}


CHAIN = "\n".join(
    [
        "  v0 = f32[32,52] parameter(0)",
        "  w = f32[52,52] parameter(1)",
        *(
            f"  v{n} = f32[32,52] dot(v{n - 1}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
            for n in range(1, 5)
        ),
        "  m = f32[] constant(0)",
        "  ROOT r = f32[32] reduce(v4, m), dimensions={1}, to_apply=sum\n",
    ]
)
SUM = "sum {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b)\n}\n"


def test_temporaries_lie_in_a_donor_once_nothing_reads_it() -> None:
    text = module("(0, {})", CHAIN).replace("ENTRY", SUM + "ENTRY")
    args: list[Array] = [draw(32, 52), draw(52, 52) / np.float32(10)]
    result = check(text, args, SMALL, "default", 3e-2)
    assert "v0" in inside(result).values()
    plain = check(text.replace("buffer_donor={ (0, {}) }", "is_scheduled=true"), args, SMALL, "default", 3e-2)
    assert result.memory.hbm < plain.memory.hbm
    assert result.memory.hosted > 0
    assert plain.memory.hosted == 0


KEPT = """  a = f32[32,52] parameter(0)
  w = f32[52,52] parameter(1)
  u = f32[1,52] parameter(2)
  i = s32[] parameter(3)
  z = s32[] constant(0)
  m = f32[32,52] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n = f32[32,52] dot(m, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  o = f32[32,52] tanh(n)
  q = f32[32,52] reverse(o), dimensions={0}
  t = f32[32,52] dot(q, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[32,52] dynamic-update-slice(a, u, i, z)
  ROOT r = (f32[32,52], f32[32,52]) tuple(t, d)
"""


def test_what_an_update_leaves_as_it_is_is_not_overwritten_by_temporaries() -> None:
    args = [draw(32, 52), draw(52, 52) / np.float32(10), draw(1, 52), np.array(5, np.int32)]
    result = check(module("(0, {})", KEPT), args, SMALL, "default", 3e-2)
    assert shared(result) == {1: 0}
    assert any(b.role == "temp" for b in result.program.buffers)
    assert result.memory.hosted == 0


READ_IN_A_LOOP = """HloModule t, buffer_donor={ (0, {}) }
body {
  p = (s32[], f32[32,52], f32[32,52]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  a = f32[32,52] get-tuple-element(p), index=1
  x = f32[32,52] get-tuple-element(p), index=2
  y = f32[32,52] add(a, x)
  u = f32[32,52] reverse(y), dimensions={0}
  v = f32[32,52] reverse(u), dimensions={1}
  w = f32[32,52] maximum(v, u)
  ROOT r = (s32[], f32[32,52], f32[32,52]) tuple(n, a, w)
}
cond {
  p = (s32[], f32[32,52], f32[32,52]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  a = f32[32,52] parameter(0)
  b = f32[32,52] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[32,52], f32[32,52]) tuple(z, a, b)
  l = (s32[], f32[32,52], f32[32,52]) while(t), condition=cond, body=body
  x = f32[32,52] get-tuple-element(l), index=2
  ROOT y = f32[52,32] transpose(x), dimensions={1,0}
}
"""


def test_a_donor_that_a_loop_reads_is_needed_until_the_loop_ends() -> None:
    chip = with_vmem(TINY, 4 << 10)
    check(READ_IN_A_LOOP, [draw(32, 52), draw(32, 52) + 1], chip)


@pytest.mark.parametrize("kib", [6, pytest.param(12, marks=pytest.mark.slow), 256])
@pytest.mark.parametrize("seed", seeds(5, 25))
def test_random_donors(seed: int, kib: int) -> None:
    compare(*random_donation(seed, donors=True), with_vmem(TINY, kib << 10))
