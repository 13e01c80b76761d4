"""The job of `systolith run`: read, compile, simulate, compare, write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from systolith.compiler.memory.report import MemoryUse
from systolith.isa.chip import Chip, chip_file
from systolith.isa.dtypes import Kind, dtype
from systolith.isa.energy_table import with_energy
from systolith.isa.errors import SystolithError
from systolith.isa.files import require_apart, write_atomic
from systolith.isa.program import Program, Role
from systolith.isa.verify import verify_program
from systolith.runtime.arrays import Array, InputError, as_bits, conform, load_numbered, random_array
from systolith.runtime.inputs.sources import Source, elided_note, read_runnable
from systolith.runtime.jobs.compare import Difference, compare
from systolith.runtime.jobs.decisions import load_decisions, save_decisions
from systolith.runtime.jobs.feed_files import FeedFiles, write_outfeed
from systolith.runtime.jobs.what_if import Supposition, what_if
from systolith.runtime.memories import bind, numbered, result_memories
from systolith.runtime.records.record import Circumstances, run_record
from systolith.runtime.sized import arguments, cut, random_sizes, shown
from systolith.sim.sequencer import TraceNeededError
from systolith.sim.simulate import RunResult, simulate

if TYPE_CHECKING:  # the compiler takes long to import, and binaries do without it
    from systolith.compiler.bounds.bound import Bounds
    from systolith.compiler.driver import Compiled
    from systolith.compiler.explain import Decision
    from systolith.compiler.hlo.ir import Module
    from systolith.runtime.jobs.checks import Checker, CheckReport


@dataclass(frozen=True)
class Request:
    """A file to run, and how; the options of the command line.

    Attributes:
        path: the file: HLO, a binary or assembly.
        chip: on what: a configuration, or the name or file of one; None: the chip of a binary or assembly.
        changes: other values of fields of that chip (`systolith.isa.chip.variant`).
        default_chip: for a module where no chip is given.
        energy: a table of energies in place of the chip's (`systolith.isa.energy_table`).
    """

    path: Path
    chip: Chip | str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    default_chip: str = "tpu_v3"
    energy: Path | None = None
    args: Path | None = None
    random: int | None = None
    expect: Path | None = None
    out: Path | None = None
    infeed: Path | None = None
    host_times: Path | None = None
    outfeed: Path | None = None
    check: bool = False
    mode: str = "full"
    hostile: bool = False
    precision: str | None = None
    elided: str | None = None
    autotune: int = 0
    autotune_cache: Path | None = None
    plan: Path | None = None
    decisions: Path | None = None
    record_decisions: Path | None = None
    trace: Path | None = None
    report: Path | None = None
    max_cycles: int | None = None
    what_if: Sequence[Supposition] = ()

    @property
    def outputs(self) -> dict[str, Path | None]:
        """The files that are to be written, by option."""
        found = {"--out": self.out, "--outfeed": self.outfeed, "--record-decisions": self.record_decisions}
        return found | {"--trace": self.trace, "--report": self.report}

    @property
    def inputs(self) -> dict[str, Path | None]:
        """The files that are read, by option."""
        found = {"FILE": self.path, "--args": self.args, "--expect": self.expect, "--decisions": self.decisions}
        found |= {"--infeed": self.infeed, "--host-times": self.host_times}
        chip = chip_file(self.chip) if isinstance(self.chip, str) else None
        return found | {
            "--chip": chip,
            "--energy": self.energy,
            "--autotune-cache": self.autotune_cache,
            "--plan": self.plan,
        }

    def read(self) -> tuple[Source, Chip]:
        """The file and the chip.

        Raises:
            SystolithError: as for `read_runnable`, or options do not go together.
        """
        source, chip = read_runnable(self.path, self.chip, self.default_chip, self.changes)
        refuse_impossible(self, source)
        return source, with_energy(chip, self.energy) if self.energy else chip


@dataclass
class Outcome:
    """The outcome of a request."""

    request: Request
    program: Program
    result: RunResult
    compile_seconds: float
    simulate_seconds: float
    precision: str
    results: list[Array] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    check: CheckReport | None = None
    memory: MemoryUse | None = None
    note: str = ""
    explain: Sequence[Decision] = ()
    what_if: Sequence[dict[str, Any]] = ()
    bounds: Callable[[], Bounds] | None = None

    @property
    def failures(self) -> list[str]:
        """One line for each thing that is not as it should be; empty: all good."""
        lines = [str(d) for d in self.differences if not d.ok]
        lines += self.check.failures if self.check else []
        lines += [str(h) for h in self.result.hazards]
        return lines

    def record(self) -> dict[str, Any]:
        """The JSON object of the run."""
        check = self.check
        errors = [(d.max_abs, d.max_rel) for d in self.differences]
        errors += [(check.max_abs_error, check.max_rel_error)] if check else []
        about = Circumstances(
            source=str(self.request.path),
            precision=self.precision,
            hostile=self.request.hostile,
            compile_seconds=self.compile_seconds,
            simulate_seconds=self.simulate_seconds,
            groups=check.groups if check else 0,
            executions=check.executions if check else 0,
            unchecked=check.unchecked if check else 0,
            without_reference=check.without_reference if check else (),
            expected=len(self.differences),
            failures=self.failures,
            max_abs_error=max((a for a, _ in errors), default=None),
            max_rel_error=max((r for _, r in errors), default=None),
        )
        memory, bounds = self.memory or MemoryUse(self.program), self.bounds() if self.bounds else None
        return run_record(self.result, memory, about, bounds) | {"what_if": list(self.what_if)}


Stage = Callable[[str], None]


def run(request: Request, stage: Stage = lambda _: None) -> Outcome:
    """Carry out a request.

    Args:
        request: the one to carry out.
        stage: told the name of each stage as it begins, for progress.

    Raises:
        SystolithError: bad input.
    """
    require_apart(request.outputs, request.inputs)
    stage("reading")
    source, chip = request.read()
    stage("compiling")
    precision = effective_precision(source.module, request.precision)
    note = elided_note(source.module)
    started = perf_counter()
    compiled, program = to_program(request, source, chip, stage)
    compile_seconds = perf_counter() - started
    arguments = arguments_of(request, program)
    expected = load_numbered(request.expect, "out") if request.expect else []
    results = result_memories(program, arguments) if request.mode != "time" else []
    checker = _checker(program, compiled, request.precision) if request.check and compiled else None
    feeds = FeedFiles(request.infeed, request.host_times)
    stage("simulating")
    started = perf_counter()
    buffers = bind(program, arguments, results) if request.mode != "time" else None
    result = _simulate(request, program, chip, buffers, checker, feeds)
    outcome = Outcome(request, program, result, compile_seconds, perf_counter() - started, precision)
    feeds.check_taken()
    if request.what_if:
        stage("simulating what-if")
        outcome.what_if = what_if(result, request.what_if)
    stage("comparing")
    if request.mode != "time":
        outcome.results = _shaped(program, results)
    outcome.explain = compiled.explain if compiled else ()
    outcome.bounds = compiled.bounds if compiled else None
    outcome.memory, outcome.note = compiled.memory if compiled else None, note
    if checker:
        outcome.check = checker.report()
    if request.expect:
        outcome.differences = _differences(program, outcome.results, expected, precision)
    if request.out:
        named = {f"out{i}": as_bits(a) for i, a in enumerate(outcome.results)}
        write_atomic(request.out, lambda handle: np.savez(handle, allow_pickle=False, **named))
    sent = feeds.put_out()
    if request.outfeed:
        write_outfeed(request.outfeed, sent)
    elif sent:
        outcome.note = "\n".join(filter(None, (note, f"{len(sent)} arrays of the outfeed: --outfeed FILE keeps them")))
    if request.record_decisions:
        save_decisions(request.record_decisions, program, result.decisions)
    return outcome


def _checker(program: Program, compiled: Compiled, precision: str | None) -> Checker:
    from systolith.runtime.jobs.checks import Checker

    return Checker(program, compiled, precision)


def refuse_impossible(request: Request, source: Source) -> None:
    """Options that do not go together.

    Raises:
        SystolithError: naming them.
    """
    values, cycles = "values, which --mode time does not compute", "cycles, which --mode values does not compute"
    needs = [
        ("--check", request.check, "time", values),
        ("--expect", request.expect, "time", values),
        ("--out", request.out, "time", values),
        ("--infeed", request.infeed, "time", values),
        ("--outfeed", request.outfeed, "time", values),
        ("--hostile", request.hostile, "time", values),
        ("--record-decisions", request.record_decisions, "time", values),
        ("--host-times", request.host_times, "values", cycles),
        ("--trace", request.trace, "values", cycles),
        ("--report", request.report, "values", cycles),
        ("--what-if", request.what_if, "values", cycles),
        ("--energy", request.energy, "values", cycles),
    ]
    for option, given, mode, what in needs:
        if given and request.mode == mode:
            raise SystolithError(f"{option} needs {what}")
    if request.decisions and request.mode != "time":
        raise SystolithError(f"--decisions is for --mode time, not for --mode {request.mode}")
    if request.check and source.program is not None:
        raise SystolithError("--check needs the HLO module; a binary does not carry it: run the module instead")
    if request.precision and source.program is not None:
        raise SystolithError("--precision is decided when compiling; this is a binary")
    if request.elided and source.program is not None:
        raise SystolithError("--elided is for compiling; this is a binary")
    if request.autotune and source.program is not None:
        raise SystolithError("--autotune is for compiling; this is a binary")
    if request.args and request.random is not None:
        raise SystolithError("--args and --random exclude each other")


def _simulate(
    request: Request,
    program: Program,
    chip: Chip,
    buffers: dict[int, Array] | None,
    checker: Checker | None,
    feeds: FeedFiles,
) -> RunResult:
    decisions = load_decisions(request.decisions, program) if request.decisions else None
    try:
        return simulate(
            program,
            chip,
            buffers,
            mode=request.mode,
            hostile=request.hostile,
            decisions=decisions,
            observer=checker,
            setup=feeds.attach if request.mode != "time" else None,
            host=feeds.times,
            max_cycles=request.max_cycles,
        )
    except TraceNeededError as error:
        raise SystolithError(f"{error} (--record-decisions FILE, then --decisions FILE)") from None


def to_program(
    request: Request, source: Source, chip: Chip, stage: Stage = lambda _: None
) -> tuple[Compiled | None, Program]:
    """Compile the module, or check that the binary can run on the chip.

    Raises:
        SystolithError: it cannot be compiled, or not run there.
    """
    if source.module is not None:
        from systolith.compiler.driver import compile_module
        from systolith.compiler.options import Options
        from systolith.compiler.plan import read_plan
        from systolith.runtime.tuning import with_tuner

        options = Options(
            request.precision,
            elided="zeros" if request.mode == "time" else request.elided,
            autotune=request.autotune,
            autotune_cache=request.autotune_cache,
            plan=read_plan(request.plan) if request.plan else None,
        )
        compiled = compile_module(source.module, chip, with_tuner(options, chip, stage))
        return compiled, compiled.program
    if source.program is None:
        raise SystolithError(f"{request.path}: holds neither a module nor a program")
    verify_program(source.program, chip)
    return None, source.program


def arguments_of(request: Request, program: Program) -> list[Array]:
    """Parameter memories, uint8, in order.  In mode `time` a file of arguments is checked, and then left alone.

    Raises:
        InputError: they do not match the program's parameters.
    """
    declared = [d for _, d in numbered(program, Role.PARAMETER)]
    seen = shown(declared)
    if request.mode == "time" and not request.args:
        return []
    if request.args:
        given = load_numbered(request.args, "arg")
        if len(given) != len(seen):
            raise InputError(f"{request.args}: {len(given)} arguments, the module takes {len(seen)}")
    elif request.random is not None:
        rng = np.random.default_rng(request.random)
        given = [random_array(rng, dtype(d.dtype), random_sizes(rng, d)) for d in seen]
    elif seen:
        raise InputError(f"the module takes {len(seen)} arguments: give --args FILE.npz or --random SEED")
    else:
        given = []
    arrays = arguments(declared, given)
    if request.mode == "time":
        return []
    # A copy: the program may write to parameters that it returns in place.
    return [np.frombuffer(a.tobytes(), np.uint8).copy() for a in arrays]


def _shaped(program: Program, memories: list[Array]) -> list[Array]:
    declared = [d for _, d in numbered(program, Role.RESULT)]
    return cut(
        declared, [m.view(dtype(d.dtype).stored).reshape(d.dims) for m, d in zip(memories, declared, strict=True)]
    )


def effective_precision(module: Module | None, override: str | None) -> str:
    """The precision that end-to-end tolerances follow: the lowest of any floating-point operation of the module.

    A dot or convolution has the overriding precision, else its own.  Arithmetic in bf16, f16 or fp8 rounds
    every operation to 11 bits or fewer, whatever is asked for: it is held to `default`'s tolerance.  A binary (no
    module) too.
    """
    if module is None:
        return "default"
    from systolith.compiler.hlo.values.contraction import PRECISIONS, requested_precision

    found = {"highest"}
    for i in module.instructions():
        if not i.shape.is_array or i.shape.dtype.kind not in (Kind.FLOAT, Kind.COMPLEX) or i.opcode == "parameter":
            continue
        if i.shape.dtype.bits < 32:
            found.add("default")
        if i.opcode in ("dot", "convolution"):
            found.add(requested_precision(i, override))
    return min(found, key=PRECISIONS.index)


def _differences(program: Program, results: list[Array], expected: list[Array], precision: str) -> list[Difference]:
    declared = shown([d for _, d in numbered(program, Role.RESULT)])
    if len(expected) != len(declared):
        raise InputError(f"--expect holds {len(expected)} results, the module gives {len(declared)}")
    found = []
    for decl, got, want in zip(declared, results, expected, strict=True):
        element = dtype(decl.dtype)
        found.append(
            compare(
                decl.number,
                got,
                conform(want, element, got.shape, f"expected result {decl.number}"),
                element,
                precision,
            )
        )
    return found
