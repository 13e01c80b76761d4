"""What the planes of a run ask of a program's instructions that no chip, no operand and no data decide."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from systolith.isa.instruction import Instruction, Operand, Reg, Stream
from systolith.isa.opcodes import queue_of, registers_of
from systolith.isa.program import Program
from systolith.sim.resolve import Resolver


@dataclass(frozen=True, slots=True)
class Issue:
    """An executed instruction.

    Attributes:
        index: its index in the program.
        instr: it, registers resolved; the same object whenever they have the same values.
        queue: name of its queue; `seq` for scalar instructions and sync.
        taken: it is a branch or jump that was taken.
    """

    index: int
    instr: Instruction
    queue: str
    taken: bool = False


class Decoded:
    """A program's instructions by kinds, and by forms.

    Those of a kind differ in where their streams lie and in tokens and fences, those of a form not in these.  So they
    take one time and are of the same events.  Runs of a program on several chips may share it; the instructions must
    not change.

    Attributes:
        kind, form: numbers of each instruction's.
        kinds, forms: the index of the first instruction of each.
        queues: name of each instruction's queue.
        issues: each instruction as it is executed, but for those with registers as operands.
        resolvers: for these.
    """

    def __init__(self, program: Program) -> None:
        code = program.code
        self.kind, self.kinds = _numbered([_kind(i) for i in code])
        forms = [(k, i.waits, i.signals, i.fence) for k, i in zip(self.kind, code, strict=True)]
        self.form, self.forms = _numbered(forms)
        first = [code[n] for n in self.kinds]
        queues, named = [queue_of(i) for i in first], [bool(registers_of(i)) for i in first]
        self.queues = [queues[k] for k in self.kind]
        self.issues = [Issue(n, i, q) for n, (i, q) in enumerate(zip(code, self.queues, strict=True))]
        units = (n for n, k in enumerate(self.kind) if named[k] and queues[k] != "seq")
        self.resolvers = {n: Resolver(code[n]) for n in units}

    @cached_property
    def kind_column(self) -> NDArray[np.int64]:
        """`kind` as an array."""
        return np.array(self.kind, np.int64)


def _numbered(keys: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """A number for each key, equal ones of equal keys, and the place of the first of each number."""
    number: dict[Hashable, int] = {}
    of = [number.setdefault(key, len(number)) for key in keys]
    first = [-1] * len(number)
    for place in range(len(of) - 1, -1, -1):
        first[of[place]] = place
    return of, first


def _kind(instr: Instruction) -> Hashable:
    values = [v if type(v) is int else _fixed(v) for v in instr.args.values()]
    return instr.op, instr.unit, *values


def _fixed(value: object) -> Hashable:
    """What times, events and the registers that are named depend on."""
    if type(value) is Stream:
        operands: tuple[Operand, ...] = (value.base, *value.bias, value.index, value.entry)
        named = tuple([o for o in operands if type(o) is Reg])
        return value.space, value.pattern, value.buffer, named
    return tuple([_fixed(part) for part in value]) if type(value) is tuple else value
