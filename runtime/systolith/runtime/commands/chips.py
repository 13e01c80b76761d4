"""`systolith chips`: the presets, and every parameter of a chip."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from systolith.runtime.commands.chip_options import complete_chip, set_option
from systolith.runtime.commands.console import emit, output_console
from systolith.runtime.commands.options import FILE

if TYPE_CHECKING:
    from rich.table import Table

    from systolith.isa.chip import Chip, Row

_WIDE = 110
"""Columns of a terminal from which on the parameters of a chip are a table."""


@click.command()
@click.argument("name", required=False, shell_complete=complete_chip)
@set_option
@click.option("--energy", type=FILE, help="Energies of actions for the chip's, as for `run`.")
@click.option("--toml", "as_toml", is_flag=True, help="Print the whole file of chip NAME.")
def chips(name: str | None, changes: Mapping[str, str], energy: Path | None, as_toml: bool) -> None:
    """List the chip presets, or every parameter of one with its unit and source, and what the machine lacks of it."""
    from systolith.isa.chip import load_chip, to_toml
    from systolith.isa.energy_table import with_energy
    from systolith.isa.errors import SystolithError

    if name is None:
        if changes or energy or as_toml:
            raise SystolithError("chips: --set, --energy and --toml need the NAME of a chip")
        emit(_presets())
        return
    chip = load_chip(name, changes)
    chip = with_energy(chip, energy) if energy else chip
    if as_toml:
        emit(to_toml(chip), newline=False)
    else:
        width = output_console().width
        if width < _WIDE:
            emit(_listing(chip, width))
        else:
            output_console().print(_parameters(chip))
        if chip.absent:
            output_console().print(_absent(chip))


def _presets() -> str:
    """A line for each preset, in columns; not a table of rich, which takes longer to import than all else here."""
    from systolith.isa.chip import load_chip, preset_names
    from systolith.reports.numbers import size

    rows = [("chip", "MXU", "VPU", "VMEM", "HBM", "clock")]
    for preset in preset_names():
        c = load_chip(preset)
        mxu, vpu = f"{c.mxu.count} x {c.mxu.rows} x {c.mxu.cols}", f"{c.vpu.sublanes} x {c.vpu.lanes}"
        hbm = f"{size(c.hbm.bytes)}, {c.hbm.p / c.hbm.q:.4g} B/cycle"
        rows.append((c.name, mxu, vpu, size(c.vmem.bytes), hbm, f"{c.clock_mhz:g} MHz"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _absent(chip: Chip) -> Table:
    from rich.table import Table

    table = Table("", "", show_header=False, box=None, pad_edge=False, title="absent", title_justify="left")
    for part, how in chip.absent.items():
        table.add_row(part, how)
    return table


def _parameters(chip: Chip) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("parameter", "value", "unit", "provenance"):
        table.add_column(heading, no_wrap=True)
    table.add_column("meaning (source)", overflow="fold")
    for row in _rows(chip):
        table.add_row(row.field, str(row.value), row.unit, row.provenance, _meaning(row))
    return table


def _listing(chip: Chip, width: int) -> str:
    """The same with meaning and source on lines of their own, for which a narrow terminal has no column."""
    from textwrap import wrap

    lines = []
    for row in _rows(chip):
        lines.append(f"{row.field:26}{f'{row.value} {row.unit}':26}{row.provenance}".rstrip())
        lines += wrap(_meaning(row), width, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def _rows(chip: Chip) -> list[Row]:
    from systolith.isa.chip import describe
    from systolith.isa.chip_schema import describe_beside

    return [*describe(chip), *describe_beside(chip)]


def _meaning(row: Row) -> str:
    return f"{row.text} ({row.source})" if row.source else row.text
