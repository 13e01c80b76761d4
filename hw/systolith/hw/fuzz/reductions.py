"""Ways to make a case simpler: each gives candidates, which may be illegal or no longer fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

import numpy as np

from systolith.hw.fuzz.case import Case, Piece
from systolith.hw.fuzz.edits import (
    chunks,
    idle,
    pairs,
    removed,
    streams_of,
    tidy,
    tokens_of,
    with_args,
    with_instruction,
    with_program,
    with_stream,
    without_pair,
    without_tokens,
)
from systolith.hw.fuzz.reduce_kernels import simpler_kernels
from systolith.hw.fuzz.reduce_patterns import simpler_patterns, smaller_patterns
from systolith.isa.instruction import Instruction, Operand, Reg, Stream, Value
from systolith.isa.opcodes import registers_of
from systolith.sim.sequencer import run_values

Reduction = Callable[[Case], Iterator[Case]]
BLOCK = 64  # bytes of data that are kept or cleared together


def fewer_instructions(case: Case) -> Iterator[Case]:
    """Instructions go: with their tokens, or leaving them to one that only waits and signals."""
    program = case.program
    for chunk in chunks(len(program.code) - 1):
        yield with_program(case, removed(without_tokens(program, tokens_of(program, chunk)), chunk))
        yield with_program(case, idle(program, chunk))


def fewer_tokens(case: Case) -> Iterator[Case]:
    """Tokens go, or one signal and one wait of them; fences, too."""
    program = case.program
    for chunk in chunks(len(program.tokens)):
        yield with_program(case, without_tokens(program, set(chunk)))
    for token, some in pairs(program).items():
        for signaller, waiter in some:
            yield with_program(case, without_pair(program, token, signaller, waiter))
    for i, c in enumerate(program.code):
        if c.fence:
            yield with_program(case, with_instruction(program, i, replace(c, fence=False)))


def simpler_operands(case: Case) -> Iterator[Case]:
    """Registers become their first values; counts of loops 1, flags and numbers 0."""
    program = case.program
    first: dict[int, Instruction] = {}
    for issue in run_values(program, case.chip, case.buffers(), setup=case.setup).issues:
        first.setdefault(issue.index, issue.instr)
    for i, c in enumerate(program.code):
        resolved = first.get(i)
        if resolved is not None and resolved != c and any(registers_of(c)):
            yield with_program(case, with_instruction(program, i, replace(resolved, waits=c.waits, signals=c.signals)))
        for name, value in c.args.items():
            for other in _simpler_values(c, name, value):
                yield with_program(case, with_instruction(program, i, with_args(c, **{name: other})))
        for n, s in enumerate(streams_of(c)):
            for stream in _simpler_streams(s):
                yield with_program(case, with_instruction(program, i, with_stream(c, n, stream)))


def _simpler_values(instr: Instruction, name: str, value: Value) -> Iterator[Value]:
    if name in ("target", "end", "kernel", "rd", "ra", "rb", "row_loops", "queue", "function"):
        return
    if name == "scalars":
        scalars = cast(tuple[Operand, ...], value)
        yield (0,) * len(scalars)
        yield from ((*scalars[:k], 0, *scalars[k + 1 :]) for k in range(len(scalars)))
    elif name == "count":
        yield from (1, 2)
    elif isinstance(value, int | Reg):
        yield 0


def _simpler_streams(s: Stream) -> Iterator[Stream]:
    yield replace(s, bias=(0, 0))
    yield replace(s, bias=(s.bias[0], 0))
    yield replace(s, bias=(0, s.bias[1]))
    yield replace(s, index=0)
    if isinstance(s.base, int):
        yield replace(s, base=0)
        yield replace(s, base=s.base // 64 * 64)
        yield replace(s, base=s.base // 4 * 4)


def less_data(case: Case) -> Iterator[Case]:
    """Zeros in memory; shorter queues."""
    yield replace(case, pieces=tuple(p for p in case.pieces if any(p.data)))
    for chunk in chunks(len(case.pieces)):
        yield replace(case, pieces=tuple(p for k, p in enumerate(case.pieces) if k not in chunk))
    for k, piece in enumerate(case.pieces):
        for chunk in chunks(-(-len(piece.data) // BLOCK)):
            data = np.frombuffer(piece.data, np.uint8).copy()
            if data[chunk.start * BLOCK : chunk.stop * BLOCK].any():
                data[chunk.start * BLOCK : chunk.stop * BLOCK] = 0
                yield _replaced(case, k, replace(piece, data=data.tobytes()))


def _replaced(case: Case, k: int, piece: Piece) -> Case:
    return replace(case, pieces=(*case.pieces[:k], piece, *case.pieces[k + 1 :]))


def shorter_tables(case: Case) -> Iterator[Case]:
    """The case without unused entries of its tables."""
    program = tidy(case.program)
    pieces = tuple(p for p in case.pieces if p.space.name != "HBM" or p.number < len(program.buffers))
    yield replace(case, program=program, pieces=pieces)


REDUCTIONS: tuple[Reduction, ...] = (
    fewer_instructions,
    shorter_tables,
    fewer_tokens,
    simpler_operands,
    smaller_patterns,
    simpler_patterns,
    simpler_kernels,
    less_data,
    shorter_tables,
)
