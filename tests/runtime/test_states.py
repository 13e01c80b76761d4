"""States of `rng-get-and-update-state` live from run to run, as on XLA's CPU backend."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.errors import CompileError
from systolith.hw.lockstep import Case, Lockstep
from systolith.isa.asm import assemble, disassemble
from systolith.isa.chip import load_chip
from systolith.isa.program import Role
from systolith.runtime.arrays import Array
from systolith.runtime.executable import bind, numbered
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


def test_beside_dynamic_sizes_they_are_refused() -> None:
    text = TWO.replace(
        " ROOT t", " n = s32[] constant(3)\n d = f32[<=8] set-dimension-size(x, n), dimensions={0}\n ROOT t"
    )
    text = text.replace("(u64[2], f32[8], u64[2]) tuple(a, x, b)", "(u64[2], f32[<=8], u64[2]) tuple(a, d, b)")
    with pytest.raises(CompileError, match="states of rng-get-and-update-state beside dynamic sizes"):
        sl.Client("tiny").compile(text)
