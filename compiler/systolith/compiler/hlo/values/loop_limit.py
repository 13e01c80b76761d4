"""A limit on the iterations of HLO loops: where an evaluation stands when it gets there."""

from __future__ import annotations

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction


class LoopLimit:
    """Counts the iterations of while loops, and ends an evaluation that goes on for too long.

    Args:
        most: iterations that all loops together may take; None: any number.

    Raises:
        HloError: the limit is less than one.
    """

    def __init__(self, most: int | None) -> None:
        if most is not None and most < 1:
            raise HloError(f"max_iterations {most}: must be at least 1")
        self._most = most
        self._taken = 0
        self._turns: dict[Instruction, int] = {}  # of the loops that run, outermost first

    def anew(self) -> LoopLimit:
        """The same limit for another device, at its start."""
        return LoopLimit(self._most)

    def turn(self, loop: Instruction) -> None:
        """An iteration begins.

        Raises:
            HloError: it is one too many; names the loops that run and their iterations so far.
        """
        self._turns[loop] = self._turns.get(loop, 0) + 1
        if self._taken == self._most:
            where = ", ".join(f"iteration {turns} of while {i.name!r}" for i, turns in self._turns.items())
            raise HloError(f"not done after {self._most} iterations, the limit; in {where}")
        self._taken += 1

    def leave(self, loop: Instruction) -> None:
        """A loop has ended, after any number of iterations."""
        self._turns.pop(loop, None)
