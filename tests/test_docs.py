"""The pages: their links, paths, width, and the walkthrough as it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.isa.chip import load_chip
from tests.runtime.command import systolith

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("bench", "compiler", "docs", "examples", "hw", "isa", "reports", "runtime", "sim", "tests")
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "hw" / "README.md"]
)
COLUMNS = 120
SUFFIXES = "py|sv|svh|s|npz|hlo|md"

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
PATH = re.compile(rf"(?<![\w.*/<-])((?:[\w.-]+/)*[\w-]+\.(?:{SUFFIXES})|(?:[\w-]+/)+)(?![\w*/.])")
NOT_OURS = {
    "in.npz",
    "out.npz",
    "model.hlo",
    "dot.hlo",
    "program.s",
    "canonical.hlo",
    "stages/canonical.hlo",
    "stages/grouped.hlo",
    "squares.py",
    "train.py",
    "cosh.py",
    "relu6.py",
    "registered.py",
    "scaled_sum.s",
    "call.hlo",
    "odd.hlo",
    "atanh.py",
    "grouped.hlo",
    "args.npz",
    "gemm.hlo",
    "gemm8.hlo",
    "mlp.hlo",
    "mlp.py",
    "net.hlo",
    "_src/tpu_info.py",
}
"""A user's own files, files that commands write, and files of other projects."""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The fragments that a page's headings have, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\s-]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(text):
        if re.match(r"\w+:", target):
            continue
        path, _, fragment = target.partition("#")
        there = page.parent / path if path else page
        if not there.exists() or (fragment and fragment not in anchors(there)):
            yield target


def code(text: str) -> Iterator[str]:
    """Text in code style: spans in backticks, and lines of indented or fenced blocks."""
    text = re.sub(
        r"^```.*?^```$", lambda m: re.sub("^", "    ", m[0].replace("`", ""), flags=re.M), text, flags=re.M | re.S
    )
    for line in text.splitlines():
        if line.startswith("    "):
            yield line
    yield from re.findall(r"`([^`]+)`", text)


@cache
def endings() -> frozenset[str]:
    """The endings, from a `/` on, of the paths of all files and folders (which end with `/`) of the project."""
    found: set[str] = set()
    for folder in FOLDERS:
        for path in [ROOT / folder, *(ROOT / folder).rglob("*")]:
            text = "/" + path.relative_to(ROOT).as_posix() + ("/" if path.is_dir() else "")
            found.update(text[i:] for i, letter in enumerate(text) if letter == "/")
    return frozenset(found)


def missing_paths(text: str) -> Iterator[str]:
    for part in code(text):
        for path in PATH.findall(part):
            if path not in NOT_OURS and f"/{path}" not in endings():
                yield path


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert list(broken_links(page, page.read_text())) == []


def test_the_site_has_every_page_and_its_pages_link_to_no_file_outside() -> None:
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
    shown = re.findall(r"^  - .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(shown) == sorted(["index.md", *(p.relative_to(ROOT / "docs").as_posix() for p in pages)])
    links = [(page, target) for page in pages for target in LINK.findall(page.read_text()) if ":" not in target]
    assert [link for link in links if not (link[0].parent / link[1]).resolve().is_relative_to(ROOT / "docs")] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    assert sorted(set(missing_paths(page.read_text()))) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_lines_of_a_page_are_short(page: Path) -> None:
    """Rows of tables cannot be folded."""
    lines = enumerate(page.read_text().splitlines(), 1)
    assert [n for n, line in lines if len(line) > COLUMNS and not line.startswith("|")] == []


def test_a_broken_link_or_path_is_found() -> None:
    page = ROOT / "docs" / "architecture.md"
    text = "[a](machine.md#time) [b](gone.md) [c](machine.md#gone)\n`sim/engine.py` `sim/motor.py`\n\n    isa/no.py\n"
    assert list(broken_links(page, text)) == ["gone.md", "machine.md#gone"]
    assert list(missing_paths(text)) == ["isa/no.py", "sim/motor.py"]


def test_what_the_sources_say_of_pages_is_there() -> None:
    """Comments and docstrings name pages as `docs/page.md`."""
    sources = [
        p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in {".py", ".sv", ".svh", ".toml"}
    ]
    named = {m for p in sources if p != Path(__file__) for m in re.findall(r"docs/[\w/-]+\.md", p.read_text())}
    assert named
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []


def test_the_walkthrough_shows_what_the_compiler_prints() -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs" / "walkthrough.md").read_text(), re.M | re.S)
    (module,) = [text for language, text in blocks if language == "hlo"]
    quoted = [line for language, text in blocks if language == "text" for line in text.splitlines()]
    stages = compile_module(parse_hlo(module), load_chip("tiny")).stages
    printed = stages["tile.txt"] + stages["program.s"]
    assert quoted
    assert [line for line in quoted if line not in printed] == []


def test_the_commands_of_the_walkthrough_work_and_write_the_files_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "walkthrough.md").read_text()
    (module,) = re.findall(r"^```hlo\n(.*?)^```$", page, re.M | re.S)
    (tmp_path / "dot.hlo").write_text(module)
    monkeypatch.chdir(tmp_path)
    found = [" ".join(command.split()) for command in re.findall(r"`systolith ([^`]*dot\.hlo[^`]*)`", page)]
    assert len(found) == 2
    for command in found:
        assert systolith(capsys, *command.split()).code == 0
    named = set(re.findall(r"`(\w+\.(?:hlo|txt|s))`", page)) - {"dot.hlo"}
    assert named == {"canonical.hlo", "grouped.hlo", "explain.txt", "tile.txt", "plan.txt", "program.s"}
    assert [path for path in named if not (tmp_path / "stages" / path).exists()] == []
    plan = (tmp_path / "stages" / "plan.txt").read_text()
    assert re.search(r"^ +0 .* x\.in$", plan, re.M)
    assert re.search(r"^ +1536 .* w\.in$", plan, re.M)
