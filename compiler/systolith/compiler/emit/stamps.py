"""Who touched each atom of memory last, followed through the uses of a window in machine code."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]

from systolith.isa.native.library import I32, I64, Library, loop, pointer

Ints = npt.NDArray[np.int64]
Stamps = npt.NDArray[np.int32]


def follow(
    place: Ints,
    lane: Ints,
    write: Ints,
    begin: Ints,
    end: Ints,
    found: Ints,
    last: tuple[Stamps, Stamps],
    needed: Stamps,
) -> None:
    """Follow uses of atoms in their order; those at one place neither see nor hide each other.

    Args:
        place: of the instruction of each use, in ascending order.
        lane: of it.
        write: 1 where it writes, else 0.
        begin, end: of each, where its atoms begin and end in `found`.
        found: atoms.
        last: [atoms, lanes], 1 + the place of the last of a lane that wrote an atom, and that read it; brought up to
            date.
        needed: [places, lanes], which gets the largest stamps that a place conflicts with: those of writes, and if it
            writes, of reads.
    """
    heads = np.append(np.flatnonzero(np.diff(place, prepend=-1)), len(place))
    columns = [np.ascontiguousarray(c, np.int64) for c in (heads, place, lane, write, begin, end, found)]
    tables = [table.ctypes.data for table in (*last, needed)]
    _library()["follow"](len(heads) - 1, needed.shape[1], *(c.ctypes.data for c in columns), *tables)


@lru_cache(maxsize=1)
def _library() -> Library:
    return Library({"follow": (12, _follow)}, __file__)


def _follow(b: ir.IRBuilder, many: Any, lanes: Any, *addresses: Any) -> None:
    """The body of `follow`, by distinct places (`heads`: the first use of each)."""
    columns = (pointer(b, address, I64) for address in addresses[:7])
    heads, place, lane, write, begin, end, found = columns
    written, read, needed = addresses[7:]

    def at(column: Any, n: Any) -> Any:
        return b.load(b.gep(column, [n]))

    def row(table: Any, n: Any) -> Any:
        return pointer(b, b.add(table, b.mul(b.mul(n, lanes), I64(4))), I32)

    with loop(b, many) as group:
        first = at(heads, group)
        count, here = b.sub(at(heads, b.add(group, I64(1))), first), at(place, first)
        wanted = row(needed, here)
        with loop(b, count) as n:
            use = b.add(first, n)
            start, writes = at(begin, use), b.icmp_signed("!=", at(write, use), I64(0))
            with loop(b, b.sub(at(end, use), start)) as k:
                atom = at(found, b.add(start, k))
                wrote, has_read = row(written, atom), row(read, atom)
                with loop(b, lanes) as of:
                    stamps = at(wrote, of), b.select(writes, at(has_read, of), I32(0)), at(wanted, of)
                    b.store(_most(b, *stamps), b.gep(wanted, [of]))
        with loop(b, count) as n:
            use = b.add(first, n)
            start, writes = at(begin, use), b.icmp_signed("!=", at(write, use), I64(0))
            table, stamp = b.select(writes, written, read), b.trunc(b.add(here, I64(1)), I32)
            own = at(lane, use)
            with loop(b, b.sub(at(end, use), start)) as k:
                b.store(stamp, b.gep(row(table, at(found, b.add(start, k))), [own]))


def _most(b: ir.IRBuilder, *values: Any) -> Any:
    most, *others = values
    for value in others:
        most = b.select(b.icmp_signed(">", value, most), value, most)
    return most
