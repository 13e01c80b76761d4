"""Expanding small operands, so that a vector runs across several dimensions.

Lanes take one loop, so dimensions share them only where every stream steps through them as through one.  A mean of
each of three channels, subtracted from all pixels, would leave three lanes in use: here such an operand is first
copied, repeated as the others need it for some pixels, and the lanes hold pixels and channels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from systolith.compiler.cost.prices import OVERHEAD, full_vectors
from systolith.compiler.vpu.vectorise import Access, LaneOrder, Nest, Work, choose, merge, split
from systolith.isa.chip import Chip
from systolith.isa.dtypes import F32, S32, U32, DType, Kind

SHARE = 8
"""An expanded operand has at most this part of the elements that are computed with it."""

FILLED = 1.5
"""Loops that take so many times the cycles of full vectors are good enough."""


@dataclass(frozen=True)
class Expanded:
    """Work on expanded operands.

    Attributes:
        work: with the accesses of the copies.
        nest: loops for it; their cycles are those of the copies, too.
        copies: by stream: what copies the operand; accesses of the operand and of the copy.
    """

    work: Work
    nest: Nest
    copies: dict[int, Work]


def expanded(
    chip: Chip, work: Work, loads: Collection[int], nest: Nest | None, order: LaneOrder | None = None
) -> Expanded | None:
    """The fastest way with expanded operands; None: it is not faster.

    Args:
        chip: for costs.
        work: not merged, or merged.
        loads: streams that may be expanded.
        nest: the best loops without.
        order: as for `vector.choose`.
    """
    full = full_vectors(prod(work.dims), chip) * work.interval + work.latency
    least = None if nest is None else nest.cycles
    if least is not None and least <= FILLED * full:
        return None
    best: Expanded | None = None
    for trial, first in _splits(chip, work):
        copies = _copies(trial, first, loads)
        if not copies:
            continue
        accesses = tuple(
            replace(copies[n].accesses[1], coords=a.coords, fill=a.fill) if n in copies else a
            for n, a in enumerate(trial.accesses)
        )
        together = merge(replace(trial, accesses=accesses))
        found = choose(chip, together, order)
        if found is None:
            continue
        cycles = found.cycles + copying(chip, copies)
        if least is None or cycles < least:
            best, least = Expanded(together, replace(found, cycles=cycles), copies), cycles
    return best


def copying(chip: Chip, copies: Mapping[int, Work]) -> int:
    """Cycles of copies."""
    return sum(nest.cycles + OVERHEAD for copy in copies.values() if (nest := choose(chip, merge(copy))))


def _splits(chip: Chip, work: Work) -> Iterator[tuple[Work, int]]:
    """Work, perhaps with one dimension in two, and the first of the last dimensions that are to share vectors."""
    vector = chip.vpu.lanes * chip.vpu.sublanes
    for d in range(len(work.dims) - 1):
        if any(k >= d for k in work.reduced):
            continue
        yield work, d
        most = vector // prod(work.dims[d + 1 :])
        if not work.reduced and 1 < most < work.dims[d]:
            rows = next((m for m in range(most, most // 2, -1) if work.dims[d] % m == 0), most)
            yield split(work, d, rows), d + 1


def _copies(work: Work, first: int, loads: Collection[int]) -> dict[int, Work]:
    """Copies of the streams that do not step through the dimensions from `first` on as through one; empty: not all can
    be copied.
    """
    copies = {}
    for n, a in enumerate(work.accesses):
        if _is_one(work, a, first):
            continue
        copy = _copy(work, a, first)
        if n not in loads or set(a.coords) - {work.ragged} or prod(copy.dims) * SHARE > prod(work.dims):
            return {}
        copies[n] = copy
    return copies


def _is_one(work: Work, a: Access, first: int) -> bool:
    vectors = [a.strides, *(c.coefs for c in a.coords)]
    return all(v[d] == v[d + 1] * work.dims[d + 1] for v in vectors for d in range(first, len(work.dims) - 1))


def _copy(work: Work, a: Access, first: int) -> Work:
    """Makes a dense copy of what an access reads, with all of the dimensions from `first` on."""
    dims = tuple(n if d >= first or a.strides[d] else 1 for d, n in enumerate(work.dims))
    strides = tuple(4 * prod(dims[d + 1 :]) if dims[d] > 1 else 0 for d in range(len(dims)))
    copy = Access(_register(a.dtype), strides)
    return Work(dims, (replace(a, coords=()), copy), latency=work.latency)


def _register(t: DType) -> DType:
    """The element type of a copy: what a register holds."""
    return F32 if t.is_float else U32 if t.kind is Kind.UNSIGNED else S32
