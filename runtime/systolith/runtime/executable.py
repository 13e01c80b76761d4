"""Compiled programs, and running them on devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from systolith.compiler.memory.report import MemoryUse
from systolith.isa.binary import load, save
from systolith.isa.checked import checked
from systolith.isa.dtypes import dtype
from systolith.isa.errors import SystolithError
from systolith.isa.program import BufferDecl, Program, Role
from systolith.isa.verify import verify_program
from systolith.runtime.arrays import Array
from systolith.runtime.device import Buffer, Device, Devices, allocate, hold
from systolith.runtime.hbm import Allocation, OutOfMemoryError, Owner
from systolith.runtime.memories import bind, first_states, in_place, numbered, overwritten
from systolith.runtime.run import Run, started
from systolith.runtime.sized import filled, shown, sizes_of
from systolith.runtime.task import Task
from systolith.sim.host_times import ALL_THERE, HostTimes
from systolith.sim.limit import CancelledRunError, check_limit
from systolith.sim.repeated import KnownTimes
from systolith.sim.sequencer import TraceNeededError
from systolith.sim.simulate import MODES, RunResult, simulate

if TYPE_CHECKING:  # it takes long to import
    from systolith.compiler.driver import Compiled

ASSEMBLY = "program.s"
TIME = "time"


class _Interface:
    """Parameters and results of a run.

    Attributes:
        parameters, results: their declarations.
        owners: whose the memory of each is, by its number.
        owner: whose the memory is that only the run needs.
        shared: the parameter in whose memory each of some results is made.
        donated: parameters whose memory is taken.
    """

    def __init__(self, program: Program) -> None:
        self.parameters = [d for _, d in numbered(program, Role.PARAMETER)]
        self.results = [d for _, d in numbered(program, Role.RESULT)]
        self.owners = {
            d.number: Owner(program.name, f"result {d.number} {d.dtype}{list(d.dims)}") for d in self.results
        }
        self.owner = Owner(program.name, "constants and temporaries")
        self.shared, self.donated = in_place(program), overwritten(program)


class Executable:
    """A program loaded for a client's devices.

    Calling it with one buffer or array a parameter starts a run and returns its result buffers (tuples flattened) at
    once; a run's errors surface where its results are read.

    Attributes:
        client: the devices that it can run on.
        program: the binary's contents.
        memory: use of HBM and VMEM; prints as a table.
        known: times of its runs.
        calls: what holds the functions of the host that it calls, if they go with it.
        last_run: the latest finished run; None before the first.
    """

    def __init__(self, client: Devices, program: Program, compiled: Compiled | None = None) -> None:
        self.client = client
        self.program = program
        self.compiled = compiled
        self.memory = compiled.memory if compiled else MemoryUse(program)
        self.known = KnownTimes(program, client.chip)
        self.calls: object = None
        self._latest: Task[Run] | None = None
        self._states: dict[int, dict[int, Array]] = {}

    @property
    def last_run(self) -> Run | None:
        return None if self._latest is None else self._latest.result()

    def __repr__(self) -> str:
        takes, gives = len(shown(self._interface.parameters)), len(shown(self._interface.results))
        program = self.program
        return (
            f"<Executable {program.name} for {program.chip}: {takes} parameters, {gives} results,"
            f" {len(program.code)} instructions, {self.memory.hbm} bytes of HBM>"
        )

    @checked
    def save(self, path: str | Path) -> Path:
        """Write the program as a binary (`.slb`), which `Client.load`, `Executable.load` and the commands take.

        Raises:
            SystolithError: the file cannot be written.
        """
        save(self.program, path)
        return Path(path)

    @classmethod
    @checked
    def load(cls, path: str | Path, client: Devices) -> Executable:
        """Load a binary for devices.

        Raises:
            SystolithError: it cannot be read, is for another chip, or breaks a rule of the instruction set.
        """
        return load_for(client, load(path))

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
        decisions: Sequence[int] | None = None,
        host: HostTimes = ALL_THERE,
    ) -> list[Buffer]:
        """Run on a device.

        Args:
            arguments: a buffer of that device, or a numpy array (put there for the run), for each parameter.  A buffer
                whose memory the program takes (`donate_argnums`), for results or on the way, is deleted by the call.
            device: which device.
            mode: "full" (values and cycles), "values" (no cycles) or "time" (cycles, in `last_run`; no arguments are
                needed, those given are checked but not read or taken, and there are no results).
            hostile: memory starts as poison, races are reported.
            max_cycles: as for `simulate`: a run that takes more fails, and names the HLO loop that it is in.
            decisions: in mode "time", where control depends on data: those of a run with values (`Run.decisions`).
            host: when, in cycles of the run, infeeds have data and outfeeds have room.

        Raises:
            SystolithError: the arguments do not match the parameters, there is no such device or mode, options do not
                go together, or there is not enough HBM.
        """
        target = self.client.device(device)
        check_limit(max_cycles)
        if mode == TIME:
            if arguments:
                self._checked(target, arguments)
            return self._timed(target, hostile, max_cycles, decisions, host)
        if decisions is not None:
            raise SystolithError(f"decisions are for mode time, not for mode {mode}")
        taken = self._arguments(target, arguments)
        return self._shown(start(self, target, taken, self._simulation(mode, hostile, max_cycles, host))[0])

    def _shown(self, results: list[Buffer]) -> list[Buffer]:
        """Results that the host sees, with the sizes that others hold."""
        declared = self._interface.results
        by_number = dict(zip((d.number for d in declared), results, strict=True))
        for decl in declared:
            by_number[decl.number].sizes = tuple(by_number.get(n) for n in decl.sizes)
        return [by_number[d.number] for d in shown(declared)]

    def _simulation(
        self, mode: str, hostile: bool, max_cycles: int | None, host: HostTimes
    ) -> Callable[..., RunResult]:
        if mode not in MODES:
            raise SystolithError(f"mode {mode!r}: must be one of {', '.join(MODES)}")
        if mode == "full" and not hostile and max_cycles is None and host == ALL_THERE:
            return self.known.simulate
        return partial(
            simulate,
            self.program,
            self.client.chip,
            mode=mode,
            hostile=bool(hostile),
            max_cycles=max_cycles,
            host=host,
        )

    def _timed(
        self,
        target: Device,
        hostile: bool,
        max_cycles: int | None,
        decisions: Sequence[int] | None,
        host: HostTimes,
    ) -> list[Buffer]:
        """Start a run in mode `time`."""
        if hostile:
            raise SystolithError("hostile needs values, which mode time does not compute")
        cancelled = Event()

        def replayed() -> RunResult:
            try:
                return simulate(
                    self.program,
                    self.client.chip,
                    mode=TIME,
                    max_cycles=max_cycles,
                    decisions=decisions,
                    host=host,
                    cancelled=cancelled.is_set,
                )
            except TraceNeededError as error:
                raise SystolithError(f"{error} (decisions=run.decisions, of a run with values)") from None

        self._started(target, partial(self._simulated, replayed), cancelled)
        return []

    @cached_property
    def _interface(self) -> _Interface:
        return _Interface(self.program)

    def _refuse_shared(self, arguments: list[Buffer], donated: Collection[int]) -> None:
        for number in donated:
            for other, argument in enumerate(arguments):
                if argument is arguments[number] and other != number:
                    raise SystolithError(
                        f"{self.program.name}: arguments {number} and {other} are one buffer, and argument {number} is"
                        " donated: the program overwrites it; put the array twice"
                    )

    def _checked(self, device: Device, arguments: Sequence[Buffer | Array]) -> list[tuple[BufferDecl, Buffer | Array]]:
        """The arguments that the host gives, with what they are for; arrays filled up to their bounds.

        Raises:
            SystolithError: one is not of its parameter's shape and type, was deleted, or is on another device; or there
                are not as many as parameters.
        """
        declared = shown(self._interface.parameters)
        if len(arguments) != len(declared):
            raise SystolithError(f"{self.program.name} takes {len(declared)} arguments, got {len(arguments)}")
        found: list[tuple[BufferDecl, Buffer | Array]] = []
        for decl, given in zip(declared, arguments, strict=True):
            what = f"argument {decl.number} ({decl.name})"
            if not isinstance(given, Buffer):
                found.append((decl, filled(decl, given, what)))
                continue
            given.held()
            if given.device is not device:
                whose = "" if given.device in self.client.devices else "another client's "
                raise SystolithError(f"{what}: the buffer is on {whose}{given.device}, the run on {device}")
            if given.dtype.name != decl.dtype or given.shape != decl.dims:
                raise SystolithError(
                    f"{what}: the module takes {decl.dtype}{list(decl.dims)}, got {given.dtype}{list(given.shape)}"
                )
            found.append((decl, given))
        return found

    def _arguments(self, device: Device, arguments: tuple[Buffer | Array, ...]) -> list[Buffer]:
        taken: dict[int, Buffer] = {}
        for (decl, found), given in zip(self._checked(device, arguments), arguments, strict=True):
            if not isinstance(found, Buffer):
                taken[decl.number] = device.put(found)
                for number, size in sizes_of(decl, np.shape(given)).items():
                    taken[number] = device.put(np.asarray(size, np.int32))
                continue
            taken[decl.number] = found
            for d, number in enumerate(decl.sizes):
                beside = found.sizes[d] if found.sizes else None
                if number >= 0:
                    taken[number] = beside if beside is not None else device.put(np.asarray(decl.dims[d], np.int32))
        return [taken[d.number] for d in self._interface.parameters]

    def _run(
        self,
        simulated: Callable[..., RunResult],
        device: Device,
        held: list[Allocation],
        contents: list[Callable[[], Array]],
        results: list[Array],
        cancelled: Event,
    ) -> Run:
        """`held`: memory that is not to be given to others before the run ends."""
        failed = True
        try:
            states = self._states.setdefault(device.number, first_states(self.program))
            arguments = [wait() for wait in contents]
            self._look(cancelled, "before it began")
            bound = bind(self.program, arguments, results, states)
            setup = partial(device.attach_queues, look=partial(self._look, cancelled, "while it waited for the host"))
            run = self._simulated(partial(simulated, buffers=bound, setup=setup))
            failed = False
            return run
        finally:
            held.clear()  # the frames of an exception keep the list
            device.end_run(failed)

    def _look(self, cancelled: Event, when: str) -> None:
        if cancelled.is_set():
            raise CancelledRunError(f"{self.program.name}: the run was cancelled {when}")

    def _simulated(self, simulated: Callable[[], RunResult]) -> Run:
        started = perf_counter()
        result = simulated()
        result.outputs = []  # in buffers, whose memory may be freed before the run is forgotten
        bounds = self.compiled.bounds if self.compiled else None
        return Run(self.client.chip, self.program, result, perf_counter() - started, self.memory, bounds)

    def _started(self, device: Device, work: Callable[[], Run], cancelled: Event) -> Task[Run]:
        self._latest = self.client.latest = task = device.queue.submit(work, cancelled)
        started(task)
        return task


def load_for(devices: Devices, program: Program) -> Executable:
    """Load a compiled program for devices.

    Raises:
        SystolithError: it is for another chip, or breaks a rule of the instruction set.
    """
    verify_program(program, devices.chip)
    return Executable(devices, program)


def start(
    executable: Executable, target: Device, taken: list[Buffer], simulated: Callable[..., RunResult] | None = None
) -> tuple[list[Buffer], Task[Run]]:
    """Start a run on buffers that the caller knows to be right; otherwise as a call.

    Args:
        executable: what to run.
        target: a device of the client.
        taken: a buffer of the device for each parameter, of its type and shape.
        simulated: `simulate` with options; None: in mode `full`.
    """
    interface = executable._interface
    executable._refuse_shared(taken, interface.donated)
    with target.calling:
        fresh, scratch = _room(executable, target, taken)
        contents = [a.contents() for a in taken]
        held = [scratch, *(a.held() for a in taken), *(a.held() for a in fresh.values())]
        owner, shared = interface.owner, interface.shared
        for n in interface.donated.difference(shared.values()):
            taken[n].donate(owner, taken[n].dtype, taken[n].shape)
        results = [
            fresh[d.number]
            if d.number in fresh
            else taken[shared[d.number]].donate(interface.owners[d.number], dtype(d.dtype), d.dims)
            for d in interface.results
        ]
        memories = [r.raw() for r in results]
        simulated = simulated or executable.known.simulate
        cancelled = Event()
        work = partial(
            executable._run,
            partial(simulated, cancelled=cancelled.is_set),
            target,
            held,
            contents,
            memories,
            cancelled,
        )
        target.expect_run()
        task = executable._started(target, work, cancelled)
        for result in results:
            result.fill_by(task)
    return results, task


def _room(executable: Executable, target: Device, taken: list[Buffer]) -> tuple[dict[int, Buffer], Allocation]:
    """Memory for the results that have their own, by their numbers, and for what only the run needs.

    Raises:
        SystolithError: there is not enough, or an argument was deleted.
    """
    for argument in taken:
        argument.held()
    interface, fresh = executable._interface, dict[int, Buffer]()
    try:
        for d in interface.results:
            if d.number not in interface.shared:
                fresh[d.number] = allocate(target, dtype(d.dtype), d.dims, interface.owners[d.number])
        scratch = executable.memory.constants + executable.memory.temporaries
        return fresh, hold(target, scratch, interface.owner)
    except OutOfMemoryError:
        fresh.clear()  # at once: the traceback keeps what this function has
        raise
