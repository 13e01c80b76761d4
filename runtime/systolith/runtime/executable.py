"""Compiled programs, and running them on devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from systolith.compiler.driver import Compiled
from systolith.compiler.memory.report import MemoryUse
from systolith.isa.access import memory_of
from systolith.isa.checked import checked
from systolith.isa.chip import Chip
from systolith.isa.dtypes import dtype
from systolith.isa.errors import SystolithError
from systolith.isa.program import BufferDecl, Program, Role
from systolith.runtime.arrays import Array
from systolith.runtime.device import Buffer, Device, Devices, allocate
from systolith.runtime.hbm import Range
from systolith.runtime.record import Circumstances, run_record
from systolith.runtime.sized import filled, shown, sizes_of
from systolith.runtime.task import Task
from systolith.sim.limit import check_limit
from systolith.sim.simulate import MODES, RunResult, simulate

ASSEMBLY = "program.s"


@dataclass
class Run:
    """One run of an executable.

    Attributes:
        result: the simulator's measurements.
        wall_seconds: host seconds of the simulation.
        memory: use of HBM and VMEM.
    """

    chip: Chip
    program: Program
    result: RunResult
    wall_seconds: float
    memory: MemoryUse

    @property
    def cycles(self) -> int | None:
        """Simulated cycles; None of a run in mode `values`."""
        return self.result.cycles

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
        return run_record(self.result, self.memory, Circumstances(simulate_seconds=self.wall_seconds))


_of_process: list[Task[Run]] = []
"""The run that was started last."""


def last_run() -> Run | None:
    """The latest run of this process, whichever executable's, once it has ended; None before the first.

    Raises:
        SystolithError: it failed.
    """
    return _of_process[0].result() if _of_process else None


def numbered(program: Program, role: Role) -> list[tuple[int, BufferDecl]]:
    """(buffer-table entry, declaration) of a role's buffers, by their number."""
    found = [(i, b) for i, b in enumerate(program.buffers) if b.role is role]
    return sorted(found, key=lambda item: item[1].number)


def in_place(program: Program) -> dict[int, int]:
    """The parameter whose memory a result has, by the result's number."""
    return {b.number: program.buffers[b.alias].number for _, b in numbered(program, Role.RESULT) if b.alias >= 0}


def overwritten(program: Program) -> set[int]:
    """Parameters in whose memory the program puts results or temporaries: their values are gone after a run."""
    sharing = [memory_of(entry, program) for entry, b in enumerate(program.buffers) if b.alias >= 0]
    return {program.buffers[root].number for root in sharing if program.buffers[root].role is Role.PARAMETER}


def result_memories(program: Program, parameters: Sequence[Array]) -> list[Array]:
    """The memory of every result, as uint8: a parameter's where it is made in place, else zeros."""
    shared = in_place(program)
    return [
        parameters[shared[b.number]] if b.number in shared else np.zeros(b.bytes, np.uint8)
        for _, b in numbered(program, Role.RESULT)
    ]


def first_states(program: Program) -> dict[int, Array]:
    """The memory of each state before the first run, by its buffer-table entry."""
    return {n: np.frombuffer(b.data, np.uint8).copy() for n, b in enumerate(program.buffers) if b.role is Role.STATE}


def bind(
    program: Program, parameters: list[Array], results: list[Array], states: Mapping[int, Array] | None = None
) -> dict[int, Array]:
    """The memory of every buffer-table entry, as uint8, which a run reads and writes.

    Args:
        program: the program.
        parameters, results: uint8 arrays in number order, used in place (`result_memories`).
        states: as runs before left them, used in place; None: as they begin.
    """
    bound: dict[int, Array] = dict(first_states(program) if states is None else states)
    for (entry, _), memory in zip(numbered(program, Role.PARAMETER), parameters, strict=True):
        bound[entry] = memory
    for (entry, _), memory in zip(numbered(program, Role.RESULT), results, strict=True):
        bound[entry] = memory
    for entry, decl in enumerate(program.buffers):
        if decl.role is Role.CONSTANT:
            bound[entry] = np.frombuffer(decl.data, np.uint8).copy()
        elif decl.role is Role.TEMP:
            bound[entry] = np.zeros(decl.bytes, np.uint8)
    for entry, decl in enumerate(program.buffers):
        if decl.alias >= 0:
            bound[entry] = bound[decl.alias]
    return bound


