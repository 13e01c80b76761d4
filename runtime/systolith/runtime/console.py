"""Standard output and error of the commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from systolith.runtime.job import Stage


def prepare_streams() -> None:
    """Let characters that a stream's encoding does not have be printed as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def emit(text: str, newline: bool = True) -> None:
    """Print on standard output; a reader that has gone away ends the printing, not the command."""
    try:
        click.echo(text, nl=newline)
    except BrokenPipeError:
        discard_output()


def flush_output() -> None:
    """Print what is still held back, as `emit` does."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Send standard output nowhere from now on: what is held back, too, which Python prints when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def output_console() -> Console:
    """Standard output for tables; as `emit` where the reader has gone away."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            discard_output()

    return Output()


@contextmanager
def progress(quiet: bool = False) -> Iterator[Stage]:
    """A spinner with the current stage on stderr, on terminals only."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("starting")
        yield lambda name: bar.update(task, description=name)
