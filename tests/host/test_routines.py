"""Custom calls of routines: values, places, loops, stages, errors, checks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.errors import CompileError
from systolith.hw.lockstep import lockstep
from systolith.isa import routines
from systolith.isa.asm_routine import assemble_routine
from systolith.isa.chip import load_chip
from systolith.isa.host_functions import Signature
from tests.installed import install
from tests.runtime.command import systolith

TINY = load_chip("tiny")
GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "add-a-routine.md").read_text()
SCALED_SUM = re.findall(r"^```asm\n(.*?)^```$", GUIDE, re.M | re.S)[0]
"""factor * x + y, the first two in HBM, the last one in VMEM."""

BUBBLE = """
# The greatest of n numbers, and how many are negative: SEQ alone, with labels, a branch and a loop.
.buffer x parameter s32 [n]
.buffer greatest result s32 []
.buffer negative result s32 []
.scratch all smem 4 * n
.scratch out smem 8
.token read ld -> seq
.token made seq -> st
.pattern line s32 counts=(n) strides=(4)
.pattern one s32 counts=(1) strides=(4)
.equ at r7
.equ best r8
.equ count r9
.equ value r10
    dma.load hbm(x)[0]:line, smem[all]:line signal read
    sync wait read
    li at, 0
    li count, 0
    lds best, r0, all
    loop n, end
        lds value, at, all
        bge value, r0, positive
        add count, count, 1
positive:
        max best, best, value
        add at, at, 4
end:
    sts best, r0, out
    sts count, r0, out + 4
    sync signal made
    dma.store smem[out]:one, hbm(greatest)[0]:one wait made
    dma.store smem[out + 4]:one, hbm(negative)[0]:one
    halt
"""


def scaled_sum(factor: Any, x: Any, y: Any) -> Any:
    return factor * x + y


@pytest.fixture(scope="module")
def client() -> sl.Client:
    return sl.Client(chip="tiny")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    sl.register_custom_call_routine("test.scaled_sum", SCALED_SUM, scaled_sum)
    sl.register_custom_call_routine("test.bubble", BUBBLE, lambda x: (x.max(), np.sum(x < 0, dtype=np.int32)))
    yield
    for target in routines.known():
        routines.unregister(target)


def module(n: int, body: str) -> sl.Module:
    arrays = f"x = f32[{n}] parameter(1)  y = f32[{n}] parameter(2)"
    return sl.parse_hlo(f"HloModule m\nENTRY e {{ f = f32[] parameter(0)  {arrays}\n{body} }}")


def call(name: str, operands: str, n: int) -> str:
    return f'{name} = f32[{n}] custom-call({operands}), custom_call_target="test.scaled_sum"\n'


@settings(max_examples=6)
@given(n=st.integers(1, 20), inside=st.booleans(), twice=st.booleans(), seed=st.integers(0, 99))
def test_a_routine_among_other_operations(client: sl.Client, n: int, inside: bool, twice: bool, seed: int) -> None:
    """Operands and results that are parameters, results, or values in VMEM."""
    n *= 16
    text = (f"a = f32[{n}] negate(x)\n" if inside else f"a = f32[{n}] copy(x)\n") + call("c", "f, a, y", n)
    last = "c"
    if twice:
        text += call("d", "f, c, c", n)
        last = "d"
    exe = client.compile(module(n, text + f"ROOT r = f32[{n}] add({last}, c)\n"))
    draw = np.random.default_rng(seed)
    f, x, y = (draw.standard_normal(s).astype(np.float32) for s in ((), n, n))
    c = scaled_sum(f, -x if inside else x, y)
    want = (scaled_sum(f, c, c) if twice else c) + c
    np.testing.assert_array_equal(exe(f, x, y, hostile=True)[0].numpy(), want)
    assert exe.last_run is not None
    assert not exe.last_run.result.hazards


LOOP = """HloModule loop
body {
 p = (s32[], f32[], f32[32], f32[32]) parameter(0)
 k = s32[] get-tuple-element(p), index=0
 f = f32[] get-tuple-element(p), index=1
 x = f32[32] get-tuple-element(p), index=2
 y = f32[32] get-tuple-element(p), index=3
 c = f32[32] custom-call(f, x, y), custom_call_target="test.scaled_sum"
 one = s32[] constant(1)
 n = s32[] add(k, one)
 ROOT r = (s32[], f32[], f32[32], f32[32]) tuple(n, f, c, x)
}
more { p = (s32[], f32[], f32[32], f32[32]) parameter(0)
 k = s32[] get-tuple-element(p), index=0
 five = s32[] constant(5)
 ROOT c = pred[] compare(k, five), direction=LT }
