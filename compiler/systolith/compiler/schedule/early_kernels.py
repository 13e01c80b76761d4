"""Schedule: a kernel that reads what a product made starts before the whole product is made, in parts.

Queues keep their order, so a kernel behind a product's epilogues waits for the last of them, and the matrix units for
the kernel: a pool after a convolution of few features, which the vector unit has time for while they multiply.  Within
a segment without control flow the kernel is cut along its outermost loop, and each part follows the last operation
before it that it depends on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import cast

from systolith.compiler.cost.prices import OVERHEAD
from systolith.compiler.schedule.operation_times import cost_of
from systolith.compiler.schedule.segments import Segment, by_segments
from systolith.compiler.tile.ir import Block, Buf, Loop, Ref, TileOp, VReg
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.pattern import Pattern

PARTS = 8
"""Parts of a kernel at most."""

WORTH = 8
"""A part takes at least so many times the cycles that an instruction takes besides its work."""

WINDOW = 512
"""Operations before a kernel that its parts may pass."""

Cut = dict[TileOp, list[TileOp]]
"""Kernels that were cut, and their parts."""


def start_early(block: Block, chip: Chip) -> tuple[Block, Cut]:
    """The block with kernels in parts that start before a product is made, and these kernels with their parts."""
    cut: Cut = {}
    return by_segments(block, lambda ops: _segment(ops, chip, cut)), cut


def last_parts(cut: Cut) -> dict[TileOp, TileOp]:
    """For each kernel its last part, up to which its operands lie where they are."""
    return {kernel: parts[-1] for kernel, parts in cut.items()}


def _segment(ops: Segment, chip: Chip, cut: Cut) -> Segment:
    after: dict[int, list[TileOp]] = defaultdict(list)
    candidates = list(_candidates(ops, chip))
    makers = _makers(ops) if candidates else {}
    for op, place, product, parts in candidates:
        places = list(accumulate((_last(part, ops, place) for part in parts), max))
        places[-1] = max(places[-1], _operands_made(makers[op.origin.group], ops, place))
        if 2 * sum(at < product for at in places) > len(places):  # the matrix units multiply after most parts may start
            cut[op] = parts
            for part, at in zip(parts, places, strict=True):
                after[at].append(part)
    if not after:
        return ops
    out: list[TileOp | Loop] = [*after[-1]]
    for place, item in enumerate(ops):
        out += [] if item in cut else [item]
        out += after[place]
    return out


def _candidates(ops: Segment, chip: Chip) -> Iterator[tuple[TileOp, int, int, list[TileOp]]]:
    """Kernels that come in parts, with their places and those of the last operation on matrix units before them."""
    product = -WINDOW
    for place, op in enumerate(ops):
        if isinstance(op, Loop):
            continue
        product = place if op.op == "mxu.matmul" else product
        if place - product < WINDOW and (parts := _parts(op, chip)):
            yield op, place, product, parts


def _makers(ops: Segment) -> dict[str, set[str]]:
    """For each group the others that make its operands."""
    used: dict[str, set[Buf]] = defaultdict(set)
    made: dict[Buf, set[str]] = defaultdict(set)
    for op in _each(ops):
        used[op.origin.group].update(op.buffers)
        for ref in op.written:
            if ref.buf is not None:
                made[ref.buf].add(op.origin.group)
    return {group: {maker for buf in bufs for maker in made[buf]} - {group} for group, bufs in used.items()}


def _operands_made(makers: Collection[str], ops: Segment, place: int) -> int:
    """Place of the last operation before `place` of the groups that make a group's operands, also if this kernel has
    no use for it: with the last part of its first kernel all operands of a group lie where they are (`GroupRecord`).
    """
    for at in range(place - 1, max(-1, place - WINDOW), -1):
        if any(op.origin.group in makers for op in _each(ops[at : at + 1])):
            return at
    return max(-1, place - WINDOW)


def _each(items: Iterable[TileOp | Loop]) -> Iterator[TileOp]:
    """Operations, those of loops included."""
    for item in items:
        yield from item.body.ops() if isinstance(item, Loop) else [item]


def _parts(op: TileOp, chip: Chip) -> list[TileOp]:
    """A kernel in parts along its outermost loop; none: it does not come in parts, or they would be too short."""
    if op.op != "vpu.run" or op.args["serial"]:
        return []
    counts, inner = cast(tuple[int, ...], op.args["counts"]), cast(int, op.args["inner"])
    written, streams = op.written, cast(tuple[Ref, ...], op.args["streams"])
    if len(counts) < 2 or len(counts) == inner or not all(_is_plain(s) for s in streams):
        return []
    if not {s.buf for s in written}.isdisjoint(s.buf for s in streams if s not in written):
        return []
    n = min(PARTS, counts[0], cost_of(op, chip).occupancy // (WORTH * OVERHEAD))
    if n < 2:
        return []
    ends = [counts[0] * k // n for k in range(n + 1)]
    return [_part(op, first, end - first) for first, end in pairwise(ends)]


def _is_plain(stream: Ref) -> bool:
    """Whether a stream is of an array in VMEM at a known place, or of coordinates."""
    in_vmem = stream.buf is None or (stream.buf.space is Space.VMEM and not stream.buf.parts)
    fixed = stream.dynamic is None and not stream.moves and not any(isinstance(b, VReg) for b in stream.bias)
    return in_vmem and fixed and stream.pattern.indirect < 0


def _part(op: TileOp, first: int, count: int) -> TileOp:
    streams = tuple(_stream(s, first, count) for s in cast(tuple[Ref, ...], op.args["streams"]))
    counts = cast(tuple[int, ...], op.args["counts"])
    return TileOp(op.op, {**op.args, "counts": (count, *counts[1:]), "streams": streams}, op.origin, op.unit)


def _stream(stream: Ref, first: int, count: int) -> Ref:
    """The iterations of the outermost loop from `first` on."""
    p = stream.pattern
    coords = tuple(replace(c, offset=c.offset + first * c.coefs[0]) for c in p.coords)
    cut = Pattern(p.dtype, (count, *p.counts[1:]), p.strides, coords, p.fill, p.indirect)
    moved = 0 if stream.buf is None else first * p.strides[0]
    return replace(stream, pattern=cut, offset=stream.offset + moved)


def _last(part: TileOp, ops: Segment, place: int) -> int:
    """Place of the last operation before `place` that a part depends on."""
    uses = list(_uses(part))
    buffers = {use.buf for use in uses}
    registers = {v for v in cast(tuple[int | VReg, ...], part.args["scalars"]) if isinstance(v, VReg)}
    for at in range(place - 1, max(-1, place - WINDOW), -1):
        op = ops[at]
        if isinstance(op, Loop):
            if not buffers.isdisjoint(buf for inner in op.body.ops() for buf in inner.buffers):
                return at
        elif op.args.get("rd") in registers or (
            not buffers.isdisjoint(op.buffers) and any(a.conflicts(b) for a in _uses(op) for b in uses)
        ):
            return at
    return max(-1, place - WINDOW)


@dataclass(frozen=True)
class _Use:
    """Bytes of a buffer from `start` to `end` that an operation reads or writes."""

    buf: Buf
    start: int
    end: int
    written: bool

    def conflicts(self, other: _Use) -> bool:
        return (
            self.buf is other.buf
            and (self.written or other.written)
            and self.start < other.end
            and other.start < self.end
        )


def _uses(op: TileOp) -> Iterator[_Use]:
    written = op.written
    for ref in op.refs:
        if ref.index is not None:
            yield _Use(ref.index, 0, ref.index.bytes, written=False)
        if ref.buf is None:
            continue
        p, start, end = ref.pattern, 0, ref.buf.bytes
        if _is_known(ref):
            steps = [s * (n - 1) for s, n in zip(p.strides, p.counts, strict=True)]
            start = ref.offset + sum(min(0, s) for s in steps)
            end = ref.offset + sum(max(0, s) for s in steps) + p.dtype.size
        yield _Use(ref.buf, start, end, ref in written)
        yield from (_Use(part, 0, part.bytes, ref in written) for part in ref.buf.parts)


def _is_known(ref: Ref) -> bool:
    """Whether the bytes of a stream are known before it runs."""
    p = ref.pattern
    return p.indirect < 0 and ref.dynamic is None and not ref.moves and not any(c.stride for c in p.coords)
