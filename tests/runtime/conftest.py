"""Files that every command can be tried on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.runtime.command_cases import write_inputs


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that commands read, made once."""
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture
def files(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them, in the working folder."""
    folder = Path(shutil.copytree(inputs, tmp_path / "files"))
    monkeypatch.chdir(folder)
    return folder