ENTRY e {
 f = f32[] parameter(0)
 x = f32[32] parameter(1)
 y = f32[32] parameter(2)
 zero = s32[] constant(0)
 s = (s32[], f32[], f32[32], f32[32]) tuple(zero, f, x, y)
 w = (s32[], f32[], f32[32], f32[32]) while(s), condition=more, body=body
 ROOT r = f32[32] get-tuple-element(w), index=2
}"""


def test_in_a_loop_and_in_lockstep_with_the_rtl(client: sl.Client) -> None:
    exe = client.compile(sl.parse_hlo(LOOP))
    f, x, y = np.array(0.5, np.float32), np.arange(32, dtype=np.float32), np.ones(32, np.float32)
    (got,) = exe(f, x, y, hostile=True)
    a, b = x, y
    for _ in range(5):
        a, b = scaled_sum(f, a, b), a
    np.testing.assert_array_equal(got.numpy(), a)
    np.testing.assert_array_equal(sl.evaluate(sl.parse_hlo(LOOP), f, x, y)[0], a)
    assert lockstep(exe.program, TINY).ok


def test_control_flow_and_registers_of_a_routine(client: sl.Client) -> None:
    text = """HloModule m
ENTRY e { x = s32[3,7] parameter(0)
 k = s32[] parameter(1)
 row = s32[1,7] dynamic-slice(x, k, k), dynamic_slice_sizes={1,7}
 line = s32[7] reshape(row)
 ROOT r = (s32[], s32[]) custom-call(line), custom_call_target="test.bubble" }"""
    exe = client.compile(sl.parse_hlo(text))
    x = np.random.default_rng(3).integers(-9, 9, (3, 7), dtype=np.int32)
    got = [r.numpy() for r in exe(x, np.array(2, np.int32), hostile=True)]
    assert got == [x[2].max(), (x[2] < 0).sum()]
    assert exe.last_run is not None
    groups = {g.name: g for g in exe.program.groups}
    assert groups["r"].predicted > 0
    assert lockstep(exe.program, TINY).ok


def test_tile_ir_with_a_routine_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.hlo").write_text(LOOP)
    words = ("compile", tmp_path / "m.hlo", "--chip", "tiny", "-o", tmp_path / "a.slb", "--dump-dir", tmp_path / "d")
    assert systolith(capsys, *words).code == 0
    for stage, name in (("grouped", "grouped.hlo"), ("tile", "tile.txt"), ("assembly", "program.s")):
        again = ("compile", tmp_path / "d" / name, "--from", stage, "--chip", "tiny", "-o", tmp_path / "b.slb")
        ran = systolith(capsys, *again)
        assert ran.code == 0, ran.err
        assert (tmp_path / "b.slb").read_bytes() == (tmp_path / "a.slb").read_bytes(), stage


BAD = {
    "an undefined name": (
        ("vmem[y]:", "vmem[z]:"),
        "an integer; z is not defined",
    ),
    "another element type": (("y parameter f32", "y parameter s32"), "y is s32[32], parameter 2 of the call f32[32]"),
    "another rank": (("y parameter f32 [n]", "y parameter f32 [n, 1]"), "y is f32[32,1], parameter 2"),
    "an operand too many": (
        (".scratch word", ".array w parameter f32 [n]\n.scratch word"),
        "w: the call has 3 operands",
    ),
    "an operand that is missing": ((".array y parameter f32 [n]", ".scratch y vmem 4 * n"), "declares 2 operands, the"),
    "a signal that nothing takes": (("wait loaded", ""), "token 0 counts 1: must be 0 at the end"),
    "a wait without a signal": (("signal loaded", ""), "waits for token 0: nothing before it signals it"),
    "VMEM that is not declared": (("vmem 4 * n", "vmem n"), "must be inside of what is declared there"),
    "more than there is": (("vmem 4 * n", "vmem 4 * n * 65536"), "of VMEM: chip tiny has"),
    "a write to an operand": (("vmem[sum]:", "vmem[y]:"), "writes to y, an operand"),
    "no end": (("    halt", ""), "must end with halt"),
    "a register of the compiler's": (("r1", "r28"), "r28: a routine has r1 to r27"),
    "another order": (("x parameter f32 [n]", "x parameter f32 [n] number=2"), "they are declared in their order"),
    "no multiple of the vector": (("n / vector", "(n + 1) / vector"), "expected"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_routine_is_refused_in_a_line_that_names_target_and_call(client: sl.Client, case: str) -> None:
    (old, new), message = BAD[case]
    assert old in SCALED_SUM
    sl.register_custom_call_routine("test.scaled_sum", SCALED_SUM.replace(old, new), scaled_sum)
    with pytest.raises(CompileError) as raised:
        client.compile(module(32, "ROOT " + call("c", "f, x, y", 32)))
    text = str(raised.value)
    assert message in text
    assert "custom-call 'c' (f32[32]): routine of custom-call target 'test.scaled_sum': " in text
    assert "\n" not in text


def test_sizes_that_the_text_cannot_serve_are_refused(client: sl.Client) -> None:
    with pytest.raises(CompileError, match=r"'test\.scaled_sum': line 14, column 32: 33 / 16: must leave no remainder"):
        client.compile(module(33, "ROOT " + call("c", "f, x, y", 33)))


def test_targets_of_functions_of_the_host_and_bad_references_are_refused() -> None:
    sl.register_custom_call_target("test.host", print)
    with pytest.raises(sl.SystolithError, match=r"'test\.host': a function of the host is registered for it"):
        sl.register_custom_call_routine("test.host", BUBBLE)
    with pytest.raises(sl.SystolithError, match="takes a name, a text"):
        sl.register_custom_call_routine("", BUBBLE)


def test_a_name_that_the_call_has_twice_is_compared() -> None:
    signature = Signature("t", (("f32", ()), ("f32", (32,)), ("f32", (48,))), (("f32", (32,)),))
    with pytest.raises(sl.SystolithError, match=r"y is f32\[32\], parameter 2 of the call f32\[48\]"):
        assemble_routine(SCALED_SUM, TINY, signature)


PACKAGE = f"""
from systolith import api as sl
TEXT = '''{SCALED_SUM}'''
GOOD = sl.Routine(TEXT, lambda f, x, y: f * x + y)
NEAR = sl.Routine(TEXT, lambda f, x, y: (f * x + y) * (1 + 2 ** -22), ulp=4)
WRONG = sl.Routine(TEXT, lambda f, x, y: f * x - y)
ALONE = sl.Routine(TEXT)
NONE = 5
"""


@pytest.mark.parametrize("name", ["GOOD", "NEAR", "WRONG", "ALONE", "NONE"])
def test_the_command_line_checks_routines_of_packages(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, f"package_{name}", PACKAGE, {routines.GROUP: {"test.packaged": f"package_{name}:{name}"}})
    monkeypatch.syspath_prepend(tmp_path)
    routines._installed.cache_clear()
    path = tmp_path / "m.hlo"
    body = call("c", "f, x, y", 32).replace("scaled_sum", "packaged")
    path.write_text(sl.print_hlo(module(32, f"{body}ROOT r = f32[32] negate(c)")))
    words = ("run", path, "--chip", "tiny", "--random", 0, "--check")
    try:
        ran = systolith(capsys, *words)
        if name == "NONE":
            assert ran.code == 2
            assert ran.err.endswith("must be a Routine, is a int\n")
            return
        assert ran.code == (1 if name == "WRONG" else 0), ran.err
        alone = "not checked: custom calls of 'test.packaged', whose routine has no reference" in ran.out + ran.err
        assert alone == (name == "ALONE")
        checks = json.loads(systolith(capsys, *words, "--json").out)["checks"]
        assert checks["groups"] == (1 if name == "ALONE" else 2)
        assert checks["without_reference"] == (["test.packaged"] if name == "ALONE" else [])
        assert checks["unchecked"] == (32 if name == "ALONE" else 0)
    finally:
        routines.unregister("test.packaged")
        monkeypatch.undo()
        routines._installed.cache_clear()
