"""`simulate`: a program on a chip, with values, with time, or with both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from systolith.isa.chip import Chip
from systolith.isa.collection import collection_paused
from systolith.isa.dtypes import dtype
from systolith.isa.errors import SystolithError
from systolith.isa.program import Program, Role
from systolith.isa.verify import require_chip
from systolith.sim.calls import Direct, calls
from systolith.sim.decoded import Decoded
from systolith.sim.energy import energy_of
from systolith.sim.host_times import ALL_THERE, HostTimes
from systolith.sim.limit import CancelledRunError, CycleLimit
from systolith.sim.memory import Bytes, Machine
from systolith.sim.plane import HazardPlane, TimePlane
from systolith.sim.sequencer import Hook, Hooks, Sequencer
from systolith.sim.stats import RunResult
from systolith.sim.trace import Facts
from systolith.sim.work import Works

__all__ = ["MODES", "Observer", "RunResult", "simulate"]

MODES = ("full", "time", "values")


class Observer(Protocol):
    """Looks at the machine at points of a run with values; program order is the order of execution.

    Attributes:
        before, after: instruction indices before and after whose executions it is called.
    """

    @property
    def before(self) -> frozenset[int]: ...

    @property
    def after(self) -> frozenset[int]: ...

    def reached(self, index: int, machine: Machine) -> None:
        """Instruction `index` is about to be executed."""

    def done(self, index: int, machine: Machine) -> None:
        """Instruction `index` has been executed."""


@collection_paused()
def simulate(
    program: Program,
    chip: Chip,
    buffers: Mapping[int, Bytes] | None = None,
    mode: str = "full",
    *,
    hostile: bool = False,
    decisions: Sequence[int] | None = None,
    observer: Observer | None = None,
    setup: Hook | None = None,
    max_cycles: int | None = None,
    host: HostTimes = ALL_THERE,
    cancelled: Callable[[], bool] | None = None,
    facts: bool = True,
    decoded: Decoded | None = None,
) -> RunResult:
    """Run a program to its end.

    Args:
        program: the one to run.
        chip: on which chip.
        buffers: memory of buffer-table entries, uint8, read and written in place; those left out start as their data or
            as zeros.
        mode: `full` computes values and cycles, `values` no cycles, `time` no values: then `buffers` are not used, and
            `decisions` of a full run are needed where control depends on data.
        hostile: memory starts as NaNs, and races are looked for (`RunResult.hazards`).
        decisions: `RunResult.decisions` of an earlier run, for mode `time`.
        observer: called during a run with values.
        setup: called with the machine before a run with values (to fill infeed queues, connect links).
        host: when it has data and room, for the cycles.
        max_cycles: that the run may take; in mode `values` an instruction counts as one, the least that it takes.
        cancelled: asked after each instruction; the run ends where it says so.
        facts: in mode `values`, whether `RunResult.facts` are wanted, too.
        decoded: of the program, for many runs of it.

    Raises:
        CancelledRunError: `cancelled` said so.
        CycleLimitError: it takes more; names the HLO loop that it is in.
        SystolithError: the program is for another chip, does something that the machine cannot do, deadlocks, overflows
            a token, or depends on data that mode `time` does not have; the arguments (the decisions and the program) do
            not go together; or the process's floating-point arithmetic is not the chip's.
    """
    require_chip(program, chip)
    _check_arguments(mode, hostile, decisions, observer is not None or setup is not None)
    started = perf_counter()
    machine = None
    if mode != "time":
        _check_arithmetic()
        machine = Machine(program, chip, buffers or {}, hostile)
        if setup:
            setup(machine)
    sequencer = Sequencer(program, machine, decisions, decoded=decoded)
    result = RunResult(chip, program, mode)
    with np.errstate(all="ignore"), _calling(machine):
        _run(result, sequencer, _hooks(observer), hostile, max_cycles, cancelled or _never, host)
    if mode == "values" and facts:
        result.facts = _facts(result)
    result.decisions = sequencer.decisions
    if decisions is not None and len(result.decisions) < len(decisions):
        raise SystolithError(f"the decision trace has {len(decisions)} reads, the run made {len(result.decisions)}")
    if machine is not None:
        result.outputs = _outputs(program, machine)
    result.wall_seconds = {"simulate": perf_counter() - started}
    return result


@contextmanager
def _calling(machine: Machine | None) -> Iterator[None]:
    """Let the machine make native calls by another thread, if there is a processor for it; then it keeps no plans."""
    if machine is None:
        yield
        return
    try:
        with calls() as machine.calls:
            yield
    finally:
        machine.calls = Direct()
        machine.cache.clear()  # plans refer to the machine, and its memories are to go with the last who needs them


def _check_arguments(mode: str, hostile: bool, decisions: Sequence[int] | None, watched: bool) -> None:
    if mode not in MODES:
        raise SystolithError(f"mode {mode!r}: must be one of {', '.join(MODES)}")
    if mode == "time" and (hostile or watched):
        raise SystolithError("mode time has no values: it excludes hostile, observer and setup")
    if mode != "time" and decisions is not None:
        raise SystolithError(f"decisions are replayed in mode time only, not in mode {mode}")


def _check_arithmetic() -> None:
    """Refuse to compute where a library has changed how this thread's processor rounds: other bits would come out."""
    small = np.array([1, 1 << 22], np.uint32)  # images of subnormal numbers
    sums = np.float32(1) + np.array([2**-30, 0.75 * 2**-23], np.float32)
    exact = np.array([1, 1 + 2**-23]).astype(np.float32)
    if not np.array_equal(sums, exact) or not np.array_equal((small.view(np.float32) * sums[0]).view(np.uint32), small):
        raise SystolithError(
            "this thread rounds otherwise than to nearest, or flushes subnormal numbers to zero, which the chip does"
            " not: a library has changed the processor's floating-point mode; restore it, or run in another process"
        )


