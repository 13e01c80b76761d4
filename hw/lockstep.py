"""A program on the simulator and its matrix unit's part of it on the RTL: the same bits in the same cycles."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

from hw.tb.build import BenchError, mxu_top, run
from hw.tb.record import Recorder, Recording
from systolith.isa.chip import Chip
from systolith.isa.program import Program
from systolith.sim.memory import Machine

__all__ = ["BenchError", "lockstep"]


def lockstep(program: Program, chip: Chip, setup: Callable[[Machine], None], unit: int = 0) -> Recording:
    """Run a program in the simulator, play what concerns matrix unit `unit` to the RTL, and compare.

    Args:
        program: what to run.
        chip: on which chip; the RTL is built for it unless it is there.
        setup: fills the simulator's memories first (buffers, host queues).
        unit: which matrix unit.

    Returns:
        What the simulator said, and the RTL confirmed.

    Raises:
        BenchError: a start, a retirement, a row written or an accumulator differs.
        SystolithError: the program does what the machine cannot do.
    """
    recording = Recorder(program, chip, unit).run(program.name, setup)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        path.write_bytes(pickle.dumps((recording, chip)))
        run(mxu_top(chip), "hw.tb.mxu_bench", "recorded", {"MXU_RECORDING": str(path)})
    return recording
