"""States of `rng-get-and-update-state` live from run to run, as on XLA's CPU backend."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.hw.lockstep import Case, Lockstep
from systolith.isa.asm import assemble, disassemble
from systolith.isa.chip import load_chip
from systolith.isa.program import Role
from systolith.runtime.arrays import Array
from systolith.runtime.memories import bind, numbered
from tests.runtime.command import systolith

TWO = """HloModule m
ENTRY e {
 x = f32[8] parameter(0)
 a = u64[2] rng-get-and-update-state(), delta=5
 b = u64[2] rng-get-and-update-state(), delta=100
 ROOT t = (u64[2], f32[8], u64[2]) tuple(a, x, b)
}
"""
LOOP = """HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
less { s = (s32[], u64[2]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT r = pred[] compare(i, n), direction=LT }
step { s = (s32[], u64[2]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 c = u64[2] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 k = u64[2] rng-get-and-update-state(), delta=3
 m = u64[2] add(c, k)
 ROOT t = (s32[], u64[2]) tuple(j, m) }
ENTRY e {
 c = u64[2] parameter(0)
 z = s32[] constant(0)
 s = (s32[], u64[2]) tuple(z, c)
 w = (s32[], u64[2]) while(s), condition=less, body=step
 ROOT r = u64[2] get-tuple-element(w), index=1
}
"""
CASES: dict[str, tuple[str, Array]] = {
    "two": (TWO, np.zeros(8, np.float32)),
    "a loop": (LOOP, np.array([1, 2], np.uint64)),
}


def of_xla(text: str, argument: Array, runs: int) -> list[list[Any]]:
    """Results of one executable's runs."""
    hlo: Any = importlib.import_module("jaxlib._hlo")
    jaxlib: Any = importlib.import_module("jaxlib._jax")
    options: Any = importlib.import_module("jaxlib.xla_client").CompileOptions()
    jax: Any = importlib.import_module("jax")
    device = jax.devices("cpu")[0]
    computation = hlo.XlaComputation(hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    mlir = jaxlib.mlir.xla_computation_to_mlir_module(computation)
    executable = device.client.compile_and_load(mlir, jaxlib.DeviceList((device,)), options)
    found = []
    with jax.enable_x64(True):
        for _ in range(runs):
            given = [jax.device_put(np.array(argument), device)]
            parts = executable.execute_sharded(given).disassemble_into_single_device_arrays()
            found.append([np.asarray(p[0]) for p in parts])
    return found


@pytest.mark.parametrize("name", CASES)
def test_they_go_on_from_run_to_run(name: str) -> None:
    text, argument = CASES[name]
    executable = sl.Client("tiny").compile(text)
    for want in of_xla(text.replace(", input_output_alias={ {}: (0, {}, may-alias) }", ""), argument, 3):
        for got, expected in zip(executable(argument, hostile=True), want, strict=True):
            np.testing.assert_array_equal(got.numpy(), expected)


def test_each_executable_and_each_device_has_its_own() -> None:
    client = sl.Client("tiny", devices=2)
    one, other = (client.compile(TWO) for _ in range(2))
    x = np.zeros(8, np.float32)
    first = [int(e(x, device=d)[0].numpy()[0]) for e in (one, other) for d in range(2)]
    assert len(set(first)) == 1
    assert int(one(x)[0].numpy()[0]) == first[0] + 5


def test_the_program_says_how_they_begin() -> None:
    program = sl.Client("tiny").compile(TWO).program
    states = [b for b in program.buffers if b.role is Role.STATE]
    assert [int.from_bytes(b.data, "little") for b in states] == [0x7012395] * 2
    assert [len(numbered(program, role)) for role in (Role.PARAMETER, Role.RESULT)] == [1, 3]
    assert assemble(disassemble(program), load_chip("tiny")).buffers == program.buffers


def test_checked_and_from_each_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "m.hlo"
    module.write_text(LOOP)
    ran = systolith(capsys, "run", module, "--random", 3, "--chip", "tiny", "--check", "--hostile")
    assert ran.code == 0, ran.err
    from_each_stage(tmp_path, capsys, LOOP)


def from_each_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Compilation goes on from each stage's text to the same binary."""
    module = tmp_path / "m.hlo"
    module.write_text(text)
    folder, made = tmp_path / "stages", tmp_path / "m.slb"
    assert systolith(capsys, "compile", module, "--chip", "tiny", "-o", made, "--dump-dir", folder).code == 0
    for stage, name in (("canonical", "canonical.hlo"), ("grouped", "grouped.hlo"), ("tile", "tile.txt")):
        again = tmp_path / f"{stage}.slb"
        ran = systolith(capsys, "compile", folder / name, "--from", stage, "--chip", "tiny", "-o", again)
        assert (ran.code, again.read_bytes() == made.read_bytes()) == (0, True), (stage, ran.err)


@pytest.mark.slow
def test_in_lockstep() -> None:
    program = sl.Client("tiny").compile(LOOP).program
    x = np.array([1, 2], np.uint64).view(np.uint8)
    with Lockstep(load_chip("tiny")) as both:
        result = both.run(Case(program, bind(program, [x], [np.zeros(16, np.uint8)])))
    assert result.ok, result.difference


SIZED = {
    "an array": """s32[<=8]
 k = u64[2] rng-get-and-update-state(), delta=5
 s = s32[2] convert(k)
 f = s32[1] slice(s), slice={[0:1]}
 q = s32[] reshape(f)
 g = s32[8] broadcast(q), dimensions={}
 n = s32[] get-dimension-size(x), dimensions={0}
 b = s32[<=8] set-dimension-size(g, n), dimensions={0}
 ROOT y = s32[<=8] add(x, b)""",
    "a tuple": """(u64[2], s32[<=8], s32[<=8], u64[2])
 a = u64[2] rng-get-and-update-state(), delta=5
 b = u64[2] rng-get-and-update-state(), delta=100
 n = s32[] constant(3)
 c = s32[8] constant({1, 2, 3, 4, 5, 6, 7, 8})
 d = s32[<=8] set-dimension-size(c, n), dimensions={0}
 ROOT t = (u64[2], s32[<=8], s32[<=8], u64[2]) tuple(a, d, x, b)""",
    "a loop": """(s32[], s32[<=8])
 z = s32[] constant(0)
 s = (s32[], s32[<=8]) tuple(z, x)
 ROOT w = (s32[], s32[<=8]) while(s), condition=less, body=step""",
}
"""The shape of a result, and how it is made of `x`, which has a dynamic size."""
SIZED_LOOP = """less { s = (s32[], s32[<=8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT r = pred[] compare(i, n), direction=LT }
step { s = (s32[], s32[<=8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = s32[<=8] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 k = u64[2] rng-get-and-update-state(), delta=3
 c = s32[2] convert(k)
 f = s32[1] slice(c), slice={[0:1]}
 q = s32[] reshape(f)
 g = s32[8] broadcast(q), dimensions={}
 n = s32[] get-dimension-size(x), dimensions={0}
 b = s32[<=8] set-dimension-size(g, n), dimensions={0}
 y = s32[<=8] subtract(b, x)
 ROOT t = (s32[], s32[<=8]) tuple(j, y) }
"""


def sized(name: str) -> str:
    body = SIZED[name].partition("\n")[2]
    return f"HloModule m\n{SIZED_LOOP * (name == 'a loop')}ENTRY e {{\n x = s32[<=8] parameter(0)\n{body}\n}}"


@pytest.mark.parametrize("name", SIZED)
def test_beside_dynamic_sizes_they_go_on_from_run_to_run(name: str, tmp_path: Path) -> None:
    """As in one run of the evaluator that calls the module's computation once for each of these."""
    arguments = [np.arange(n, dtype=np.int32) for n in (3, 8, 0, 5)]
    of_one, shape = sized(name).replace("ENTRY e", "run"), SIZED[name].partition("\n")[0]
    calls = "".join(
        f" x{k} = s32[<=8] parameter({k})\n y{k} = {shape} call(x{k}), to_apply=run\n" for k in range(len(arguments))
    )
    names, shapes = (", ".join(each) for each in zip(*((f"y{k}", shape) for k in range(len(arguments))), strict=True))
    wanted = evaluate(parse_hlo(f"{of_one}\nENTRY e {{\n{calls} ROOT t = ({shapes}) tuple({names})\n}}"), *arguments)
    client = sl.Client("tiny")
    executable = client.compile(sized(name))
    executable.save(tmp_path / "m.slb")
    for runs in (executable, client.load(tmp_path / "m.slb")):
        got = [r.numpy() for x in arguments for r in runs(x, hostile=True)]
        for one, want in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, want)


def test_beside_dynamic_sizes_from_each_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from_each_stage(tmp_path, capsys, sized("a tuple"))


def test_a_state_that_no_result_follows_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, canonical, made = tmp_path / "m.hlo", tmp_path / "canonical.hlo", tmp_path / "m.slb"
    module.write_text(TWO)
    assert systolith(capsys, "compile", module, "--chip", "tiny", "--dump-dir", tmp_path, "-o", made).code == 0
    text, alias = canonical.read_text(), ", {2}: (2, {}, must-alias)"
    assert alias in text
    canonical.write_text(text.replace(alias, ""))
    made.unlink()
    ran = systolith(capsys, "compile", canonical, "--from", "canonical", "--chip", "tiny", "-o", made)
    assert (ran.code, made.exists()) == (2, False)
    assert "parameter 2, a state of rng-get-and-update-state: keep its must-alias" in ran.err
