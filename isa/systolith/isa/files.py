"""Files: read whole, written whole or not at all; a failure is a SystolithError that names the file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from stat import S_ISCHR
from typing import IO, Any

from systolith.isa.errors import SystolithError

Fill = Callable[[IO[bytes]], object]


class OutputError(SystolithError):
    """An output cannot be written."""


# Reading.


def read_bytes(path: str | Path, error: type[SystolithError]) -> bytes:
    """The contents of a file.

    Raises:
        error: it cannot be read, or is a device such as /dev/zero, which has no end.
    """
    try:
        file = Path(path)
        if _is_endless(file.stat()):
            raise error(f"{path}: is a device whose contents have no end")
        return file.read_bytes()
    except (OSError, ValueError, TypeError) as problem:
        raise error(f"{path}: {_reason(problem)}") from None


def _is_endless(status: os.stat_result) -> bool:
    """Whether it is one of Linux's devices of memory (`zero`, `full`, `random`), `null` apart."""
    memory, null = 1, 3
    return S_ISCHR(status.st_mode) and os.major(status.st_rdev) == memory and os.minor(status.st_rdev) != null


def read_text(path: str | Path, error: type[SystolithError]) -> str:
    """The contents of a UTF-8 file, every line end made a newline.

    Raises:
        error: it cannot be read, or is not UTF-8.
    """
    try:
        return read_bytes(path, error).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise error(f"{path}: not UTF-8 text") from None


def parse_json(text: str | bytes, what: object, error: type[SystolithError]) -> Any:
    """The value of a JSON text; `what` names it in errors.

    Raises:
        error: it is not JSON, or nests too deep.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise error(f"{what}: not JSON that can be read: it nests too deep") from None
    except ValueError as problem:
        raise error(f"{what}: not JSON: {problem}") from None


# Writing.


def require_writable(path: Path) -> None:
    """Fail before long work, not after it.

    Raises:
        OutputError: the folder does not exist or cannot be written to, or the path is a folder.
    """
    try:
        folder = path.resolve().parent
        if path.is_dir():
            raise OutputError(f"{path}: is a folder")
        if not folder.is_dir():
            raise OutputError(f"{path}: folder {folder} does not exist")
        writable = os.access(path, os.W_OK) if path.exists() else True
        if not writable or not (_is_device(path) or os.access(folder, os.W_OK)):
            raise OutputError(f"{path}: not writable")
    except (OSError, ValueError, RuntimeError) as problem:  # too long, a NUL, links in a circle
        raise OutputError(f"{path}: {_reason(problem)}") from None


def require_apart(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Fail before long work where outputs cannot be written, or would overwrite each other or an input.

    Args:
        outputs, inputs: the files by the user's names for them; None: not given.

    Raises:
        OutputError: naming both.
    """
    taken = {name: path for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        require_writable(path)
        for other, there in taken.items():
            if _same_file(path, there):
                what = "would overwrite" if other in inputs else "and"
                raise OutputError(f"{name} {what} {other}: both are the file {path}")
        taken[name] = path


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise OutputError(f"{path}: is a file, not a folder") from None
    except (OSError, ValueError, RuntimeError) as problem:
        raise OutputError(f"{path}: {_reason(problem)}") from None


def text_fill(text: str) -> Fill:
    """A function that writes a text as UTF-8; halves of surrogate pairs as escapes."""
    return lambda handle: handle.write(text.encode(errors="backslashreplace"))


def json_text(value: object, **layout: Any) -> str:
    """A value as JSON, laid out as for `json.dumps`; infinities and NaN are strings, as protobuf writes them."""
    try:
        return json.dumps(value, allow_nan=False, **layout)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **layout)


def _finite(value: object) -> object:
    """The same with "Infinity", "-Infinity" and "NaN" for floats that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def write_atomic(path: Path, fill: Fill) -> None:
    """Write a file; as `write_all`."""
    write_all({path: fill})


def write_all(fills: Mapping[Path, Fill]) -> None:
    """Write files through temporary neighbours: all of them whole, or none, as far as the file system allows.

    The target of a symbolic link is replaced, not the link; devices and pipes are written to as they are.

    Args:
        fills: for each file the function that writes its contents.

    Raises:
        OutputError: one cannot be written.
    """
    staged: dict[Path, Path | BytesIO] = {}
    path = Path()
    try:
        for path, fill in fills.items():
            require_writable(path)
            if _is_device(path):
                fill(staged.setdefault(path, BytesIO()))  # type: ignore[arg-type]  # archives seek: not every device can
            else:
                _stage(path, fill, staged)
        for path, contents in staged.items():
            if isinstance(contents, Path):
                contents.replace(path.resolve())
            else:
                path.write_bytes(contents.getbuffer())
    except OSError as problem:
        raise OutputError(f"{path}: {_reason(problem)}") from None
    finally:
        for contents in staged.values():
            if isinstance(contents, Path):
                contents.unlink(missing_ok=True)


def _stage(path: Path, fill: Fill, staged: dict[Path, Path | BytesIO]) -> None:
    """Write a temporary neighbour, with the permissions that a new file has."""
    folder, suffix = path.resolve().parent, path.suffix[:9]  # waves have the format that the suffix says
    import tempfile  # late: reading does without it, and it takes long to import

    with tempfile.NamedTemporaryFile(dir=folder, prefix=".systolith.", suffix=suffix, delete=False) as handle:
        staged[path] = temporary = Path(handle.name)
        fill(handle)
        handle.flush()
    mask = os.umask(0)
    os.umask(mask)
    temporary.chmod(0o666 & ~mask)


def _is_device(path: Path) -> bool:
    """Whether it is there, but has no contents that a new file could take the place of."""
    return path.exists() and not path.is_file()


def _same_file(a: Path, b: Path) -> bool:
    if _is_device(a):
        return False
    try:
        return a.resolve() == b.resolve() or (a.exists() and b.exists() and a.samefile(b))
    except (OSError, ValueError, RuntimeError):  # an input that cannot be read: who reads it says so
        return False


def _reason(problem: Exception) -> str:
    return (isinstance(problem, OSError) and problem.strerror) or str(problem)
