"""Arguments and results as npz files, and checks of them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from systolith.isa.dtypes import dtype
from systolith.runtime.arrays import InputError, as_bits, conform, from_bits, load_numbered, random_array


@pytest.mark.parametrize("name", ["bf16", "f8e4m3fn", "f32", "s8", "pred", "u32"])
def test_bits_round_trip(tmp_path: Path, name: str) -> None:
    element = dtype(name)
    array = random_array(np.random.default_rng(1), element, (3, 4))
    np.savez(tmp_path / "a.npz", arg0=as_bits(array))
    (loaded,) = load_numbered(tmp_path / "a.npz", "arg")
    back = from_bits(loaded, element)
    assert back.dtype == element.stored
    assert back.tobytes() == array.tobytes()


def test_conform_names_the_argument_and_both_types() -> None:
    with pytest.raises(InputError, match=r"argument 2 \(w\): the module takes bf16\[2,3\], got float32\[3,2\]"):
        conform(np.zeros((3, 2), np.float32), dtype("bf16"), (2, 3), "argument 2 (w)")


def test_conform_keeps_scalars_scalar() -> None:
    assert conform(np.asarray(1.5, np.float32), dtype("f32"), (), "x").shape == ()


def test_conform_takes_bf16_as_bits() -> None:
    bits = np.asarray([0x3F80], np.uint16)
    assert conform(bits, dtype("bf16"), (1,), "x")[0] == ml_dtypes.bfloat16(1.0)


def test_missing_number(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", arg0=np.zeros(1), arg2=np.zeros(1))
    with pytest.raises(InputError, match="arg1 is missing"):
        load_numbered(tmp_path / "a.npz", "arg")


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut"])
def test_broken_archives(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.npz: cannot read as npz"):
        load_numbered(path, "arg")


def test_an_archive_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_numbered(tmp_path / "none.npz", "arg")
