"""`systolith man`: the manual page, made of the commands' help, as `man` reads it (roff, macros of man(7))."""

from __future__ import annotations

from collections.abc import Iterator

import click

from systolith.runtime.commands.console import emit

EXITS = (
    ("0", "Good."),
    ("1", "A check failed, or an operation is not supported."),
    ("2", "Bad input or usage; one line on standard error says what and where."),
    ("3", "A fault of systolith."),
    ("130", "Interrupted."),
)

VARIABLES = (
    ("SYSTOLITH_TRACEBACK", "Show the traceback of a fault of systolith."),
    ("SYSTOLITH_VERIFY", "Check the module after each pass of a compilation, and name the pass that broke it."),
)


@click.command()
@click.pass_context
def man(context: click.Context) -> None:
    """Print the manual page, for `man -l` or a folder of MANPATH."""
    assert context.parent is not None
    emit("\n".join(page(context.parent)))


def page(root: click.Context) -> Iterator[str]:
    """The lines of the page; `root`: context of the group of all commands."""
    from importlib.metadata import version

    group = root.command
    assert isinstance(group, click.Group)
    yield f'.TH SYSTOLITH 1 "" "systolith {version("systolith")}"'
    yield from (".SH NAME", f"systolith \\- {_text(group.get_short_help_str(200))}")
    yield from (".SH SYNOPSIS", ".B systolith", _text("[OPTIONS] COMMAND [ARGS]..."))
    yield from (".SH DESCRIPTION", _text(group.help or ""))
    yield from _options(group, root)
    yield ".SH COMMANDS"
    for name in group.list_commands(root):
        command = group.get_command(root, name)
        if command is not None and not command.hidden:
            yield from _command(command, click.Context(command, info_name=name, parent=root))
    yield ".SH EXIT STATUS"
    for code, text in EXITS:
        yield from (".TP", f".B {code}", _text(text))
    yield ".SH ENVIRONMENT"
    for variable, effect in VARIABLES:
        yield from (".TP", f".B {variable}", effect)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f".SS {_text(context.command_path)} {_text(' '.join(command.collect_usage_pieces(context)))}"
    yield _text(command.help or "")
    yield from _options(command, context)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f".B {_text(record[0])}", _text(record[1]))


def _text(text: str) -> str:
    """A paragraph: no control lines in it, backslashes and hyphens as they are."""
    plain = " ".join(text.replace("\b", " ").split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
