"""Changes to programs that keep their parts together: targets, tokens, tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import cast

from systolith.hw.fuzz.case import Case
from systolith.hw.fuzz.tree import carrier
from systolith.isa.instruction import Instruction, Space, Stream, Value
from systolith.isa.opcodes import TARGETS, queue_of
from systolith.isa.pattern import Pattern
from systolith.isa.program import Program

Code = list[Instruction]


def with_args(instr: Instruction, **values: Value) -> Instruction:
    """The instruction with other arguments."""
    return replace(instr, args={**instr.args, **values})


def with_program(case: Case, program: Program) -> Case:
    return replace(case, program=program)


def with_instruction(program: Program, i: int, instr: Instruction) -> Program:
    return with_code(program, [*program.code[:i], instr, *program.code[i + 1 :]])


def chunks(count: int) -> Iterator[range]:
    """Runs of positions: all, halves, quarters, down to single ones; the last ones first."""
    size = count
    while size:
        for end in range(count, 0, -size):
            yield range(max(end - size, 0), end)
        size //= 2


def with_code(program: Program, code: Code) -> Program:
    return replace(program, code=code)


def removed(program: Program, gone: Collection[int]) -> Program:
    """Without those instructions; targets name the next one; loops without a body go, too."""
    gone = set(gone)
    for i in reversed(range(len(program.code))):
        instr = program.code[i]
        if instr.op == "loop" and gone.issuperset(range(i + 1, cast(int, instr.args["end"]))):
            gone.add(i)
    places, kept = [], 0
    for i in range(len(program.code)):
        places.append(kept)
        kept += i not in gone
    places.append(kept)
    code = [_moved(c, places) for i, c in enumerate(program.code) if i not in gone]
    return with_code(program, code)


def _moved(instr: Instruction, places: list[int]) -> Instruction:
    names = TARGETS.get(instr.op, ())
    return with_args(instr, **{name: places[cast(int, instr.args[name])] for name in names})


def idle(program: Program, at: Collection[int]) -> Program:
    """Those instructions only wait, signal and fence; without any of it they go."""
    code, gone = list(program.code), []
    for i in at:
        c = code[i]
        if c.waits or c.signals or c.fence:
            bare = carrier(queue_of(c)).arms[0]
            code[i] = replace(bare, waits=c.waits, signals=c.signals, fence=c.fence and bare.op != "sync")
        else:
            gone.append(i)
    return removed(with_code(program, code), gone)


def without_tokens(program: Program, tokens: set[int]) -> Program:
    """Without those tokens, on both sides."""
    if not tokens:
        return program
    code = [
        replace(
            c,
            waits=tuple(t for t in c.waits if t not in tokens),
            signals=tuple(t for t in c.signals if t not in tokens),
        )
        if tokens & {*c.waits, *c.signals}
        else c
        for c in program.code
    ]
    return with_code(program, code)


def tokens_of(program: Program, at: Iterable[int]) -> set[int]:
    """The tokens that instructions wait for and signal."""
    return {t for i in at for t in (*program.code[i].waits, *program.code[i].signals)}


def pairs(program: Program) -> dict[int, list[tuple[int, int]]]:
    """For each token, (signaller, waiter) in program order, as far as there are both."""
    signals, waits = defaultdict(list), defaultdict(list)
    for i, c in enumerate(program.code):
        for t in c.signals:
            signals[t].append(i)
        for t in c.waits:
            waits[t].append(i)
    return {t: list(zip(signals[t], waits[t], strict=False)) for t in signals}


def without_pair(program: Program, token: int, signaller: int, waiter: int) -> Program:
    """Without one signal of a token and one wait."""
    code = list(program.code)
    a = code[signaller]
    code[signaller] = replace(a, signals=tuple(t for t in a.signals if t != token))
    b = code[waiter]
    code[waiter] = replace(b, waits=tuple(t for t in b.waits if t != token))
    return with_code(program, code)


def streams_of(instr: Instruction) -> list[Stream]:
    """All its streams, in order."""
    found = []
    for value in instr.args.values():
        if isinstance(value, Stream):
            found.append(value)
        elif isinstance(value, tuple):
            found += [v for v in value if isinstance(v, Stream)]
    return found


def map_streams(instr: Instruction, change: Callable[[int, Stream], Stream]) -> Instruction:
    """With its streams changed; they are numbered in order."""
    count = -1

    def one(value: object) -> object:
        nonlocal count
        if isinstance(value, Stream):
            count += 1
            return change(count, value)
        if isinstance(value, tuple) and any(isinstance(v, Stream) for v in value):
            return tuple(one(v) for v in value)
        return value

    return replace(instr, args={name: cast(Value, one(v)) for name, v in instr.args.items()})


def with_stream(instr: Instruction, number: int, stream: Stream) -> Instruction:
    """With another stream in the place of one of them."""
    return map_streams(instr, lambda n, old: stream if n == number else old)


def with_pattern(program: Program, at: int, changes: dict[int, Pattern]) -> Program:
    """Instruction `at` with other patterns for some of its streams."""
    patterns = list(program.patterns)
    numbers = {}
    for n, p in changes.items():
        if p not in patterns:
            patterns.append(p)
        numbers[n] = patterns.index(p)
    code = list(program.code)
    code[at] = map_streams(code[at], lambda n, s: replace(s, pattern=numbers.get(n, s.pattern)))
    return replace(program, code=code, patterns=patterns)


def tidy(program: Program) -> Program:
    """Without patterns, kernels and tokens that nothing uses, and buffers at the end of the table."""
    used = {s.pattern for c in program.code for s in streams_of(c)}
    kernels = {cast(int, c.args["kernel"]) for c in program.code if "kernel" in c.args}
    tokens = tokens_of(program, range(len(program.code)))
    to_pattern = {old: new for new, old in enumerate(sorted(used))}
    to_kernel = {old: new for new, old in enumerate(sorted(kernels))}
    to_token = {old: new for new, old in enumerate(sorted(tokens))}
    buffers = {s.buffer for c in program.code for s in streams_of(c) if s.space is Space.HBM}
    code = []
    for c in program.code:
        c = map_streams(c, lambda _, s: replace(s, pattern=to_pattern[s.pattern]))
        if "kernel" in c.args:
            c = with_args(c, kernel=to_kernel[cast(int, c.args["kernel"])])
        waits, signals = (tuple(to_token[t] for t in some) for some in (c.waits, c.signals))
        code.append(replace(c, waits=waits, signals=signals))
    return replace(
        program,
        code=code,
        patterns=[program.patterns[n] for n in sorted(used)],
        kernels=[program.kernels[n] for n in sorted(kernels)],
        tokens=[program.tokens[n] for n in sorted(tokens)],
        buffers=program.buffers[: max(buffers, default=-1) + 1],
    )
