"""Streams in machine code: copies and operands whose addresses are known before their values.

Arrays that these functions return may not be filled yet: only other native calls, made later, use them (`calls.py`).
None or False: the stream is read and written with numpy (`streams.py`).  That is so where an index list is in the way,
where elements have addresses of their own, or where a copy would take more than `LOOPS` loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from systolith.isa.dtypes import BF16
from systolith.isa.native.copies import LOOPS, WIDEN, Blocks, Loop, blocks, copy_blocks
from systolith.isa.numerics.fma import Rows, reduce_at, tile_columns
from systolith.isa.numerics.images import U32, floats
from systolith.isa.pattern import Pattern
from systolith.sim import streams as io
from systolith.sim.memory import Machine, Tile
from systolith.sim.plans import Array, Box, Plan
from systolith.sim.streams import Access


class _Copy(NamedTuple):
    """How a transfer is made; its plans are kept so that their ids stay their own."""

    blocks: Blocks | None
    plans: tuple[Plan, Plan]


class _Operand(NamedTuple):
    """How an operand of an MXU is read.

    Attributes:
        plan, pattern: of the stream.
        shape: of the matrix, or of the tile as it lies in memory.
        pitch: bytes from row to row where the matrix need not be copied; None: it has to.
        blocks: the copy; None: there is none.
        kind: of the copy.
    """

    plan: Plan
    pattern: Pattern
    shape: tuple[int, int]
    pitch: int | None
    blocks: Blocks | None
    kind: str


class Source(NamedTuple):
    """An operand of an MXU where it lies.

    Attributes:
        operand: how it is read.
        rows: of a matrix that need not be copied; None: it has to be.
        address: that the offsets of its elements are from.
    """

    operand: _Operand
    rows: Rows | None
    address: int


def copied(machine: Machine, src: Access, dst: Access) -> bool:
    """Copy elements in pattern order, as many on both sides.

    Raises:
        SimulationError: out of bounds, or the memory written is read-only.
    """
    kind = str(src.pattern.dtype.size)
    if src.pattern.indirect >= 0 or dst.pattern.indirect >= 0 or src.pattern.dtype.size > 8:
        return False
    p, q = io.plan(machine, src), io.plan(machine, dst)
    if not (p.full and q.full) or q.scatters:
        return False
    key = ("copied", id(p), id(q))
    found = machine.cache.get(key)
    if found is None:
        a, b = p.boxes[0], q.boxes[0]
        loops = matched(a.shape, a.strides, b.shape, b.strides)
        made = None if loops is None else blocks([(p.boxes[0].offset, q.boxes[0].offset, loops)])
        found = _Copy(made, (p, q))
        machine.remember(key, found)
    if found.blocks is None:
        return False
    source, target = io.locate(machine, src, p).address(0), io.locate(machine, dst, q, store=True).address(0)
    size = p.raw.itemsize
    if source + p.low < target + q.high + size and target + q.low < source + p.high + size:
        return False
    copy_blocks(kind, found.blocks, source, target, None, machine.calls)
    return True


def matched(
    a_counts: Sequence[int], a_strides: Sequence[int], b_counts: Sequence[int], b_strides: Sequence[int]
) -> tuple[Loop, ...] | None:
    """One nest for two of as many iterations, which visits their elements in order; None: there is no short one."""
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


def source(machine: Machine, a: Access, rows: int, transpose: bool | None) -> Source | None:
    """How machine code reads a stream of floats for an MXU; None: it does not.

    Args:
        machine: the machine.
        a: the stream.
        rows: how many of its loops, the first ones, form a matrix's M or a tile's K; with `transpose`, N.
        transpose: of a tile, the others form K; None: it is a matrix.

    Raises:
        SimulationError: out of bounds.
    """
    found = _operand(machine, a, rows, transpose)
    if found is None:
        return None
    address = io.locate(machine, a, found.plan).address(0)
    if found.pitch is not None and not address % 4:
        return Source(found, Rows(address + found.plan.boxes[0].offset, found.pitch, *found.shape), address)
    return None if found.blocks is None else Source(found, None, address)


def matrix(machine: Machine, s: Source) -> tuple[Rows, object]:
    """A matrix as f32 images [M, K], and whose memory that is."""
    if s.rows is not None:
        return s.rows, None
    shape, fill = s.operand.shape, s.operand.pattern.fill & 0xFFFFFFFF
    out = np.empty(shape, U32) if s.operand.plan.full else np.full(shape, fill, U32)
    address = out.ctypes.data
    _copy_to(machine, s, address, out)
    return Rows(address, 4 * shape[1], *shape), out


def tile(machine: Machine, s: Source, part: int) -> Tile:
    """A weight tile; `part`: of the bf16 split."""
    pattern, full = s.operand.pattern, s.operand.plan.full
    depth, columns = s.operand.shape
    width = pattern.elements // depth
    out = np.empty(s.operand.shape, U32) if full and width == columns else np.zeros(s.operand.shape, U32)
    if not full:
        out[:, :width] = pattern.fill & 0xFFFFFFFF
    made = Tile(floats(out), False)
    _copy_to(machine, s, made.address, out)
    reduce_at(made.address, out.size, part, out, machine.calls)
    return made


def _copy_to(machine: Machine, s: Source, address: int, out: Array) -> None:
    assert s.operand.blocks is not None
    copy_blocks(s.operand.kind, s.operand.blocks, s.address, address, out, machine.calls)


def _operand(machine: Machine, a: Access, rows: int, transpose: bool | None) -> _Operand | None:
    """How an MXU's operand is read, from the cache; `transpose`: of a tile, None: a matrix."""
    if a.pattern.indirect >= 0:
        return None
    key = ("operand", id(a.pattern), a.bias, rows, transpose)
    if key not in machine.cache:
        machine.remember(key, _prepared(machine, a, rows, transpose))
    found: _Operand | None = machine.cache[key]
    return found


