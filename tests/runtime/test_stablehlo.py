"""StableHLO and VHLO wherever HLO is taken: text, bytecode, portable artifacts, what `jax.export` serializes."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from systolith import api as sl
from systolith.runtime.inputs.sources import read_source
from systolith.runtime.inputs.stablehlo import is_mlir_text
from tests.runtime.command import systolith

EXPORTED = Path(__file__).parent / "exported"
"""`jax.export.export(jax.jit(f), platforms=[...])(*ARGUMENTS).serialize()`, of `tpu`, and of `tpu` and `cpu`."""
SEED = np.random.default_rng(0)
X, Y = SEED.standard_normal((4, 8)).astype(np.float32), SEED.standard_normal((8, 4)).astype(np.float32)


def f(x: Any, y: Any) -> Any:
    return jnp.tanh(jnp.dot(x, y, precision="highest")), x.sum()


@cache
def forms() -> dict[str, bytes]:
    """One program in every form."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    exported = export.export(jax.jit(f), platforms=["tpu"])(X, Y)
    artifact = bytes(exported.mlir_module_serialized)
    lowered = jax.jit(f).lower(X, Y)
    with mlir.make_ir_context() as context:
        vhlo = str(ir.Module.parse(artifact, context))
        bytecode = mlir.module_to_bytecode(ir.Module.parse(exported.mlir_module(), context))
    return {
        "text": lowered.as_text().encode(),
        "text with lines": lowered.as_text(debug_info=True).encode(),
        "vhlo": vhlo.encode(),
        "bytecode": bytecode,
        "artifact": artifact,
        "jax.export": (EXPORTED / "one_platform.jax").read_bytes(),
    }


SLOW = [pytest.param(form, marks=pytest.mark.slow) for form in ("bytecode", "artifact")]


@pytest.mark.parametrize("form", ["text", "text with lines", "vhlo", "jax.export", *SLOW])
def test_each_form_gives_what_jax_computes(form: str) -> None:
    got = sl.evaluate(sl.parse_module(forms()[form]), X, Y)
    for one, want in zip(got, jax.jit(f)(X, Y), strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["text with lines", SLOW[1]])
def test_commands_take_it(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.mlir"
    path.write_bytes(forms()[form])
    np.savez(tmp_path / "in.npz", arg0=X, arg1=Y)
    first, second = f(X, Y)
    np.savez(tmp_path / "out.npz", out0=first, out1=second)
    words = ["--args", tmp_path / "in.npz", "--expect", tmp_path / "out.npz", "--chip", "tiny", "--check"]
    assert systolith(capsys, "run", path, *words).code == 0
    assert systolith(capsys, "cost", path).code == 0


def test_a_client_compiles_it() -> None:
    compile_ = sl.Client("tiny").compile
    first, _ = compile_(forms()["text"].decode())(X, Y)
    second, _ = compile_(forms()["text"])(X, Y)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, jnp.tanh(X @ Y), rtol=1e-4, atol=1e-4)


def test_lines_of_python_are_known() -> None:
    number = f.__code__.co_firstlineno + 1
    module = sl.parse_module(forms()["text with lines"], "model.mlir")
    (dot,) = [i for i in module.instructions() if i.opcode == "dot"]
    assert dot.line == number
    assert str(dot.line.place).startswith(f"{__file__}:{number}")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "mlir"),
    [
        ("module {", True),
        ("module @jit_f attributes {a = 1} {", True),
        ("// made by hand\n#loc = loc(unknown)\nmodule {", True),
        ('"builtin.module"() ({', True),
        ("func.func @main() {", True),
        ("vhlo.func_v1 @main() {", True),
        ("HloModule module\n", False),
        ("// a comment\nHloModule m", False),
        ("ENTRY main {", False),
        ("module_1 {\n a = f32[] parameter(0)", False),
    ],
)
def test_its_text_is_told_from_that_of_hlo(text: str, mlir: bool) -> None:
    assert is_mlir_text(text) == mlir


BAD = {
    "unknown operation": (b"module {\n  foo\n}", r"bad:2:3: custom op 'foo' is unknown"),
    "no main": (b"module {}", "bad: not readable as StableHLO: .*`main`"),
    "cut text": (b"module {\n func.func @main() {", r"bad:2:\d+: expected"),
    "bytecode of nothing": (b"ML\xefRjunk", "bad: not readable as StableHLO: bytecode version"),
    "several platforms": ((EXPORTED / "two_platforms.jax").read_bytes(), "bad: the program is exported for several"),
    "cut export": ((EXPORTED / "one_platform.jax").read_bytes()[:700], "bad: the exported program is cut"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_bad_is_told_in_one_line(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, message = BAD[name]
    (path := tmp_path / "bad").write_bytes(code)
    with pytest.raises(sl.SystolithError, match=message) as caught:
        read_source(path)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_command_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "bad.mlir").write_bytes(BAD["unknown operation"][0])
    result = systolith(capsys, "compile", path, "-o", tmp_path / "bad.slb")
    assert (result.code, result.out) == (2, "")
    assert result.err.strip() == f"systolith: {path}:2:3: custom op 'foo' is unknown (tried 'builtin.foo' as well)"
    assert not (tmp_path / "bad.slb").exists()


def test_a_reader_that_crashes_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("systolith.runtime.inputs.stablehlo_apart._MODULE", "systolith.none")
    with pytest.raises(sl.SystolithError, match="model: damaged: MLIR's reader ended with status 1 on it"):
        sl.parse_module(forms()["artifact"], "model")


@pytest.mark.slow
def test_damaged_bytes_are_read_or_refused() -> None:
    dice = random.Random(0)
    for form in ("vhlo", "artifact", "bytecode", "jax.export"):
        for _ in range(200 if form == "vhlo" else 15):
            data = bytearray(forms()[form])
            for _ in range(dice.randint(1, 3)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            try:
                sl.parse_module(bytes(data), "model")
            except sl.SystolithError as error:
                assert "\n" not in str(error)  # noqa: PT017  most are refused, not all


def test_without_jax_a_line_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['jax'] = None\n"
        "from systolith import api as sl\n"
        "try: sl.parse_module('module { func.func @main() { return } }', 'm.mlir')\n"
        "except sl.SystolithError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "m.mlir: StableHLO is read by JAX: pip install 'systolith[jax]'\n"
