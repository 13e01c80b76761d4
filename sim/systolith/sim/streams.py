"""Streams: reading and writing memory through patterns, whole tiles at a time.

Arrays have the shape of the pattern's counts.  *Raw* arrays hold elements as unsigned integers of their size; *bits*
are 32-bit register images.  An array that is read may be a view of memory: use it before anything is written there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from systolith.isa.instruction import Space, Stream
from systolith.isa.numerics.formats import fill_of, narrow, widen
from systolith.isa.numerics.images import U32, Bits
from systolith.isa.pattern import Pattern
from systolith.sim.memory import POISON, Bytes, Machine, Region
from systolith.sim.plans import Array, Box, Plan, plan_of

_WRAP = 1 << 32
_MAX_CACHED = 1 << 26  # elements of per-element plans kept


@dataclass(slots=True)
class Access:
    """A stream ready for use: resolved operands, a pattern (the whole one or a part of it) and its bytes.

    Attributes:
        pattern: of the elements visited.
        base: byte offset in the space.
        bias: values of the bias operands.
        index: VMEM byte address of the index list.
        stream: where it comes from.
    """

    pattern: Pattern
    base: int
    bias: tuple[int, int]
    index: int
    stream: Stream


def access(machine: Machine, stream: Stream) -> Access:
    """A stream of an instruction whose registers are resolved."""
    pattern = machine.program.patterns[stream.pattern]
    base, index, (b0, b1) = stream.base, stream.index, stream.bias
    if not (isinstance(base, int) and isinstance(index, int) and isinstance(b0, int) and isinstance(b1, int)):
        raise TypeError(f"operands of {stream} are not resolved")
    return Access(pattern, base, (b0, b1), index, stream)


def part(machine: Machine, whole: Access, starts: tuple[int, ...], counts: tuple[int, ...]) -> Access:
    """The accesses of positions `starts[k] .. starts[k] + counts[k] - 1` of each loop; shorter tuples: the outer
    loops.
    """
    p = whole.pattern
    counts = counts + p.counts[len(counts) :]
    if counts == p.counts:
        return whole
    moved = tuple(0 if k == p.indirect else s for k, s in enumerate(starts))
    key = ("part", id(p), moved if p.coords else (), counts)
    found = machine.cache.get(key)
    if found is None:
        coords = tuple(
            type(c)(c.coefs, c.offset + sum(a * s for a, s in zip(c.coefs, moved, strict=False)), *_rest(c))
            for c in p.coords
        )
        # The pattern is kept beside its part, so that its id stays its own.
        found = (Pattern(p.dtype, counts, p.strides, coords, p.fill, p.indirect), p)
        machine.remember(key, found)
    index = whole.index + (4 * starts[p.indirect] if 0 <= p.indirect < len(starts) else 0)
    base = whole.base + sum(s * m for s, m in zip(p.strides, moved, strict=False))
    return Access(found[0], base, whole.bias, index, whole.stream)


def _rest(c: Any) -> tuple[int, int, int, int, int]:
    return c.lo, c.hi, c.div, c.stride, c.bias


def plan(machine: Machine, a: Access, boxes: bool = True) -> Plan:
    """The plan of an access, from the cache unless an index list decides it."""
    if a.pattern.indirect >= 0:
        return plan_of(a.pattern, a.bias, index_list(machine, a), boxes)
    key = ("plan", id(a.pattern), a.bias, boxes)
    found = machine.cache.get(key)
    if found is None:
        made = plan_of(a.pattern, a.bias, None, boxes)
        found = (made, a.pattern)
        if made.positions is None or _room(machine, len(made.positions)):
            machine.remember(key, found)
    result: Plan = found[0]
    return result


def _room(machine: Machine, elements: int) -> bool:
    used = machine.cache.get("elements", 0) + elements
    if used > _MAX_CACHED:
        return False
    machine.cache["elements"] = used
    return True


def index_list(machine: Machine, a: Access) -> Array:
    """The s32 index list of an indirect access.

    Raises:
        SimulationError: it does not lie in VMEM; in hostile mode, nothing has written it.
    """
    count = a.pattern.counts[a.pattern.indirect]
    if not 0 <= a.index <= len(machine.vmem) - 4 * count:
        raise machine.error(f"index list of {count} at {a.index}: beyond vmem, {len(machine.vmem)} bytes")
    machine.calls.wait()
    words = machine.vmem[a.index : a.index + 4 * count].view(np.int32)
    if machine.hostile and (missing := int(np.count_nonzero(words.view(np.uint32) == POISON))):
        raise machine.error(f"index list of {count} at {a.index}: nothing has written {missing} of its words")
    return words.astype(np.int64)


class Place(NamedTuple):
    """A memory, and an offset in it that elements are relative to."""

    region: Region
    base: int

    def address(self, offset: int) -> int:
        """Where `offset` from the base is in the host's memory."""
        return self.region.address + self.base + offset


def locate(machine: Machine, a: Access, p: Plan, store: bool = False) -> Place:
    """Memory and base of an access.

    Raises:
        SimulationError: an element that exists is out of bounds; `store`: or is not to be changed.
    """
    region = machine.region(a.stream)
    data, base = region.data, a.base
    if p.low > p.high:
        return Place(region, base)
    if base + p.low < 0 and len(data) > _WRAP // 2:
        base += _WRAP  # operands are 32 bits: of large buffers they address the upper half as negative numbers
    low, high = base + p.low, base + p.high + p.raw.itemsize
    if low < 0 or high > len(data):
        raise machine.error(f"{region.name}: bytes {low} to {high - 1} are out of bounds, it has {len(data)}")
    if store and not data.flags.writeable:
        raise machine.error(f"{region.name}: is stored to, but bound to a read-only array; bind a copy")
    return Place(region, base)


