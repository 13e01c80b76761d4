"""HBM plan: temporaries in HBM (spilled values) whose lives do not overlap share memory.

Greedy by size: the largest temporaries first, each in the tightest piece of memory none of whose values is alive with
it; the first one of a piece, its largest, owns it.  Lives are those of the scheduled program, which is the order that
tokens keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from systolith.compiler.memory_plan import Live, lives
from systolith.compiler.tile.ir import Block, Buf
from systolith.isa.instruction import Space
from systolith.isa.program import Role


def share_temporaries(block: Block) -> None:
    """Set `shares` of the temporaries of a scheduled program."""
    temporaries = [v for v in lives(block, (Space.HBM,)) if v.buf.decl is not None and v.buf.decl.role is Role.TEMP]
    pieces: list[list[Live]] = []
    for live in sorted(temporaries, key=lambda v: (-v.buf.bytes, v.first, v.buf.name)):
        # Pieces are in descending order of size: the last one that is free is the tightest.
        free = (p for p in reversed(pieces) if all(o.last < live.first or live.last < o.first for o in p))
        piece = next(free, None)
        if piece is None:
            pieces.append([live])
        else:
            live.buf.shares = piece[0].buf
            piece.append(live)


def buffer_table(buffers: Sequence[Buf]) -> list[Buf]:
    """The buffers, owners of memory before those that share it, with entries that say so."""
    ordered = sorted(buffers, key=lambda b: b.shares is not None)
    number = {b: n for n, b in enumerate(ordered)}
    for b in ordered:
        if b.shares is not None and b.decl is not None:
            b.decl = replace(b.decl, alias=number[b.memory])
    return ordered
