"""`constant({...})` in the commands: zeros where asked for, and where only time is wanted, said once on stderr."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from systolith.compiler.options import Options
from systolith.runtime.client import Client
from tests.runtime.command import systolith

TEXT = """HloModule m
ENTRY e {
  x = f32[4,8] parameter(0)
  a = f32[4,8] constant({...})
  b = f32[4,8] constant({...})
  c = f32[4,8] add(x, a)
  ROOT d = f32[4,8] add(c, b)
}
"""
NOTE = "2 constants are zeros: the text leaves their values out ('{...}')"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return path


def test_they_are_zeros_where_asked_for_or_where_only_time_is(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = file.with_suffix(".slb")
    run = ("run", file, "--chip", "tiny", "--json")
    for words in (
        (*run, "--random", 0, "--elided", "zeros", "--check"),
        (*run, "--mode", "time"),
        ("compile", file, "--chip", "tiny", "-o", binary, "--elided", "zeros"),
        ("explain", file, "--chip", "tiny", "--json"),
    ):
        ran = systolith(capsys, *words)
        assert (ran.code, ran.err.count(NOTE)) == (0, 1), words


def test_they_are_refused_otherwise(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("run", file, "--random", 0), ("compile", file, "-o", file.with_suffix(".slb"))):
        ran = systolith(capsys, *words, "--chip", "tiny")
        assert ran.code == 2
        assert f"{file}:4:3: constant 'a' (f32[4,8]): its values are left out of the text" in ran.err
        assert "--elided zeros" in ran.err


def test_they_are_zeros_in_python_too() -> None:
    client = Client("tiny")
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    exe = client.compile(TEXT, Options(elided="zeros"))
    np.testing.assert_array_equal(exe(client.put(x))[0].numpy(), x)
