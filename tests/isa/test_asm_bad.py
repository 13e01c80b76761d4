"""Assembly with any number or text of it changed: a program, or a refusal with line, caret and a cut excerpt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from time import perf_counter
from typing import Any

import pytest

from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.errors import AsmError, ProgramError
from systolith.isa.program import GroupInfo, Location, Probe
from systolith.isa.verify import verify_program
from tests.isa.test_asm import manual_example

TINY = load_chip("tiny")
PROBE = Probe("g", 0, 1, (Location("x", "hbm", 0, 0, "f32", (16,), (4,)),), ())
TEXT = disassemble(assemble(manual_example(), TINY)) + (
    '.origin "h" "g" "w" 3\n'
    f".group {json.dumps(json.dumps(asdict(GroupInfo('g', 'kLoop'))))}\n"
    f".probe {json.dumps(json.dumps(asdict(PROBE)))}\n"
)
NUMBER = re.compile(r"(?<![\w.])-?(?:0x[0-9a-f]+|\d+)(?![\w.])")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
BAD_NUMBERS = ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000, "99999999999999999999", "2147483647", "-1", "0"]
BAD_NUMBERS += ["1e400", "1e39", "inf", "nan", "1" + "*99999" * 500, "r" + "9" * 5000, "x" * 100_000, '"\\q"']
BAD_STRINGS = ['"\\q"', '"\\ud800"', '"\\u12"', '"\t"', '"\x01"', '"{}"', '"[]"', '"null"', '"{"', f'"{"[" * 100_000}"']
BAD_STRINGS += ['""', f'"{"x" * 100_000}"', '"\\u0000"', "9" * 5000]


def outcome(text: str) -> str:
    """The error of a text; empty: it is a program, which both forms keep."""
    said: AsmError | None = None
    try:
        program = assemble(text, TINY)
        verify_program(program, TINY)
    except AsmError as error:
        said = error
    except ProgramError as error:
        return str(error)
    if said is not None:
        source, caret = said.excerpt.split("\n")
        assert len(source) <= 120
        assert re.fullmatch(r" {0,119}\^", caret)
        assert str(said).startswith(f"line {said.line}, column ")
        return str(said)
    assert from_bytes(to_bytes(program)) == program
    return ""


def assert_said_shortly(text: str) -> None:
    said = outcome(text)
    assert "\n" not in said
    assert len(said) < 1100


@pytest.mark.parametrize("new", BAD_NUMBERS, ids=[b[:12] for b in BAD_NUMBERS])
@pytest.mark.parametrize("text", [manual_example(), TEXT], ids=["written", "printed"])
def test_any_number_may_be_bad(text: str, new: str) -> None:
    for found in NUMBER.finditer(text):
        assert_said_shortly(text[: found.start()] + new + text[found.end() :])


@pytest.mark.parametrize("new", BAD_STRINGS, ids=[b[:12] for b in BAD_STRINGS])
def test_any_text_may_be_bad(new: str) -> None:
    for found in STRING.finditer(TEXT):
        assert_said_shortly(TEXT[: found.start()] + new + TEXT[found.end() :])


def parts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        yield from parts(item, (*path, key))


@pytest.mark.parametrize("bad", [None, 1.5, "x", -1, 10**40, [], {}])
@pytest.mark.parametrize(("word", "value"), [(".probe", PROBE), (".group", GroupInfo("g", "kLoop"))])
def test_any_part_of_a_probe_or_group_may_be_bad_or_missing(word: str, value: Probe | GroupInfo, bad: object) -> None:
    for path in list(parts(asdict(value)))[1:]:
        for remove in (False, True):
            row: Any = json.loads(json.dumps(asdict(value)))
            at = row
            for step in path[:-1]:
                at = at[step]
            if remove and isinstance(at, dict):
                del at[path[-1]]
            else:
                at[path[-1]] = bad
            assert_said_shortly(f"{word} {json.dumps(json.dumps(row))}\nhalt")


def test_a_statement_over_many_lines_takes_time_in_proportion() -> None:
    def seconds(lines: int) -> float:
        text = ".buffer b constant u8 [4] bytes=99999 data=" + ",\n".join(['"00"'] * lines) + "\nhalt"
        started = perf_counter()
        assert len(assemble(text, TINY).buffers[0].data) == lines
        return perf_counter() - started

    seconds(10)
    assert seconds(8000) < 100 * max(seconds(800), 0.002)


def test_an_array_of_too_many_dimensions_is_refused() -> None:
    dims = ", ".join(["9"] * 10_000)
    assert "10000 dimensions" in outcome(f".buffer b temp u8 [{dims}] bytes=1\nhalt")
