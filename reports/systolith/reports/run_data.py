"""The schema of a record, version 1: the JSON object that `systolith run --json` prints and every report reads.

Cycles, bytes and counts are whole numbers; fractions are 0 to 1; seconds are floats.  An error that is infinite, or no
number, is the string "Infinity" or "NaN": JSON has no such numbers.  Unknown keys are ignored, so that
a newer writer can say more.  Optional fields may be absent: the report then says that the run has no such record.

Rules that are checked on load: a unit's causes add up to `cycles`; the groups' cycles add up to at most `cycles`; the
lists of a timeline are as long as its parts.

The simulator's measurements come from `systolith.sim.stats.RunResult.to_json`; the command line adds the circumstances
of the run, and the checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from systolith.isa.errors import SystolithError
from systolith.isa.files import parse_json, read_bytes
from systolith.isa.printable import printable, title
from systolith.reports.record_energy import Energy
from systolith.reports.record_model import Amount, Count, Error, Flag, Label, Model, Value
from systolith.reports.record_version import VERSION

if TYPE_CHECKING:  # it takes long to import, and the records of this process are not checked
    from pydantic import TypeAdapter

BUSY = "busy"
M = TypeVar("M", bound="Model")


class RunDataError(SystolithError):
    """A run's JSON breaks the schema: file, field, value, the expected type or range."""


@dataclass(frozen=True, kw_only=True)
class WallSeconds(Model):
    """Host time of the run, in seconds; None: that step was not done.

    Attributes:
        compile: from the module to the program.
        simulate: the run.
    """

    compile: Amount | None = None
    simulate: Amount | None = None


@dataclass(frozen=True, kw_only=True)
class HbmBytes(Model):
    """Bytes moved between HBM and the core, rounded up to the granule as the memory moves them.

    Attributes:
        read: from HBM.
        written: to HBM.
    """

    read: Count
    written: Count


@dataclass(frozen=True, kw_only=True)
class ChipRow(Model):
    """One parameter of the chip: a row of `systolith.isa.chip.describe`.

    Attributes:
        field: dotted name.
        value: its value.
        unit: of the value; empty for plain numbers.
        provenance: published, inferred or invented.
        source: of the value.
        text: its meaning.
    """

    field: Label
    value: Value
    unit: Label = ""
    provenance: Label = "invented"
    source: Label = ""
    text: Label = ""


@dataclass(frozen=True, kw_only=True)
class Bound(Model):
    """Cycles that work takes at least on the chip, by unit, all executions; from canonical HLO and the chip alone.

    Attributes:
        mxu: of the matrix units together, K and the other dimension of the stationary operand in whole tiles, none of
            which is replaced before the next one has been loaded.
        alu, trans: of the vector unit's arithmetic and transcendental slots.
        hbm: of the run's arguments and results once, and of values that have to leave VMEM, at HBM's bandwidth; of
            parts of the run, of their inputs and outputs once, as far as they were moved.
    """

    mxu: Amount = 0
    alu: Amount = 0
    trans: Amount = 0
    hbm: Amount = 0


