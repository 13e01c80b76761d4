"""Machine code from disk: only the user's own is loaded, and junk is compiled anew."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
import pytest
from llvmlite import ir

from systolith.isa.native import library
from systolith.isa.native.elf import is_object
from systolith.isa.native.library import Library
from tests.isa.test_cache import give_away


def nothing(builder: Any, *arguments: Any) -> None:
    """The body of a function that does nothing."""


def constants(builder: ir.IRBuilder, address: ir.Value) -> None:
    """The body of a function that writes numbers, which lie in a section of their own."""
    numbers = ir.Constant(ir.VectorType(ir.IntType(64), 8), [x * x for x in range(8)])
    builder.store(numbers, builder.inttoptr(address, numbers.type.as_pointer()))


def call(builder: ir.IRBuilder, address: ir.Value) -> None:
    """The body of a function that calls another, of which nothing is known."""
    kind = ir.FunctionType(ir.VoidType(), [])
    builder.call(builder.inttoptr(address, kind.as_pointer()), [])


BODIES = {"nothing": (1, nothing), "constants": (1, constants), "call": (1, call)}


def load() -> None:
    """Get the functions, from disk or compiled, and call one."""
    numbers = np.zeros(16, np.int64)
    Library(BODIES, __file__)["constants"](numbers.ctypes.data + -numbers.ctypes.data % 64)
    assert numbers.sum() == 140


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one file of a cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load()
    (path,) = (tmp_path / "systolith" / "native").iterdir()
    return path


def compiled(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether loading compiles."""
    real, found = library._compile, []

    def compile_(text: str) -> bytes:
        found.append(text)
        return real(text)

    monkeypatch.setattr(library, "_compile", compile_)
    load()
    return bool(found)


def test_what_was_kept_is_loaded(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert not compiled(monkeypatch)


def others_may_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o666)


def folder_is_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.chmod(0o777)


def folder_above_is_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parents[2].chmod(0o777)


def is_a_link(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.rename(path.with_name("x"))
    path.symlink_to("x")


@pytest.mark.parametrize("change", [others_may_write, folder_is_open, folder_above_is_open, is_a_link, give_away])
def test_what_others_can_have_written_is_compiled_anew(
    kept: Path, change: Callable[[Path, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(kept, monkeypatch)
    assert compiled(monkeypatch)


def put(path: Path, code: bytes) -> None:
    """Keep this as object code, with a right digest."""
    path.write_bytes(sha256(code).digest() + code)


def junk(code: bytes) -> list[bytes]:
    """Bytes that are no such object code."""
    header, rest = code[:64], code[64:]
    other = header[:18] + bytes([40, 0]) + header[20:] + rest
    return [
        b"",
        b"junk" * 1000,
        header,
        header + b"\xff" * 3000,
        code[: len(code) // 2],
        code[:-1],
        b"\0" + code,
        other,
    ]


def python(code: str) -> str:
    """The output of a process, which must end well."""
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def load_junk(path: Path) -> None:
    """Load with each kind of junk in place of the kept file."""
    code = path.read_bytes()[32:]
    for wrong in junk(code):
        put(path, wrong)
        load()
        assert path.read_bytes()[32:] == code


def test_junk_with_a_right_digest_is_compiled_anew(kept: Path) -> None:
    python(f"from tests.isa.test_native_cache import *; load_junk(Path({str(kept)!r}))")


def test_code_of_other_functions_is_no_object(kept: Path) -> None:
    code = kept.read_bytes()[32:]
    assert is_object(code, {"nothing", "constants"}, lambda _: False)
    assert not is_object(code, {"nothing", "further"}, lambda _: False)


def damaged(code: bytes, seed: int) -> bytes:
    """Object code with some bytes changed."""
    dice, data = random.Random(seed), bytearray(code)
    for _ in range(dice.choice([1, 1, 2, 8])):
        data[dice.randrange(len(data))] = dice.choice([0, 1, 8, 0x7F, 0x80, 0xFF, dice.randrange(256)])
    return bytes(data)


def load_damaged(first: int, last: int) -> int:
    """Load the damaged files that are taken for object code, and find the functions in it; how many were."""
    taken = 0
    code = library._object_code(BODIES, __file__, "")
    for seed in range(first, last):
        data = damaged(code, seed)
        if is_object(data, BODIES, library._known):
            engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), library._target())
            engine.add_object_file(llvm.ObjectFileRef.from_data(data))
            engine.finalize_object()
            assert all(engine.get_function_address(name) for name in BODIES)
            taken += 1
    return taken


def test_damaged_code_loads_or_is_no_object(kept: Path) -> None:
    code = "from tests.isa.test_native_cache import load_damaged; print(load_damaged(0, 400))"
    assert 20 < int(python(code)) < 380
