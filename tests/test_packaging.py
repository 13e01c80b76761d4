"""One namespace from six folders: nothing may close it, and each part says that it is typed."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
AREAS = ["isa", "sim", "compiler", "hw", "runtime", "reports"]


def test_no_folder_closes_the_namespace() -> None:
    # An __init__.py here would hide every other folder's part of `systolith`.
    assert [str(path) for path in ROOT.glob("*/systolith/__init__.py")] == []


@pytest.mark.parametrize("area", AREAS)
def test_area_is_typed(area: str) -> None:
    assert (ROOT / area / "systolith" / area / "py.typed").is_file()


@pytest.mark.parametrize("area", AREAS)
def test_area_holds_nothing_outside_the_namespace(area: str) -> None:
    assert {path.parent.name for path in (ROOT / area).glob("*/*") if path.suffix == ".py"} <= {"systolith"}


def test_installed_version_is_the_project_file_s() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert importlib.metadata.version("systolith") == project["version"]


def test_version_has_a_changelog_entry() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text()
