"""The guides, followed to the letter: files are written, commands run, and output compared, as the page has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"This is `([\w.]+)`:\s*$")


def follow(page: str, folder: Path) -> None:
    """Go through the blocks of a page: `toml` is the file named before it, `bash` commands, `text` what they print."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    (folder / "examples").symlink_to(ROOT / "examples")
    printed = ""
    for block in BLOCK.finditer(page):
        language, text = block.groups()
        if language == "bash":
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
            (folder / named[1]).write_text(text)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_the_guide_works_as_it_is_written(guide: Path, tmp_path: Path) -> None:
    follow(guide.read_text(), tmp_path)


def test_a_guide_whose_command_fails_or_prints_something_else_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="false"):
        follow("```bash\nfalse\n```\n", tmp_path)
    (tmp_path / "examples").unlink()
    with pytest.raises(AssertionError):
        follow("```bash\necho one\n```\n\n```text\ntwo\n```\n", tmp_path)
