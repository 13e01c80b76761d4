"""Standard output and error of the commands."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING

import click

from systolith.isa.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

    from systolith.runtime.jobs.job import Stage


LOG = logging.getLogger("systolith")


def prepare_streams() -> None:
    """Let characters that a stream's encoding does not have be printed as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def emit(text: str, newline: bool = True) -> None:
    """Print on standard output; a reader that has gone away ends the printing, not the command."""
    try:
        click.echo(printable(text), nl=newline)
    except BrokenPipeError:
        discard_output()


def tell(text: str) -> None:
    """Print on standard error."""
    click.echo(printable(text), err=True)


def flush_output() -> None:
    """Print the text still held back, as `emit` does."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Send standard output nowhere from now on: text held back, too, which Python prints when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def output_console() -> Console:
    """Standard output for tables; as `emit` where the reader has gone away.  Texts are no markup."""
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
    from rich.segment import Segment

    class Printable:
        def __init__(self, item: ConsoleRenderable) -> None:
            self.item = item

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for part in console.render(self.item, options):
                yield part if part.control else Segment(printable(part.text), part.style)

    class Escaping(RenderHook):
        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            return [Printable(item) for item in renderables]

    class Output(Console):
        def on_broken_pipe(self) -> None:
            discard_output()

    output = Output(markup=False, emoji=False)
    output.push_render_hook(Escaping())
    return output


@contextmanager
def log_to_stderr(verbose: int, quiet: bool) -> Iterator[None]:
    """Send the log to standard error: errors and warnings, of `quiet` errors; stages at `verbose` 1, all at 2."""
    before = LOG.level, LOG.handlers[:]
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    LOG.handlers[:] = [handler]
    LOG.setLevel(logging.ERROR if quiet else levels[min(verbose, 2)])
    try:
        yield
    finally:
        LOG.setLevel(before[0])
        LOG.handlers[:] = before[1]


@contextmanager
def progress(quiet: bool = False) -> Iterator[Stage]:
    """A spinner with the current stage on stderr, on terminals only; each stage is logged."""
    if quiet or not sys.stderr.isatty() or LOG.getEffectiveLevel() != logging.WARNING:
        yield lambda name: LOG.info("%s", printable(name))
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting")

        def stage(name: str) -> None:
            LOG.info("%s", printable(name))
            bar.update(task, description=printable(name))

        yield stage
