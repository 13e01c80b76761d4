"""`systolith ops`: every operation of a module, against what the compiler makes and refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from systolith.api import load_chip, parse_hlo
from systolith.compiler.driver import compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.options import Options
from systolith.runtime.cli import cli
from systolith.runtime.commands.ops import operations
from tests.corpus.load import load

BAD = """HloModule bad

ENTRY main {
  x = f32[8,8]{1,0} parameter(0)
  t = token[] after-all()
  r = (f32[8,8]{1,0}, u32[], token[]) recv(t), channel_id=1
  d = (f32[8,8]{1,0}, token[]) recv-done(r), channel_id=1
  e = f32[8,8]{1,0} get-tuple-element(d), index=0
  q = f32[8,8]{1,0} custom-call(x), custom_call_target="Foo"
  g = f32[8,8]{1,0} all-reduce(q), replica_groups={{0,1}}, to_apply=sum
  s = f32[8,8]{1,0} add(g, e)
  k = f32[8,8]{1,0} cholesky(s), lower=true
  ROOT a = f32[8,8]{1,0} multiply(s, k)
}

sum {
  p = f32[] parameter(0)
  o = f32[] parameter(1)
  ROOT z = f32[] add(p, o)
}
"""
ONE_BY_ONE = """HloModule m

ENTRY main {
  y = f32[8]{0} parameter(0)
  b = c64[4]{0} bitcast(y)
  n = c64[4]{0} bitcast(y)
  f = f32[8]{0} custom-call(y), custom_call_target="Bar"
  ROOT t = (c64[4]{0}, c64[4]{0}, f32[8]{0}) tuple(b, n, f)
}
"""  # bitcasts are refused by a pass, at the first one; the custom call by the check after all passes
LARGE = """HloModule m
ENTRY e {
  x = f32[65536,65536]{1,0} parameter(0)
  ROOT y = f32[65536,65536]{1,0} negate(x)
}
"""


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(cli, ["ops", *map(str, arguments)], standalone_mode=False)


def test_all_that_is_refused_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text(BAD)
    result = invoke(path, "--chip", "tiny", "--json")
    record = json.loads(result.stdout)
    assert (result.return_value, record["ok"]) == (1, False)
    refused = {row["name"] for row in record["operations"] if not row["supported"]}
    assert refused == {"r", "d", "q", "g"}
    assert len(record["refusals"]) == 4
    ways = {row["name"]: row["how"] for row in record["operations"]}
    assert ways["k"] == "expanded by cholesky_expander"
    assert (ways["x"], ways["s"]) == ("given", "elementwise")
    assert "p" not in ways  # a scalar of what all-reduce applies


def test_refusals_of_which_each_hides_the_next() -> None:
    with pytest.raises(CompileError) as caught:
        compile_module(parse_hlo(ONE_BY_ONE), load_chip("tiny"))
    assert len(caught.value.refusals) == 1
    rows, refusals = operations(parse_hlo(ONE_BY_ONE), load_chip("tiny"))
    assert [next(n for n in "bnf" if f" {n!r} " in line) for line in refusals] == ["b", "n", "f"]
    assert [row.name for row in rows if not row.supported] == ["b", "n", "f"]


def test_what_a_person_sees(tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text(BAD)
    result = invoke(path, "--chip", "tiny")
    assert result.return_value == 1
    assert "not supported: " in result.stderr
    assert "the compiler has no lowering for recv" in result.stderr
    assert result.stdout.endswith("10 operations, 4 not supported on tiny\n")


@pytest.mark.parametrize("name", ["mlp_infer", "lstm_scan", "cond_switch", "cholesky_trisolve", "gpt2_decode_kvcache"])
def test_a_module_that_compiles_has_every_operation_accounted_for(name: str) -> None:
    chip = load_chip("small")
    rows, refusals = operations(parse_hlo(load(name).text), chip)
    assert refusals == []
    program = compile_module(parse_hlo(load(name).text), chip, Options(elided="zeros")).program
    groups = {op: f"{g.name} ({g.kind})" for g in program.groups for op in g.hlo}
    for row in rows:
        assert row.group == groups.get(row.name, "")
        assert row.supported
    entry = parse_hlo(load(name).text).entry
    assert [row.name for row in rows[: len(entry.instructions)]] == [i.name for i in entry.instructions]


def test_counted() -> None:
    result = invoke(load("mlp_infer").path, "--chip", "small", "--count")
    assert result.return_value == 0
    assert "  dot" in result.stdout
    assert "contraction: products on the matrix units" in result.stdout


def test_a_module_that_does_not_fit_is_not_supported() -> None:
    with pytest.raises(CompileError):
        compile_module(parse_hlo(LARGE), load_chip("tiny"))
    _, (refusal,) = operations(parse_hlo(LARGE), load_chip("tiny"))
    assert "HBM" in refusal


def test_a_binary_has_no_operations(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["asm", "examples/axpy.s", "-o", str(tmp_path / "a.slb")], standalone_mode=False)
    assert result.exception is None
    assert "is a binary" in str(invoke(tmp_path / "a.slb").exception)
