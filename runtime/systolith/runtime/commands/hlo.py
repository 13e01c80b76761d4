"""Commands on HLO modules that need no chip: `opt` runs passes, `cost` counts operations and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from systolith.runtime.commands.chip_options import chip_options, chosen, named_file
from systolith.runtime.commands.console import emit, output_console, tell
from systolith.runtime.commands.exits import FAILED, GOOD
from systolith.runtime.commands.options import FILE

if TYPE_CHECKING:
    from systolith.compiler.hlo.cost.rows import Row
    from systolith.compiler.hlo.ir import Module
    from systolith.compiler.pass_table import Form
    from systolith.isa.chip import Chip


@click.command()
@click.argument("file", type=FILE, required=False)
@click.option("--passes", "names", default="", help="Names, separated by commas; run in this order.")
@chip_options(text="Preset name or chip TOML file, for passes that are for a chip.")
@click.option("-o", "--output", type=FILE, help="Write the module there, not to stdout.")
@click.option("--list", "as_list", is_flag=True, help="List the passes and what they do.")
@click.option(
    "--check",
    type=click.IntRange(min=1),
    metavar="N",
    help="Evaluate before and after on N random inputs; exit code 1 if results differ by more than rounding.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of --check.")
@click.option(
    "--max-iterations",
    type=click.IntRange(min=1),
    metavar="N",
    help="Give up an evaluation of --check whose loops take more iterations, and name them.  [default: no limit]",
)
def opt(
    file: Path | None,
    names: str,
    chip: str | None,
    changes: Mapping[str, str],
    output: Path | None,
    as_list: bool,
    check: int | None,
    seed: int,
    max_iterations: int | None,
) -> int:
    """Run passes on FILE, and print what comes of it: HLO text or HloModuleProto, or tile IR for a pass on that.

    `-` is stdin.  Options of a pass stand in braces: `--passes 'prefetch{bytes=4096},emit'`.
    """
    from systolith.compiler.hlo.clone import clone
    from systolith.compiler.pass_table import PRINTERS, Form, read_passes, run_steps
    from systolith.isa.errors import SystolithError
    from systolith.isa.files import require_apart, text_fill, write_atomic

    if as_list:
        _list_passes()
        return GOOD
    if file is None:
        raise SystolithError("opt needs a FILE, or `-` for stdin (`--list` lists the passes)")
    steps = read_passes(names)
    require_apart({"-o": output}, {"FILE": file} | named_file(chip))
    if check and any(step.of.gives not in (Form.HLO, Form.GROUPED) for step in steps):
        raise SystolithError("--check evaluates HLO before and after: these passes give something else")
    given = _read(file, steps[0].of.takes if steps else Form.HLO)
    before = clone(given) if check else None
    made, form = run_steps(given, steps, chosen(chip, changes))
    text = PRINTERS[form](made)
    if output is None:
        emit(text, newline=False)
    else:
        write_atomic(output, text_fill(text))
    if before is not None and check is not None:
        return _check(before, made, check, seed, max_iterations)
    return GOOD


def _list_passes() -> None:
    from systolith.compiler.pass_table import Form, table

    passes = table().values()
    width = max(len(p.name) for p in passes)
    for p in passes:
        forms = f"{p.takes}: " if p.takes is p.gives is not Form.HLO else ""
        forms = f"{p.takes} to {p.gives}: " if p.takes is not p.gives else forms
        options = "".join(f" {name}={value}" for name, value in p.options.items())
        emit(f"{p.name:{width}}  {forms}{p.summary}{f' [{options.strip()}]' if options else ''}")


def _read(path: Path, form: Form) -> Any:
    """The input of a pass, from a file."""
    from systolith.compiler.pass_table import Form
    from systolith.compiler.tile.parser import parse_tile_ir
    from systolith.runtime.inputs.sources import read_given

    return parse_tile_ir(read_given(path), str(path)) if form is Form.TILE else read_module(path)


def _check(before: Module, after: Module, count: int, seed: int, max_iterations: int | None) -> int:
    """Compare results of both on random inputs, and name the first difference; the exit code."""
    from systolith.runtime.jobs.pass_check import compare_modules

    result = compare_modules(before, after, count, seed, max_iterations)
    if result.difference is not None:
        tell(f"check failed: {result.difference}")
        return FAILED
    tell(f"{count} random inputs: {result.same} of {result.results} results the same to the bit")
    return GOOD


def read_module(path: Path) -> Module:
    """The module of a file, or of stdin for `-`.

    Raises:
        SystolithError: it is no module.
    """
    from systolith.isa.errors import SystolithError
    from systolith.runtime.inputs.sources import read_source

    source = read_source(path)
    if source.module is None:
        raise SystolithError(f"{path}: is a binary; this takes HLO text or an HloModuleProto")
    return source.module


@click.command()
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
@click.option("--by-op", is_flag=True, help="A row for each opcode, not for each instruction.")
@click.option("--top", type=click.IntRange(min=0), default=20, show_default=True, help="Rows to show; 0 for all.")
@click.option("--trip-counts", is_flag=True, help="Count loops that state their trip count that often (XLA: once).")
@chip_options(text="Bound times by the peaks of this chip (see `systolith chips`).")
def cost(
    file: Path,
    as_json: bool,
    by_op: bool,
    top: int,
    trip_counts: bool,
    chip: str | None,
    changes: Mapping[str, str],
) -> None:
    """Count the operations and bytes of FILE (as `opt` takes it), as XLA's cost analysis does."""
    from systolith.compiler.hlo.cost.analysis import HloCostAnalysis
    from systolith.compiler.hlo.cost.rows import by_opcode, rows
    from systolith.isa.files import json_text

    machine = chosen(chip, changes)
    module = read_module(file)
    analysis = HloCostAnalysis(module, trip_counts)
    found = rows(module, analysis)
    shown = by_opcode(found) if by_op else list(found)
    shown.sort(
        key=lambda row: (-seconds(row, machine)[0], -row.flops, -row.bytes) if machine else (-row.flops, -row.bytes)
    )
    if as_json:
        emit(json_text(_record(analysis.total, found, shown[: top or None], machine)))
    else:
        _print_costs(module.name, found, shown, top, machine)


