"""Loops in a line of instructions, as their order sees them: the body twice, one iteration after the other.

Every later iteration waits and signals as the second one does, if the first one does the same: then `fold` makes one
body of the two.  Addresses in HBM differ from one iteration to the next, so each copy has its own; what is outside the
loop conflicts with all that any iteration touches, which stands at the loop's edges.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, product
from typing import cast

from systolith.compiler.emit.dependence import VIEWS
from systolith.isa.access import Access
from systolith.isa.instruction import Instruction, Operand, Reg, Space, Stream, Value


@dataclass(frozen=True)
class Span:
    """A loop: its `loop` instruction, the first one of its body, the one after its last, and its iterations."""

    head: int
    first: int
    end: int
    count: int


@dataclass(frozen=True)
class Step:
    """An instruction, by its number, and what it touches."""

    index: int
    touched: list[Access]


@dataclass(frozen=True)
class Edge:
    """Where a loop begins or ends: what all its instructions of one queue touch in HBM."""

    queue: str
    begins: bool
    touched: list[Access]


@dataclass(frozen=True)
class Mark:
    """Where a copy of a loop's body begins or ends."""

    span: Span
    begins: bool


Item = Step | Edge | Mark

Steps = list[Item]

Used = list[tuple[str, Access]]
"""Accesses to HBM, each with the queue of its instruction."""


OTHER_MEMORY = "its iterations touch different memories"

UNLIKE = "its first two iterations are ordered differently"


PLACE = 1 << 40
"""Multiples of it, in registers, are places that only the run knows: of two, nothing is known of each other."""


class NotAlikeError(Exception):
    """Iterations of loops are not all ordered alike.

    Attributes:
        why: of each of the loops.
    """

    def __init__(self, why: Mapping[Span, str]) -> None:
        super().__init__(why)
        self.why = why


EASED = 3
"""How often a loop's waits and signals are made more alike before all its signals are taken in each iteration; as often
again before its iterations do not overlap: each time the loop, or the whole program, is ordered anew.
"""


@dataclass
class LoopEdge:
    """How a loop is ordered that would not be alike else.

    Attributes:
        waits: before it: by queue and lane, how many instructions of the lane stand between the one that is waited for
            and the loop.
        primed: in its first iteration: by queue, number of an instruction and lane, what that waits for as it does
            later on.
        drained: before it, and in each of its iterations, all signals are taken that loops left over.
        tries: how often it was eased.
    """

    waits: dict[tuple[int, int], int] = field(default_factory=dict)
    primed: dict[tuple[int, int, int], int] = field(default_factory=dict)
    drained: bool = False
    tries: int = 0

    def eased(self, found: LoopEdge) -> bool:
        """Let the iterations be more alike, by what was found to be different; whether there is more to try."""
        before = dict(self.waits), dict(self.primed), self.drained
        for key, back in found.waits.items():
            self.waits[key] = min(back, self.waits.get(key, back))
        self.primed = found.primed | self.primed
        self.tries += 1
        self.drained = self.drained or self.tries > EASED or (self.waits, self.primed) == before[:2]
        return self.tries <= 2 * EASED and (self.waits, self.primed, self.drained) != before


AS_IT_IS = LoopEdge()
"""Of a loop of which nothing is known yet: nothing comes before it so that its iterations are alike."""


def inmost(unlike: Collection[Span]) -> list[Span]:
    """Those around no other one: a loop around one that is unlike may be unlike because of that alone."""
    return [s for s in unlike if not any(s.head < other.head < s.end for other in unlike)]


