"""`systolith ops`: every operation of a module, how it will run, and every one that is not supported."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from systolith.runtime.commands.chip_options import chip_options
from systolith.runtime.commands.console import emit, progress, tell
from systolith.runtime.commands.exits import FAILED, GOOD

if TYPE_CHECKING:
    from systolith.compiler.driver import Compiled
    from systolith.compiler.hlo.ir import Instruction, Module
    from systolith.isa.chip import Chip


SHAPE = 40  # characters


@dataclass(frozen=True)
class Row:
    """An operation of the user's module.

    Attributes:
        name, opcode, shape: of the instruction.
        place: file and line; empty: not known.
        how: what becomes of it.
        group: the fusion group that it runs in, with its kind; empty: none.
        supported: whether it is not refused.
    """

    name: str
    opcode: str
    shape: str
    place: str
    how: str
    group: str = ""
    supported: bool = True


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@chip_options("tpu_v3", text="As for `run`.")
@click.option("--count", "counted", is_flag=True, help="A line for each opcode and way of running instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
def ops(file: Path, chip: str, changes: Mapping[str, str], counted: bool, as_json: bool) -> int:
    """List the operations of FILE, how each will run, and all that are not supported: exit 1 if there are any."""
    from systolith.isa.chip import load_chip
    from systolith.isa.errors import SystolithError
    from systolith.isa.files import json_text
    from systolith.runtime.inputs.sources import read_source

    target = load_chip(chip, changes)
    with progress(quiet=as_json) as stage:
        stage("reading")
        source = read_source(file)
        if source.module is None:
            raise SystolithError(
                f"{file}: is a binary; its operations are instructions already: list those of the module"
            )
        stage("compiling")
        rows, refusals = operations(source.module, target)
    if as_json:
        record = {"source": str(file), "chip": target.name, "ok": not refusals}
        emit(json_text({**record, "operations": [asdict(row) for row in rows], "refusals": refusals}))
        return FAILED if refusals else GOOD
    _print(rows, counted)
    for line in refusals:
        tell(f"not supported: {line}")
    emit(f"{len(rows)} operations, {len(refusals) or 'none'} not supported on {target.name}")
    return FAILED if refusals else GOOD


def operations(module: Module, chip: Chip) -> tuple[list[Row], list[str]]:
    """Every operation that runs, in the module's order, and a line for each that is refused.

    A pass refuses one operation at a time; so what is refused is replaced by a constant of its shape, and the module
    compiled again, until nothing more is refused.
    """
    from systolith.compiler.driver import Front
    from systolith.compiler.errors import CompileError
    from systolith.compiler.hlo.clone import clone
    from systolith.compiler.options import Options

    refusals: dict[str, str] = {}  # to the name of the instruction
    compiled: Compiled | None = None
    kept: set[str] = set()
    while True:
        trial = clone(module)
        _without(trial, {*refusals.values()})
        try:
            front = Front(trial)
            kept = {i.name for c in front.canonical.computations for i in c.instructions}
            compiled = front.compile(chip, Options(elided="zeros", probes=False))
            break
        except CompileError as problem:
            # The constant in place of a refused operation may be refused itself, for its type: that says nothing new.
            named = {line: _named(line) for line in problem.refusals}
            new = {line: name for line, name in named.items() if name not in refusals.values()}
            refusals |= new
            # Of a refusal that names no operation of the module there is nothing to take out.
            if not {*new.values()} & {i.name for i in running(module)}:
                break
    refused = {*refusals.values()}
    groups = {n: f"{g.name} ({g.kind})" for g in (compiled.program.groups if compiled else ()) for n in g.hlo}
    rows = [_row(i, kept, groups, i.name not in refused) for i in running(module)]
    return rows, list(refusals)


_NAMED = re.compile(r"^(?:\S+: )?[\w-]+ '([^']*)' \(")


def _named(refusal: str) -> str:
    """The instruction that a refusal is about (`compile_error`); the refusal itself if it is about none."""
    found = _NAMED.match(refusal)
    return found[1] if found else refusal


def _without(module: Module, refused: set[str]) -> None:
    """Make constants whose values are left out of refused operations."""
    for i in running(module):
        if i.name in refused and i.shape.is_array:
            i.opcode, i.operands, i.attributes, i.literal = "constant", [], {}, None


def running(module: Module) -> Iterator[Instruction]:
    """Instructions of the entry, and of what it calls or branches to; not those of what reductions or sorts apply."""
    waiting, seen = [module.entry], {module.entry}
    while waiting:
        computation = waiting.pop()
        for i in computation.instructions:
            yield i
            if i.opcode in INTO:
                inner = [c for c in i.called if c not in seen]
                seen.update(inner)
                waiting += inner


INTO = ("call", "fusion", "while", "conditional", "async-start")


def _row(i: Instruction, kept: set[str], groups: Mapping[str, str], supported: bool) -> Row:
    from systolith.compiler.ops.table import RUNNING, Family, info

    row = info(i)
    if not supported:
        how = "not supported"
    elif i.name in groups or row.family in (Family.GIVEN, Family.NAME) or (i.name in kept and row.family in RUNNING):
        how = row.family.name.lower()
    elif row.expander and row.compute is None:
        how = f"expanded by {row.expander}"
    else:
        how = row.family.name.lower() if i.name in kept else "simplified"
    return Row(i.name, i.opcode, str(i.shape), str(i.place or ""), how, groups.get(i.name, ""), supported)


MEANINGS = {
    "simplified": "computed at compile time, merged with others, or not needed",
    "not supported": "refused; the reasons follow",
}


def _print(rows: list[Row], counted: bool) -> None:
    from systolith.compiler.ops.table import Family
    from systolith.reports.svg import shorten

    lines: list[tuple[str, ...]]
    if counted:
        number = Counter((row.opcode, row.how) for row in rows)
        lines = [(f"{n:,}", opcode, how) for (opcode, how), n in number.most_common()]
    else:
        lines = [(row.name, row.opcode, row.how, shorten(row.shape, SHAPE), row.group) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        emit("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    meanings = {f.name.lower(): f.value for f in Family} | MEANINGS
    emit("")
    for how in dict.fromkeys(row.how for row in rows if row.how in meanings):
        emit(f"{how}: {meanings[how]}")
