"""Results in the memory of parameters: which may be made there, and that the values stay right."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.driver import Compiled
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.memory.aliasing import ResultAlias, read_aliases
from systolith.isa.program import Role
from systolith.sim.simulate import simulate
from tests.compiler.machine import TINY, Array, check, compare, compiled, with_vmem
from tests.compiler.memory.random_donations import random_donation
from tests.examples import seeds


def module(aliases: str, body: str) -> str:
    return f"HloModule t, input_output_alias={{ {aliases} }}\nENTRY e {{\n{body}}}\n"


def shared(result: Compiled) -> dict[int, int]:
    """The parameter whose memory each result has."""
    buffers = result.program.buffers
    return {b.number: buffers[b.alias].number for b in buffers if b.role is Role.RESULT and b.alias >= 0}


def moved(result: Compiled) -> tuple[int, int]:
    """HBM bytes read and written."""
    found = simulate(result.program, TINY).to_json()["hbm_bytes"]
    return found["read"], found["written"]


def draw(*dims: int) -> Array:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


NESTED = """  a = (f32[3], (s32[2], f32[5])) parameter(0)
  b = f32[5] parameter(1)
  x = (s32[2], f32[5]) get-tuple-element(a), index=1
  y = f32[5] get-tuple-element(x), index=1
  s = f32[5] add(y, b)
  z = f32[3] get-tuple-element(a), index=0
  ROOT r = (f32[3], (f32[5], f32[5])) tuple(z, (f32[5], f32[5]) i)
""".replace("(f32[5], f32[5]) i", "i").replace("  ROOT", "  i = (f32[5], f32[5]) tuple(s, b)\n  ROOT")


def test_aliases_are_numbered_among_the_leaves() -> None:
    text = module("{1,0}: (0, {1, 1}, must-alias), {1, 1}: (1, {}), {0}: (0, {0}, may-alias)", NESTED)
    found = [ResultAlias(1, 2, True), ResultAlias(2, 3, False), ResultAlias(0, 0, False)]
    assert read_aliases(parse_hlo(text)) == found


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ("{1,0}: (7, {}, may-alias)", "parameter 7"),
        ("{1,0}: (0, {3}, may-alias)", r"\{3\}"),
        ("{4}: (1, {}, may-alias)", r"\{4\}"),
        ("{1}: (1, {}, may-alias)", r"\{1\}"),
        ("{0}: (1, {}, must-alias)", r"f32\[3\].*f32\[5\]"),
        ("{1,0}: (1, {}, may-alias), {1,1}: (1, {}, may-alias)", "two aliases"),
    ],
)
def test_impossible_aliases_are_refused(aliases: str, message: str) -> None:
    with pytest.raises((CompileError, ValueError), match=message) as caught:
        compiled(module(aliases, NESTED))
    assert "\n" not in str(caught.value).split("\n  ")[0]


def test_arrays_that_differ_may_not_share() -> None:
    assert read_aliases(parse_hlo(module("{0}: (1, {}, may-alias)", NESTED))) == []


UPDATE = """  c = f32[512,64] parameter(0)
  u = f32[1,64] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  d = f32[512,64] dynamic-update-slice(c, u, i, z)
  w = f32[64,8] parameter(3)
  p = f32[512,8] dot(d, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[512,64], f32[512,8]) tuple(d, p)
"""


@pytest.mark.parametrize("row", [-3, 0, 200, 511, 999])
def test_an_update_of_a_donated_array_writes_its_row_only(row: int) -> None:
    args = [draw(512, 64), draw(1, 64), np.array(row, np.int32), draw(64, 8)]
    result = check(module("{0}: (0, {}, may-alias)", UPDATE), args)
    assert shared(result) == {0: 0}
    _, written = moved(result)
    assert written <= 512 * 8 * 4 + 1024


def test_an_update_of_another_array_writes_all_of_it() -> None:
    args = [draw(512, 64), draw(1, 64), np.array(200, np.int32), draw(64, 8)]
    plain = check("HloModule t\nENTRY e {\n" + UPDATE + "}\n", args)
    assert moved(plain)[1] >= 512 * 64 * 4


CHAIN = """  c = f32[64,64] parameter(0)
  i = s32[] parameter(1)
  one = s32[] constant(1)
  z = s32[] constant(0)
  a = f32[1,64] dynamic-slice(c, i, z), dynamic_slice_sizes={1,64}
  j = s32[] add(i, one)
  d = f32[64,64] dynamic-update-slice(c, a, j, z)
  b = f32[1,64] dynamic-slice(d, j, z), dynamic_slice_sizes={1,64}
  n = f32[1,64] negate(b)
  k = s32[] add(j, one)
  e = f32[64,64] dynamic-update-slice(d, n, k, z)
  ROOT f = f32[64,64] dynamic-update-slice(e, n, z, z)
