"""Files are written whole or not at all; devices are not read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from systolith.isa.errors import SystolithError
from systolith.isa.files import (
    OutputError,
    make_folder,
    read_bytes,
    require_writable,
    text_fill,
    write_all,
    write_atomic,
)


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


@pytest.mark.parametrize("device", ["zero", "full", "urandom"])
def test_a_device_without_end_is_not_read(device: str) -> None:
    code = f"""
import resource
from systolith.isa.errors import SystolithError
from systolith.isa.files import read_bytes
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
assert read_bytes("/dev/null", SystolithError) == b""
read_bytes("/dev/{device}", SystolithError)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stderr.endswith(f"SystolithError: /dev/{device}: is a device whose contents have no end\n")


def test_unwritable(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        require_writable(tmp_path / "none" / "r.bin")
    with pytest.raises(OutputError, match="is a folder"):
        require_writable(tmp_path)


def test_a_folder_whose_name_a_file_has_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    with pytest.raises(OutputError, match=r"/f: is a file, not a folder$"):
        make_folder(tmp_path / "f")
    with pytest.raises(OutputError, match=r"/f/g: Not a directory$"):
        make_folder(tmp_path / "f" / "g")


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


def test_the_temporary_file_has_the_suffix_of_the_one_to_be(tmp_path: Path) -> None:
    names: list[str] = []
    write_atomic(tmp_path / "w.vcd", lambda handle: names.append(handle.name))
    (name,) = names
    assert Path(name).parent == tmp_path
    assert Path(name).suffix == ".vcd"


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt, SystolithError])
def test_of_several_files_all_are_written_or_none(kind: type[BaseException], tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"old")

    def fail(handle: IO[bytes]) -> None:
        handle.write(b"half")
        raise kind("no")

    one = {tmp_path / "a": text_fill("new"), tmp_path / "b": text_fill("new")}
    with pytest.raises((kind, OutputError)):
        write_all({**one, tmp_path / "c": fail})
    assert [p.name for p in tmp_path.iterdir()] == ["b"]
    assert (tmp_path / "b").read_bytes() == b"old"
    write_all(one)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"new", "b": b"new"}


def test_pipes_are_read() -> None:
    read, write = os.pipe()
    with open(write, "wb") as sender:
        sender.write(b"text")
    assert read_bytes(f"/dev/fd/{read}", SystolithError) == b"text"
    os.close(read)
