"""One run of an executable: what the simulator measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from systolith.compiler.memory.report import MemoryUse
from systolith.isa.checked import checked
from systolith.isa.chip import Chip
from systolith.isa.program import Program
from systolith.runtime.records.record import Circumstances, run_record
from systolith.runtime.task import Task
from systolith.sim.simulate import RunResult

if TYPE_CHECKING:  # the compiler takes long to import, and binaries do without it
    from systolith.compiler.bounds.bound import Bounds


@dataclass(repr=False)
class Run:
    """One run of an executable.

    Attributes:
        result: the simulator's measurements.
        wall_seconds: host seconds of the simulation.
        memory: use of HBM and VMEM.
        bounds: makes the bounds of the module's cycles; None: it is not known.
    """

    chip: Chip
    program: Program
    result: RunResult
    wall_seconds: float
    memory: MemoryUse
    bounds: Callable[[], Bounds] | None = None

    @property
    def cycles(self) -> int | None:
        """Simulated cycles; None of a run in mode `values`."""
        return self.result.cycles

    @property
    def launch(self) -> int | None:
        """Cycles that the call takes beside `cycles`: `host.launch` of the chip; None of a run in mode `values`."""
        return self.result.launch

    @property
    def decisions(self) -> list[int]:
        """The values of data that control depends on, which a run in mode `time` needs."""
        return list(self.result.decisions)

    def __repr__(self) -> str:
        cycles, seconds = self.cycles, self.result.seconds
        took = (
            "no cycles"
            if cycles is None
            else f"{cycles:,} cycles, {(seconds or 0) * 1e6:.4g} us, launch {self.launch:,}"
        )
        return f"<Run of {self.program.name} on {self.chip.name}, mode {self.result.mode}: {took}>"

    def _repr_html_(self) -> str:
        from systolith.reports.notebook import summary_html

        return summary_html(self.record())

    @property
    def trace(self) -> dict[str, object]:
        """Chrome trace events, as Perfetto opens them."""
        from systolith.sim.chrome import chrome_trace

        return chrome_trace(self.result)

    @checked
    def report(self, path: str | Path) -> Path:
        """Write the HTML report of this run."""
        from systolith.reports.html import write_report

        return write_report(self.record(), path)

    def record(self) -> dict[str, Any]:
        """The JSON object of the run, as `systolith run --json` prints it."""
        about = Circumstances(simulate_seconds=self.wall_seconds)
        return run_record(self.result, self.memory, about, self.bounds() if self.bounds else None)


_of_process: list[Task[Run]] = []
"""The run that was started last."""


def started(task: Task[Run]) -> None:
    """Note a run as the latest of the process."""
    _of_process[:] = [task]


def last_run() -> Run | None:
    """The latest run of this process, whichever executable's, once it has ended; None before the first.

    Raises:
        SystolithError: it failed.
    """
    return _of_process[0].result() if _of_process else None