"""


def test_updates_one_after_another_are_made_in_one_memory() -> None:
    result = check(module("{}: (0, {}, may-alias)", CHAIN), [draw(64, 64), np.array(5, np.int32)])
    assert shared(result) == {0: 0}
    assert sum(moved(result)) < 64 * 64 * 4


LOOP = """HloModule t, input_output_alias={ {1}: (0, {}, may-alias) }
body {
  p = (s32[], f32[2048,64], f32[1,64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  c = f32[2048,64] get-tuple-element(p), index=1
  x = f32[1,64] get-tuple-element(p), index=2
  one = s32[] constant(1)
  z = s32[] constant(0)
  n = s32[] add(i, one)
  d = f32[2048,64] dynamic-update-slice(c, x, i, z)
  y = f32[1,64] negate(x)
  ROOT r = (s32[], f32[2048,64], f32[1,64]) tuple(n, d, y)
}
cond {
  p = (s32[], f32[2048,64], f32[1,64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(9)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  c = f32[2048,64] parameter(0)
  x = f32[1,64] parameter(1)
  i = s32[] parameter(2)
  t = (s32[], f32[2048,64], f32[1,64]) tuple(i, c, x)
  ROOT w = (s32[], f32[2048,64], f32[1,64]) while(t), condition=cond, body=body
}
"""


def test_a_loop_updates_a_donated_array_that_is_too_large_for_vmem_where_it_is() -> None:
    result = check(LOOP, [draw(2048, 64), draw(1, 64), np.array(3, np.int32)])
    assert shared(result) == {1: 0}
    assert sum(moved(result)) < 64 * 1024


def test_an_elementwise_result_replaces_its_operand_tile_by_tile() -> None:
    body = "  w = f32[512,300] parameter(0)\n  g = f32[512,300] parameter(1)\n  ROOT s = f32[512,300] subtract(w, g)\n"
    result = check(module("{}: (0, {}, must-alias)", body), [draw(512, 300), draw(512, 300)])
    assert result.memory.hbm == 2 * 512 * 300 * 4
    assert result.memory.aliased == 512 * 300 * 4


def test_what_reads_other_elements_is_not_made_over_them() -> None:
    body = "  w = f32[512,300] parameter(0)\n  ROOT s = f32[512,300] reverse(w), dimensions={0}\n"
    result = check(module("{}: (0, {}, must-alias)", body), [draw(512, 300)])
    assert shared(result) == {0: 0}
    assert result.memory.temporaries == 512 * 300 * 4


LATER = """  a = f32[40,50] parameter(0)
  b = f32[40,50] parameter(1)
  n = f32[40,50] negate(a)
  t = f32[50,40] transpose(n), dimensions={1,0}
  d = f32[50,50] dot(t, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[40,50], f32[50,50]) tuple(n, d)
"""


@pytest.mark.parametrize(("kind", "expected"), [("may", {}), ("must", {0: 0})])
def test_a_parameter_that_is_read_later_has_its_result_elsewhere_or_at_the_end(
    kind: str, expected: dict[int, int]
) -> None:
    result = check(module(f"{{0}}: (0, {{}}, {kind}-alias)", LATER), [draw(40, 50), draw(40, 50)])
    assert shared(result) == expected
    assert "the parameter is needed after the result is made" in result.stages["explain.txt"]


SWAP = """  a = f32[300,300] parameter(0)
  b = f32[300,300] parameter(1)
  ROOT r = (f32[300,300], f32[300,300]) tuple(b, a)
"""


def test_parameters_that_must_change_places_do() -> None:
    text = module("{0}: (0, {}, must-alias), {1}: (1, {}, must-alias)", SWAP)
    assert shared(check(text, [draw(300, 300), draw(300, 300) + 1])) == {0: 0, 1: 1}


def test_a_parameter_that_is_a_result_stays_where_it_is() -> None:
    text = module("{0}: (1, {}, may-alias), {1}: (0, {}, may-alias)", SWAP)
    result = check(text, [draw(300, 300), draw(300, 300) + 1])
    assert moved(result) == (0, 0)


KEPT = """HloModule t, input_output_alias={ {0}: (0, {}, must-alias) }
body {
  p = (s32[], f32[8,48]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  x = f32[8,48] get-tuple-element(p), index=1
  ROOT r = (s32[], f32[8,48]) tuple(n, x)
}
cond {
  p = (s32[], f32[8,48]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(9)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  a = f32[8,48] parameter(0)
  i = s32[] parameter(1)
  t = (s32[], f32[8,48]) tuple(i, a)
  w = (s32[], f32[8,48]) while(t), condition=cond, body=body
  n = f32[8,48] negate(a)
  x = f32[8,48] get-tuple-element(w), index=1
  y = f32[8,48] reverse(x), dimensions={0}
  ROOT r = (f32[8,48], f32[8,48]) tuple(n, y)
}
"""


def test_a_value_that_a_loop_keeps_is_still_the_parameter() -> None:
    check(KEPT, [draw(8, 48), np.array(2, np.int32)])


@pytest.mark.parametrize("kib", [6, pytest.param(12, marks=pytest.mark.slow), 256])
@pytest.mark.parametrize("seed", seeds(5, 25))
def test_random_donations(seed: int, kib: int) -> None:
    compare(*random_donation(seed), with_vmem(TINY, kib << 10))


UPDATES = """HloModule t
ENTRY e {
  c = f32[64,64] parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  one = s32[] constant(1)
  s = f32[64,64] dot(c, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a = f32[1,64] slice(s), slice={[3:4], [0:64]}
  j = s32[] add(i, one)
  d = f32[64,64] dynamic-update-slice(s, a, j, z)
  n = f32[1,64] negate(a)
  e = f32[64,64] dynamic-update-slice(d, n, i, z)
  ROOT p = f32[64,64] dot(e, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_a_value_that_nothing_else_needs_is_updated_where_it_is() -> None:
    result = check(UPDATES, [draw(64, 64) / 8, np.array(5, np.int32)])
    values = [r.name for r in result.memory.ranges if r.role == "value" and r.bytes == 64 * 64 * 4]
    assert values == ["s"]