def _memory(machine: Machine, a: Access, p: Plan, store: bool = False) -> tuple[Bytes, int]:
    """Memory, with all native calls made, and base."""
    place = locate(machine, a, p, store)
    machine.calls.wait()
    return place.region.data, place.base


def _view(data: Bytes, dtype: np.dtype[Any], base: int, box: Box) -> Array:
    return np.ndarray(box.shape, dtype, data, base + box.offset, box.strides)  # type: ignore[arg-type, unused-ignore]


def _taken(view: Array, box: Box) -> Array:
    if box.gather is None:
        return view
    return view[(slice(None),) * box.axis + (box.gather,)]


def read_raw(machine: Machine, a: Access, fill: int | None = None) -> Array:
    """Elements in memory through an access; those outside read as `fill` (given as raw; else the pattern's low bytes).

    Raises:
        SimulationError: out of bounds.
    """
    p = plan(machine, a)
    data, base = _memory(machine, a, p)
    dtype = p.raw
    if p.full:
        box = p.boxes[0]
        return _taken(_view(data, dtype, base, box), box)
    if fill is None:
        fill = a.pattern.fill & ((1 << 8 * min(dtype.itemsize, 4)) - 1)
    out = np.full(p.shape, fill, dtype)
    for box in p.boxes:
        out[box.where] = _taken(_view(data, dtype, base, box), box)
    if p.positions is not None:
        out.reshape(-1)[p.positions] = _elements(data, dtype, base, p)
    return out


def _elements(data: Bytes, dtype: np.dtype[Any], base: int, p: Plan) -> Array:
    assert p.offsets is not None
    size = dtype.itemsize
    relative = p.offsets - p.low
    if (relative % size).any():
        rows = data[(base + p.offsets)[:, None] + np.arange(size)]
        return rows.view(dtype)[:, 0]
    return data[base + p.low : base + p.high + size].view(dtype).take(relative // size)


def read_bits(machine: Machine, a: Access) -> Bits:
    """The same, widened to register images; elements outside read as the pattern's fill."""
    dtype, fill = a.pattern.dtype, a.pattern.fill
    if not a.pattern.coords:
        raw = read_raw(machine, a)
        return raw if raw.dtype is U32 else widen(raw, dtype)
    stored, exact = fill_of(fill, dtype)
    bits = widen(read_raw(machine, a, stored), dtype)
    if not exact:
        p = plan(machine, a)
        bits = np.where(p.mask, bits, np.uint32(fill & 0xFFFFFFFF))
    return bits


def write_raw(machine: Machine, a: Access, values: Array) -> None:
    """Store raw elements (broadcast to the counts) where they are inside; of two to one address the later one stays.

    Raises:
        SimulationError: out of bounds, or read-only.
    """
    p = plan(machine, a)
    data, base = _memory(machine, a, p, store=True)
    dtype = p.raw
    if p.boxes and p.scatters:
        p = plan(machine, a, boxes=False)
    if values.shape != p.shape:
        values = np.broadcast_to(values, p.shape)
    if p.boxes and np.may_share_memory(values, data[base + p.low : base + p.high + dtype.itemsize]):
        # A view of the memory being written (numpy itself does not look where both have one dimension).
        values = values.copy()
    for box in p.boxes:
        view = _view(data, dtype, base, box)
        if box.gather is not None:
            view[(slice(None),) * box.axis + (box.gather,)] = values[box.where]
        else:
            view[...] = values if p.full else values[box.where]
    if p.positions is not None:
        _store_elements(data, base, p, values.reshape(-1)[p.positions])


def _store_elements(data: Bytes, base: int, p: Plan, values: Array) -> None:
    assert p.offsets is not None
    size = values.dtype.itemsize
    relative = p.offsets - p.low
    if (relative % size).any():
        data[(base + p.offsets)[:, None] + np.arange(size)] = np.ascontiguousarray(values)[:, None].view(np.uint8)
    else:
        data[base + p.low : base + p.high + size].view(values.dtype)[relative // size] = values


def write_bits(machine: Machine, a: Access, bits: Bits) -> None:
    """Store register images, rounded to the pattern's element type."""
    write_raw(machine, a, narrow(bits, a.pattern.dtype))


def coordinate(machine: Machine, a: Access, number: int) -> Bits:
    """Coordinate `number` of every element as s32, before division and bounds (broadcastable to the counts)."""
    if number >= len(a.pattern.coords):
        raise machine.error(f"pattern {a.stream.pattern}: no coordinate {number}")
    return _affine(machine, a, number).astype(np.int32).view(np.uint32)


def _affine(machine: Machine, a: Access, number: int) -> Array:
    c, counts = a.pattern.coords[number], a.pattern.counts
    total: Array = np.full((1,) * len(counts), c.offset + (a.bias[c.bias] if c.bias >= 0 else 0), np.int64)
    for k, coef in enumerate(c.coefs):
        if coef:
            values = index_list(machine, a) if k == a.pattern.indirect else np.arange(counts[k])
            total = total + coef * values.reshape([-1 if k == j else 1 for j in range(len(counts))])
    return total


def inside(machine: Machine, a: Access) -> Bits:
    """1 where the element exists, 0 elsewhere (broadcastable to the counts)."""
    good: Array = np.ones((1,) * len(a.pattern.counts), np.bool_)
    for number, c in enumerate(a.pattern.coords):
        v = _affine(machine, a, number)
        good = good & (v >= c.lo * c.div) & (v < c.hi * c.div) & (v % c.div == 0)
    return good.astype(np.uint32)


def is_memory(stream: Stream) -> bool:
    """Whether the stream has addresses."""
    return stream.space not in (Space.NONE, Space.HOST)
