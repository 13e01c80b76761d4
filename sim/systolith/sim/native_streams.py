"""Streams in machine code: copies and operands whose addresses are known before their values.

What these functions give may not have been read yet: it is for other native calls, which come later (`calls.py`).
None or False: the stream is read and written with numpy (`streams.py`).  That is so where an index list is in the way,
where elements have addresses of their own, or where a copy would take more than `LOOPS` loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

import numpy as np

from systolith.isa.dtypes import BF16, DType
from systolith.isa.numerics.copies import LOOPS, WIDEN, Loop, copy_block
from systolith.isa.numerics.fma import reduce_to_part, tile_columns
from systolith.isa.numerics.images import U32, Bits, Floats, floats
from systolith.sim import streams as io
from systolith.sim.memory import Machine
from systolith.sim.plans import Box, Plan
from systolith.sim.streams import Access

_Copies = list[tuple[int, int, tuple[Loop, ...]]]
"""Offset from the base, offset in the target, loops."""


def copied(machine: Machine, src: Access, dst: Access) -> bool:
    """Copy elements in pattern order, as many on both sides.

    Raises:
        SimulationError: out of bounds.
    """
    kind = str(src.pattern.dtype.size)
    if src.pattern.indirect >= 0 or dst.pattern.indirect >= 0 or src.pattern.dtype.size > 8:
        return False
    p, q = io.plan(machine, src), io.plan(machine, dst)
    key = ("copied", id(p), id(q))
    found = machine.cache.get(key)
    if found is None:
        found = (_matched_boxes(p, q), p, q)  # the plans are kept, so that their ids stay their own
        machine.remember(key, found)
    loops = found[0]
    if loops is None:
        return False
    source, target = io.locate(machine, src, p), io.locate(machine, dst, q)
    size = p.raw.itemsize
    if source.region.data is target.region.data and (
        source.base + p.low < target.base + q.high + size and target.base + q.low < source.base + p.high + size
    ):
        return False
    copy_block(kind, source.address(p.boxes[0].offset), target.address(q.boxes[0].offset), loops, None, machine.calls)
    return True


def _matched_boxes(p: Plan, q: Plan) -> tuple[Loop, ...] | None:
    if not (p.full and q.full) or q.scatters:
        return None
    a, b = p.boxes[0], q.boxes[0]
    return matched(a.shape, a.strides, b.shape, b.strides)


def matched(
    a_counts: Sequence[int], a_strides: Sequence[int], b_counts: Sequence[int], b_strides: Sequence[int]
) -> tuple[Loop, ...] | None:
    """One nest that visits what two nests of as many iterations visit, in their order; None: there is no short one."""
    a, b = merged(a_counts, a_strides), merged(b_counts, b_strides)
    loops: list[Loop] = []  # innermost first
    while a and b:
        (n, s), (m, t) = a.pop(), b.pop()
        common = gcd(n, m)
        if common not in (n, m):
            return None
        if n > common:
            a.append((n // common, s * common))
        if m > common:
            b.append((m // common, t * common))
        if loops and (s, t) == (loops[-1][0] * loops[-1][1], loops[-1][0] * loops[-1][2]):
            loops[-1] = (loops[-1][0] * common, *loops[-1][1:])
        else:
            loops.append((common, s, t))
    return tuple(reversed(loops)) if len(loops) <= LOOPS else None


def merged(counts: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """A nest of loops with as few as do, (count, stride) pairs."""
    loops: list[tuple[int, int]] = []
    for n, s in zip(counts, strides, strict=True):
        if loops and loops[-1][1] == n * s:
            loops[-1] = (loops[-1][0] * n, s)
        elif n > 1:
            loops.append((n, s))
    return loops


def matrix(machine: Machine, a: Access, rows: int) -> Bits | None:
    """A stream of floats as f32 images [M, K], for `add_product`: its first `rows` loops form M, the others K.

    Raises:
        SimulationError: out of bounds.
    """
    p = _readable(machine, a)
    if p is None:
        return None
    counts = a.pattern.counts
    shape = (prod(counts[:rows]), prod(counts[rows:]))
    if p.full and p.raw.itemsize == 4:
        pitch = _pitch(p.boxes[0], rows)
        if pitch is not None and not (pitch % 4 or (a.base + p.boxes[0].offset) % 4):
            place = io.locate(machine, a, p)
            return np.ndarray(shape, U32, place.region.data, place.base + p.boxes[0].offset, (pitch, 4))  # type: ignore[arg-type, unused-ignore]
    out = np.empty(shape, U32) if p.full else np.full(shape, a.pattern.fill & 0xFFFFFFFF, U32)
    return out if _gathered(machine, a, p, out, _dense(counts, 4)) else None


def tile(machine: Machine, a: Access, rows: int, transpose: bool, part: int) -> Floats | None:
    """A stream of floats as a weight tile, like `weight_tile`.

    Args:
        machine: the machine.
        a: the stream.
        rows: how many of its loops, the first ones, form K; with `transpose`, N.
        transpose: the others form K.
        part: of the bf16 split.

    Raises:
        SimulationError: out of bounds.
    """
    p = _readable(machine, a)
    if p is None:
        return None
    counts = a.pattern.counts
    first, rest = prod(counts[:rows]), prod(counts[rows:])
    depth, width = (rest, first) if transpose else (first, rest)
    columns = tile_columns(machine.chip.mxu.cols)
    out = np.empty((depth, columns), U32) if p.full and width == columns else np.zeros((depth, columns), U32)
    if not p.full:
        out[:, :width] = a.pattern.fill & 0xFFFFFFFF
    steps = (4, 4 * columns) if transpose else (4 * columns, 4)
    strides = (*_dense(counts[:rows], steps[0]), *_dense(counts[rows:], steps[1]))
    if not _gathered(machine, a, p, out, strides):
        return None
    reduce_to_part(out, part, machine.calls)
    return floats(out)


def _readable(machine: Machine, a: Access) -> Plan | None:
    """The plan, if native copies can read it."""
    if a.pattern.indirect >= 0 or _kind(a.pattern.dtype) is None:
        return None
    p = io.plan(machine, a)
    return p if p.positions is None else None


def _kind(dtype: DType) -> str | None:
    """The copy that makes f32 images."""
    return WIDEN if dtype is BF16 else "4" if dtype.size == 4 else None


def _pitch(box: Box, rows: int) -> int | None:
    """Bytes from row to row, if rows lie at a pitch and their elements, of 4 bytes, side by side."""
    lines = merged(box.shape[:rows], box.strides[:rows])
    line = merged(box.shape[rows:], box.strides[rows:])
    if len(lines) > 1 or len(line) > 1 or (line and line[0][1] != 4):
        return None
    return lines[0][1] if lines else 4


def _dense(counts: Sequence[int], step: int) -> tuple[int, ...]:
    """Strides of loops over elements `step` bytes apart."""
    return tuple(step * prod(counts[k + 1 :]) for k in range(len(counts)))


def _gathered(machine: Machine, a: Access, p: Plan, out: Bits, strides: tuple[int, ...]) -> bool:
    """Copy the elements inside, as images, to where `strides` say in `out`."""
    key = ("gathered", id(p), strides)
    found = machine.cache.get(key)
    if found is None:
        found = (_copies(p, strides), p)
        machine.remember(key, found)
    copies: _Copies | None = found[0]
    kind = _kind(a.pattern.dtype)
    if copies is None or kind is None:
        return False
    place, target = io.locate(machine, a, p), out.ctypes.data
    for offset, to, loops in copies:
        copy_block(kind, place.address(offset), target + to, loops, out, machine.calls)
    return True


def _copies(p: Plan, strides: tuple[int, ...]) -> _Copies | None:
    copies: _Copies = []
    for box in p.boxes:
        where = [s.indices(n) for s, n in zip(box.where, p.shape, strict=True) if isinstance(s, slice)]
        steps = [s * w[2] for s, w in zip(strides, where, strict=True)]
        loops = matched(box.shape, box.strides, box.shape, steps)
        if loops is None:
            return None
        copies.append((box.offset, sum(s * w[0] for s, w in zip(strides, where, strict=True)), loops))
    return copies
