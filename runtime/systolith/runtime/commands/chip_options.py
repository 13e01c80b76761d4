"""The options by which commands are told a chip: `--chip`, and `--set` for a variant of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from systolith.isa.chip import Chip

F = TypeVar("F", bound=Callable[..., Any])
CHIP_HELP = "Preset name or chip TOML file (see `systolith chips`)."
SET_HELP = "Another value of a field of the chip: vmem.bytes=8MiB, hbm.gbps=1800, clock_mhz=1.2GHz; repeatable."


def complete_chip(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The presets whose names begin so, and files, for completion in shells."""
    from click.shell_completion import CompletionItem

    from systolith.isa.chip import preset_names

    presets = [CompletionItem(name) for name in preset_names() if name.startswith(incomplete)]
    return [CompletionItem(incomplete, type="file"), *presets]  # bash forgets what comes before a file


def _changes(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> Mapping[str, str]:
    if not texts:
        return {}
    from systolith.isa.chip import changes_of
    from systolith.isa.errors import ConfigError

    try:
        return changes_of(texts)
    except ConfigError as error:
        raise ConfigError(f"--set {error}") from None


set_option = click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", callback=_changes, help=SET_HELP)


def chip_options(default: str | None = None, note: str = "", text: str = CHIP_HELP) -> Callable[[F], F]:
    """The options `--chip` and `--set`, which a command takes as `chip` and `changes`.

    Args:
        default: a chip's name, shown.
        note: in words, the chip without `--chip`.
        text: help of `--chip`.
    """
    shown = f"{text}  [default: {note}]" if note else text
    option = click.option(
        "--chip", default=default, show_default=default is not None, help=shown, shell_complete=complete_chip
    )
    return lambda command: option(set_option(command))


def chosen(chip: str | None, changes: Mapping[str, str]) -> Chip | None:
    """The chip that the options name; None: no chip is named.

    Raises:
        SystolithError: there is no such chip, or not with these changes, or there are changes to none.
    """
    from systolith.isa.chip import load_chip
    from systolith.isa.errors import ConfigError

    if chip is not None:
        return load_chip(chip, changes)
    if changes:
        raise ConfigError(f"--set {next(iter(changes))}=...: needs --chip, the chip that it changes")
    return None


def named_file(chip: str | None) -> dict[str, Path | None]:
    """The file that `--chip` names, as an input of a command."""
    from systolith.isa.chip import chip_file

    return {"--chip": chip_file(chip) if chip else None}
