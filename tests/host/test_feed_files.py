"""`--infeed` and `--outfeed` as a user types them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from systolith.runtime.commands.exits import BAD_INPUT, GOOD
from tests.host.modules import ECHO
from tests.runtime.command import systolith

X, Y = np.arange(24, dtype=np.float32).reshape(4, 6), np.array([1, -2, 3], np.int32)


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    path = tmp_path / "echo.hlo"
    path.write_text(ECHO)
    return path


def feed(folder: Path, *arrays: object) -> Path:
    path = folder / "in.npz"
    np.savez(path, allow_pickle=False, **{f"infeed{n}": np.asarray(a) for n, a in enumerate(arrays)})
    return path


def test_arrays_come_from_a_file_and_go_to_one(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = echo.parent / "out.npz"
    ran = systolith(
        capsys, "run", echo, "--chip", "tiny", "--infeed", feed(echo.parent, X, Y), "--outfeed", out, "--check"
    )
    assert ran.code == GOOD
    with np.load(out) as found:
        assert found.files == ["outfeed0", "outfeed1"]
        assert (found["outfeed0"] == Y).all()
        assert (found["outfeed1"] == -X).all()


def test_types_that_files_cannot_name_are_their_bits(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    echo.write_text(ECHO.replace("f32", "bf16"))
    x, out = X.astype(ml_dtypes.bfloat16), echo.parent / "out.npz"
    given = feed(echo.parent, x.view(np.uint16), Y)
    assert systolith(capsys, "run", echo, "--chip", "tiny", "--infeed", given, "--outfeed", out).code == GOOD
    with np.load(out) as found:
        assert found["outfeed1"].dtype == np.uint16
        assert (found["outfeed1"].view(ml_dtypes.bfloat16) == -x).all()


def test_an_outfeed_that_nobody_keeps_is_said(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "run", echo, "--chip", "tiny", "--infeed", feed(echo.parent, X, Y), "--json")
    assert (ran.code, ran.err) == (GOOD, "2 arrays of the outfeed: --outfeed FILE keeps them\n")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "'i' takes f32[4,6] and the queue has fewer than 96 bytes, after 0 items"),
        ([X], "'i' takes s32[3] and the queue has fewer than 12 bytes, after 1 items"),
        ([X, Y, Y], "in.npz: the run took 2 of 3 arrays: infeed2 is left"),
        ([X.T, Y], "'i' takes f32[4,6], item 0 is f32[6,4]"),
        ([X.view(np.uint32), Y], "'i' takes f32[4,6], item 0 is u32[4,6]"),
        ([X, np.array(["a"])], "in.npz: infeed1: numpy type <U1 has no XLA element type"),
    ],
)
def test_other_arrays_are_refused_in_one_line(
    echo: Path, capsys: pytest.CaptureFixture[str], arrays: list[object], message: str
) -> None:
    out = echo.parent / "out.npz"
    ran = systolith(capsys, "run", echo, "--chip", "tiny", "--infeed", feed(echo.parent, *arrays), "--outfeed", out)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (BAD_INPUT, "", 1)
    assert message in ran.err
    assert not out.exists()


def test_options_that_need_values(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--infeed", "--outfeed"):
        ran = systolith(capsys, "run", echo, "--chip", "tiny", "--mode", "time", option, "x.npz")
        assert (ran.code, ran.err) == (
            BAD_INPUT,
            f"systolith: {option} needs values, which --mode time does not compute\n",
        )
    assert systolith(capsys, "run", echo, "--chip", "tiny", "--mode", "time").code == GOOD


def test_lockstep_takes_the_same_file(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = echo.parent / "in.npz"
    np.savez(given, infeed0=X, infeed1=Y, cycles=np.array([50, 700]))
    ran = systolith(capsys, "lockstep", echo, "--infeed", given)
    assert ran.code == GOOD
    assert ": no difference; RTL" in ran.out
