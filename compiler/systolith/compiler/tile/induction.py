"""Numbers that change by a constant with the iterations of loops of known trip counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from systolith.compiler.tile.ir import Array, VReg

NOWHERE = VReg(0)
"""Where a record has an array that cannot be read any more: checks remember what it was."""


@dataclass(eq=False)
class Induction:
    """What the iterations of a loop count.

    Attributes:
        var: the induction variable, 0 in the first iteration.
        count: of iterations.
        states: scalars of its state that change by a constant, each with its first value and that constant.
        computed: those that groups of an iteration compute.
        values: registers of an iteration that hold such scalars.
    """

    var: VReg
    count: int
    states: list[tuple[Array, int, int]] = field(default_factory=list)
    computed: list[tuple[Array, int, int]] = field(default_factory=list)
    values: dict[VReg, Progression] = field(default_factory=dict)


class Progression(NamedTuple):
    """A number that changes by a constant with the iterations of a loop.

    Attributes:
        loop: of it.
        first: what it is in the first iteration.
        step: what each iteration adds.
    """

    loop: Induction
    first: int
    step: int

    @property
    def last(self) -> int:
        """What it is in the last iteration."""
        return self.first + self.step * max(0, self.loop.count - 1)

    def is_within(self, least: int, most: int) -> bool:
        """Whether it is between two numbers, or one of them, in every iteration."""
        return least <= min(self.first, self.last) and max(self.first, self.last) <= most

    def times(self, factor: int) -> Progression:
        """The product with a constant."""
        return Progression(self.loop, self.first * factor, self.step * factor)


def is_computed(loops: Sequence[Induction], scalar: Array) -> bool:
    """Whether a scalar is one that SEQ computes besides: nothing may read it where it lies."""
    return any(made is scalar for loop in loops for made, _, _ in loop.computed)


def progression(loops: Sequence[Induction], scalar: Array | VReg) -> Progression | None:
    """How a scalar changes with one of the loops around, the outermost first; None: that is not known."""
    for loop in reversed(loops):
        if isinstance(scalar, VReg):
            if scalar in loop.values:
                return loop.values[scalar]
            continue
        # What is made in the place of the state is another array: that of the next iteration.
        for state, first, step in (*loop.states, *loop.computed):
            if state is scalar:
                return Progression(loop, first, step)
    return None
