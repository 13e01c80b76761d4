"""Libraries of the extras, imported where they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from systolith.isa.errors import SystolithError

_EXTRA = {"distributed": "dask"}


class MissingExtraError(SystolithError):
    """A library is not installed."""


def need(name: str) -> Any:
    """A module of a library.

    Raises:
        MissingExtraError: it is not installed; says what to install.
    """
    try:
        return import_module(name)
    except ImportError:
        library = name.split(".")[0]
        extra = _EXTRA.get(library, "sweep")
        raise MissingExtraError(f"this needs {library}: pip install 'systolith[{extra}]'") from None
