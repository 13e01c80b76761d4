"""Arguments and results as files: npz archives of `arg0`, ... and `out0`, ...

bf16, fp8 and int4 arrays, which npz cannot name, are stored as their bits in unsigned integers; the module has
their types.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from systolith.isa.checked import as_array
from systolith.isa.dtypes import ELEMENT_TYPES, DType, Kind, dtype
from systolith.isa.errors import SystolithError

Array = np.ndarray[Any, np.dtype[Any]]


class InputError(SystolithError):
    """An argument, or a file of them, does not match the module's parameters."""


def element_type(array: Array) -> DType:
    """XLA's element type of a numpy array.

    Raises:
        SystolithError: there is none.
    """
    for candidate in ELEMENT_TYPES.values():
        if candidate.stored == array.dtype:
            return dtype(candidate.name)
    raise SystolithError(f"numpy type {array.dtype} has no XLA element type; convert the array first")


def bytes_of(element: DType, shape: Sequence[int]) -> int:
    """Bytes of an array.

    Raises:
        InputError: this is no shape.
    """
    if not isinstance(shape, tuple | list) or not all(type(n) is int and n >= 0 for n in shape):
        raise InputError(f"shape {shape!r}: expected a tuple of integers that are not negative")
    return prod(shape) * element.size


def as_bits(array: Array) -> Array:
    """The array as npz can store it: types that numpy itself does not know become unsigned integers of their width."""
    if array.dtype.isbuiltin == 1:
        return array
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def from_bits(array: Array, dtype: DType) -> Array:
    """Undo `as_bits` for an array that the module says is of `dtype`; other types pass unchanged."""
    stored = dtype.stored
    if array.dtype != stored and stored.isbuiltin != 1 and array.dtype == np.dtype(f"u{stored.itemsize}"):
        return array.view(stored)
    return array


def conform(array: Array, dtype: DType, dims: tuple[int, ...], what: str) -> Array:
    """The array, contiguous, if it is of the declared type and shape.

    Raises:
        InputError: it is not; names `what`, both types and shapes.
    """
    try:
        array = from_bits(as_array(array), dtype)
    except SystolithError as error:
        raise InputError(f"{what}: {error}") from None
    if array.dtype != dtype.stored or array.shape != dims:
        got = ",".join(map(str, array.shape))
        want = ",".join(map(str, dims))
        raise InputError(f"{what}: the module takes {dtype}[{want}], got {array.dtype}[{got}]")
    return np.ascontiguousarray(array).reshape(dims)


def load_numbered(path: Path, prefix: str) -> list[Array]:
    """Arrays `<prefix>0`, `<prefix>1`, ... of an npz file.

    Raises:
        InputError: the file cannot be read as npz, or a number is missing.
    """
    return numbered_arrays(load_archive(path, prefix), prefix, str(path))


def load_archive(path: Path, prefix: str) -> dict[str, Array]:
    """The arrays of an npz file by their names; `prefix`: of names that it should have, for messages.

    Raises:
        InputError: the file cannot be read as npz.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not hasattr(archive, "files"):
                raise InputError(f"{path}: expected an npz archive of {prefix}0, {prefix}1, ..., got a single array")
            return {name: archive[name] for name in archive.files}
    except InputError:
        raise
    except Exception as error:  # numpy raises many types for a broken archive (zip, pickle, header, OS errors)
        raise InputError(
            f"{path}: cannot read as npz: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from None


def numbered_arrays(found: dict[str, Array], prefix: str, what: str) -> list[Array]:
    """Arrays `<prefix>0`, `<prefix>1`, ... of those by name; `what`: for messages.

    Raises:
        InputError: a number is missing.
    """
    expected = [f"{prefix}{i}" for i in range(len(found))]
    missing = [name for name in expected if name not in found]
    if missing:
        raise InputError(f"{what}: expected arrays {prefix}0 to {prefix}{len(found) - 1}, {missing[0]} is missing")
    return [found[name] for name in expected]


def random_array(rng: np.random.Generator, dtype: DType, dims: tuple[int, ...]) -> Array:
    """A random argument: standard normal floats (f8e8m0fnu, without sign: their sizes), small integers, fair bools."""
    if dtype.kind is Kind.PRED:
        return rng.integers(0, 2, dims).astype(np.bool_)
    if dtype.kind is Kind.SIGNED:
        return rng.integers(-4, 5, dims).astype(dtype.stored)
    if dtype.kind is Kind.UNSIGNED:
        return rng.integers(0, 9, dims).astype(dtype.stored)
    values = rng.standard_normal(dims)
    if dtype.kind is Kind.COMPLEX:
        return np.asarray(values + 1j * rng.standard_normal(dims)).astype(dtype.stored)
    if dtype.name == "f8e8m0fnu":
        values = np.abs(values)
    return np.asarray(values).astype(np.float32).astype(dtype.stored)
