"""Makes a failing case small: fewer instructions, simpler ones, less data, as long as it is legal and still fails.

small = shrink(case, fails)          # `fails`: whether a case shows the failure
save(small, path)                    # regression.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from systolith.hw.fuzz.case import Case
from systolith.hw.fuzz.edits import streams_of
from systolith.hw.fuzz.reductions import REDUCTIONS, Reduction
from systolith.isa.errors import SystolithError
from systolith.isa.instruction import Instruction
from systolith.isa.kernel import SCALAR0, Kernel
from systolith.isa.opcodes import registers_of, size_words
from systolith.isa.pattern import UNBOUNDED, Pattern
from systolith.isa.program import Program
from systolith.isa.verify import verify_program

Predicate = Callable[[Case], bool]


def legal(case: Case) -> bool:
    """Whether a case is a program that the machine must run: checked, free of races, at its end."""
    try:
        verify_program(case.program, case.chip)
        return case.run(hostile=True).ok
    except (SystolithError, ValueError, IndexError, KeyError):
        return False


def _pattern_weight(p: Pattern) -> int:
    total = 2 * len(p.counts) + sum(n.bit_length() for n in p.counts) + bool(p.fill) + 4 * (p.indirect >= 0)
    total += sum(s not in (0, p.dtype.size) for s in p.strides)
    for c in p.coords:
        total += 4 + sum(map(bool, c.coefs)) + (c.div > 1) + bool(c.stride) + (c.bias >= 0) + bool(c.offset)
        total += (c.lo != UNBOUNDED[0]) + (c.hi != UNBOUNDED[1])
    return total


def _instruction_weight(c: Instruction, program: Program) -> int:
    total = 20 * (c.op not in ("nop", "halt", "sync")) + 10 + size_words(c)
    total += 3 * (len(c.waits) + len(c.signals)) + 2 * c.fence + 3 * sum(1 for _ in registers_of(c))
    total += sum(v.bit_length() for v in c.args.values() if isinstance(v, int))
    for s in streams_of(c):
        total += _pattern_weight(program.patterns[s.pattern])
        total += sum(1 for v in (s.base, *s.bias, s.index) if v)
        total += sum(s.base % n > 0 for n in (4, 64)) if isinstance(s.base, int) else 0
    for name in ("scalars", "counts"):
        values = c.args.get(name, ())
        total += sum(v.bit_length() for v in values if isinstance(v, int)) if isinstance(values, tuple) else 0
    return total


def _kernel_weight(k: Kernel) -> int:
    total = k.ii + len(k.constants)
    for section in (k.prologue, k.body, k.epilogue):
        total += sum(4 + sum(s != SCALAR0 for s in m.srcs) for m in section.ops) + section.length
        total += sum(m.cycle > 0 for m in section.ops)
    return total


def weight(case: Case) -> int:
    """How much there is to a case: reductions make it less."""
    program = case.program
    total = sum(8 + sum(map(bool, p.data)) // 8 for p in case.pieces)
    total += sum(_instruction_weight(c, program) for c in program.code)
    total += sum(_kernel_weight(k) for k in program.kernels)
    return total + len(program.tokens) + len(program.patterns) + len(program.buffers)


class Shrinker:
    """Tries candidates.

    Attributes:
        tried: candidates that were looked at; `legal` and `failing` ones.
    """

    def __init__(self, fails: Predicate, limit: int) -> None:
        self.fails, self.limit = fails, limit
        self.tried = 0

    def better(self, candidate: Case, least: int) -> bool:
        """Whether a candidate is simpler, legal, and still fails."""
        try:
            if weight(candidate) >= least:
                return False
        except (IndexError, KeyError):
            return False
        self.tried += 1
        return legal(candidate) and self.fails(candidate)

    def reduce(self, case: Case, reduction: Reduction) -> Case:
        """Apply a reduction as often as it helps."""
        skip = 0
        while self.tried < self.limit:
            least, found = weight(case), None
            for n, candidate in enumerate(reduction(case)):
                if n >= skip and self.better(candidate, least):
                    # Candidates that did not help before will hardly help now: go on from here.
                    case, skip, found = candidate, n, candidate
                    break
                if self.tried >= self.limit:
                    return case
            if found is None:
                return case
        return case


def shrink(case: Case, fails: Predicate, reductions: Sequence[Reduction] = REDUCTIONS, limit: int = 20_000) -> Case:
    """A small case that fails as this one does.

    Args:
        case: one that fails.
        fails: whether a legal case shows the failure.
        reductions: tried in turn, until none helps.
        limit: candidates to try at most.

    Raises:
        ValueError: the case does not fail, or is not legal.
    """
    if not legal(case) or not fails(case):
        raise ValueError(f"{case.name}: is not legal, or does not fail")
    shrinker = Shrinker(fails, limit)
    while True:
        before = weight(case)
        for reduction in reductions:
            case = shrinker.reduce(case, reduction)
        if weight(case) >= before or shrinker.tried >= limit:
            return case
