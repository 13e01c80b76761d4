"""The guides, followed to the letter: files are written or changed, commands run, and output compared, as the page has
them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.shell import run_here, words_of

ROOT = Path(__file__).resolve().parent.parent
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
SLOW = "<!-- slow -->\n"
BUILDS = "tests/hw/"
BLOCK = re.compile(rf"^({SLOW})?```(\w+)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"`([\w./]+)`:\s*$")
FOLDERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["dev-mode-dirs"]


def checkout(folder: Path) -> dict[str, str]:
    """Copy the sources; gives the environment in which they are imported."""
    ignored = shutil.ignore_patterns(".*", "build", "*.pyc.*")  # other tests' Python makes and renames the last ones
    shutil.copytree(ROOT, folder, ignore=ignored, dirs_exist_ok=True)
    return {"PYTHONPATH": os.pathsep.join(str(folder / name) for name in FOLDERS)}


def change(path: Path, lines: str) -> None:
    """Replace the lines of a diff that do not begin with `+` by those that do not begin with `-`."""
    old, new = (re.sub(r"^[ +-]", "", re.sub(rf"^[{drop}].*\n", "", lines, flags=re.M), flags=re.M) for drop in "+-")
    text = path.read_text()
    assert text.count(old) == 1, f"{path} does not have once:\n{old}"
    path.write_text(text.replace(old, new))


def follow(page: str, folder: Path, capsys: pytest.CaptureFixture[str], slow: bool = False) -> None:
    """Go through the blocks of a page: `bash` are commands, `text` their output, `diff` changes of the file named
    before it, in a copy of the sources, and others that file.

    What takes long is marked, or has Verilator build the RTL of these sources.

    Args:
        page: its text.
        folder: where to do it, the working folder.
        capsys: for what commands print that this process runs, those of these sources.
        slow: also those that take long.
    """
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if "```diff" in page:
        environment |= checkout(folder)
    else:
        (folder / "examples").symlink_to(ROOT / "examples")
    printed = ""
    for block in BLOCK.finditer(page):
        long, language, text = block.groups()
        if (long or BUILDS in text) and not slow:
            continue
        if language == "bash" and "```diff" not in page and (here := words_of(text)):
            printed = run_here(here, capsys)
        elif language == "bash":
            command = ("bash", "-euo", "pipefail", "-c", text)
            ran = subprocess.run(
                command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            printed = ran.stdout
            assert ran.returncode == 0, f"{text}{printed}"
        elif language == "text":
            assert printed == text
        else:
            named = FILE.search(page[: block.start()])
            assert named, f"no file is named before:\n{text}"
            if language == "diff":
                change(folder / named[1], text)
            else:
                (folder / named[1]).write_text(text)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_the_guide_works_as_it_is_written(
    guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    follow(guide.read_text(), tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    "guide",
    [g for g in GUIDES if any(words in g.read_text() for words in (SLOW, BUILDS))],
    ids=lambda guide: guide.stem,
)
def test_what_takes_long_in_the_guide_works_as_it_is_written(
    guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    follow(guide.read_text(), tmp_path, capsys, slow=True)


def test_a_guide_whose_command_fails_or_prints_something_else_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for failing, said in (
        ("```bash\nfalse\n```\n", "false"),
        ("```bash\nsystolith ops missing.hlo\n```\n", "missing"),
        ("```bash\necho one\n```\n\n```text\ntwo\n```\n", "two"),
        ("```bash\nsystolith --version\n```\n\n```text\ntwo\n```\n", "two"),
    ):
        with pytest.raises(AssertionError, match=said):
            follow(failing, tmp_path, capsys)
        (tmp_path / "examples").unlink()


def test_a_change_is_made_where_its_context_is_and_refused_where_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one\n  two\nthree\n")
    change(path, " one\n-  two\n+- 2\n")
    assert path.read_text() == "one\n- 2\nthree\n"
    with pytest.raises(AssertionError, match="does not have once"):
        change(path, " one\n+two\n three\n")
