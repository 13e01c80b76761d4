"""Output files: written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from systolith.isa.errors import SystolithError


class OutputError(SystolithError):
    """An output cannot be written."""


def require_writable(path: Path) -> None:
    """Fail before long work, not after it.

    Raises:
        OutputError: the folder does not exist or cannot be written to, or the path is a folder.
    """
    folder = path.parent
    if path.is_dir():
        raise OutputError(f"{path}: is a folder")
    if not folder.is_dir():
        raise OutputError(f"{path}: folder {folder} does not exist")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise OutputError(f"{path}: not writable")


def write_atomic(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file through a temporary neighbour, so that no partial file is left behind.

    Raises:
        OutputError: the file cannot be written.
    """
    require_writable(path)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as handle:
            temporary = Path(handle.name)
            try:
                fill(handle)
                handle.flush()
                mask = os.umask(0)
                os.umask(mask)
                temporary.chmod(0o666 & ~mask)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from None
