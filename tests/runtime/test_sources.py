"""Inputs of `run`: HLO text, HloModuleProto, binaries; told apart by their contents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from systolith.compiler.hlo import HloError
from systolith.runtime.inputs.sources import read_source
from tests.corpus.load import load
from tests.runtime.command import systolith


@pytest.fixture
def proto(tmp_path: Path) -> Path:
    from jaxlib import _hlo  # type: ignore[attr-defined]

    module: Any = _hlo.hlo_module_from_text(load("int8_dot_i32").text)
    path = tmp_path / "module.pb"
    path.write_bytes(module.as_serialized_hlo_module_proto())
    return path


def test_a_proto_runs_like_its_text(proto: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = load("int8_dot_i32")
    words = ["--args", case.args_path, "--expect", case.expected_path, "--chip", "tiny", "--json"]
    from_proto = systolith(capsys, "run", proto, *words)
    from_text = systolith(capsys, "run", case.path, *words)
    assert from_proto.code == from_text.code == 0
    assert json.loads(from_proto.out)["cycles"] == json.loads(from_text.out)["cycles"]


def test_a_proto_with_its_buffers_runs(proto: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = proto.read_bytes()
    length = bytes([len(module) & 127 | 128, len(module) >> 7])
    assert len(module) < 1 << 14
    wrapped = proto.with_name("module.hlo.pb")
    wrapped.write_bytes(b"\x0a" + length + module + b"\x1a\x00")  # HloProto: the module, and no buffers
    result = systolith(capsys, "run", wrapped, "--random", "0", "--chip", "tiny", "--json")
    assert result.code == 0
    assert json.loads(result.out)["cycles"] > 0


def test_a_cut_proto_is_refused(proto: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto.write_bytes(proto.read_bytes()[:-40])
    with pytest.raises(HloError, match=r"module\.pb: neither HLO text nor a readable HloModuleProto"):
        read_source(proto)
    result = systolith(capsys, "run", proto, "--random", "0", "--chip", "tiny", "--json")
    assert result.code == 2
    assert "module.pb: neither HLO text nor a readable HloModuleProto" in result.err


@pytest.mark.parametrize(("name", "data"), [("net.onnx", b"\x08\x0a:\x00\xff"), ("net.csv", b"Layer name, M, N, K,\n")])
def test_models_of_other_tools_are_to_be_imported(
    name: str, data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    for command in (["run"], ["compile", "-o", tmp_path / "o.slb"], ["ops"]):
        result = systolith(capsys, *command, path)
        assert result.code == 2
        assert f"{name}: a model of another tool: `systolith import {path} -o MODULE.hlo` makes a module" in result.err


def test_a_proto_that_breaks_a_rule_is_refused_with_its_name(proto: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = proto.read_bytes()
    assert data.count(b"dot") >= 1
    proto.write_bytes(data.replace(b"\x12\x03dot", b"\x12\x03dut"))  # the opcode
    result = systolith(capsys, "run", proto, "--random", "0", "--chip", "tiny", "--json")
    assert result.code == 2
    assert "module.pb: " in result.err
    assert "dut" in result.err


def test_text_and_binary_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = load("int8_dot_i32")
    out = tmp_path / "m.bin"
    assert systolith(capsys, "compile", case.path, "--chip", "tiny", "-o", out).code == 0
    assert read_source(out).program is not None
    assert read_source(case.path).module is not None
