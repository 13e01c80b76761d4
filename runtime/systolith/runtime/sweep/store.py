"""Results as they come, in an SQLite file: a killed sweep loses none, and a repeated one computes none twice."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from systolith.isa.errors import SystolithError
from systolith.isa.files import OutputError, require_writable

APPLICATION = 0x53594C53  # `SYLS`, in the header of the file
_BYTES_PER_POINT = 16 << 10  # most of it the energy by HLO op
_SPARE_BYTES = 1 << 20
T = TypeVar("T")


class StoreError(SystolithError):
    """The file of results cannot be used."""


class Store:
    """Results by what they depend on.

    Args:
        path: the file; None: in memory.
        study: name of the study that it belongs to.
        points: how many results are to come.

    Raises:
        SystolithError: it cannot be written, has no room, is in use, is of another study, or is no file of results.
    """

    def __init__(self, path: Path | None, study: str, points: int = 0) -> None:
        self._name = str(path) if path is not None else "results in memory"
        if path is not None:
            require_writable(path)
            if path.exists() and not path.is_file():
                raise StoreError(f"{path}: is a device: results are kept in a file")
            _require_room(path, points)
        self._db = self._try(lambda: sqlite3.connect(path or ":memory:", timeout=0.5, isolation_level=None))
        try:
            self._try(lambda: self._open(study, fresh=path is None or not path.exists() or not path.stat().st_size))
        except SystolithError:
            self._db.close()
            raise

    def _open(self, study: str, fresh: bool) -> None:
        db = self._db
        db.execute("pragma locking_mode = exclusive")
        if not fresh and db.execute("pragma application_id").fetchone()[0] != APPLICATION:
            raise StoreError(f"{self._name}: is no file of results of a sweep; give another")
        db.execute("begin exclusive")
        if fresh:
            db.execute(f"pragma application_id = {APPLICATION}")
            db.execute("create table study (name text not null)")
            db.execute("create table results (key text primary key, row text not null) without rowid")
            db.execute("insert into study values (?)", (study,))
        found = db.execute("select name from study").fetchone()[0]
        if found != study:
            raise StoreError(f"{self._name}: holds results of the study {found!r}, not of {study!r}; give another file")
        db.execute("commit")

    def _try(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except sqlite3.Error as problem:
            text = str(problem)
            if "locked" in text:
                raise StoreError(f"{self._name}: is in use, by another sweep perhaps") from None
            if "not a database" in text or "malformed" in text or "no such table" in text:
                raise StoreError(f"{self._name}: is no file of results of a sweep; give another") from None
            raise OutputError(f"{self._name}: {text}; the results so far are there") from None

    def add(self, rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Keep results; they are on the disk when this returns.

        Raises:
            OutputError: they cannot be written.
        """
        found = [(key, json.dumps(row)) for key, row in rows]

        def write() -> None:
            self._db.execute("begin")
            self._db.executemany("insert or replace into results values (?, ?)", found)
            self._db.execute("commit")

        self._try(write)

    def known(self) -> dict[str, dict[str, Any]]:
        """All results, by their keys."""
        return {key: json.loads(row) for key, row in self._try(lambda: self._db.execute("select * from results"))}

    def close(self) -> None:
        """Let others have the file."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_room(path: Path, points: int) -> None:
    needed = _SPARE_BYTES + points * _BYTES_PER_POINT
    try:
        free = shutil.disk_usage(path.resolve().parent).free
    except OSError:
        return
    if free < needed:
        raise OutputError(f"{path}: {points} results need {needed} bytes, {free} are free there")
