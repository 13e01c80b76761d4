"""HBM plan: temporaries in HBM (spilled values) whose lives do not overlap share memory.

Greedy by size: the largest temporaries first, each in the tightest piece of memory none of whose values is alive with
it; the first one of a piece, its largest, owns it.  Memory of parameters that nothing reads any more, and of results
that are not there yet, is a piece like others, which costs nothing.  Lives are those of the scheduled program, which is
the order that tokens keep; operands of a group live until it begins, its results until it ends, so that it can be
checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from systolith.compiler.errors import CompileError
from systolith.compiler.memory.liveness import Live, Liveness
from systolith.compiler.memory.vmem import lives, positions
from systolith.compiler.tile.ir import Block, Buf, GroupRecord
from systolith.isa.instruction import Space
from systolith.isa.program import Role


@dataclass
class Piece:
    """Memory of one buffer, and what lives in it."""

    owner: Buf
    values: list[Live[Buf]] = field(default_factory=list)

    def takes(self, live: Live[Buf]) -> bool:
        """Whether a value has room in it while it lives."""
        return live.value.bytes <= self.owner.bytes and all(
            v.last < live.first or live.last < v.first for v in self.values
        )


def share_temporaries(block: Block, hosts: Collection[Buf] = (), records: Iterable[GroupRecord] = ()) -> None:
    """Set `shares` of the temporaries of a scheduled program.

    Args:
        block: the program.
        hosts: parameters and results in whose memory temporaries may lie, too, while nothing else does; all those that
            share a memory.
        records: of its groups, whose operands and results are where these say as long as that.
    """
    given = [b for b in hosts if _role(b) is Role.PARAMETER]
    made = [b for b in hosts if _role(b) is Role.RESULT]
    pieces = {b: Piece(b) for b in sorted({b.memory for b in hosts}, key=lambda b: (-b.bytes, b.name))}
    temporaries = []
    found = lives(block, (Space.HBM,), given, made)
    _keep_recorded(found, block, records)
    for live in found:
        if _role(live.value) is Role.TEMP:
            live.value.shares = None
            temporaries.append(live)
        elif live.value.memory in pieces:
            pieces[live.value.memory].values.append(live)
    for live in sorted(temporaries, key=lambda v: (-v.value.bytes, v.first, v.value.name)):
        free = [p for p in reversed(pieces.values()) if p.takes(live)]
        if free:
            piece = min(free, key=lambda p: p.owner.bytes)
            live.value.shares = piece.owner
        else:
            piece = pieces[live.value] = Piece(live.value)
        piece.values.append(live)


def _keep_recorded(found: Liveness[Buf], block: Block, records: Iterable[GroupRecord]) -> None:
    """Let operands of a group live until its first operation, and results until its last one: loads that moved ahead
    may have read them before.
    """
    place = {op: position for position, op in positions(block, [])}
    for record in records:
        for op, arrays in ((record.first, record.inputs), (record.last, record.outputs)):
            for _, array in arrays:
                if array.buf in found.last:
                    found.last[array.buf] = max(found.last[array.buf], place[op])


def _role(buf: Buf) -> Role | None:
    return None if buf.decl is None else buf.decl.role


def buffer_table(buffers: Sequence[Buf], states: Mapping[int, bytes] | None = None) -> list[Buf]:
    """The buffers, owners of memory before those that share it, with entries that say so.

    Args:
        buffers: all of them.
        states: parameters that are states, by number, with what they begin with; results in their memory are seen by
            nobody.

    Raises:
        CompileError: no result is in the memory of a state.
    """
    ordered = sorted(buffers, key=lambda b: b.shares is not None)
    number = {b: n for n, b in enumerate(ordered)}
    for b in ordered:
        if b.decl is not None:
            b.decl = replace(b.decl, alias=-1 if b.shares is None else number[b.memory])
    left = set(states or ())
    for b in ordered if states else ():
        decl, root = b.decl, b.memory.decl
        if decl is None or root is None:
            continue
        if decl.role is Role.PARAMETER and decl.number in (states or {}):
            b.decl = replace(decl, role=Role.STATE, data=(states or {})[decl.number])
        elif decl.role is Role.RESULT and root.role is Role.STATE:
            b.decl = replace(decl, role=Role.TEMP, number=-1)
            left.discard(root.number)
    if left:
        raise CompileError(
            f"no result is in the memory of parameter {min(left)}, a state of rng-get-and-update-state: "
            "keep its must-alias in the module's input_output_alias"
        )
    return ordered
