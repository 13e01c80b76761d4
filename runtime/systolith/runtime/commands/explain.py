"""`systolith explain`: the compiler's choices and rejected alternatives, with their estimated cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from systolith.runtime.commands.chip_options import chip_options
from systolith.runtime.commands.console import emit, output_console, progress, tell
from systolith.runtime.commands.options import FILE
from systolith.runtime.commands.refusals import listing_refusals

if TYPE_CHECKING:
    from rich.console import RenderableType

    from systolith.compiler.driver import Compiled
    from systolith.compiler.explain import Decision
    from systolith.isa.chip import Chip


def autotuning(command: Any) -> Any:
    """The options of commands that compile and can autotune."""
    cache = click.option(
        "--autotune-cache", type=FILE, help="Remember what won there, not in ~/.cache/systolith/autotune.json."
    )
    count = click.option(
        "--autotune",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Try the N best tile plans of each dot and convolution, and sizes of blocks, in the simulator.",
    )
    plan = click.option(
        "--plan",
        type=FILE,
        help="Take tiles, blocks and loops from this file: what `explain --json` printed, perhaps changed.",
    )
    return plan(count(cache(command)))


def tell_unmet(decisions: Iterable[Decision]) -> None:
    """Report the parts of a plan that were not taken from it."""
    for d in decisions:
        if d.kind == "plan":
            tell(f"--plan: {d.lines()[0]}")


@click.command()
@click.argument("file", type=FILE)
@chip_options("tpu_v3", text="As for `run`.")
@click.option("--precision", type=click.Choice(["default", "high", "highest"]), help="As for `run`.")
@click.option("--group", metavar="NAME", help="Everything about this group only.")
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Groups to print, the slowest.")
@click.option("--simulate/--no-simulate", default=True, help="Time it in the simulator, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout: every group and decision.")
@autotuning
@listing_refusals
def explain(
    file: Path,
    chip: str,
    changes: Mapping[str, str],
    group: str | None,
    top: int,
    simulate: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Say what the compiler made of FILE: groups, tiles, blocks, memory, and the cycles it expects of each."""
    from systolith.compiler.driver import compile_module
    from systolith.compiler.options import Options
    from systolith.compiler.plan import read_plan
    from systolith.isa.chip import load_chip
    from systolith.isa.errors import SystolithError
    from systolith.isa.files import json_text
    from systolith.runtime.inputs.sources import elided_note, read_source
    from systolith.runtime.tuning import with_tuner

    target = load_chip(chip, changes)
    with progress(quiet=as_json) as stage:
        stage("reading")
        source = read_source(file)
        if source.module is None:
            raise SystolithError(f"{file}: is a binary; what the compiler decided is not in it: explain the module")
        stage("compiling")
        note = elided_note(source.module)
        options["plan"] = read_plan(options["plan"]) if options["plan"] else None
        wanted = Options(elided="zeros", **options)
        compiled = compile_module(source.module, target, with_tuner(wanted, target, stage))
        stage("simulating")
        record = explanation(compiled, target, simulate)
    if note:
        tell(note)
    tell_unmet(compiled.explain)
    record["source"] = str(file)
    if group is not None:
        record["groups"] = [g for g in record["groups"] if g["name"] == group]
        if not record["groups"]:
            raise SystolithError(f"no group {group!r}; `explain --json` lists their names")
    if as_json:
        emit(json_text(record))
        return
    console = output_console()
    for item in rendered(record, top):
        console.print(item, highlight=False, soft_wrap=True)


def explanation(compiled: Compiled, chip: Chip, simulate: bool) -> dict[str, Any]:
    """Decisions and expected cycles, as JSON values: of the module, and of each group, the slowest first.

    Cycles of a group: `planned` (when tiles were chosen), `predicted` (from the code), `simulated` (None: it was not;
    else the cycles in which the run waited for it).  All executions together.
    """
    from systolith.compiler.schedule.predict import predict
    from systolith.sim.sequencer import TraceNeededError
    from systolith.sim.simulate import simulate as run

    program = compiled.program
    predictions = predict(program, chip)
    simulated: dict[str, int] = {}
    total = None
    note = ""
    if simulate:
        try:
            result = run(program, chip, mode="time")
            total, simulated = result.cycles, {g["name"]: g["cycles"] for g in result.groups()}
        except TraceNeededError:
            note = "control depends on data, so that cycles cannot be simulated without it"
    groups = []
    for info in program.groups:
        p = predictions.get(info.name)
        groups.append(
            {
                "name": info.name,
                "kind": info.kind,
                "op_name": info.places[0][1] if info.places else "",
                "source": info.places[0][2] if info.places else "",
                "executions": info.executions,
                "planned": info.planned or None,
                "predicted": info.predicted,
                "simulated": simulated.get(info.name, 0) if total is not None else None,
                "bound": p.bound if p else "",
                "work": dict(p.work) if p else {},
                "decisions": [d.to_json() for d in compiled.explain if d.group == info.name],
            }
        )
    names = {g["name"] for g in groups}
    return {
        "program": program.name,
        "chip": program.chip,
        "cycles": total,
        "predicted": sum(g.predicted for g in program.groups),
        "note": note,
        "decisions": [d.to_json() for d in compiled.explain if d.group not in names],
        "groups": sorted(groups, key=lambda g: -(g["simulated"] or g["predicted"])),
    }


def rendered(record: dict[str, Any], top: int) -> list[RenderableType]:
    """A summary, a table of the slowest groups, and the decisions about each of them."""
    from rich.table import Table
    from rich.text import Text

    groups = record["groups"]
    shown = groups[:top]
    cycles = "" if record["cycles"] is None else f"{record['cycles']:,} cycles simulated, "
    head = f"{record['program']} on {record['chip']}: {cycles}{record['predicted']:,} predicted; {len(groups)} groups"
    table = Table(box=None, pad_edge=False)
    for heading in ("group", "kind", "bound by"):
        table.add_column(heading, overflow="fold")
    for heading in ("planned", "predicted", "simulated", "predicted/simulated"):
        table.add_column(heading, justify="right")
    for g in shown:
        ratio = f"{g['predicted'] / g['simulated']:.2f}" if g["simulated"] else ""
        counts = ("" if g[k] is None else f"{g[k]:,}" for k in ("planned", "predicted", "simulated"))
        table.add_row(g["name"], g["kind"], g["bound"], *counts, ratio)
    made = ((g["name"], ", ".join(filter(None, (g["op_name"], g["source"])))) for g in shown)
    places = [Text(f"{name}: made by {by}") for name, by in made if by]
    lines = decision_lines([*record["decisions"], *(d for g in shown for d in g["decisions"])])
    rest = [Text(f"and {len(groups) - top} groups more: --top, --group")] if len(groups) > top else []
    notes = [Text(record["note"])] if record["note"] else []
    return [Text(head), *notes, table, *rest, *places, Text(""), Text("\n".join(lines))]


def decision_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Decisions in their JSON form as lines of text."""
    from systolith.compiler.explain import Alternative, Decision

    found = [Decision(**{**row, "rejected": tuple(Alternative(**r) for r in row["rejected"])}) for row in rows]
    return [line for d in found for line in d.lines()]
