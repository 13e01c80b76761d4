"""The `.proto` file of the service, read back, compiled by protoc where that is installed, and called by."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from click.testing import CliRunner
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from systolith import api as sl
from systolith.reports.run_data import from_json
from systolith.runtime.cli import cli
from systolith.runtime.service import proto
from systolith.runtime.service.messages import ABOUT, MESSAGES, METHODS, message_class, path_of
from systolith.runtime.service.stub import RemoteClient
from tests.service.served import doubled

X = sl.Literal.r1(np.arange(8, dtype=np.float32))


def test_what_is_committed_is_what_the_command_makes() -> None:
    assert proto.TARGET.read_text() == proto.render(), f"run: {proto.COMMAND}"
    assert CliRunner().invoke(cli, ["serve", "--proto"]).output == proto.render()


def test_every_message_and_method_says_what_it_is() -> None:
    assert ABOUT.keys() == MESSAGES.keys() | METHODS.keys()


@pytest.mark.parametrize("name", MESSAGES)
def test_its_messages_are_those_of_the_descriptors(name: str) -> None:
    (body,) = re.findall(rf"^message {name} {{\n(.*?)^}}", proto.render(), re.M | re.S)
    found = re.findall(r"^  (repeated |optional )?(\w+) (\w+) = (\d+);$", body, re.M)
    assert len(found) == body.count("\n")
    wanted = [
        (
            "repeated " if f.is_repeated else "optional " if f.has_presence else "",
            Field.Type.Name(f.type).removeprefix("TYPE_").lower(), f.name, str(f.number),
        )
        for f in message_class(name).DESCRIPTOR.fields
    ]  # fmt: skip
    assert found == wanted


def test_protoc_takes_it(tmp_path: Path) -> None:
    """Its classes and stubs; skipped where grpcio-tools are not installed."""
    pytest.importorskip("grpc_tools")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{proto.TARGET.parent}", f"--python_out={tmp_path}"]
    command += [f"--grpc_python_out={tmp_path}", proto.TARGET.name]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "xla_pb2.py").is_file()
    assert (tmp_path / "xla_pb2_grpc.py").is_file()


def test_calls_are_of_the_kinds_that_it_states(address: str) -> None:
    """A method of one request and one reply is called as such, though the service sees streams only."""
    rpc = re.compile(r"rpc (\w+)\((stream )?[\w.]+\) returns \((stream )?")
    kinds = {name: (a, b) for name, a, b in rpc.findall(proto.render())}
    with grpc.insecure_channel(address) as channel:
        assert kinds["Metrics"] == ("", "")
        reply: bytes = channel.unary_unary(path_of("Metrics"))(message_class("Nothing")().SerializeToString())
        assert b"systolith_sessions" in reply
        assert kinds["Attach"] == ("", "stream ")
        attach: Any = channel.unary_stream(path_of("Attach"))
        attached = attach(b"")
        assert message_class("Session").FromString(next(attached)).devices == 2
        attached.cancel()


def _timeless(record: dict[str, Any] | None) -> dict[str, Any]:
    assert record is not None
    return {k: v for k, v in json.loads(json.dumps(record)).items() if k != "wall_seconds"}


def test_the_record_of_a_run_comes_as_in_process(client: RemoteClient, tmp_path: Path) -> None:
    assert client.last_record() is None
    with pytest.raises(sl.SystolithError, match="made none"):
        client.report(tmp_path / "r.html")
    here, twice = sl.Client("tiny", 2), doubled()
    for one in (client, here):
        one.execute(twice, [one.transfer_to_server(X)])
    record = client.last_record()
    assert _timeless(record) == _timeless(here.last_record())
    assert record is not None
    assert from_json(record).launch == 64
    assert record["cycles"] > 0
    assert "<html" in client.report(tmp_path / "r.html").read_text()


def test_the_error_of_a_run_is_that_of_its_record() -> None:
    client = sl.Client("tiny")
    module = sl.parse_hlo(
        "HloModule m\nENTRY e {\n k = token[] after-all()\n a = (f32[8], token[]) infeed(k)\n"
        " ROOT x = f32[8] get-tuple-element(a), index=0\n}\n"
    )
    client.execute(sl.XlaComputation.of(module))
    client.transfer_to_infeed(sl.Literal.r1(np.arange(3, dtype=np.float32)))
    with pytest.raises(sl.SystolithError, match="infeed"):
        client.last_record()