def seconds(row: Row, chip: Chip) -> tuple[float, str]:
    """The least time of a row's work by itself, with every unit at its peak and all its operands and results over HBM,
    and the unit that bounds it.
    """
    clock = chip.clock_mhz * 1e6
    vector = chip.vpu.lanes * chip.vpu.sublanes
    needs = {
        "MXU": row.products / (2 * chip.mxu.count * chip.mxu.rows * chip.mxu.cols),
        "VPU": (row.flops - row.products) / (vector * chip.vpu.alu_slots),
        "transcendental": row.transcendentals / (vector * chip.vpu.trans_slots),
        "HBM": row.bytes * chip.hbm.q / chip.hbm.p,
    }
    bound = max(needs, key=needs.__getitem__)
    return needs[bound] / clock, bound


def _record(properties: dict[str, float], found: list[Row], shown: list[Row], chip: Chip | None) -> dict[str, Any]:
    from dataclasses import asdict

    from systolith.compiler.hlo.cost.rows import total

    def row_record(row: Row) -> dict[str, Any]:
        bound = dict(zip(("seconds", "bound"), seconds(row, chip), strict=True)) if chip else {}
        return asdict(row) | {"intensity": row.intensity} | bound

    record: dict[str, Any] = {"properties": properties, "products": total(found).products}
    if chip:
        record |= {"chip": chip.name, "seconds": sum(seconds(row, chip)[0] for row in found)}
    return record | {"rows": [row_record(row) for row in shown]}


def _print_costs(name: str, found: list[Row], shown: list[Row], top: int, chip: Chip | None) -> None:
    from rich.table import Table

    from systolith.compiler.hlo.cost.rows import total
    from systolith.reports.numbers import decimal, si, size

    table = Table(box=None, pad_edge=False)
    table.add_column("instruction", overflow="ellipsis")
    table.add_column("opcode", no_wrap=True)
    for heading in ("runs", "flops", "transc.", "bytes", "flops/byte", *(("by itself", "bound") if chip else ())):
        table.add_column(heading, justify="right", no_wrap=True)

    def add(row: Row, time: float | None, bound: str) -> None:
        cells = [row.name, row.opcode, f"{row.runs:,}", si(row.flops, ""), si(row.transcendentals, ""), size(row.bytes)]
        cells.append(decimal(row.intensity))
        table.add_row(*cells, *((si(time, "s"), bound) if chip else ()))

    for row in shown[: top or None]:
        add(row, *(seconds(row, chip) if chip else (None, "")))
    whole = total(found)
    add(whole, sum(seconds(row, chip)[0] for row in found) if chip else None, "")
    console = output_console()
    console.print(table)
    if hidden := len(shown) - len(shown[: top or None]):
        console.print(f"{hidden} more rows; --top 0 shows them", highlight=False)
    if chip:
        text = "by itself: at the peaks of the units, operands and results over HBM; what stays in VMEM takes less"
        console.print(text, highlight=False)
    share = f" ({whole.products / whole.flops:.1%})" if whole.flops else ""
    console.print(f"{name}: {si(whole.products, 'FLOP')} in dots and convolutions{share}", highlight=False)
