"""Bad input: exit code 2, one line on stderr, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from systolith.isa.binary import load as load_binary
from systolith.isa.binary import save
from systolith.isa.chip import PRESETS
from systolith.runtime.arrays import Array
from tests.corpus.load import load
from tests.runtime.command import Ran, systolith

TEXT = load("mlp_infer").text
DOT = """HloModule m
ENTRY main {
  a = f32[8,8] parameter(0)
  b = f32[8,8] parameter(1)
  ROOT d = f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
Command = Callable[..., Ran]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return lambda *words: systolith(capsys, *words)


def refused(ran: Ran, *parts: str) -> None:
    """Exit code 2, one line (a parse error may add the source line and a caret), no traceback."""
    assert ran.code == 2, ran
    lines = ran.err.splitlines()
    assert lines, ran
    assert lines[0].startswith("systolith: ")
    assert len(lines) <= 3, ran.err
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in lines[0], ran.err


HLO_CASES = {
    "empty": ("", "empty"),
    "cut in the middle": (TEXT[: len(TEXT) // 2], ""),
    "cut inside the header": (TEXT[:40], ""),
    "no such op": (DOT.replace("dot(", "frobnicate("), "frobnicate"),
    "undefined operand": (DOT.replace("dot(a, b)", "dot(a, q)"), "q"),
    "shapes disagree": (DOT.replace("ROOT d = f32[8,8]", "ROOT d = f32[8,9]"), "f32[8,9]"),
    "contraction disagrees": (DOT.replace("b = f32[8,8]", "b = f32[7,8]"), "dot"),
    "not HLO": ("hello, world\n", ""),
    "huge shape": (DOT.replace("f32[8,8]", "f32[999999999,999999999]"), ""),
    "custom call": (
        "HloModule m\nENTRY e {\n a = f32[4] parameter(0)\n"
        ' ROOT c = f32[4] custom-call(a), custom_call_target="mine"\n}\n',
        "mine",
    ),
}


@pytest.mark.parametrize("name", HLO_CASES)
def test_bad_hlo(name: str, command: Command, tmp_path: Path) -> None:
    text, part = HLO_CASES[name]
    path = tmp_path / "m.hlo"
    path.write_text(text)
    refused(command("run", path, "--random", 0, "--chip", "tiny", "--json"), part)
    refused(command("compile", path, "--chip", "tiny", "-o", tmp_path / "m.slb"), part)
    assert not (tmp_path / "m.slb").exists()


def test_a_file_that_is_not_there(command: Command, tmp_path: Path) -> None:
    refused(command("run", tmp_path / "none.hlo", "--random", 0), "none.hlo")


@pytest.fixture
def dot(tmp_path: Path) -> Path:
    path = tmp_path / "dot.hlo"
    path.write_text(DOT)
    return path


ARGUMENT_CASES: dict[str, tuple[list[Array], str]] = {
    "wrong shape": ([np.zeros((8, 8), np.float32), np.zeros((8, 7), np.float32)], "argument 1"),
    "wrong dtype": ([np.zeros((8, 8), np.float64), np.zeros((8, 8), np.float32)], "argument 0"),
    "too few": ([np.zeros((8, 8), np.float32)], "1 arguments, the module takes 2"),
}


@pytest.mark.parametrize("name", ARGUMENT_CASES)
def test_bad_arguments(name: str, command: Command, dot: Path, tmp_path: Path) -> None:
    arrays, part = ARGUMENT_CASES[name]
    np.savez(tmp_path / "in.npz", allow_pickle=False, **{f"arg{i}": a for i, a in enumerate(arrays)})
    refused(command("run", dot, "--args", tmp_path / "in.npz", "--out", tmp_path / "out.npz"), part)
    refused(command("run", dot, "--args", tmp_path / "in.npz", "--mode", "time"), part)
    assert not (tmp_path / "out.npz").exists()


def test_a_file_of_arguments_that_is_not_there(command: Command, dot: Path, tmp_path: Path) -> None:
    for mode in ("full", "time"):
        refused(command("run", dot, "--args", tmp_path / "none.npz", "--mode", mode), "none.npz")


def test_no_arguments(command: Command, dot: Path) -> None:
    refused(command("run", dot), "--args", "--random")


def test_time_has_no_values_to_check(command: Command, dot: Path) -> None:
    refused(command("run", dot, "--mode", "time", "--check"), "--check", "time")


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("[vmem]", "[vmen]", ("vmen",)),
        ("rows", "rowz", ("rowz",)),
    ],
)
def test_chip_file_with_a_wrong_field(
    command: Command, dot: Path, tmp_path: Path, old: str, new: str, parts: tuple[str, ...]
) -> None:
    chip = tmp_path / "mine.toml"
    chip.write_text(preset_toml("tiny").replace(old, new, 1))
    refused(command("run", dot, "--random", 0, "--chip", chip), "mine.toml", *parts)


def preset_toml(name: str) -> str:
    return (PRESETS / f"{name}.toml").read_text()


def test_chip_whose_vmem_cannot_hold_a_tile(command: Command, dot: Path, tmp_path: Path) -> None:
    chip = tmp_path / "mine.toml"
    head, tail = preset_toml("small").split("[vmem]")
    lines = tail.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("bytes"))
    chip.write_text(head + "[vmem]" + "\n".join([*lines[:at], "bytes = 1024", *lines[at + 1 :]]))
    refused(command("run", dot, "--random", 0, "--chip", chip), "vmem")