def _prepared(machine: Machine, a: Access, rows: int, transpose: bool | None) -> _Operand | None:
    plan, pattern = io.plan(machine, a), a.pattern
    kind = WIDEN if pattern.dtype is BF16 else "4" if pattern.dtype.size == 4 else None
    if kind is None or plan.positions is not None:
        return None
    first, rest = prod(pattern.counts[:rows]), prod(pattern.counts[rows:])
    if transpose is None:
        pitch = _pitch(plan.boxes[0], rows) if plan.full and kind == "4" else None
        copy = None if pitch is not None else _gathered(plan, rows, (4 * rest, 4))
        return _Operand(plan, pattern, (first, rest), pitch, copy, kind)
    columns = tile_columns(machine.chip.mxu.cols)
    copy = _gathered(plan, rows, (4, 4 * columns) if transpose else (4 * columns, 4))
    return _Operand(plan, pattern, (rest if transpose else first, columns), None, copy, kind)


def _pitch(box: Box, rows: int) -> int | None:
    """Bytes from row to row, if rows lie at a pitch and their elements, of 4 bytes, side by side."""
    lines = merged(box.shape[:rows], box.strides[:rows])
    line = merged(box.shape[rows:], box.strides[rows:])
    if len(lines) > 1 or len(line) > 1 or (line and line[0][1] != 4) or box.offset % 4:
        return None
    pitch = lines[0][1] if lines else 4
    return None if pitch % 4 else pitch


def _gathered(p: Plan, rows: int, steps: tuple[int, int]) -> Blocks | None:
    """The elements inside to a matrix; `steps`: bytes between elements of the first `rows` loops, and of the others."""
    strides = (*_dense(p.shape[:rows], steps[0]), *_dense(p.shape[rows:], steps[1]))
    found = []
    for box in p.boxes:
        where = [s.indices(n) for s, n in zip(box.where, p.shape, strict=True) if isinstance(s, slice)]
        moves = [s * w[2] for s, w in zip(strides, where, strict=True)]
        loops = matched(box.shape, box.strides, box.shape, moves)
        if loops is None:
            return None
        found.append((box.offset, sum(s * w[0] for s, w in zip(strides, where, strict=True)), loops))
    return blocks(found)


def _dense(counts: Sequence[int], step: int) -> tuple[int, ...]:
    """Strides of loops over elements `step` bytes apart."""
    return tuple(step * prod(counts[k + 1 :]) for k in range(len(counts)))
