"""Simpler and smaller patterns for the instructions of a case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import cast

from systolith.hw.fuzz.case import Case
from systolith.hw.fuzz.edits import streams_of, with_args, with_instruction, with_pattern, with_program
from systolith.hw.fuzz.patterns import dense
from systolith.isa.pattern import UNBOUNDED, Coord, Pattern
from systolith.isa.program import Program


def simpler_patterns(case: Case) -> Iterator[Case]:
    """Patterns of the same counts: fewer coordinates, no index list, dense, nothing filled."""
    program = case.program
    for i, c in enumerate(program.code):
        for n, s in enumerate(streams_of(c)):
            for p in _plainer(program.patterns[s.pattern]):
                yield with_program(case, with_pattern(program, i, {n: p}))


def _plainer(p: Pattern) -> Iterator[Pattern]:
    plain = dense(p.dtype.size, p.counts)
    yield Pattern(p.dtype, p.counts, plain)
    yield replace(p, coords=())
    yield replace(p, indirect=-1)
    yield replace(p, strides=plain)
    yield replace(p, fill=0)
    for k, c in enumerate(p.coords):
        yield replace(p, coords=p.coords[:k] + p.coords[k + 1 :])
        for other in _plainer_coords(c):
            yield replace(p, coords=(*p.coords[:k], other, *p.coords[k + 1 :]))
    for k in range(len(p.strides)):
        yield replace(p, strides=(*p.strides[:k], 0, *p.strides[k + 1 :]))


def _plainer_coords(c: Coord) -> Iterator[Coord]:
    yield replace(c, div=1)
    yield replace(c, stride=0)
    yield replace(c, bias=-1)
    yield replace(c, offset=0)
    yield replace(c, lo=UNBOUNDED[0])
    yield replace(c, hi=UNBOUNDED[1])
    for k, coef in enumerate(c.coefs):
        if coef:
            yield replace(c, coefs=(*c.coefs[:k], 0, *c.coefs[k + 1 :]))


def smaller_patterns(case: Case) -> Iterator[Case]:
    """Fewer elements, or fewer loops, on all sides of an instruction that must agree."""
    program = case.program
    for i, c in enumerate(program.code):
        patterns = [program.patterns[s.pattern] for s in streams_of(c)]
        if c.op == "vpu.run":
            yield from (with_program(case, p) for p in _smaller_nests(program, i, patterns))
        elif c.op == "xlu.reduce":
            yield from (with_program(case, with_pattern(program, i, both)) for both in _smaller_reductions(patterns))
        elif len(patterns) == 2:
            yield from (with_program(case, with_pattern(program, i, both)) for both in _smaller_copies(patterns))
        elif patterns:
            yield from (with_program(case, p) for p in _smaller_rows(program, i, patterns[0]))


def smaller_counts(count: int) -> Iterator[int]:
    yield from sorted({1, count // 2, count - 1} - {0, count})


def _counted(p: Pattern, k: int, count: int) -> Pattern:
    return replace(p, counts=(*p.counts[:k], count, *p.counts[k + 1 :]))


def _without_loop(p: Pattern, k: int) -> Pattern:
    """Without loop k, at its first iteration."""
    coords = tuple(replace(c, coefs=c.coefs[:k] + c.coefs[k + 1 :]) for c in p.coords)
    indirect = -1 if p.indirect == k else p.indirect - (p.indirect > k)
    rest = (p.counts[:k] + p.counts[k + 1 :], p.strides[:k] + p.strides[k + 1 :])
    return replace(p, counts=rest[0], strides=rest[1], coords=coords, indirect=indirect)


def _flat(p: Pattern, count: int) -> Pattern:
    return Pattern(p.dtype, (count,), (p.dtype.size,))


def _smaller_copies(patterns: Sequence[Pattern]) -> Iterator[dict[int, Pattern]]:
    src, dst = patterns
    for n in (*smaller_counts(src.elements), src.elements):
        yield {0: _flat(src, n), 1: _flat(dst, n)}
    for side, p in enumerate(patterns):
        other = patterns[1 - side]
        for k, count in enumerate(p.counts):
            if count == 1 and len(p.counts) > 1:
                yield {side: _without_loop(p, k)}
            for n in smaller_counts(count):
                smaller = _counted(p, k, n)
                if p.counts == other.counts:
                    yield {side: smaller, 1 - side: _counted(other, k, n)}
                yield {side: smaller, 1 - side: _flat(other, smaller.elements)}


def _smaller_reductions(patterns: Sequence[Pattern]) -> Iterator[dict[int, Pattern]]:
    src, dst = patterns
    rows = prod(src.counts[:-1])
    yield {1: _flat(dst, rows)}
    for k, count in enumerate(src.counts):
        if count == 1 and len(src.counts) > 1 and k < len(src.counts) - 1:
            yield {0: _without_loop(src, k)}
        for n in smaller_counts(count):
            smaller = _counted(src, k, n)
            yield {0: smaller, 1: _flat(dst, prod(smaller.counts[:-1]))}


def _smaller_rows(program: Program, i: int, p: Pattern) -> Iterator[Program]:
    rows = cast(int, program.code[i].args["row_loops"])
    for k, count in enumerate(p.counts):
        if count == 1 and len(p.counts) > 1:
            fewer = with_pattern(program, i, {0: _without_loop(p, k)})
            yield with_instruction(fewer, i, with_args(fewer.code[i], row_loops=rows - (k < rows)))
        for n in smaller_counts(count):
            yield with_pattern(program, i, {0: _counted(p, k, n)})


def _smaller_nests(program: Program, i: int, patterns: Sequence[Pattern]) -> Iterator[Program]:
    """Fewer iterations or loops of the nest, for all streams; smaller vectors, for each."""
    c = program.code[i]
    counts, inner = cast(tuple[int, ...], c.args["counts"]), cast(int, c.args["inner"])
    for k, count in enumerate(counts):
        if count == 1 and len(counts) > 1:
            fewer = with_pattern(program, i, {n: _without_loop(p, k) for n, p in enumerate(patterns)})
            left = inner - (k >= len(counts) - inner)
            yield with_instruction(fewer, i, with_args(fewer.code[i], counts=counts[:k] + counts[k + 1 :], inner=left))
        for less in smaller_counts(count):
            fewer = with_pattern(program, i, {n: _counted(p, k, less) for n, p in enumerate(patterns)})
            yield with_instruction(fewer, i, with_args(fewer.code[i], counts=(*counts[:k], less, *counts[k + 1 :])))
    for n, p in enumerate(patterns):
        for k in (len(p.counts) - 2, len(p.counts) - 1):
            yield from (with_pattern(program, i, {n: _counted(p, k, m)}) for m in smaller_counts(p.counts[k]))
