"""Cases as the files that the commands read."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory


@cache
def _folder() -> TemporaryDirectory[str]:
    """One for the process, which takes it along at its end."""
    return TemporaryDirectory(prefix="fuzz")


def file_of(case: bytes, suffix: str) -> Path:
    """A file with these contents, until the next of this suffix."""
    path = Path(_folder().name) / f"case{suffix}"
    path.write_bytes(case)
    return path
