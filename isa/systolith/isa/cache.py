"""The user's cache folder: $XDG_CACHE_HOME/systolith, else ~/.cache/systolith.

Machine code is kept there, and is executed once read.  So only files count that nobody but the user (and root) can
have written: they and their folder are the user's alone, and no folder above lets others rename its entries.  Every
folder on the way is opened in the one before it and looked at once it is open, so nothing can be exchanged in between.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MOST_LINKS = 40  # symbolic links on the way, as Linux has it
# To look into a folder it need not be readable: O_PATH, where there is such a thing.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe must not wait
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UntrustedError(OSError):
    """Somebody else may have written a file, or may exchange it."""


def cache_home() -> Path:
    """The folder of all that is kept; it need not be there.  Users without a home have one among temporary files."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "systolith"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"systolith-{os.geteuid()}"


def make_private(folder: Path) -> None:
    """Make a folder, with those above it that are missing, where only the user can write.

    Raises:
        UntrustedError: somebody else can write there, or in a folder above.
        OSError: it cannot be made.
    """
    with _opened(folder, make=True) as handle:
        if stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
            os.chmod(".", 0o700, dir_fd=handle)


def read_own(path: Path) -> bytes:
    """The contents of a file that only the user can have written.

    Raises:
        UntrustedError: somebody else could, or it is no plain file.
        OSError: it is not there or cannot be read.
    """
    with _opened(path.parent) as folder, open(os.open(path.name, _FILE, dir_fd=folder), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
            raise UntrustedError(f"{path}: not a file that only this user can write")
        return file.read()


def is_own(path: Path) -> bool:
    """Whether there is a file that only the user can have written, or exchange."""
    try:
        read_own(path)
    except OSError:
        return False
    return True


@contextmanager
def _opened(folder: Path, make: bool = False) -> Iterator[int]:
    """The folder, opened: the user's own, and nobody else can exchange it or a folder above it.

    Raises:
        UntrustedError: it is not.
        OSError: there is none (with `make`: it cannot be made).
    """
    todo = deque(Path(os.path.abspath(folder)).parts[1:])
    links = 0
    here = os.open("/", _FOLDER)
    try:
        safe = _safe(here, folder)
        while todo:
            name = todo.popleft()
            try:
                below = _enter(name, here, make)
            except OSError as error:
                links += 1
                target = _link(name, here) if links < _MOST_LINKS else None
                if target is None:
                    raise
                if not safe:  # in a folder that many write to, a link may be anybody's
                    raise UntrustedError(f"{folder}: {name} is a symbolic link that others may have made") from error
                if target.is_absolute():
                    os.close(here)
                    here = os.open("/", _FOLDER)
                todo.extendleft(reversed([p for p in target.parts if p != "/"]))
                continue
            os.close(here)
            here = below
            safe = _safe(here, folder)
        if os.fstat(here).st_uid != os.geteuid():
            raise UntrustedError(f"{folder}: belongs to another user")
        yield here
    finally:
        os.close(here)


def _enter(name: str, folder: int, make: bool) -> int:
    """Open a folder in a folder."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # by another process, or a link to nowhere
        os.mkdir(name, 0o700, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def _link(name: str, folder: int) -> Path | None:
    """Where a symbolic link in a folder leads; None: there is none of this name."""
    try:
        return Path(os.readlink(name, dir_fd=folder))
    except OSError:
        return None


def _safe(handle: int, path: Path) -> bool:
    """Whether only the user and root can make entries in an open folder; if others can, at least not exchange them.

    Raises:
        UntrustedError: they can exchange them.
    """
    found = os.fstat(handle)
    if found.st_uid not in (0, os.geteuid()):
        raise UntrustedError(f"{path}: in a folder of another user")
    others = bool(found.st_mode & _OTHERS_WRITE)
    if others and not found.st_mode & stat.S_ISVTX:  # sticky: entries are exchanged by their owners alone
        raise UntrustedError(f"{path}: in a folder where others can write")
    return not others
