"""Simpler kernels for a case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from systolith.hw.fuzz.case import Case
from systolith.hw.fuzz.edits import chunks, with_args, with_program
from systolith.hw.fuzz.reduce_patterns import smaller_counts
from systolith.isa.instruction import Instruction, Stream
from systolith.isa.kernel import SCALAR0, Kernel, MicroOp, Section
from systolith.isa.program import Program

_MEMORY = ("ld", "st", "coord", "inside")
Sections = tuple[Section, Section, Section]


def simpler_kernels(case: Case) -> Iterator[Case]:
    """Micro-operations go, and who read their results reads a scalar; sections shrink; streams go that nobody uses."""
    program = case.program
    for n, kernel in enumerate(program.kernels):
        for other in (*_fewer_ops(kernel), *_tighter(kernel)):
            yield with_program(case, _with_kernel(program, n, other))
        yield from (with_program(case, p) for p in _fewer_streams(program, n))


def _with_kernel(program: Program, number: int, kernel: Kernel) -> Program:
    return replace(program, kernels=[*program.kernels[:number], kernel, *program.kernels[number + 1 :]])


def _sections(kernel: Kernel) -> Sections:
    return kernel.prologue, kernel.body, kernel.epilogue


def _with_sections(kernel: Kernel, sections: Sections) -> Kernel:
    return replace(kernel, prologue=sections[0], body=sections[1], epilogue=sections[2])


def _with_section(kernel: Kernel, n: int, section: Section) -> Kernel:
    old = _sections(kernel)
    return _with_sections(kernel, (*old[:n], section, *old[n + 1 :]))  # type: ignore[arg-type]


def _fewer_ops(kernel: Kernel) -> Iterator[Kernel]:
    for n, section in enumerate(_sections(kernel)):
        for chunk in chunks(len(section.ops)):
            kept = tuple(m for k, m in enumerate(section.ops) if k not in chunk)
            gone = {section.ops[k].dst for k in chunk} - {m.dst for m in kept}
            other = _with_section(kernel, n, Section(kept, section.length if kept else 0))
            yield _reading(other, gone)
            yield other


def _reading(kernel: Kernel, gone: set[int]) -> Kernel:
    """With a scalar in the place of registers."""

    def one(m: MicroOp) -> MicroOp:
        return replace(m, srcs=tuple(SCALAR0 if s in gone else s for s in m.srcs))

    a, b, c = (Section(tuple(one(m) for m in s.ops), s.length) for s in _sections(kernel))
    return _with_sections(kernel, (a, b, c))


def _tighter(kernel: Kernel) -> Iterator[Kernel]:
    """Shorter sections and intervals, operands that are scalars, earlier cycles, fewer constants."""
    for n, section in enumerate(_sections(kernel)):
        first = min((m.cycle for m in section.ops), default=0)
        if first:
            early = tuple(replace(m, cycle=m.cycle - first) for m in section.ops)
            yield _with_section(kernel, n, Section(early, section.length - first))
        for less in smaller_counts(section.length):
            yield _with_section(kernel, n, Section(section.ops, less))
        for k, m in enumerate(section.ops):
            for j in range(len(m.srcs)):
                other = replace(m, srcs=(*m.srcs[:j], SCALAR0, *m.srcs[j + 1 :]))
                ops = (*section.ops[:k], other, *section.ops[k + 1 :])
                yield _with_section(kernel, n, Section(ops, section.length))
    yield from (replace(kernel, ii=less) for less in smaller_counts(kernel.ii))
    yield replace(kernel, constants=())
    yield replace(kernel, constants=kernel.constants[:-1])


def _fewer_streams(program: Program, number: int) -> Iterator[Program]:
    """Without the streams that a kernel does not use."""
    kernel = program.kernels[number]
    used = sorted({m.imm % 16 for s in _sections(kernel) for m in s.ops if m.op in _MEMORY})
    if all(len(_streams(c)) == len(used) for c in program.code if c.args.get("kernel") == number):
        return

    def one(m: MicroOp) -> MicroOp:
        return replace(m, imm=m.imm // 16 * 16 + used.index(m.imm % 16)) if m.op in _MEMORY else m

    a, b, c = (Section(tuple(one(m) for m in s.ops), s.length) for s in _sections(kernel))
    code = [
        with_args(i, streams=tuple(_streams(i)[n] for n in used)) if i.args.get("kernel") == number else i
        for i in program.code
    ]
    yield replace(_with_kernel(program, number, _with_sections(kernel, (a, b, c))), code=code)


def _streams(instr: Instruction) -> tuple[Stream, ...]:
    return cast(tuple[Stream, ...], instr.args["streams"])
