from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.binary import MAGIC, VERSION, from_bytes, load, save, to_bytes
from systolith.isa.errors import BinaryError, EncodingError
from systolith.isa.files import OutputError
from systolith.isa.instruction import Instruction
from systolith.isa.program import BufferDecl, Program, Role
from tests.examples import examples
from tests.isa.strategies import programs

SMALL = Program("p", "tiny", "0", [Instruction("halt")])


@examples(15, 100)
@given(programs())
def test_programs_round_trip(program: Program) -> None:
    data = to_bytes(program)
    assert from_bytes(data) == program
    assert to_bytes(from_bytes(data)) == data


@given(st.data())
def test_any_flipped_bit_is_found(data: st.DataObject) -> None:
    good = bytearray(to_bytes(SMALL))
    bit = data.draw(st.integers(0, 8 * len(good) - 1))
    good[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BinaryError):
        from_bytes(bytes(good))


def test_any_truncation_is_found() -> None:
    good = to_bytes(SMALL)
    for n in range(len(good)):
        with pytest.raises(BinaryError):
            from_bytes(good[:n])
    with pytest.raises(BinaryError):
        from_bytes(good + b"\0")


def test_another_version_is_named() -> None:
    data = bytearray(to_bytes(SMALL))
    struct.pack_into("<I", data, len(MAGIC), VERSION + 1)
    with pytest.raises(BinaryError, match=f"x.slb: version {VERSION + 1}: this systolith reads version {VERSION}"):
        from_bytes(bytes(data), "x.slb")


def test_files_round_trip_and_are_deterministic(tmp_path: Path) -> None:
    program = Program("p", "tiny", "0", buffers=[BufferDecl("c", Role.CONSTANT, "u8", (3,), 3, data=b"abc")])
    save(program, tmp_path / "a.slb")
    save(program, tmp_path / "b.slb")
    assert (tmp_path / "a.slb").read_bytes() == (tmp_path / "b.slb").read_bytes()
    assert load(tmp_path / "a.slb") == program


def test_a_failed_save_leaves_what_was_there(tmp_path: Path) -> None:
    save(SMALL, tmp_path / "a.slb")
    before = (tmp_path / "a.slb").read_bytes()
    with pytest.raises(EncodingError):
        save(Program("p", "tiny", "0", [Instruction("frob")]), tmp_path / "a.slb")
    assert (tmp_path / "a.slb").read_bytes() == before
    (tmp_path / "d").mkdir()
    with pytest.raises(OutputError, match="d: is a folder"):
        save(SMALL, tmp_path / "d")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.slb", "d"]


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match=r"none\.slb: No such file"):
        load(tmp_path / "none.slb")
    with pytest.raises(OutputError, match="none does not exist"):
        save(SMALL, tmp_path / "none" / "a.slb")
