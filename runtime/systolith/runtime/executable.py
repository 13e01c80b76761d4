"""Compiled programs, and running them on devices."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from math import prod
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from systolith.compiler.driver import Compiled
from systolith.isa.chip import Chip
from systolith.isa.dtypes import dtype
from systolith.isa.errors import SystolithError
from systolith.isa.program import BufferDecl, Program, Role
from systolith.runtime.arrays import Array, conform
from systolith.runtime.buffer import Buffer
from systolith.runtime.hbm import Range
from systolith.runtime.record import Circumstances, run_record
from systolith.sim.simulate import RunResult, simulate

if TYPE_CHECKING:
    from systolith.runtime.client import Client, Device

ASSEMBLY = "program.s"


@dataclass(frozen=True)
class MemoryUse:
    """What a program needs of a device, in bytes."""

    parameters: int
    results: int
    constants: int
    temporaries: int
    vmem: int
    code: int

    @property
    def hbm(self) -> int:
        """HBM while it runs."""
        return self.parameters + self.results + self.constants + self.temporaries


def memory_use(program: Program) -> MemoryUse:
    """Sums over the buffer table; aliases are counted once."""
    total = dict.fromkeys(Role, 0)
    for b in program.buffers:
        if b.alias < 0:
            total[b.role] += b.bytes
    return MemoryUse(
        total[Role.PARAMETER],
        total[Role.RESULT],
        total[Role.CONSTANT],
        total[Role.TEMP],
        program.vmem_high_water,
        len(program.code),
    )


@dataclass
class Run:
    """One run of an executable.

    Attributes:
        result: what the simulator measured.
        wall_seconds: host seconds of the simulation.
    """

    chip: Chip
    program: Program
    result: RunResult
    wall_seconds: float

    @property
    def cycles(self) -> int | None:
        """Simulated cycles; None of a run in mode `values`."""
        return self.result.cycles

    @property
    def trace(self) -> dict[str, object]:
        """Chrome trace events, as Perfetto opens them."""
        from systolith.sim.chrome import chrome_trace

        return chrome_trace(self.result)

    def report(self, path: str | Path) -> Path:
        """Write the HTML report of this run."""
        from systolith.reports.html import write_report

        return write_report(self.record(), path)

    def record(self) -> dict[str, Any]:
        """The JSON object of the run, as `systolith run --json` prints it."""
        return run_record(self.result, Circumstances(simulate_seconds=self.wall_seconds))


def numbered(program: Program, role: Role) -> list[tuple[int, BufferDecl]]:
    """(buffer-table entry, declaration) of a role's buffers, by their number."""
    found = [(i, b) for i, b in enumerate(program.buffers) if b.role is role]
    return sorted(found, key=lambda item: item[1].number)


def bind(program: Program, parameters: list[Array], results: list[Array]) -> dict[int, Array]:
    """The memory of every buffer-table entry, as uint8: what a run reads and writes.

    Args:
        program: the program.
        parameters, results: uint8 arrays in number order, used in place.
    """
    bound: dict[int, Array] = {}
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
        program: the binary's contents.
        memory: what it needs of a device.
        last_run: the latest finished run; None before the first.
    """

    def __init__(self, client: Client, program: Program, compiled: Compiled | None = None) -> None:
        self.client = client
        self.program = program
        self.compiled = compiled
        self.memory = memory_use(program)
        self._latest: Future[Run] | None = None

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

    def __call__(
        self, *arguments: Buffer | Array, device: int = 0, mode: str = "full", hostile: bool = False
    ) -> list[Buffer]:
        """Run on a device.

        Args:
            arguments: a buffer of that device, or a numpy array (put there for the run), for each parameter.
            device: which device.
            mode: "full" (values and cycles) or "values" (no cycles).
            hostile: memory starts as poison, races are reported.

        Raises:
            InputError: the arguments are not what the program takes.
        """
        target = self.client.devices[device]
        taken = self._arguments(target, arguments)
        results = [target.empty(dtype(d.dtype), d.dims) for _, d in numbered(self.program, Role.RESULT)]
        scratch = target.hbm.allocate(self.memory.constants + self.memory.temporaries)
        future = target.queue.submit(self._run, target, taken, results, scratch, mode, hostile)
        for result in results:
            result.fill_by(future)
        self._latest = future
        return results

    def _arguments(self, device: Device, arguments: tuple[Buffer | Array, ...]) -> list[Buffer]:
        declared = [d for _, d in numbered(self.program, Role.PARAMETER)]
        if len(arguments) != len(declared):
            raise SystolithError(f"{self.program.name} takes {len(declared)} arguments, got {len(arguments)}")
        taken: list[Buffer] = []
        for decl, given in zip(declared, arguments, strict=True):
            what = f"argument {decl.number} ({decl.name})"
            if not isinstance(given, Buffer):
                taken.append(device.put(conform(given, dtype(decl.dtype), decl.dims, what)))
                continue
            if given.device is not device:
                raise SystolithError(f"{what}: the buffer is on {given.device}, the run on {device}")
            if given.dtype.name != decl.dtype or given.shape != decl.dims:
                raise SystolithError(
                    f"{what}: the module takes {decl.dtype}{list(decl.dims)}, got {given.dtype}{list(given.shape)}"
                )
            taken.append(given)
        return taken

    def _run(
        self, device: Device, arguments: list[Buffer], results: list[Buffer], scratch: Range, mode: str, hostile: bool
    ) -> Run:
        try:
            parameters = [a.block().raw() for a in arguments]
            bound = bind(self.program, parameters, [r.raw() for r in results])
            started = perf_counter()
            result = simulate(
                self.program, self.client.chip, bound, mode=mode, hostile=hostile, setup=device.attach_queues
            )
            return Run(self.client.chip, self.program, result, perf_counter() - started)
        finally:
            device.hbm.release(scratch)


def bytes_of(decl: BufferDecl) -> int:
    """Bytes of a declared array's elements."""
    return prod(decl.dims) * dtype(decl.dtype).size