class Executable:
    """A program loaded for a client's devices.

    Calling it with one buffer or array a parameter starts a run and returns its result buffers (tuples flattened) at
    once; a run's errors surface where its results are read.

    Attributes:
        client: the devices that it can run on.
        program: the binary's contents.
        memory: use of HBM and VMEM; prints as a table.
        last_run: the latest finished run; None before the first.
    """

    def __init__(self, client: Devices, program: Program, compiled: Compiled | None = None) -> None:
        self.client = client
        self.program = program
        self.compiled = compiled
        self.memory = compiled.memory if compiled else MemoryUse(program)
        self._latest: Task[Run] | None = None
        self._states: dict[int, dict[int, Array]] = {}

    @property
    def last_run(self) -> Run | None:
        return None if self._latest is None else self._latest.result()

    def cost_analysis(self) -> dict[str, float]:
        """XLA's keys, summed over the program's groups: flops, transcendentals, bytes accessed."""
        groups = self.program.groups
        return {
            "flops": float(sum(g.flops for g in groups)),
            "transcendentals": float(sum(g.transcendentals for g in groups)),
            "bytes accessed": float(sum(g.bytes for g in groups)),
        }

    @checked
    def as_text(self, stage: str = ASSEMBLY) -> str:
        """A stage of the compilation as text, as `compile --dump-dir` writes it; a binary has the assembly only.

        Raises:
            SystolithError: there is no such stage.
        """
        from systolith.isa.asm import disassemble

        stages: Mapping[str, str] = self.compiled.stages if self.compiled else {ASSEMBLY: disassemble(self.program)}
        if stage not in stages:
            raise SystolithError(f"no stage {stage!r}; there are: {', '.join(stages)}")
        return stages[stage]

    @checked
    def __call__(
        self,
        *arguments: Buffer | Array,
        device: int = 0,
        mode: str = "full",
        hostile: bool = False,
        max_cycles: int | None = None,
    ) -> list[Buffer]:
        """Run on a device.

        Args:
            arguments: a buffer of that device, or a numpy array (put there for the run), for each parameter.  A buffer
                whose memory the program takes (`donate_argnums`), for results or on the way, is deleted by the call.
            device: which device.
            mode: "full" (values and cycles) or "values" (no cycles).
            hostile: memory starts as poison, races are reported.
            max_cycles: as for `simulate`: a run that takes more fails, and names the HLO loop that it is in.

        Raises:
            SystolithError: the arguments do not match the parameters, there is no such device or mode, or not enough
                HBM.
        """
        target = self.client.device(device)
        taken = self._arguments(target, arguments)
        return self._shown(start(self, target, taken, self._simulation(mode, hostile, max_cycles)))

    def _shown(self, results: list[Buffer]) -> list[Buffer]:
        """Results that the host sees, with the sizes that others hold."""
        declared = self._interface[0]
        by_number = dict(zip((d.number for d in declared), results, strict=True))
        for decl in declared:
            by_number[decl.number].sizes = tuple(by_number.get(n) for n in decl.sizes)
        return [by_number[d.number] for d in shown(declared)]

    def _simulation(self, mode: str, hostile: bool, max_cycles: int | None) -> Callable[..., RunResult]:
        if mode not in (with_values := [m for m in MODES if m != "time"]):
            raise SystolithError(f"mode {mode!r}: must be one of {', '.join(with_values)}")
        check_limit(max_cycles)
        return partial(
            simulate, self.program, self.client.chip, mode=mode, hostile=bool(hostile), max_cycles=max_cycles
        )

    @cached_property
    def _interface(self) -> tuple[list[BufferDecl], dict[int, int], set[int]]:
        """The results, the parameter in whose memory each of some is made, parameters whose memory is taken."""
        declared = [d for _, d in numbered(self.program, Role.RESULT)]
        return declared, in_place(self.program), overwritten(self.program)

    def _refuse_shared(self, arguments: list[Buffer], donated: Collection[int]) -> None:
        for number in donated:
            for other, argument in enumerate(arguments):
                if argument is arguments[number] and other != number:
                    raise SystolithError(
                        f"{self.program.name}: arguments {number} and {other} are one buffer, and argument {number} is"
                        " donated: the program overwrites it; put the array twice"
                    )

    def _arguments(self, device: Device, arguments: tuple[Buffer | Array, ...]) -> list[Buffer]:
        declared = [d for _, d in numbered(self.program, Role.PARAMETER)]
        if len(arguments) != len(shown(declared)):
            raise SystolithError(f"{self.program.name} takes {len(shown(declared))} arguments, got {len(arguments)}")
        taken: dict[int, Buffer] = {}
        for decl, given in zip(shown(declared), arguments, strict=True):
            what = f"argument {decl.number} ({decl.name})"
            if not isinstance(given, Buffer):
                taken[decl.number] = device.put(filled(decl, given, what))
                for number, size in sizes_of(decl, np.shape(given)).items():
                    taken[number] = device.put(np.asarray(size, np.int32))
                continue
            if given.device is not device:
                raise SystolithError(f"{what}: the buffer is on {given.device}, the run on {device}")
            if given.dtype.name != decl.dtype or given.shape != decl.dims:
                raise SystolithError(
                    f"{what}: the module takes {decl.dtype}{list(decl.dims)}, got {given.dtype}{list(given.shape)}"
                )
            taken[decl.number] = given
            for d, number in enumerate(decl.sizes):
                beside = given.sizes[d] if given.sizes else None
                if number >= 0:
                    taken[number] = beside or device.put(np.asarray(decl.dims[d], np.int32))
        return [taken[d.number] for d in declared]

    def _run(
        self,
        simulated: Callable[..., RunResult],
        device: Device,
        arguments: list[Buffer],
        contents: list[Callable[[], Array]],
        results: list[Array],
        scratch: Range,
    ) -> Run:
        """`arguments`: held so that their memory is not freed before the run ends."""
        try:
            states = self._states.setdefault(device.number, first_states(self.program))
            bound = bind(self.program, [wait() for wait in contents], results, states)
            started = perf_counter()
            result = simulated(buffers=bound, setup=device.attach_queues)
            result.outputs = []  # in buffers, whose memory may be freed before the run is forgotten
            return Run(self.client.chip, self.program, result, perf_counter() - started, self.memory)
        finally:
            device.hbm.release(scratch)


