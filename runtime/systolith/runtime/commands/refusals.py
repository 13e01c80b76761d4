"""`--all`: everything that the compiler refuses of a module, not only the first."""

from __future__ import annotations

from functools import wraps
from typing import Any

import click

from systolith.isa.errors import SystolithError
from systolith.runtime.commands.console import tell
from systolith.runtime.commands.exits import BAD_INPUT


def listing_refusals(command: Any) -> Any:
    """The option, for a command that compiles."""

    @wraps(command)
    def listing(*args: Any, list_all: bool, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except SystolithError as error:
            refusals = getattr(error, "refusals", ())
            if not list_all or not refusals:
                raise
            for line in refusals:
                tell(f"systolith: {line}")
            return BAD_INPUT

    option = click.option("--all", "list_all", is_flag=True, help="List all that is refused of the module, one a line.")
    return option(listing)