class Unroller:
    """Gives the steps of a program's instructions.

    Args:
        code: all instructions.
        spans: loops of at least two iterations, without labels and jumps in them.
        touches: gives what an instruction touches.
        queue: gives the queue of an instruction.
    """

    def __init__(
        self,
        code: Sequence[Instruction],
        spans: Iterable[Span],
        touches: Callable[[Instruction], Iterable[Access]],
        queue: Callable[[Instruction], str],
    ) -> None:
        self._code, self._touches, self._queue = code, touches, queue
        self._spans = {s.head: s for s in spans}
        self._numbers = {s: n for n, s in enumerate(self._spans.values(), 1)}
        self._written: set[int] = set()
        self._registers: dict[int, int] = {}
        self._unlike: dict[Span, str] = {}
        self._bases: dict[int, set[int]] = defaultdict(set)
        self._mixed: set[int] = set()
        self._given = 0

    def steps(self, start: int, end: int) -> Steps:
        """Steps of the instructions from `start` up to `end`, between which SEQ does not join the queues.

        Raises:
            NotAlikeError: in some loops an iteration depends on an earlier one than the last.
        """
        code = self._code[start:end]
        if not any(start <= head < end for head in self._spans) and not any(map(_is_placed, code)):
            return [Step(n, list(self._touches(i))) for n, i in enumerate(code, start)]
        stores = (i for i in code if i.op == "dma.store")
        self._written = {a.buffer for i in stores for a in self._touches(i) if a.write and a.space is Space.HBM}
        self._mixed = set()
        while True:
            self._registers, self._bases = {}, defaultdict(set)
            steps, _ = self._line(start, end)
            mixed = {memory for memory, bases in self._bases.items() if len(bases) > 1}
            if mixed <= self._mixed:
                break
            self._mixed |= mixed
        if self._unlike:
            raise NotAlikeError(self._unlike)
        return steps

    def _touched(self, n: int, inside: bool) -> list[Access]:
        """What an instruction touches.

        Where all accesses to a memory are from one place that only the run knows, they are as far from each other as
        from the beginning of the memory.
        """
        i = self._code[n]
        if not inside:
            for register in _placed(i):
                if register.n not in self._registers:
                    self._given += 1
                    self._registers[register.n] = PLACE * (len(self._code) + self._given)
        touched = list(self._touches(resolved(i, self._registers)))
        far = any(a.lo >= PLACE // 2 for a in touched)
        for a in touched:
            if a.space is Space.HBM and a.buffer in self._written:
                self._bases[a.buffer] |= {_place(a.lo)} if a.lo >= PLACE * _place(a.lo) else {0, _place(a.lo)}
        if far and any(a.buffer in self._mixed for a in touched if a.space is Space.HBM):
            known = {r: v for r, v in self._registers.items() if not _place(v)}
            return list(self._touches(resolved(i, known)))
        return [_from_place(a) for a in touched] if far else touched

    def _line(self, start: int, end: int, inside: bool = False) -> tuple[Steps, Used]:
        """Steps, and what they touch in HBM, if they are `inside` a loop."""
        steps: Steps = []
        used: Used = []
        n = start
        while n < end:
            span = self._spans.get(n)
            if span is None:
                step = Step(n, self._touched(n, inside))
                execute(self._code[n], self._registers, None if inside else PLACE * (n + 1))
                if inside:
                    queue = self._queue(self._code[n])
                    used += [(queue, a) for a in step.touched if a.space is Space.HBM and a.buffer in self._written]
                steps.append(step)
                n += 1
                continue
            inner, covered = self._loop(span)
            for begins, body in ((True, [Step(span.head, []), *inner]), (False, [])):
                edges = {queue: [a for q, a in covered if q == queue] for queue in dict.fromkeys(q for q, _ in covered)}
                steps += [Edge(queue, begins, touched) for queue, touched in edges.items()]
                steps += body
            used += covered if inside else []
            n = span.end
        return steps, used

    def _loop(self, span: Span) -> tuple[Steps, Used]:
        """Two iterations, and what all iterations touch in HBM.

        Of a loop that is not alike, or has one in it: the first iteration, and what that touches.
        """
        before = dict(self._registers)
        first, used = self._line(span.first, span.end, True)
        middle = dict(self._registers)
        second, later = self._line(span.first, span.end, True)
        self._registers = {
            r: v + (middle[r] - v) * span.count
            for r, v in before.items()
            if r in middle and self._registers.get(r) == 2 * middle[r] - v and _place(v) == _place(middle[r])
        }
        if any(span.first <= inner.head < span.end for inner in self._unlike):
            return first, used
        try:
            settled = _alike(span, zip(first, second, strict=True), used, later)
        except NotAlikeError as problem:
            self._unlike |= problem.why
            return first, used
        body = [*self._copy(span, [one for one, _ in settled]), *self._copy(span, [other for _, other in settled])]
        return body, [(q, _covered(a, b, span.count)) for (q, a), (_, b) in zip(used, later, strict=True)]

    def _copy(self, span: Span, steps: Steps) -> Steps:
        """A copy of the body, whose accesses to HBM nothing outside the loop sees."""
        return [Mark(span, True), *(self._inside(span, step) for step in steps), Mark(span, False)]

    def _inside(self, span: Span, step: Item) -> Item:
        if isinstance(step, Mark) or not step.touched:
            return step
        shift = self._numbers[span] * VIEWS
        touched = []
        for a in step.touched:
            if a.space is not Space.HBM or a.buffer >= VIEWS:
                touched.append(a)
            elif a.buffer in self._written:
                touched.append(a._replace(buffer=a.buffer + shift))
        return replace(step, touched=touched)


Iterations = tuple[tuple[str, Access], tuple[str, Access]]
"""An access in the first two iterations."""


def _alike(span: Span, items: Iterable[tuple[Item, Item]], used: Used, later: Used) -> list[tuple[Item, Item]]:
    """The steps of both iterations, which also touch HBM alike.

    Raises:
        NotAlikeError: they do not.
    """
    if len(used) != len(later):
        raise NotAlikeError({span: OTHER_MEMORY})
    if any(_far(a, b, span.count) for a, b in product(list(zip(used, later, strict=True)), repeat=2)):
        raise NotAlikeError({span: "an iteration depends on one before the last"})
    return [_settled(span, *each) for each in items]


def _settled(span: Span, first: Item, second: Item) -> tuple[Item, Item]:
    """A step of both iterations: what moves on the chip counts as all that it touches, in each of them."""
    if not isinstance(first, Step) or not isinstance(second, Step) or first.touched == second.touched:
        return first, second
    if len(first.touched) != len(second.touched):
        raise NotAlikeError({span: OTHER_MEMORY})
    touched: tuple[list[Access], list[Access]] = [], []
    for pair in zip(first.touched, second.touched, strict=True):
        fixed = _covered(*pair, span.count) if pair[0].space is not Space.HBM else None
        for some, access in zip(touched, pair, strict=True):
            some.append(fixed or access)
    return Step(first.index, touched[0]), Step(second.index, touched[1])


def _step(a: Access, b: Access) -> int:
    return b.lo - a.lo


def _covered(first: Access, second: Access, count: int) -> Access:
    """The bytes that an access touches in all iterations: with gaps if they move it by whole pitches."""
    far = _step(first, second) * (count - 1)
    lo, hi = first.lo + min(far, 0), first.hi + max(far, 0)
    if first.pitch and _step(first, second) % first.pitch == 0:
        return first._replace(lo=lo, hi=hi)
    return first._replace(lo=lo, hi=hi, run=0, pitch=0)


def _far(one: Iterations, other: Iterations, count: int) -> bool:
    """Whether an access conflicts with one of another iteration that is not a neighbour, and not with a neighbour's.

    Who conflicts with the neighbour's waits for that, which its queue has after all earlier ones.
    """
    ((_, x), (_, x_next)), ((_, y), (_, y_next)) = one, other
    if x.buffer != y.buffer or not (x.write or y.write):
        return False
    step = _step(x, x_next)
    if step != _step(y, y_next):
        return _covered(x, x_next, count).meets(_covered(y, y_next, count))
    if step == 0:
        return False

    def met(distance: int) -> bool:
        moved = distance * step
        return x._replace(lo=x.lo + moved, hi=x.hi + moved).meets(y)

    ends = sorted(-(-(end) // step) if step > 0 else end // step for end in (y.lo - x.hi, y.hi - x.lo))
    reach = range(max(2, ends[0] - 1), min(count - 1, ends[1] + 1) + 1)
    return any(map(met, reach)) and not met(1)


@dataclass(frozen=True)
class Folded:
    """Which of the ordered instructions are kept: of each loop the first copy.

    Attributes:
        kept: for each whether it is.
        place: for each, and the end, how many before it are kept.
        ends: for each `loop` instruction, by its number, the place after its loop's body.
    """

    kept: list[bool]
    place: list[int]
    ends: dict[int, int]


Tokened = tuple[int, int, list[int], list[int], bool]
"""An ordered instruction: its number (-1: added), queue, waits, signals, fence."""


def fold(marks: Sequence[tuple[Mark, int]], nodes: Sequence[Tokened], different: Iterable[Span] = ()) -> Folded:
    """Fold the copies of loops.

    Args:
        marks: each with the number of instructions before it.
        nodes: the instructions.
        different: loops whose copies are known to differ.

    Raises:
        NotAlikeError: the copies of some loops differ, or signal more often than they wait.
    """
    begun: list[int] = []
    copies: dict[Span, list[tuple[int, int]]] = defaultdict(list)
    for mark, at in marks:
        if mark.begins:
            begun.append(at)
        else:
            copies[mark.span].append((begun.pop(), at))
    kept = [True] * len(nodes)
    unlike = dict.fromkeys(different, UNLIKE)
    for span, found in copies.items():
        for first, second in zip(found[::2], found[1::2], strict=True):
            if nodes[slice(*first)] != nodes[slice(*second)] or not _balanced(nodes[slice(*first)]):
                unlike[span] = UNLIKE
            kept[slice(*second)] = [False] * (second[1] - second[0])
    if unlike:
        raise NotAlikeError(unlike)
    place = [0, *accumulate(kept)]
    return Folded(kept, place, {span.head: place[found[0][1]] for span, found in copies.items()})


def _balanced(nodes: Sequence[Tokened]) -> bool:
    """Whether each token is waited for as often as it is signalled."""
    left = Counter(t for _, _, _, signals, _ in nodes for t in signals)
    left.subtract(t for _, _, waits, _, _ in nodes for t in waits)
    return not any(left.values())


def _is_placed(instruction: Instruction) -> bool:
    return any(_placed(instruction))


def _placed(instruction: Instruction) -> Iterator[Reg]:
    """The registers that hold addresses in HBM."""
    if instruction.op.startswith("dma."):
        streams = [s for s in map(instruction.args.get, ("src", "dst")) if isinstance(s, Stream)]
        bases = [s.base for s in streams if s.space is Space.HBM]
        yield from (base for base in bases if isinstance(base, Reg) and base.n)


def _place(value: int) -> int:
    """Which place a value is counted from; 0: none."""
    return (value + PLACE // 2) // PLACE


def _from_place(access: Access) -> Access:
    start = PLACE * _place(access.lo)
    return access._replace(lo=access.lo - start, hi=access.hi - start)


def resolved(instruction: Instruction, registers: dict[int, int]) -> Instruction:
    """The instruction with numbers in the place of those registers that are known."""
    if not registers:
        return instruction

    def value(of: Operand, places: bool = False) -> Operand:
        if not isinstance(of, Reg):
            return of
        known = registers.get(of.n, of)
        return of if isinstance(known, int) and _place(known) and not places else known

    def stream(of: Stream) -> Stream:
        if not any(isinstance(v, Reg) for v in (of.base, *of.bias, of.index, of.entry)):
            return of
        base = value(of.base, of.space is Space.HBM)
        entry = value(of.entry)
        if isinstance(entry, int):
            of, entry = replace(of, buffer=of.buffer + entry), 0
        of = replace(of, entry=entry)
        return replace(of, base=base, bias=(value(of.bias[0]), value(of.bias[1])), index=value(of.index))

    def any_value(of: Value) -> Value:
        if isinstance(of, Stream):
            return stream(of)
        if isinstance(of, tuple):
            return tuple(any_value(v) for v in of)  # type: ignore[return-value]
        return value(of) if isinstance(of, Reg) else of

    return replace(instruction, args={name: any_value(v) for name, v in instruction.args.items()})


def execute(instruction: Instruction, registers: dict[int, int], place: int | None = None) -> None:
    """Execute an instruction on registers whose values are known: `li`, sums, and products with a number.

    These change by as much in every iteration as from the first to the second, which a clamped index does not.

    `place`: stands for a value that only the run knows (see `PLACE`); None: nothing does.
    """
    rd = instruction.args.get("rd")
    if not isinstance(rd, Reg) or rd.n == 0:
        return
    known: int | None = None
    if instruction.op == "li":
        known = cast(int, instruction.args["imm"])
    elif instruction.op in ("add", "mul"):
        a, b = (_known(cast(Operand, instruction.args[name]), registers) for name in ("ra", "b"))
        if a is not None and b is not None and instruction.op == "add":
            known = a + b if not (_place(a) and _place(b)) else None
        elif a is not None and isinstance(factor := instruction.args["b"], int) and not _place(a):
            known = a * factor
    if known is None or not -(1 << 31) <= known - PLACE * _place(known) < 1 << 31:
        known = place
    if known is None:
        registers.pop(rd.n, None)
    else:
        registers[rd.n] = known


def _known(operand: Operand, registers: dict[int, int]) -> int | None:
    if isinstance(operand, Reg):
        return registers.get(operand.n) if operand.n else 0
    return operand
