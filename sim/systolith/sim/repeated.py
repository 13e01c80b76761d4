"""Runs of one program after another: times that an earlier run had are not computed again.

Cycles are a function of the program, the chip and the way that control takes, which is the values that SEQ reads from
scalar memory (`RunResult.decisions`).  So a run that reads the same has the times of the one before, and computes
values only; one that reads others replays them in mode `time`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from systolith.isa.chip import Chip
from systolith.isa.program import Program
from systolith.sim.memory import Bytes
from systolith.sim.sequencer import Hook
from systolith.sim.simulate import simulate
from systolith.sim.stats import RunResult

MOST = 4
"""Ways through a program whose times are kept."""


class KnownTimes:
    """Times of a program's runs on a chip whose host is ready at all times, by what control depended on."""

    def __init__(self, program: Program, chip: Chip) -> None:
        self._program = program
        self._chip = chip
        self._found: dict[tuple[int, ...], RunResult] = {}

    def simulate(
        self,
        buffers: Mapping[int, Bytes] | None = None,
        *,
        setup: Hook | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> RunResult:
        """As `simulate` in mode `full`."""
        program, chip = self._program, self._chip
        if not self._found:
            result = simulate(program, chip, buffers, setup=setup, cancelled=cancelled)
            self._note(result)
            return result
        result = simulate(program, chip, buffers, "values", setup=setup, cancelled=cancelled, facts=False)
        times = self._found.get(tuple(result.decisions))
        if times is None:
            times = simulate(program, chip, mode="time", decisions=result.decisions, cancelled=cancelled)
            self._note(times)
        return replace(
            result, mode="full", cycles=times.cycles, units=times.units, trace=times.trace, facts=times.facts,
            energy=times.energy,
        )  # fmt: skip

    def _note(self, result: RunResult) -> None:
        while len(self._found) >= MOST:
            self._found.pop(next(iter(self._found)), None)
        self._found[tuple(result.decisions)] = replace(result, outputs=[])
