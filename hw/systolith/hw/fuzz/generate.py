"""Random programs for the whole core: the same seed gives the same program.

    case = program(seed, chip)

They are legal, and race-free by construction: the accesses of each instruction are known when it is made, and tokens
follow from that (`tokens.py`).  They leave out `trap`, and the points that `coverage.py` lists as impossible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from math import gcd

import numpy as np

from systolith.hw.fuzz.builder import Builder, args
from systolith.hw.fuzz.case import Case, Piece
from systolith.hw.fuzz.draw import Draw
from systolith.hw.fuzz.layout import Layout
from systolith.hw.fuzz.patterns import dense
from systolith.hw.fuzz.tokens import Body, Tokens
from systolith.hw.fuzz.tree import Step, carrier
from systolith.hw.fuzz.units import Units
from systolith.isa.chip import Chip
from systolith.isa.dtypes import F32
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.kernel import NSCALARS, MicroOp
from systolith.isa.opcodes import MAX_TOKENS, MAX_WAITS, queues
from systolith.isa.pattern import Pattern
from systolith.isa.program import Program
from systolith.isa.schedule import VIRTUAL0, schedule_kernel

_KINDS = ("load", "store", "shuffle", "reduce", "run", "matrix", "scalar", "word", "only", "relay", "loop", "either")
_WEIGHTS = (6, 5, 2, 5, 4, 4, 4, 1, 2, 1, 2, 1)
_CROWDED = (6, 6, 3, 4, 2, 6, 0, 0, 0, 0, 1, 0)
"""Weights that keep the units at work together."""
_DEPTH = 3
_MAX_TRIPS = 9


class _Writer:
    """Writes one program's tree."""

    def __init__(self, draw: Draw, chip: Chip, program: Program) -> None:
        self.draw, self.chip = draw, chip
        self.tokens = Tokens(chip)
        self.mxus = [q for q in queues(chip) if q[-1].isdigit()]
        self.b = Builder(draw, chip, program)
        self.units = Units(self.b)
        self.weights = [w * draw.pick((0, 1, 1, 1, 3)) for w in _WEIGHTS]
        if draw.chance(0.3) or not any(self.weights):
            self.weights = list(_CROWDED)
        if draw.chance(0.2):
            self.tokens.extras = (0, 0, 1, 4)
        self._clear()
        if draw.chance(0.04):
            self._flood()
        self.sequence(draw.weighted((8, 14, 22, 34), (2, 4, 3, 1)), 0)

    def sequence(self, items: int, depth: int, matrix: bool = True) -> None:
        """That many things to do, and the steps of matrix products among them."""
        script: deque[Callable[[], object]] = deque()
        for _ in range(items):
            if script and self.draw.chance(0.6):
                script.popleft()()
                continue
            kind = self.draw.weighted(_KINDS, self.weights)
            if kind == "matrix":
                if matrix and not script:
                    script += self._products()
            elif kind == "loop":
                if depth < _DEPTH and self.b.trips < _MAX_TRIPS:
                    with self.b.loop():
                        self.sequence(self.draw.between(1, 5), depth + 1, matrix and not script)
            elif kind == "either":
                self._either()
            else:
                self._one(kind)
        while script:
            script.popleft()()

    def _one(self, kind: str) -> None:
        """One of a kind, at times several in a row, which fill a queue."""
        repeats = self.draw.weighted((1, 2, 6), (16, 2, 1))
        match kind:
            case "scalar":
                self.b.scalars()
            case "word":
                self.b.word()
            case "only":
                queue = self.draw.pick((*queues(self.chip), *self.mxus, "seq"))
                for _ in range(repeats):
                    self.b.step(*carrier(queue).arms).fence = queue != "seq" and self.draw.chance(0.2)
            case "relay":
                self._relay(self.draw.pick((*queues(self.chip), "seq")))
            case _:
                write: Callable[[], Step | None] = getattr(self.units, kind)
                for _ in range(repeats + (kind == "reduce")):
                    write()

    def _relay(self, queue: str) -> None:
        """A step that signals to up to four queues, its own perhaps, for all before it; or that waits for as many."""
        others = self.draw.sample(queues(self.chip), self.draw.between(1, MAX_WAITS))
        if self.draw.chance(0.3):
            others[0] = queue
        others = list(dict.fromkeys(others))
        if self.draw.chance(0.4):
            sources = [self.b.step(*carrier(other).arms) for other in others]
            step = self.b.step(*carrier(queue).arms)
            step.waits += [self.tokens.new(other, queue) for other in others]
            for source, token in zip(sources, step.waits, strict=True):
                source.signals.append(token)
            return
        step = self.b.step(*carrier(queue).arms)
        step.signals += [self.tokens.new(queue, other) for other in others]
        for other, token in zip(others, step.signals, strict=True):
            self.b.step(*carrier(other).arms).waits.append(token)

    def _either(self) -> None:
        """An alternative: instructions, and those of the other arm."""
        kinds = ("load", "store", "shuffle", "reduce", "run", "scalar")
        outer, self.b.nodes, self.b.hold = self.b.nodes, [], True
        for _ in range(self.draw.between(1, 4)):
            if (kind := self.draw.pick(kinds)) != "scalar":
                getattr(self.units, kind)()
        made, self.b.nodes, self.b.hold = self.b.nodes, outer, False
        steps = [n for n in made if isinstance(n, Step) and n.queue != "seq"]
        self.b.nodes += [n for n in made if n not in steps]
        with self.b.alternative():
            for step in steps:
                if self.draw.chance(0.3):
                    self.b.scalars()
                step.group = self.b.group
                step.arms = (step.arms[0], self.units.other(step.arms[0]))
                self.b.nodes.append(step)

    def _products(self) -> Iterator[Callable[[], object]]:
        """Tiles, each with a load, a latch and the streams through it; the next load may come among the streams."""
        draw, unit = self.draw, self.draw.below(self.chip.mxu.count)
        kinds = [draw.chance(0.25) for _ in range(draw.between(1, 3))]
        yield from self._tile(unit, kinds[0])
        for n, integer in enumerate(kinds):
            yield partial(self.units.latch, unit)
            streams = [partial(self.units.matmul, unit, integer)] * draw.below(4)
            ahead = draw.below(len(streams) + 1)
            yield from streams[:ahead]
            if n + 1 < len(kinds):
                yield from self._tile(unit, kinds[n + 1])
            yield from streams[ahead:]

    def _tile(self, unit: int, integer: bool) -> Iterator[Callable[[], object]]:
        """A load, at times after one that nobody latches, or watched by another queue."""
        if self.draw.chance(0.15):
            yield partial(self.units.weights, unit, self.draw.chance(0.5))
        if self.draw.chance(0.15):
            yield partial(self._watched, unit, integer)
            return
        yield partial(self.units.weights, unit, integer)
        if self.draw.chance(0.2):
            yield partial(self._relay, f"w{unit}")

    def _watched(self, unit: int, integer: bool) -> None:
        """A load that another queue waits for at once."""
        step, consumer = self.units.weights(unit, integer), self.draw.pick(queues(self.chip))
        step.signals.append(self.tokens.new(step.queue, consumer))
        self.b.step(*carrier(consumer).arms).waits.append(step.signals[-1])

    def _flood(self) -> None:
        """A token that counts up to its limit before anybody takes it."""
        producer, consumer = (self.draw.pick(queues(self.chip)) for _ in range(2))
        token = self.tokens.new(producer, consumer)
        for queue, name in ((producer, "signals"), (consumer, "waits")):
            for _ in range(self.chip.token.max):
                step = self.b.step(*carrier(queue).arms)
                getattr(step, name).append(token)

    def _clear(self) -> None:
        """Something in the accumulators that the program uses: earlier contents are undefined."""
        v, m = self.chip.vpu, self.chip.mxu
        cells = self.b.places.cells[Space.ACC]
        lanes = min(v.lanes, m.cols)
        ops = [MicroOp("ld", VIRTUAL0, (), 0), MicroOp("st", -1, (VIRTUAL0,), 1)]
        kernel = self.b.kernel(schedule_kernel("start", (), ops, (), (), self.chip))
        for unit in range(m.count):
            mine = [c for c in cells if c.number == unit]
            lo, hi = min(c.lo for c in mine), max(c.hi for c in mine)
            words = (hi - lo) // 4
            sublanes = gcd(words // lanes, v.sublanes)
            counts = (words // lanes // sublanes, sublanes, lanes)
            source = Pattern(F32, counts, (4, 4, 4))
            target = Pattern(F32, counts, dense(4, counts))
            streams = (
                Stream(Space.VMEM, self.b.pattern(source), self.b.places.cells[Space.VMEM][0].lo),
                Stream(Space.ACC, self.b.pattern(target), lo, unit),
            )
            values = args(kernel=kernel, counts=counts[:1], inner=0, serial=0, scalars=(0,) * NSCALARS)
            self.b.step(Instruction("vpu.run", {**values, "streams": streams}))


def _attempt(seed: int, attempt: int, chip: Chip) -> Case | None:
    draw = Draw(seed, attempt)
    program = Program(f"random{seed}", chip.name, chip.digest())
    writer = _Writer(draw, chip, program)
    tokens = writer.tokens
    nodes = Body(tokens, draw, looped=False).order(writer.b.nodes)
    if len(tokens.table) > MAX_TOKENS:
        return None
    layout = Layout(writer.b.labels.count, writer.b.branches)
    layout.add(nodes)
    program.code = [*layout.instructions(), Instruction("halt")]
    program.tokens = tokens.table
    pieces = list(writer.b.places.pieces)
    for number, size in enumerate(writer.units.taken):
        if size:
            pieces.append(Piece(Space.HOST, number, 0, draw.data(size + draw.below(64)).tobytes()))
    return Case(program.name, program, chip, tuple(pieces))


def program(seed: int, chip: Chip) -> Case:
    """The random program of that number.

    Raises:
        ValueError: the chip's tokens cannot count the instructions that its queues hold.
    """
    if chip.token.max < chip.fifo.depth + 2:
        raise ValueError(f"{chip.name}: token.max {chip.token.max}: must be at least fifo.depth + 2")
    attempt = 0
    with np.errstate(all="ignore"):
        while (case := _attempt(seed, attempt, chip)) is None:
            attempt += 1
    return case
