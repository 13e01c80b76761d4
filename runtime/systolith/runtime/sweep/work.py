"""The work of one process: compile programs, run them in mode `time`, and say what came of it."""

from __future__ import annotations

import gc
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from typing import Any, Generic, TypeVar

from systolith.compiler.driver import Front
from systolith.compiler.options import Options
from systolith.isa.chip import Chip
from systolith.isa.chip_reads import Reads, holds, recording
from systolith.isa.collection import collection_paused
from systolith.isa.errors import SystolithError
from systolith.isa.program import Program
from systolith.runtime.inputs.sources import parse_module
from systolith.runtime.sweep.points import Model
from systolith.runtime.sweep.study import OF_ENERGY
from systolith.runtime.tuning import with_tuner
from systolith.sim.decoded import Decoded
from systolith.sim.energy import MOST_OPS
from systolith.sim.simulate import RunResult, simulate

UNCOLLECTED = 1_000_000
"""A process looks for cycles when it has so many objects, some 100 MB, more than when it did so last."""

BY_OP = "by_op"
"""Key in a row of what is no column: joules, and TOPS/W or None, of the HLO instructions with most energy."""

OK, REFUSED, FAILED = "ok", "refused", "failed"
"""A point ran; it cannot run there; the machine or systolith failed, so that another attempt may go better."""

T = TypeVar("T")
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """Points of one model with one set of options, to be measured by one process.

    Attributes:
        model, options: of all of them.
        points: key of the result, chip, and the chip that the program is compiled for, of each.
    """

    model: Model
    options: Mapping[str, Any]
    points: Sequence[tuple[str, Chip, Chip]]


class _Recent(Generic[T]):
    """The results that were asked for last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Any, T] = OrderedDict()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


_fronts: _Recent[Front] = _Recent(4)


@dataclass(frozen=True)
class _Made:
    """A program, and what of its chip was read to make it.

    Attributes:
        asked: model and options.
        reads: empty where not recorded: only the same chip will do.
        decoded: the program's instructions, for its runs; programs of the same instructions share it.
    """

    asked: Any
    chip: Chip
    reads: Reads
    program: Program
    decoded: Decoded


_made: deque[_Made] = deque(maxlen=8)


@collection_paused()
def measure(job: Job) -> list[tuple[str, Row]]:
    """Results of a job's points, by their keys; a point that is refused has its reason."""
    job.model.registered.register()
    return [(key, _measured(job, chip, compiled_for)) for key, chip, compiled_for in job.points]


def measure_alone(job: Job) -> list[tuple[str, Row]]:
    """The same in a process whose collector of cycles stays off: it is called here, and rarely.

    To look for cycles takes a tenth of a second for each point that is kept, and finds next to none, so the number of
    new objects decides, not that of points.
    """
    gc.disable()
    found = measure(job)
    if gc.get_count()[0] > UNCOLLECTED:
        gc.collect()
    return found


def _measured(job: Job, chip: Chip, compiled_for: Chip) -> Row:
    try:
        started = perf_counter()
        program, decoded = program_for(job.model, job.options, compiled_for)
        compiled = perf_counter()
        result = simulate(moved(program, chip), chip, mode="time", decoded=decoded)
        return {"status": OK, "reason": ""} | measurements(result, compiled - started)
    except SystolithError as error:
        return {"status": REFUSED, "reason": " ".join(str(error).split())}
    except MemoryError:
        return {"status": FAILED, "reason": "out of memory: this needs more than the machine has"}
    except Exception as error:  # of one point: the others are worth having
        return {"status": FAILED, "reason": f"fault of systolith: {type(error).__name__}: {error}"}


def parsed(model: Model) -> Front:
    """A model in canonical form.

    Raises:
        SystolithError: it cannot be read, or is a binary.
    """
    return _fronts.get(model.digest, lambda: Front(parse_module(model.data, model.name)))


def program_for(model: Model, options: Mapping[str, Any], chip: Chip) -> tuple[Program, Decoded]:
    """The program of a model for a chip, as a fresh compilation would make it, and what its runs share.

    It is not complete (`Options.complete`): its cycles do not depend on that.  One that was made for another chip is
    taken where that one has the same values in all fields that were read.

    Raises:
        SystolithError: it is refused.
    """
    asked = model.digest, tuple(sorted(options.items()))
    for made in _made:
        if made.asked == asked and (holds(made.reads, chip) if made.reads else made.chip.digest() == chip.digest()):
            return moved(made.program, chip), made.decoded
    wanted = Options(probes=False, elided="zeros", complete=False, **options)
    # Measuring plans reads the chip in the simulator, which no record would show.
    target, reads = (chip, {}) if wanted.autotune else recording(chip)
    program = moved(parsed(model).compile(target, with_tuner(wanted, target)).program, chip)
    decoded = next((m.decoded for m in _made if m.program.code is program.code), None) or Decoded(program)
    _made.append(_Made(asked, chip, dict(reads), program, decoded))
    return program, decoded


def moved(program: Program, chip: Chip) -> Program:
    """The program as one for another chip, which differs in nothing that makes it another program."""
    return replace(program, chip=chip.name, chip_digest=chip.digest(), target=chip)


def measurements(result: RunResult, compile_seconds: float) -> Row:
    """The columns of a run (`MEASURED`)."""
    moved_bytes = result.hbm_bytes
    return {
        "cycles": result.cycles,
        "seconds": result.seconds,
        "mxu_utilization": result.mxu_utilization,
        "hbm_read_bytes": moved_bytes["read"],
        "hbm_written_bytes": moved_bytes["written"],
        "instructions": result.instructions,
        "vmem_high_water": result.vmem_high_water,
        **_energy(result),
        "compile_seconds": round(compile_seconds, 6),
        "simulate_seconds": round(result.wall_seconds["simulate"], 6),
    }


def _energy(result: RunResult) -> Row:
    energy = result.energy
    if energy is None:
        return dict.fromkeys(OF_ENERGY)
    watts = energy.average_watts, energy.peak_watts(result.edges())
    parts = [amount * 1e-15 for amount in (*energy.by_unit.values(), energy.idle, energy.leakage)]
    ops = dict(islice(energy.by_op.items(), MOST_OPS))
    values = energy.total * 1e-15, *watts, energy.tops_per_watt, *parts
    return dict(zip(OF_ENERGY, values, strict=True)) | {
        BY_OP: {op: (amount * 1e-15, energy.tops_per_watt_by_op.get(op)) for op, amount in ops.items()}
    }
