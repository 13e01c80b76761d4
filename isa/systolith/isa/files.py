"""Output files: written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from io import BytesIO
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
    folder = path.resolve().parent
    if path.is_dir():
        raise OutputError(f"{path}: is a folder")
    if not folder.is_dir():
        raise OutputError(f"{path}: folder {folder} does not exist")
    writable = os.access(path, os.W_OK) if path.exists() else True
    if not writable or not (_is_device(path) or os.access(folder, os.W_OK)):
        raise OutputError(f"{path}: not writable")


def write_atomic(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file through a temporary neighbour, so that no partial file is left behind.

    What a symbolic link points to is replaced, not the link; devices and pipes are written to as they are.

    Raises:
        OutputError: the file cannot be written.
    """
    require_writable(path)
    try:
        if _is_device(path):
            whole = BytesIO()  # archives seek, and not every device can
            fill(whole)
            path.write_bytes(whole.getbuffer())
        else:
            _replace(path.resolve(), fill)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from None


def _is_device(path: Path) -> bool:
    """Whether it is there, but has no contents that a new file could take the place of."""
    return path.exists() and not path.is_file()


def _replace(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
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
