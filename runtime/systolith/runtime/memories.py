"""The memories of a program's buffers on the host side: which there are, and whose a run uses for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from systolith.isa.access import memory_of
from systolith.isa.program import BufferDecl, Program, Role
from systolith.runtime.arrays import Array
from systolith.sim.memory import shared_memory


def numbered(program: Program, role: Role) -> list[tuple[int, BufferDecl]]:
    """(buffer-table entry, declaration) of a role's buffers, by their number."""
    found = [(i, b) for i, b in enumerate(program.buffers) if b.role is role]
    return sorted(found, key=lambda item: item[1].number)


def in_place(program: Program) -> dict[int, int]:
    """The parameter whose memory a result has, by the result's number."""
    return {b.number: program.buffers[b.alias].number for _, b in numbered(program, Role.RESULT) if b.alias >= 0}


def overwritten(program: Program) -> set[int]:
    """Parameters in whose memory the program puts results or temporaries: their values are gone after a run."""
    owned = [n for n, b in enumerate(program.buffers) if b.alias >= 0 and b.role is not Role.PART]
    sharing = [memory_of(entry, program) for entry in owned]
    return {program.buffers[root].number for root in sharing if program.buffers[root].role is Role.PARAMETER}


def result_memories(program: Program, parameters: Sequence[Array]) -> list[Array]:
    """The memory of every result, as uint8: a parameter's where it is made in place, else zeros."""
    shared = in_place(program)
    return [
        parameters[shared[b.number]] if b.number in shared else np.zeros(b.bytes, np.uint8)
        for _, b in numbered(program, Role.RESULT)
    ]


def first_states(program: Program) -> dict[int, Array]:
    """The memory of each state before the first run, by its buffer-table entry."""
    return {n: np.frombuffer(b.data, np.uint8).copy() for n, b in enumerate(program.buffers) if b.role is Role.STATE}


def bind(
    program: Program, parameters: list[Array], results: list[Array], states: Mapping[int, Array] | None = None
) -> dict[int, Array]:
    """The memory of every buffer-table entry, as uint8, which a run reads and writes.

    Args:
        program: the program.
        parameters, results: uint8 arrays in number order, used in place (`result_memories`).
        states: as runs before left them, used in place; None: as they begin.
    """
    bound: dict[int, Array] = dict(first_states(program) if states is None else states)
    for (entry, _), memory in zip(numbered(program, Role.PARAMETER), parameters, strict=True):
        bound[entry] = memory
    for (entry, _), memory in zip(numbered(program, Role.RESULT), results, strict=True):
        bound[entry] = memory
    for entry, decl in enumerate(program.buffers):
        if decl.role is Role.CONSTANT:
            bound[entry] = np.frombuffer(decl.data, np.uint8).copy()
        elif decl.role is Role.TEMP:
            bound[entry] = np.zeros(decl.bytes, np.uint8)
    for entry, decl in enumerate(program.buffers):
        if decl.alias >= 0:
            bound[entry] = shared_memory(bound[decl.alias], [decl])
    return bound