def start(
    executable: Executable, target: Device, taken: list[Buffer], simulated: Callable[..., RunResult] | None = None
) -> list[Buffer]:
    """Start a run on buffers that the caller knows to be right; otherwise as a call.

    Args:
        executable: what to run.
        target: a device of the client.
        taken: a buffer of the device for each parameter, of its type and shape.
        simulated: `simulate` with options; None: in mode `full`.
    """
    declared, shared, donated = executable._interface
    executable._refuse_shared(taken, donated)
    fresh = {d.number: allocate(target, dtype(d.dtype), d.dims) for d in declared if d.number not in shared}
    contents = [a.contents() for a in taken]  # refuses deleted ones, before what only a run gives back is taken
    scratch = target.hbm.allocate(executable.memory.constants + executable.memory.temporaries)
    name = executable.program.name
    spent = [taken[n].donate(name, taken[n].dtype, taken[n].shape) for n in donated.difference(shared.values())]
    results = [
        fresh[d.number] if d.number in fresh else taken[shared[d.number]].donate(name, dtype(d.dtype), d.dims)
        for d in declared
    ]
    memories = [r.raw() for r in results]
    simulated = simulated or partial(simulate, executable.program, executable.client.chip)
    task = target.queue.submit(
        partial(executable._run, simulated, target, [*taken, *spent], contents, memories, scratch)
    )
    for result in results:
        result.fill_by(task)
    executable._latest = task
    _of_process[:] = [task]
    return results