def test_unknown_chip(command: Command, dot: Path) -> None:
    refused(command("run", dot, "--random", 0, "--chip", "nochip"), "nochip")


@pytest.fixture
def binary(command: Command, dot: Path, tmp_path: Path) -> Path:
    path = tmp_path / "dot.slb"
    assert command("compile", dot, "--chip", "tiny", "-o", path).code == 0
    return path


@pytest.mark.parametrize("where", [0.0, 0.1, 0.5, 0.99])
def test_binary_with_a_flipped_bit(command: Command, binary: Path, where: float) -> None:
    data = bytearray(binary.read_bytes())
    data[int(where * (len(data) - 1))] ^= 0x10
    binary.write_bytes(bytes(data))
    refused(command("run", binary, "--random", 0, "--chip", "tiny"), "dot.slb")
    refused(command("disasm", binary), "dot.slb")


def test_truncated_binary(command: Command, binary: Path) -> None:
    binary.write_bytes(binary.read_bytes()[:-9])
    refused(command("run", binary, "--random", 0, "--chip", "tiny"), "dot.slb")


def test_binary_of_another_chip(command: Command, binary: Path) -> None:
    refused(command("run", binary, "--random", 0, "--chip", "small"), "tiny", "small")


@pytest.mark.parametrize("option", ["--out", "--trace", "--report"])
def test_unwritable_output(command: Command, dot: Path, tmp_path: Path, option: str) -> None:
    refused(command("run", dot, "--random", 0, "--chip", "tiny", option, tmp_path / "none" / "x"), "none")


def test_bad_usage(command: Command, dot: Path) -> None:
    refused(command("run", dot, "--mode", "quick"), "quick")
    refused(command("fly"), "fly")
    refused(command("run"), "FILE")


def test_bad_assembly(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "p.s"
    path.write_text("  li r1\n")
    refused(command("asm", path, "-o", tmp_path / "p.slb"), "p.s")
    assert not (tmp_path / "p.slb").exists()


@pytest.mark.parametrize("option", ["--trace", "--report"])
def test_values_have_no_cycles_to_show(command: Command, dot: Path, tmp_path: Path, option: str) -> None:
    refused(command("run", dot, "--random", 0, "--mode", "values", option, tmp_path / "x"), option, "cycles")
    assert not (tmp_path / "x").exists()


def test_a_seed_is_not_negative(command: Command, dot: Path) -> None:
    refused(command("run", dot, "--random", -1), "--random")


def test_a_dump_folder_that_is_a_file(command: Command, dot: Path, tmp_path: Path) -> None:
    refused(command("compile", dot, "--chip", "tiny", "-o", tmp_path / "d.slb", "--dump-dir", dot), "dot.hlo")
    assert not (tmp_path / "d.slb").exists()


def test_a_binary_that_breaks_a_rule(command: Command, binary: Path) -> None:
    program = load_binary(binary)
    program.patterns = [replace(p, strides=tuple(9999 * s for s in p.strides)) for p in program.patterns]
    save(program, binary)
    refused(command("run", binary, "--random", 0, "--chip", "tiny", "--mode", "time"), "dma.load", "bytes")