@dataclass(frozen=True, kw_only=True)
class Cost(Model):
    """Costs of the instructions of one origin: an HLO instruction, or a fusion group.

    Attributes:
        name: of the HLO instruction or the group; empty for instructions that belong to none.
        cycles: cycles of the run in which one of its instructions was the oldest, in program order, that had not
            retired.  So overlapped cycles are not counted twice, and these add up over the run.
        busy: occupied cycles by queue.
        instructions: executed.
        macs: useful multiply-accumulates, all executions.
        hbm_bytes: bytes that its transfers moved.
        first_start, last_retire: cycles.
        stalls: by queue and cause, cycles that its instructions waited at the head of the queue; may be absent.
        op_name, source: the operation and the line of the user's program, where the HLO's metadata has them.
        bound: the least cycles of it; None: the record does not say (of a binary none does).
    """

    name: Label
    cycles: Count = 0
    busy: dict[Label, Count] = field(default_factory=dict)
    instructions: Count = 0
    macs: Count = 0
    hbm_bytes: HbmBytes = HbmBytes(read=0, written=0)
    first_start: Count = 0
    last_retire: Count = 0
    stalls: dict[Label, dict[Label, Count]] = field(default_factory=dict)
    op_name: Label = ""
    source: Label = ""
    bound: Bound | None = None

    @property
    def title(self) -> str:
        """Name for people: of the user's program, then of the HLO."""
        return title(self.name or "(no group)", self.op_name, self.subject)

    @property
    def subject(self) -> str:
        """The HLO instruction that it is about, if another than its name says."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Group(Cost):
    """A fusion group.

    Attributes:
        kind: of the `fusion` instruction, XLA's word.
        hlo, opcodes: the HLO instructions in it.
        flops, transcendentals, bytes: of one execution, as XLA counts them; bytes are its inputs and outputs once.
        executions: how often it ran.
        planned, predicted: cycles of all executions, as the compiler estimated them to choose tiles, and by closed
            forms of the code; 0: it did not.
        root: the HLO instruction that most of its work is for, a product or reduction; empty: none.
    """

    kind: Label = ""
    hlo: tuple[Label, ...] = ()
    opcodes: tuple[Label, ...] = ()
    flops: Count = 0
    transcendentals: Count = 0
    bytes: Count = 0
    executions: Count = 1
    planned: Count = 0
    predicted: Count = 0
    root: Label = ""

    @property
    def subject(self) -> str:
        return self.root


@dataclass(frozen=True, kw_only=True)
class Timeline(Model):
    """The run in parts: `edges` in cycles, one more than there are parts.

    Attributes:
        edges: cycles; from 0 to the end of the run.
        read, written: HBM bytes in each part.
        busy: by queue, occupied cycles in each part.
        vmem, hbm: bytes held at most in each part; empty where the compiler's plan is not known (binaries).
    """

    edges: list[Count] = field(default_factory=list)
    read: list[Amount] = field(default_factory=list)
    written: list[Amount] = field(default_factory=list)
    busy: dict[Label, list[Amount]] = field(default_factory=dict)
    vmem: list[Count] = field(default_factory=list)
    hbm: list[Count] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Checks(Model):
    """Checks that were made besides running.

    Attributes:
        groups, executions: fusion groups compared with the reference evaluator, and how often they ran.
        unchecked: elements without a known bound of their error.
        without_reference: targets of custom calls that were not checked: their routines have no reference.
        expected: results compared with given ones.
        failures: one line each.
    """

    groups: Count = 0
    executions: Count = 0
    unchecked: Count = 0
    without_reference: list[Label] = field(default_factory=list)
    expected: Count = 0
    failures: list[Label] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class WhatIf(Model):
    """The same program under other times of the chip.

    Attributes:
        name: what was supposed.
        changes: fields of the chip and their values.
        cycles, seconds: simulated.
    """

    name: Label
    changes: dict[Label, Label] = field(default_factory=dict)
    cycles: Count
    seconds: Amount


@dataclass(frozen=True, kw_only=True)
class Memory(Model):
    """Memory of the program, in bytes; absent parts are 0.

    Attributes:
        parameters, results, constants, temporaries: buffers in HBM that have memory of their own.
        aliased: results made in the memory of parameters.
        temporaries_unshared: the temporaries if none shared memory.
        hosted: temporaries in the memory of parameters or results.
        remade: saved at peaks because values are computed again.
        remade_cycles: its cost, estimated (cycles).
        vmem: high-water mark.
        vmem_peak: at the moment when most is alive, by the group that writes it.
        instructions: of the program (a count).
    """

    parameters: Count = 0
    results: Count = 0
    aliased: Count = 0
    constants: Count = 0
    temporaries: Count = 0
    temporaries_unshared: Count = 0
    hosted: Count = 0
    remade: Count = 0
    remade_cycles: Count = 0
    vmem: Count = 0
    vmem_peak: dict[Label, Count] = field(default_factory=dict)
    instructions: Count = 0


@dataclass(frozen=True, kw_only=True)
class RunData(Model):
    """A run.

    Attributes:
        schema_version: of this schema; it grows when a key changes its meaning or goes, not when one comes.
        ok: no check failed and no race was found.
        program: name of the module.
        source: file of the module.
        command: command line that repeats the run.
        mode: full, time or values.
        precision: of dots and convolutions.
        hostile: memory started as NaNs, and races were looked for.
        chip, chip_digest, chip_parameters: the chip that it ran on: name, digest of its configuration, its fields.
        cycles, seconds: simulated time; None in mode `values`.
        bound: the least cycles of any program of the module; None: the record does not say (of a binary none does).
        launch: cycles that the call of the program takes beside `cycles` (`host.launch`); None: it is not known.
        host_held: by config of the infeed queues whose times were given, the default one empty: cycles in which the
            host had bytes to send and the queue was full.
        wall_seconds: host time.
        macs: useful multiply-accumulates.
        mxu_utilization: useful MACs over the peak of all MXUs during the run; None without cycles.
        groups: fusion groups, in order of cycles.
        ops: HLO instructions, the 100 of most cycles.
        timeline: the run in parts of equal length.
        checks: made besides running.
        array_active: by stream queue, cycles in which rows enter the array.
        hbm_bytes: totals, granules counted whole.
        instructions: executed.
        units: queue to cause (`systolith.sim.causes`) to cycles.
        hbm_allocated: bytes by role: parameter, result, constant, temp.
        memory: use of HBM and VMEM, in detail.
        energy: None: the chip has no energies, or the run no cycles.
        vmem_high_water: bytes.
        accumulator_rows: by MXU, the highest row used; may be absent.
        hazards: races found, one line each; only mode hostile looks for them.
        what_if: the same program under other times.
        max_abs_error, max_rel_error: against the evaluator or the given results; None: nothing was compared.
    """

    schema_version: Literal[1] = 1
    ok: Flag
    program: Label = ""
    source: Label = ""
    command: Label = ""
    mode: Label = "full"
    precision: Label | None = None
    hostile: Flag = False
    chip: Label
    chip_digest: Label = ""
    chip_parameters: list[ChipRow] = field(default_factory=list)
    cycles: Count | None
    seconds: Amount | None
    bound: Bound | None = None
    launch: Count | None = None
    host_held: dict[Label, Count] = field(default_factory=dict)
    wall_seconds: WallSeconds = WallSeconds()
    macs: Count = 0
    mxu_utilization: Amount | None = None
    array_active: dict[Label, Count] = field(default_factory=dict)
    hbm_bytes: HbmBytes
    instructions: Count
    units: dict[Label, dict[Label, Count]]
    groups: list[Group] = field(default_factory=list)
    ops: list[Cost] = field(default_factory=list)
    timeline: Timeline = Timeline()
    hbm_allocated: dict[Label, Count] = field(default_factory=dict)
    memory: Memory = Memory()
    energy: Energy | None = None
    vmem_high_water: Count = 0
    accumulator_rows: dict[Label, Count] = field(default_factory=dict)
    hazards: list[Label] = field(default_factory=list)
    checks: Checks = Checks()
    what_if: list[WhatIf] = field(default_factory=list)
    max_abs_error: Error | None = None
    max_rel_error: Error | None = None

    @property
    def total(self) -> int:
        """Cycles of a timed run (`timed` has been called)."""
        return self.cycles or 0

    @property
    def title(self) -> str:
        """Name for headings: the module, else the file it came from."""
        return self.program or self.source or "run"


def from_json(raw: Mapping[str, Any], source: str = "run") -> RunData:
    """The run that a JSON object describes.

    Args:
        raw: the object.
        source: file name, for messages.

    Raises:
        RunDataError: it breaks the schema.
    """
    if (version := raw.get("schema_version", VERSION)) != VERSION:
        raise RunDataError(f"{source}: schema_version = {short(version)}: this systolith reads version {VERSION} only")
    from pydantic import ValidationError

    try:
        run = _reader().validate_python(dict(raw))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        value = "" if first["type"] == "missing" else f" = {short(first['input'])}"
        raise RunDataError(f"{source}: {where}{value}: {first['msg'].lower()}") from None
    _check_sums(run, source)
    return run


@cache
def _reader() -> TypeAdapter[RunData]:
    from pydantic import TypeAdapter

    return TypeAdapter(RunData)


def of_record(raw: Mapping[str, Any]) -> RunData:
    """The run of a record that this process made, whose rules need no check, so that pydantic is not imported."""
    return _object(RunData, raw)


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _object(kind: type[M], raw: Mapping[str, Any]) -> M:
    types = _types(kind)  # type: ignore[arg-type]  # classes are hashable
    return kind(**{name: _part(of, raw[name]) for name, of in types.items() if name in raw})


def _part(of: Any, value: Any) -> Any:
    """A value of a type, as `_reader` gives it: objects of the schema, printable labels."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        model = next((t for t in (of, *get_args(of)) if isinstance(t, type) and issubclass(t, Model)), None)
        return _object(model, value) if model else {printable(k): _part(get_args(of)[1], v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        of, kind = get_args(of)[0], get_origin(of)
        return kind(value if of in (int, float) else [_part(of, v) for v in value])
    return value


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a record, every key described."""
    schema = _reader().json_schema(mode="validation")
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"systolith record, version {VERSION}"}
    return schema | about


def load_run(path: str | Path) -> RunData:
    """Read a file that `systolith run --json` wrote.

    Raises:
        RunDataError: it cannot be read, is not JSON, or breaks the schema.
    """
    raw = parse_json(read_bytes(path, RunDataError), path, RunDataError)
    if not isinstance(raw, dict):
        raise RunDataError(f"{path}: not a JSON object, but {short(raw)}")
    return from_json(raw, str(path))


def timed(run: RunData | Mapping[str, Any], source: str = "run") -> RunData:
    """The run as RunData, if it has cycles to report on.

    Raises:
        RunDataError: it breaks the schema, or ran without time.
    """
    data = run if isinstance(run, RunData) else from_json(run, source)
    if not data.cycles:
        raise RunDataError(
            f"{source}: cycles = {data.cycles}: a report needs a run in mode full or time, not {data.mode}"
        )
    return data


def _check_sums(run: RunData, source: str) -> None:
    if run.cycles is None:
        return
    for unit, causes in run.units.items():
        if sum(causes.values()) != run.cycles:
            raise RunDataError(
                f"{source}: units.{unit}: causes add up to {sum(causes.values())}, but cycles = {run.cycles}"
            )
    charged = sum(group.cycles for group in run.groups)
    if charged > run.cycles:
        raise RunDataError(f"{source}: groups: cycles add up to {charged}, more than cycles = {run.cycles}")
    time = run.timeline
    held = {name: series for name, series in (("vmem", time.vmem), ("hbm", time.hbm)) if series}
    lengths = {name: len(s) for name, s in {"read": time.read, "written": time.written, **time.busy}.items()}
    for name, length in (lengths | {name: len(s) for name, s in held.items()}).items():
        if length != max(0, len(time.edges) - 1):
            raise RunDataError(f"{source}: timeline.{name}: {length} parts, but {len(time.edges)} edges")


def short(value: object) -> str:
    """A value for a message; long ones are cut."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integer of over 4300 digits
        text = "an integer of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
