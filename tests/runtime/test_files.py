"""Output files are written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import pytest

from systolith.runtime.files import OutputError, require_writable, write_atomic


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
