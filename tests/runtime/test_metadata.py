"""XLA's metadata (`op_name`, lines of Python) in errors, `explain` and records, from every form of a module."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.runtime.command import systolith


def product(x: Any) -> Any:
    return jnp.dot(x, x)


CALL: Any = jax.ffi.ffi_call("nobody", jax.ShapeDtypeStruct((8, 8), np.float32))  # type: ignore[no-untyped-call]


def refused(x: Any) -> Any:
    return CALL(x)


FORMS: dict[str, Callable[[Any], bytes]] = {
    "hlo": lambda lowered: lowered.as_text("hlo", debug_info=True).encode(),
    "pb": lambda lowered: lowered.compiler_ir("hlo").as_serialized_hlo_module_proto(),
    "mlir": lambda lowered: lowered.as_text(debug_info=True).encode(),
}


@pytest.fixture(params=FORMS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Any], Path]:
    def write(function: Any) -> Path:
        with jax.enable_x64(True):
            lowered = jax.jit(function).lower(np.ones((8, 8), np.float32))
        path = tmp_path / f"model.{request.param}"
        path.write_bytes(FORMS[request.param](lowered))
        return path

    return write


def line(function: Callable[..., object]) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + 1}"


def test_records_and_explain(written: Callable[[Any], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = written(product)
    for command in (["run", "--mode", "time"], ["explain"]):
        word, *options = command
        record = json.loads(systolith(capsys, word, path, "--chip", "tiny", "--json", *options).out)
        (dot,) = [g for g in record["groups"] if "dot" in g["name"]]
        assert (dot["op_name"], dot["source"]) == ("jit(product)/dot_general", line(product))
    out = systolith(capsys, "explain", path, "--chip", "tiny").out
    assert f"made by jit(product)/dot_general, {line(product)}" in " ".join(out.split())


def test_refusals(written: Callable[[Any], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = written(refused)
    result = systolith(capsys, "run", path, "--chip", "tiny", "--random", 0)
    assert result.code == 2
    begin, _, _ = result.err.partition(": custom-call")
    place = f"({line(refused)})" if path.suffix == ".hlo" else line(refused)
    assert begin.endswith(f" {place}")


def test_lines_of_the_old_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n"
    where = 'metadata={op_name="jit(f)/fft" source_file="f.py" source_line=7}'
    text += f' ROOT y = f32[8] custom-call(x), custom_call_target="nobody", {where}\n}}\n'
    (path := tmp_path / "m.hlo").write_text(text)
    result = systolith(capsys, "compile", path, "-o", tmp_path / "m.slb")
    assert f"{path}:4:2 (f.py:7): custom-call 'y'" in result.err