def _never() -> bool:
    return False


def _run(
    result: RunResult,
    sequencer: Sequencer,
    hooks: Hooks,
    hostile: bool,
    max_cycles: int | None,
    cancelled: Callable[[], bool],
    host: HostTimes,
) -> None:
    """Drive the planes with the executed instructions."""
    program, chip = result.program, result.chip
    time = TimePlane(program, chip, host, sequencer.decoded) if result.mode != "values" else None
    hazards = HazardPlane(program, chip) if hostile else None
    limit = CycleLimit(program, max_cycles, time.now if time is not None else None) if max_cycles is not None else None
    executed = [0] * len(program.code)
    for issue in sequencer.execute(hooks):
        executed[issue.index] += 1
        if time is not None:
            time.execute(issue.index, issue.queue, issue.taken, sequencer.iterations)
        if hazards is not None:
            hazards.execute(issue.index, issue.instr, sequencer.iterations)
        if limit is not None:
            limit.after(issue, sequencer.iterations)
        if cancelled():
            raise CancelledRunError(f"{program.name}: the run was cancelled, after {sum(executed)} instructions")
    result.executed = np.array(executed, np.int64)
    result.instructions = sum(executed)
    if time is not None:
        cycles, result.units, trace, facts = time.finish()
        result.cycles, result.trace, result.facts, result.held = cycles, trace, facts, time.held()
        result.energy = energy_of(program, chip, cycles, trace, facts, result.executed, sequencer.decoded)
    if limit is not None:
        limit.finish(result.cycles)
    if hazards is not None:
        result.hazards = hazards.hazards


def _facts(result: RunResult) -> Facts:
    return Works(result.program, result.chip, Decoded(result.program)).facts()


def _hooks(observer: Observer | None) -> Hooks:
    if observer is None:
        return Hooks()
    return Hooks(
        {i: partial(observer.reached, i) for i in observer.before},
        {i: partial(observer.done, i) for i in observer.after},
    )


def _outputs(program: Program, machine: Machine) -> list[NDArray[Any]]:
    """The result buffers as arrays, in the order of their numbers."""
    found = sorted((b.number, i) for i, b in enumerate(program.buffers) if b.role is Role.RESULT)
    arrays = []
    for _, i in found:
        decl = program.buffers[i]
        stored = dtype(decl.dtype).stored
        count = int(np.prod(decl.dims, dtype=np.int64))
        arrays.append(machine.buffers[i][: count * stored.itemsize].view(stored).reshape(decl.dims))
    return arrays
