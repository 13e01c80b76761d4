"""Output files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import pytest

from systolith.isa.files import OutputError, require_writable, write_atomic


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "r.bin"
    path.write_bytes(b"old")

    def fail(handle: IO[bytes]) -> None:
        handle.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_written_whole(tmp_path: Path) -> None:
    write_atomic(tmp_path / "r.bin", lambda handle: handle.write(b"all"))
    assert (tmp_path / "r.bin").read_bytes() == b"all"


def test_unwritable(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        require_writable(tmp_path / "none" / "r.bin")
    with pytest.raises(OutputError, match="is a folder"):
        require_writable(tmp_path)


def test_a_device_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(pipe, lambda handle: handle.write(b"all"))
    assert os.read(reader, 9) == b"all"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"old")
    (tmp_path / "link").symlink_to("there")
    write_atomic(tmp_path / "link", lambda handle: handle.write(b"new"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_bytes() == b"new"
