"""What was lowered of a group, and the template for copies of it that is made of that.

It becomes a template when it is to be copied for the first time: every name in it is one of the given names, or one
with a suffix; where there is any other, it is not copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from systolith.compiler.cost.room import Room
from systolith.compiler.explain import Decision
from systolith.compiler.lower.alike import SUFFIX, Source
from systolith.compiler.tile.builder import Sums, TileBuilder
from systolith.compiler.tile.ir import Block, Buf, Dynamic, Item, Loop, Ref, TileOp, VReg
from systolith.isa.instruction import Space
from systolith.isa.program import Origin

_WORDS = re.compile(r"([^\s,;:()'\"]+)")
_CLEARLY_A_NAME = re.compile(r"[A-Za-z_].*[._0-9].*")

Note = bool | None
"""Whether a group is cramped (see `Lowering`); None: more than that came of lowering it."""


class NotCopiedError(Exception):
    """What was lowered has something that copies cannot have."""


@dataclass
class Lowered:
    """What was appended to lower a group.

    Attributes:
        source: the group.
        note: see `GroupCopies.lower`.
        items: its operations.
        drawn: the names of buffers that were made: before they were made unique, and after.
        explain: decisions.
        sums: accumulators that were taken; places are among the items.
        ring: rows that these are of, in turn; 0: all of them.
        room: for its tiles, if it asked for that; None: what it depends on has it.
        state: of the context after.
        row_bytes: of an accumulator row.
        units: matrix units of the chip.
        whole, inner: buffers that hold whole values; those of them that only a blocked group knows.
    """

    source: Source
    note: Note
    items: Sequence[Item]
    drawn: Sequence[tuple[str, str]]
    explain: Sequence[Decision]
    sums: Sequence[Sums]
    ring: int
    room: Room | None
    state: Hashable
    row_bytes: int
    units: int
    whole: frozenset[Buf]
    inner: frozenset[Buf]

    @property
    def ops(self) -> Iterator[TileOp]:
        """All operations, those in loops included."""
        return Block([*self.items]).ops()

    @cached_property
    def looped(self) -> bool:
        """Whether there are loops."""
        return any(isinstance(item, Loop) for item in self.items)

    @cached_property
    def largest(self) -> int:
        """Bytes of the largest buffer in VMEM."""
        bufs = {b for op in self.ops for b in op.buffers}
        return max((b.bytes for b in bufs if b.space is Space.VMEM), default=0)

    @cached_property
    def template(self) -> Template | None:
        """For copies; None: it cannot be copied."""
        try:
            return _Reading(self).template()
        except NotCopiedError:
            return None


Piece = str | tuple[int, str]
"""A part of a text: as it is, or the name of a number with a suffix."""


@dataclass(frozen=True)
class _Op:
    """An operation to copy.

    Attributes:
        op, args, unit: as they were.
        streams: numbers of arguments that are streams.
        origin: number of its origin.
        turns: whether it is on a matrix unit, of which a copy has another one.
        sums: number of the accumulators that it adds to, if it does.
    """

    op: str
    args: dict[str, Any]
    streams: tuple[tuple[str, int | tuple[int, ...]], ...]
    origin: int
    unit: int
    turns: bool
    sums: int | None


@dataclass(frozen=True)
class _Loop:
    """A loop to copy: the number of its variable, its count, the name of its group, and what it repeats."""

    var: int
    count: int
    name: Piece
    items: tuple[_Op | _Loop, ...]


_Stream = tuple[int | None, int | None, Ref, int | None]
"""A stream to copy: with the numbers of its buffer and of its index list, and of the accumulators that it reads."""


@dataclass
class Template:
    """A group to be copied; buffers, streams and origins by their numbers.

    Attributes:
        stems: names of the buffers to make.
        bufs: of these, as they were: with the number of the name, and whether each holds a whole, or an inner, value.
        refs: streams.
        sums, ring, row_bytes, units: see `Lowered`.
        origins: with names of instruction and group.
        variables: of loops.
        shifted: there are loops: the accumulators of a copy are all as many rows further.
        items: operations and loops.
        explain: decisions.
        state: see `Lowered`.
        dynamics: places that only the run knows, of the group that was lowered.
    """

    stems: list[Piece] = field(default_factory=list)
    bufs: list[tuple[int, Buf, bool, bool]] = field(default_factory=list)
    refs: list[_Stream] = field(default_factory=list)
    sums: Sequence[Sums] = ()
    ring: int = 0
    row_bytes: int = 0
    units: int = 1
    origins: list[tuple[Piece, Piece, Origin]] = field(default_factory=list)
    variables: int = 0
    shifted: bool = False
    items: list[_Op | _Loop] = field(default_factory=list)
    explain: list[Callable[[Sequence[str]], Decision]] = field(default_factory=list)
    state: Hashable = None
    dynamics: Sequence[Dynamic] = ()

    def fits(self, ctx: TileBuilder) -> bool:
        """Whether the sums of a copy would be those of the group, all as many rows further."""
        if not self.shifted or not self.sums or self.ring:
            return True
        rows = ctx.foreseen([s.rows for s in self.sums])
        return len({row - s.row for row, s in zip(rows, self.sums, strict=True)}) == 1

    def copy(self, ctx: TileBuilder, source: Source) -> None:
        """Append a copy for another group."""
        names = list(source.names)
        for stem in self.stems:
            names.append(ctx.fresh(_named(stem, names)))
        bufs = list(source.bufs)
        for number, like, whole, inner in self.bufs:
            made = Buf(names[number], like.space, like.bytes, like.align)
            bufs.append(made)
            if whole:
                ctx.whole.add(made)
            if inner:
                ctx.inner.add(made)
        start = len(ctx.block.items)
        if self.sums:
            ctx.begin_ring(self.ring)
        units = [ctx.next_unit() for _ in self.sums]
        rows = [ctx.acc_rows(unit, s.rows) for s, unit in zip(self.sums, units, strict=True)]
        if rows:
            ctx.sums[-len(rows) :] = [
                s._replace(place=start + t.place) for s, t in zip(ctx.sums[-len(rows) :], self.sums, strict=True)
            ]
        # Matrix units take turns: all are as many further as the first one.
        turn = units[0] - self.sums[0].unit if units else 0
        shift = rows[0] - self.sums[0].row if self.shifted and rows else 0
        variables = [VReg(next(ctx.loop_vars)) for _ in range(self.variables)]
        places = dict(zip(self.dynamics, source.dynamics, strict=True))
        refs = list[Ref]()
        for n, k, ref, sums in self.refs:
            buf, offset = (None if n is None else bufs[n]), ref.offset
            if ref.buf is not None and ref.buf.space == Space.ACC:
                unit = (ref.buf.unit + turn) % self.units if self.shifted else ref.buf.unit
                buf = ctx.acc(unit if sums is None else units[sums])
                offset += (shift if sums is None else rows[sums] - self.sums[sums].row) * self.row_bytes
            moves = tuple([(variables[var.n], step) for var, step in ref.moves])
            dynamic = None if ref.dynamic is None else places[ref.dynamic]
            refs.append(Ref(buf, ref.pattern, offset, dynamic, ref.bias, None if k is None else bufs[k], moves))
        origins = [replace(o, hlo=_named(hlo, names), group=_named(g, names)) for hlo, g, o in self.origins]

        def loop(item: _Loop, body: Block) -> Loop:
            return Loop(variables[item.var], item.count, body, _named(item.name, names))

        def operation(item: _Op) -> TileOp:
            args = item.args
            if item.streams:
                args = dict(args)
                for name, which in item.streams:
                    args[name] = refs[which] if type(which) is int else tuple([refs[n] for n in which])  # type: ignore[union-attr]
            if item.sums is not None:
                args = {**args, "acc": rows[item.sums]}
            elif shift and "acc" in args:
                args = {**args, "acc": args["acc"] + shift}
            unit = (item.unit + turn) % self.units if item.turns else item.unit
            return TileOp(item.op, args, origins[item.origin], unit)

        ctx.block.items += _copies(self.items, operation, loop)
        ctx.explain += [decision(names) for decision in self.explain]
        if source.in_blocks:
            ctx.proceed(self.state)


def _copies(
    items: Iterable[_Op | _Loop], operation: Callable[[_Op], TileOp], loop: Callable[[_Loop, Block], Loop]
) -> list[Item]:
    """Copies of operations and loops.

    A function inside of `Template.copy` that calls itself would be a cycle, and keep the copy until cycles are sought.
    """
    return [
        loop(item, Block(_copies(item.items, operation, loop))) if isinstance(item, _Loop) else operation(item)
        for item in items
    ]


def _named(piece: Piece, names: Sequence[str]) -> str:
    return piece if type(piece) is str else names[piece[0]] + piece[1]  # type: ignore[index]


class _Reading:
    """Makes a template of what was lowered."""

    def __init__(self, lowered: Lowered) -> None:
        self._lowered, self._made = (
            lowered,
            Template(
                state=lowered.state,
                sums=lowered.sums,
                ring=lowered.ring,
                row_bytes=lowered.row_bytes,
                units=lowered.units,
                shifted=lowered.looped,
                dynamics=lowered.source.dynamics,
            ),
        )
        self._names: dict[str, int] = {}
        self._count = 0
        for name in lowered.source.names:
            self._know(name)
        self._bufs: dict[Buf, int] = {buf: n for n, buf in enumerate(lowered.source.bufs)}
        self._refs: dict[tuple[int, int | None], int] = {}
        self._taken: list[int] = []  # numbers of the accumulators that were taken so far, the last one first
        self._origins: dict[Origin, int] = {}  # few are different: tiles have the same
        self._variables: dict[VReg, int] = {}

    def template(self) -> Template:
        """The template.

        Raises:
            NotCopiedError: something has no place in one.
        """
        drawn, stems = dict[str, int](), dict[str, Piece]()
        for stem, name in self._lowered.drawn:
            # The first name of a stem may be the stem itself, of which others are not made.
            piece = stems[stem] if stem in stems else stems.setdefault(stem, self._piece(stem))
            self._made.stems.append(piece)
            drawn[name] = self._know(name)
        self._number_buffers(drawn)
        coming = iter(enumerate(self._lowered.sums))
        n, sums = next(coming, (0, None))
        for place, item in enumerate(self._lowered.items):
            while sums is not None and sums.place <= place:
                self._taken.insert(0, n)
                n, sums = next(coming, (0, None))
            self._made.items.append(self._item(item))
        self._made.variables = len(self._variables)
        self._made.explain += map(self._decision, self._lowered.explain)
        return self._made

    def _know(self, name: str) -> int:
        number, self._count = self._count, self._count + 1
        self._names.setdefault(name, number)
        return number

    def _piece(self, text: str) -> Piece:
        """A name: one that is known, or one with a suffix."""
        if not text:
            return ""
        stem = text
        while stem not in self._names:
            stem, dot, _ = stem.rpartition(".")
            if not dot:
                raise NotCopiedError
        suffix = text[len(stem) :]
        if suffix and not SUFFIX.fullmatch(suffix):
            raise NotCopiedError
        return self._names[stem], suffix

    def _number_buffers(self, drawn: Mapping[str, int]) -> None:
        found = self._lowered
        parts = {part for buf in self._bufs for part in buf.parts}
        bufs = dict.fromkeys(b for op in found.ops for b in op.buffers if b not in self._bufs and b not in parts)
        for b in bufs:
            if b.space == Space.ACC:
                continue
            if b.name not in drawn or b.space == Space.HBM or b.decl is not None or b.shares is not None:
                raise NotCopiedError
            self._bufs[b] = len(self._bufs)
            self._made.bufs.append((drawn[b.name], b, b in found.whole, b in found.inner))

    def _item(self, item: Item) -> _Op | _Loop:
        if isinstance(item, TileOp):
            return self._op(item)
        if not isinstance(item, Loop) or not isinstance(item.count, int):
            raise NotCopiedError
        var = self._variable(item.var)
        return _Loop(var, item.count, self._piece(item.name), tuple(map(self._item, item.body.items)))

    def _variable(self, var: VReg) -> int:
        return self._variables.setdefault(var, len(self._variables))

    def _op(self, item: TileOp) -> _Op:
        streams = list[tuple[str, int | tuple[int, ...]]]()
        for name, value in item.args.items():
            if type(value) is Ref:
                streams.append((name, self._ref(value)))
            elif type(value) is VReg:
                raise NotCopiedError
            elif type(value) is tuple and value:
                if any(type(v) is VReg for v in value):
                    raise NotCopiedError
                if type(value[0]) is Ref:
                    streams.append((name, tuple(self._ref(v) for v in value)))
        turns = item.op.startswith("mxu.") and not self._lowered.source.in_blocks
        if item.op == "nop" and item.args["queue"] not in ("ld", "st", "vpu", "xlu"):
            raise NotCopiedError  # of a matrix unit, which may be another one for a copy
        row = item.args.get("acc")
        sums = self._sums(item.unit, row) if turns and type(row) is int else None
        return _Op(item.op, item.args, tuple(streams), self._origin(item.origin), item.unit, turns, sums)

    def _sums(self, unit: int, row: int) -> int | None:
        """The number of the accumulators that a row of a matrix unit is of; None: rows stay, or are all shifted."""
        if self._lowered.source.in_blocks or self._lowered.looped:
            return None
        of = self._lowered.sums
        for n in self._taken:
            if of[n].unit == unit and of[n].row <= row < of[n].row + of[n].rows:
                return n
        raise NotCopiedError

    def _ref(self, ref: Ref) -> int:
        sums = None
        if ref.buf is not None and ref.buf.space == Space.ACC:
            sums = self._sums(ref.buf.unit, ref.offset // self._lowered.row_bytes)
        key = id(ref), sums
        if key not in self._refs:
            if (ref.dynamic is not None and ref.dynamic not in self._made.dynamics) or any(
                type(b) is VReg for b in ref.bias
            ):
                raise NotCopiedError
            ref = replace(ref, moves=tuple((VReg(self._variable(var)), step) for var, step in ref.moves))
            buf = None if ref.buf is None or ref.buf.space == Space.ACC else self._bufs[ref.buf]
            self._refs[key] = len(self._made.refs)
            self._made.refs.append((buf, None if ref.index is None else self._bufs[ref.index], ref, sums))
        return self._refs[key]

    def _origin(self, origin: Origin) -> int:
        number = self._origins.setdefault(origin, len(self._made.origins))
        if number == len(self._made.origins):
            hlo, group = self._piece(origin.hlo), self._piece(origin.group)
            self._made.origins.append((hlo, group, origin))
        return number

    def _decision(self, d: Decision) -> Callable[[Sequence[str]], Decision]:
        group, chosen, why = self._piece(d.group), self._text(d.chosen), self._text(d.why)
        others = [(r, self._text(r.what), self._text(r.why)) for r in d.rejected]

        def make(names: Sequence[str]) -> Decision:
            rejected = tuple(replace(r, what=_text(what, names), why=_text(why, names)) for r, what, why in others)
            return Decision(d.kind, _named(group, names), _text(chosen, names), _text(why, names), d.numbers, rejected)

        return make

    def _text(self, text: str) -> list[Piece]:
        """A text for people, in which names may stand."""
        pieces = list[Piece]()
        for word in _WORDS.split(text):
            try:
                piece = self._piece(word)
            except NotCopiedError:
                piece = word
            if piece != word and not _CLEARLY_A_NAME.fullmatch(word):
                raise NotCopiedError
            pieces.append(piece)
        return pieces


def _text(pieces: Sequence[Piece], names: Sequence[str]) -> str:
    return "".join(_named(piece, names) for piece in pieces)
