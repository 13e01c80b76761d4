"""Collective-permute in place: slices of each source's buffers go into its target's buffers.

Operands: buffers to read, buffers to write (an array, or a tuple of several), and for each buffer the offsets of the
slices: a tuple of numbers for one slice, a tuple of such tuples for several.  A device's n-th pair as a source reads
its n-th slice, and its n-th pair as a target writes its n-th.  Source: XLA's parser and verifier tests, which define
well-formed ones; no public backend runs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Literal

Offsets = list[list[int]]
"""For each slice of one buffer, where it starts."""


def _buffers(value: Literal) -> list[np.ndarray]:
    return list(cast("tuple[np.ndarray, ...]", value)) if isinstance(value, tuple) else [value]


def _offsets(value: Literal) -> Offsets:
    items = cast("tuple[Literal, ...]", value)
    if items and isinstance(items[0], tuple):
        return [[int(cast("np.ndarray", n)) for n in cast("tuple[Literal, ...]", item)] for item in items]
    return [[int(cast("np.ndarray", n)) for n in items]]


def _offsets_of(buffers: Literal, offsets: Literal) -> list[Offsets]:
    """For each buffer its slices' offsets."""
    items = cast("tuple[Literal, ...]", offsets) if isinstance(buffers, tuple) else (offsets,)
    return [_offsets(item) for item in items]


def _region(buffer: np.ndarray, starts: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    if len(starts) != len(sizes) or any(
        s < 0 or s + n > d for s, n, d in zip(starts, sizes, buffer.shape, strict=True)
    ):
        raise HloError(f"a slice of {list(sizes)} at {list(starts)} is outside of {list(buffer.shape)}")
    return tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))


def permute_slices(
    device: int,
    pairs: Sequence[tuple[int, int]],
    brought: dict[int, tuple[Literal, ...]],
    sizes: Sequence[Sequence[int]],
) -> list[np.ndarray]:
    """The buffers that a device has afterwards.

    Args:
        device: the one whose buffers are asked for.
        pairs: source and target devices, in the order of the attribute.
        brought: each device's operands.
        sizes: sizes of the slices, buffer by buffer.

    Raises:
        HloError: a slice is outside of its buffer, or there are more pairs than slices.
    """
    results = [x.copy() for x in _buffers(brought[device][1])]
    write_at = _offsets_of(brought[device][1], brought[device][3])
    reads: Counter[int] = Counter()
    writes = 0
    for source, target in pairs:
        read = reads[source]
        reads[source] += 1
        if target != device:
            continue
        inputs, _, offsets, _ = brought[source]
        slices = len(sizes) // len(results)
        if max(read, writes) >= slices:
            raise HloError(f"device {source} or {device} has more pairs than its {slices} slices")
        for number, (x, read_at) in enumerate(zip(_buffers(inputs), _offsets_of(inputs, offsets), strict=True)):
            size = sizes[number * slices + read]
            piece = x[_region(x, read_at[read], size)]
            results[number][_region(results[number], write_at[number][writes], size)] = piece
        writes += 1
    return results
