"""Types and options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.Path(path_type=Path)

figure_format = click.option(
    "--format",
    "suffix",
    type=click.Choice(["pdf", "svg", "png"]),
    default="pdf",
    show_default=True,
    help="Format of the figures.",
)
