"""Native functions: the same from the disk, after damage, and where nothing can be kept."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite import ir  # type: ignore[import-untyped]

from systolith.isa.native import library as native
from systolith.isa.native.library import I64, PACK, Library, loop, pointer


def _double(b: ir.IRBuilder, address: Any, count: Any) -> None:
    base = pointer(b, address, I64)
    with loop(b, count) as i:
        place = b.gep(base, [i])
        b.store(b.mul(b.load(place), I64(2)), place)


def _works() -> bool:
    numbers = np.arange(5, dtype=np.int64)
    Library({"double": (2, _double)}, __file__)["double"](numbers.ctypes.data, numbers.size)
    return numbers.tolist() == [0, 2, 4, 6, 8]


def test_the_code_of_a_function_outlives_its_library() -> None:
    numbers = np.arange(5, dtype=np.int64)
    call = Library({"double": (2, _double)}, __file__)["double"].at
    gc.collect()
    call(PACK[2].pack(numbers.ctypes.data, numbers.size))
    assert numbers.tolist() == [0, 2, 4, 6, 8]


def test_object_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _works()
    (kept,) = (tmp_path / "systolith" / "native").iterdir()
    written = kept.stat().st_mtime_ns
    assert _works()
    assert kept.stat().st_mtime_ns == written
    for damaged in (b"", kept.read_bytes()[:-1], kept.read_bytes() + b"x"):
        kept.write_bytes(damaged)
        assert _works()
        assert kept.read_bytes() != damaged


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "systolith").write_text("a file where the folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _works()


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a number that no account has."""

    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert _works()


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "MAX_FILES", 4)
    folder = tmp_path / "systolith" / "native"
    folder.mkdir(parents=True)
    for age, name in enumerate(("oldest", "older", "newer", "newest")):
        (folder / name).touch()
        os.utime(folder / name, (age, age))
    assert _works()
    assert {p.name for p in folder.iterdir() if p.suffix != ".o"} == {"newer", "newest"}
    assert len(list(folder.iterdir())) == 3
