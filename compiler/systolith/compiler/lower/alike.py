"""Which groups are alike: what their lowering depends on, but for names."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from systolith.compiler.groups.structure import structure
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Buf, Dynamic, Entry

SUFFIX = re.compile(r"(\.[a-z_]+[0-9]*)+")
"""The end of a name that is made of another one."""


@dataclass(frozen=True)
class Source:
    """A group that is to be lowered.

    Attributes:
        key: all that lowering it depends on, beside the chip, the room for its tiles, and the state of the context.
        names: those that its operations and buffers may be called after.
        bufs: the buffers of its arrays.
        dynamics: places of these that only the run knows.
        in_blocks: whether it runs in blocks.
        asks_for_room: whether it compares the room for its tiles with what these take, no more.
    """

    key: Hashable
    names: tuple[str, ...]
    bufs: tuple[Buf, ...]
    dynamics: tuple[Dynamic, ...]
    in_blocks: bool
    asks_for_room: bool


def source_of(ctx: TileBuilder, group: Group, operands: Sequence[Array], results: Sequence[Array]) -> Source:
    """A group over its arrays."""
    arrays = (*operands, *results)
    dynamics = list(dict.fromkeys(a.dynamic for a in arrays if a.dynamic is not None))
    bufs = list(dict.fromkeys(a.buf for a in arrays))
    number = {buf: n for n, buf in enumerate(bufs)}
    owners = list(dict.fromkeys(buf.memory for buf in bufs))
    memory = {buf: n for n, buf in enumerate(owners)}
    known_in_runs = {d: (n, *_form(d)) for n, d in enumerate(dynamics)}
    places = tuple(
        (number[a.buf], a.dtype.name, a.dims, a.strides, a.origin, a.offset, a.dynamic and known_in_runs[a.dynamic])
        for a in arrays
    )
    lying = tuple(
        (int(b.space), b.bytes, b.align, b.unit, memory[b.memory], b.decl and b.decl.role, len(b.parts)) for b in bufs
    )
    inside = [i.name for i in group.body.instructions]
    called = [b.name.partition("~")[0] for b in bufs]
    names = (group.name, *inside, *(b.name for b in bufs), *called)
    key = (structure(group.body), group.unit, group.tiling, len(operands), places, lying, _relations(names))
    in_blocks, asks = group.unit is None, group.unit is Unit.VPU
    return Source((*key, ctx.options.precision), names, tuple(bufs), tuple(dynamics), in_blocks, asks)


def _form(place: Dynamic) -> tuple[int, ...]:
    """All of a place that only a run knows but its registers."""
    return (place.pitch, int(place.offset is None)) if isinstance(place, Entry) else ()


def _relations(names: Sequence[str]) -> Hashable:
    """Which names are the same, and which are others with a suffix: then a text that begins with one is ambiguous."""
    first: dict[str, int] = {}
    for n, name in enumerate(names):
        first.setdefault(name, n)
    found = []
    for name in first:
        stem = name
        while "." in stem and (cut := stem.rpartition("."))[0]:
            stem = cut[0]
            if not SUFFIX.fullmatch(name[len(stem) :]):
                break
            if stem in first:
                found.append((first[name], first[stem], name[len(stem) :]))
    return tuple(first[name] for name in names), tuple(found)
