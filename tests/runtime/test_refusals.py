"""Refusals of a module: the first one and how many more there are, or with `--all` each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from systolith import api as sl
from systolith.compiler.errors import CompileError
from systolith.runtime.commands.exits import BAD_INPUT, GOOD
from tests.compiler.driver.test_large_structures import loops
from tests.examples import THOROUGH
from tests.runtime.command import systolith

REFUSED = """HloModule m
turned { p = (f32[8], s32[]) parameter(0)
 k = token[] after-all()
 b = (f32[8], u32[], token[]) recv(k), channel_id=1, is_host_transfer=true
 d = (f32[8], token[]) recv-done(b), channel_id=1, is_host_transfer=true
 s = f32[8] get-tuple-element(d), index=0
 i = s32[] get-tuple-element(p), index=1
 ROOT t = (f32[8], s32[]) tuple(s, i) }
goes { p = (f32[8], s32[]) parameter(0)
 i = s32[] get-tuple-element(p), index=1
 n = s32[] constant(4)
 ROOT l = pred[] compare(i, n), direction=LT }
ENTRY e {
 x = f32[8] parameter(0)
 i = s32[] parameter(1)
 t = (f32[8], s32[]) tuple(x, i)
 w = (f32[8], s32[]) while(t), condition=goes, body=turned
 y = f32[8] get-tuple-element(w), index=0
 k = token[] after-all()
 a = (f32[8], u32[], token[]) send(x, k), channel_id=2, is_host_transfer=true
 c = token[] send-done(a), channel_id=2, is_host_transfer=true
 r = f32[8] custom-call(x), custom_call_target="nobody"
 ROOT o = (f32[8], token[], f32[8]) tuple(y, c, r)
}
"""
EACH = ["recv 'b'", "recv-done 'd'", "send 'a'", "send-done 'c'", "custom-call 'r'"]


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    path = tmp_path / "m.hlo"
    path.write_text(REFUSED)
    return path


def commands(refused: Path) -> list[list[object]]:
    return [
        ["run", refused, "--chip", "tiny", "--random", 0],
        ["compile", refused, "--chip", "tiny", "-o", refused.parent / "m.slb"],
        ["explain", refused, "--chip", "tiny"],
        ["lockstep", refused, "--chip", "tiny", "--random", 0],
    ]


def test_one_line_names_the_first_refusal_and_counts_the_others(
    refused: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in commands(refused):
        ran = systolith(capsys, *words)
        (line,) = ran.err.splitlines()
        assert (ran.code, ran.out) == (BAD_INPUT, "")
        assert EACH[0] in line
        assert line.endswith(f"(and {len(EACH) - 1} more; --all lists them)")


def test_all_lists_each_refusal_on_a_line(refused: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands(refused):
        ran = systolith(capsys, *words, "--all")
        lines = ran.err.splitlines()
        assert (ran.code, ran.out, len(lines)) == (BAD_INPUT, "", len(EACH))
        assert all(what in line for what, line in zip(EACH, lines, strict=True))


def test_the_exception_carries_them() -> None:
    with pytest.raises(CompileError) as caught:
        sl.Client(chip="tiny").compile(REFUSED)
    assert len(caught.value.refusals) == len(EACH)
    assert str(caught.value).startswith(caught.value.refusals[0])


def test_all_changes_nothing_of_what_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.hlo"
    path.write_text("HloModule m\nENTRY e { x = f32[4] parameter(0)\n ROOT n = f32[4] negate(x) }\n")
    assert systolith(capsys, "run", path, "--chip", "tiny", "--random", 0, "--all").code == GOOD
    missing = systolith(capsys, "run", tmp_path / "none.hlo", "--all")
    assert (missing.code, len(missing.err.splitlines())) == (BAD_INPUT, 1)


def test_loops_nested_too_deep_are_refused() -> None:
    with pytest.raises(CompileError, match=r"while 'w'.*nested deeper than 256"):
        sl.Client(chip="tiny").compile(loops(260, turns="2"))


CONVOLUTION = """ x{n} = {a}[1,5,5,4] iota(), iota_dimension=1
 k{n} = {b}[3,3,{k},4] iota(), iota_dimension=2
 c{n} = {r}[1,3,3,4] convolution(x{n}, k{n}), window={{size=3x3}}, dim_labels=b01f_01io->b01f, {groups}
"""
ELEMENTS = ("s8", "u4", "s16", "u32", "bf16", "f32")


@pytest.mark.parametrize("opcode", ["dot", pytest.param("convolution", marks=pytest.mark.slow), "depthwise"])
def test_each_product_that_is_refused_is_listed(opcode: str) -> None:
    """Of any element types: those that are refused alone are all refused together, and no others."""
    alone: list[str] = []
    texts: list[str] = []
    types = ELEMENTS if THOROUGH else ELEMENTS[::2]
    for n, (a, b, r) in enumerate(product(types, types, ("s8", "s32", "f32"))):
        kernel = {"k": 1, "groups": "feature_group_count=4"} if opcode == "depthwise" else {"k": 4, "groups": ""}
        text = CONVOLUTION.format(n=n, a=a, b=b, r=r, **kernel).rstrip(", \n")
        if opcode == "dot":
            text = (
                f" x{n} = {a}[3,4] iota(), iota_dimension=1\n k{n} = {b}[4,5] iota(), iota_dimension=0\n"
                f" c{n} = {r}[3,5] dot(x{n}, k{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
            )
        texts.append(text)
        if refused_products([text], [n]):
            alone.append(f"c{n}")
    assert len(texts) // 6 < len(alone) < len(texts)
    assert refused_products(texts, range(len(texts))) == alone


def refused_products(texts: Sequence[str], numbers: Sequence[int]) -> list[str]:
    """The names of those that are refused."""
    results = [(f"c{n}", text.split(f"c{n} = ")[1].split(" ")[0]) for n, text in zip(numbers, texts, strict=True)]
    names, shapes = (", ".join(column) for column in zip(*results, strict=True))
    entry = "\n".join(["HloModule m", "ENTRY e {", *texts, f" ROOT t = ({shapes}) tuple({names})", "}"])
    try:
        sl.Client("tiny").compile(entry)
    except CompileError as refused:
        return [name for name, _ in results if any(f"'{name}'" in line for line in refused.refusals)]
    return []
