"""Which lines run in this process, and what they do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell import run_here, words_of


def test_lines_of_systolith_alone_run_here() -> None:
    assert words_of("systolith a 'b{c;d}' > e; systolith f") == [
        ["systolith", "a", "b{c;d}", ">", "e"],
        ["systolith", "f"],
    ]
    assert words_of("systolith a \\\n    --b\nsystolith c\n") == [["systolith", "a", "--b"], ["systolith", "c"]]
    for text in ("systolith a | b", "systolith a; b", "a\nsystolith b", "A=1 systolith b", 'eval "$(systolith a)"'):
        assert not words_of(text)


def test_output_goes_where_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_here(words_of("systolith chips > all; systolith chips"), capsys) == Path("all").read_text() != ""


def test_a_command_has_to_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError, match="missing"):
        run_here(words_of("systolith chips; systolith ops missing.hlo"), capsys)
