"""`SYSTOLITH_REPORT=folder`: a record for each program run, and a summary when the process ends.

A record is the JSON object that `systolith run --json` prints, for `systolith report`. A run of a program that takes as
many cycles as one before has the same record: it is counted, not written again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from systolith.isa.files import json_text, make_folder, text_fill, write_atomic

if TYPE_CHECKING:  # it takes long to import
    from systolith.runtime.run import Run

SUMMARY = "summary.json"


@dataclass
class _Line:
    """Runs of a program that take the same cycles."""

    program: str
    record: str
    cycles: int
    launch: int
    runs: int = 0


class Recorder:
    """Writes records into a folder.

    Args:
        folder: made if it is not there.

    Raises:
        OutputError: it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self._folder = folder
        self._lines: dict[tuple[str, int], _Line] = {}
        self._seconds = 0.0
        self._lock = Lock()

    def add(self, key: str, run: Run) -> None:
        """Note a run of the program that has a key.

        Raises:
            OutputError: its record cannot be written.
        """
        cycles = run.cycles or 0
        with self._lock:
            line = self._lines.get((key, cycles))
            if line is None:
                line = self._lines[key, cycles] = _Line(run.program.name, self._name(run), cycles, run.launch or 0)
                write_atomic(self._folder / line.record, text_fill(json_text(run.record()) + "\n"))
            line.runs += 1
            self._seconds += run.result.seconds or 0.0

    def _name(self, run: Run) -> str:
        return f"{len(self._lines):04}-{re.sub(r'[^A-Za-z0-9_.-]', '_', run.program.name)[:80]}.json"

    def finish(self) -> None:
        """Write the summary: programs with their runs, those that take most cycles first."""
        lines = sorted(self._lines.values(), key=lambda line: -line.cycles * line.runs)
        summary = {
            "runs": sum(line.runs for line in lines),
            "cycles": sum(line.cycles * line.runs for line in lines),
            "launch": sum(line.launch * line.runs for line in lines),
            "seconds": self._seconds,
            "programs": [{**vars(line), "total_cycles": line.cycles * line.runs} for line in lines],
        }
        write_atomic(self._folder / SUMMARY, text_fill(json_text(summary, indent=2) + "\n"))
