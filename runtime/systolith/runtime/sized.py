"""Arrays of dynamic sizes on the host: of their actual sizes there, of their bounds with sizes beside them in HBM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from systolith.isa.checked import as_array
from systolith.isa.dtypes import dtype
from systolith.isa.errors import SystolithError
from systolith.isa.program import BufferDecl
from systolith.runtime.arrays import Array, InputError, conform


def shown(declared: Sequence[BufferDecl]) -> list[BufferDecl]:
    """Parameters or results that the host sees: none that are sizes of others."""
    hidden = {n for d in declared for n in d.sizes}
    return [d for d in declared if d.number not in hidden]


def is_sized(declared: Sequence[BufferDecl]) -> bool:
    """Whether some have dynamic sizes."""
    return any(d.sizes for d in declared)


def sizes_of(decl: BufferDecl, shape: Sequence[int]) -> dict[int, int]:
    """The sizes that a parameter has beside it, by their numbers, of an array of some shape."""
    return {n: shape[d] for d, n in enumerate(decl.sizes) if n >= 0}


def random_sizes(rng: np.random.Generator, decl: BufferDecl) -> tuple[int, ...]:
    """Of a parameter: sizes within the bounds of those that are dynamic."""
    if not decl.sizes:
        return decl.dims
    return tuple(
        int(rng.integers(0, bound + 1)) if n >= 0 else bound for n, bound in zip(decl.sizes, decl.dims, strict=True)
    )


def filled(decl: BufferDecl, array: Array, what: str) -> Array:
    """An array with zeros up to the bounds of a parameter, of its type.

    Raises:
        InputError: its type is another, or it is too large.
    """
    if not decl.sizes:
        return conform(array, dtype(decl.dtype), decl.dims, what)
    try:
        given = as_array(array)
    except SystolithError as error:
        raise InputError(f"{what}: {error}") from None
    dims = decl.dims
    fits = given.ndim == len(dims) and all(
        n <= bound if size >= 0 else n == bound for n, bound, size in zip(given.shape, dims, decl.sizes, strict=True)
    )
    if not fits:
        wanted = ",".join(f"<={n}" if size >= 0 else str(n) for n, size in zip(dims, decl.sizes, strict=True))
        raise InputError(f"{what}: the module takes {decl.dtype}[{wanted}], got {list(given.shape)}")
    edges = [(0, bound - n) for n, bound in zip(given.shape, dims, strict=True)]
    return conform(np.pad(given, edges), dtype(decl.dtype), dims, what)


def arguments(declared: Sequence[BufferDecl], given: Sequence[Array]) -> list[Array]:
    """An array for each parameter, of those that the host sees."""
    made: dict[int, Array] = {}
    for decl, array in zip(shown(declared), given, strict=True):
        made[decl.number] = filled(decl, array, f"argument {decl.number} ({decl.name})")
        for number, size in sizes_of(decl, np.shape(array)).items():
            made[number] = np.asarray(size, np.int32)
    return [made[d.number] for d in declared]


def cut(declared: Sequence[BufferDecl], results: Sequence[Array]) -> list[Array]:
    """The results as the host sees them: the part of each that there is."""
    by_number = {d.number: x for d, x in zip(declared, results, strict=True)}
    return [valid(by_number[d.number], [by_number.get(n) for n in d.sizes]) for d in shown(declared)]


def valid(array: Array, sizes: Sequence[Array | None]) -> Array:
    """The first elements along each dimension, as many as its size says; None: all."""
    return array[(*(slice(None if n is None else int(n)) for n in sizes), ...)]  # "...": an array of rank 0 stays one
