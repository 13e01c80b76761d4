"""Runs that end before their program does: cancelled, or by a limit on cycles, which says in which loops they are."""

from __future__ import annotations

from collections.abc import Callable

from systolith.isa.errors import SystolithError
from systolith.isa.opcodes import BRANCH_OPS
from systolith.isa.program import Program
from systolith.sim.decoded import Issue
from systolith.sim.naming import Iterations, named


class CycleLimitError(SystolithError):
    """A run takes more cycles than it may."""


class CancelledRunError(SystolithError):
    """A run was cancelled."""


def check_limit(cycles: int | None) -> None:
    """Check a limit of cycles.

    Raises:
        SystolithError: it is less than one cycle.
    """
    if cycles is not None and cycles < 1:
        raise SystolithError(f"max_cycles {cycles}: must be at least 1")


class CycleLimit:
    """Counts the iterations of loops, and ends a run that goes on for too long.

    Args:
        program: the one that runs.
        cycles: that it may take.
        now: cycles so far; None: not known, and each instruction counts as one, which is the least that it takes.
    """

    def __init__(self, program: Program, cycles: int, now: Callable[[], int] | None) -> None:
        check_limit(cycles)
        self._program = program
        self._cycles = cycles
        self._now = now
        self._executed = 0
        self._turns = dict.fromkeys(_back_edges(program), 0)

    def after(self, issue: Issue, iterations: Iterations) -> None:
        """An instruction has been executed; `iterations`: of the hardware loops around it.

        Raises:
            CycleLimitError: the limit is reached before the program's end.
        """
        self._executed += 1
        if issue.taken and issue.index in self._turns:
            self._turn(issue.index)
        if (self._now() if self._now else self._executed) > self._cycles:
            self._stop(issue.index, iterations)

    def finish(self, cycles: int | None) -> None:
        """The run has ended, after `cycles`.

        Raises:
            CycleLimitError: these are too many.
        """
        if cycles is not None and cycles > self._cycles:
            raise CycleLimitError(f"{self._program.name}: takes {cycles} cycles: the limit is {self._cycles}")

    def _turn(self, index: int) -> None:
        first = _target(self._program, index)
        for inner in self._turns:
            if first <= inner < index:
                self._turns[inner] = 0
        self._turns[index] += 1

    def _stop(self, index: int, iterations: Iterations) -> None:
        around = [jump for jump in self._turns if _target(self._program, jump) <= index <= jump]
        around.sort(key=lambda jump: _target(self._program, jump) - jump)
        loops = [f"iteration {self._turns[jump] + 1} of {self._name(jump)}" for jump in around]
        where = ", ".join(loops) or named(self._program, index, iterations)
        raise CycleLimitError(f"{self._program.name}: not done after {self._cycles} cycles, the limit; in {where}")

    def _name(self, jump: int) -> str:
        """The HLO loop that an instruction jumps back in."""
        program = self._program
        hlo = program.origins[program.debug[jump]].hlo if program.debug else ""
        return f"while {hlo!r}" if hlo else f"the loop from instruction {_target(program, jump)} to {jump}"


def _back_edges(program: Program) -> list[int]:
    """Jumps and branches back: the ends of loops."""
    jumps = (n for n, i in enumerate(program.code) if i.op == "jmp" or i.op in BRANCH_OPS)
    return [n for n in jumps if _target(program, n) <= n]


def _target(program: Program, jump: int) -> int:
    target = program.code[jump].args["target"]
    assert isinstance(target, int)
    return target
