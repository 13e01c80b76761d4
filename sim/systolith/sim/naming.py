"""How messages name an executed instruction: its number, operation, HLO operation, and the iterations around it."""

from __future__ import annotations

from collections.abc import Callable

from systolith.isa.program import Program

Iterations = tuple[tuple[int, int], ...]
"""Of each hardware loop around an instruction, the outermost first: its iteration, from 1 on, and how many it has."""

Describe = Callable[[int, Iterations], str]
"""Gives the text for an instruction's index, and the iterations in which it was executed."""


def named(program: Program, index: int, iterations: Iterations = ()) -> str:
    """The text for an instruction: `instruction 7 (dma.load, load of x) in iteration 2 of 4, 3 of 64`."""
    op = program.code[index].op
    origin = program.origins[program.debug[index]] if index < len(program.debug) and program.debug[index] >= 0 else None
    if origin is not None and (origin.hlo or origin.group):
        op = f"{op}, {origin.what + ' of ' if origin.what else ''}{origin.hlo or origin.group}"
    return f"instruction {index} ({op}){during(iterations)}"


def during(iterations: Iterations) -> str:
    """The text for iterations, with a space before it; empty: there is no loop around."""
    return f" in iteration {', '.join(f'{n} of {count}' for n, count in iterations)}" if iterations else ""
