"""Passes, expanders, lowerings and custom calls of installed packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installed import install, install_example, path_of
from tests.runtime.command import systolith

MODULE = """HloModule m
ENTRY e {
  x = f32[6,10] parameter(0)
  two = f32[] constant(2)
  twos = f32[6,10] broadcast(two), dimensions={}
  p = f32[6,10] power(x, twos)
  s = f32[6,10] custom-call(p), custom_call_target="example.swish"
  ROOT h = f32[6,10] custom-call(s), custom_call_target="example.swap_halves"
}
"""


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Path]:
    """A folder for packages that are installed as long as the test runs; the test puts them there first."""
    with path_of(tmp_path):
        yield tmp_path


def test_a_module_runs_with_what_the_example_adds(packages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, dumps = packages / "m.hlo", packages / "dumps"
    module.write_text(MODULE)
    install_example(packages)
    # Values are compared with those that the package's own functions give the evaluator.
    ran = systolith(capsys, "run", module, "--chip", "tiny", "--random", 1, "--check", "--hostile")
    assert ran.code == 0, ran.err
    words = ("compile", module, "--chip", "tiny", "-o", packages / "m.slb", "--dump-dir", dumps)
    assert systolith(capsys, *words).code == 0
    canonical = (dumps / "canonical.hlo").read_text()
    assert "multiply(x, x)" in canonical
    assert "logistic(" in canonical
    assert "example.swish" not in canonical
    assert (dumps / "tile.txt").read_text().count("'swap halves'") == 1
    checked = systolith(capsys, "opt", module, "--passes", "square_powers", "--check", 2)
    assert checked.code == 0, checked.err
    assert "square-powers" in systolith(capsys, "opt", "--list").out
    # Stages go on with a package's operations.
    again = ("compile", dumps / "canonical.hlo", "--from", "canonical", "--chip", "tiny", "-o", packages / "again.slb")
    assert systolith(capsys, *again).code == 0
    assert (packages / "again.slb").read_bytes() == (packages / "m.slb").read_bytes()


def test_a_module_is_refused_without_what_the_example_adds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.hlo").write_text(MODULE)
    ran = systolith(capsys, "run", tmp_path / "m.hlo", "--chip", "tiny", "--random", 1)
    assert ran.code == 2
    assert "no lowering is registered for custom-call target 'example.swish'" in ran.err


BAD = {
    "an import that fails": ("systolith.passes", "p = bad:nothing", "", "cannot be imported: AttributeError"),
    "a module that fails": ("systolith.passes", "p = bad:P", "1 / 0", "cannot be imported: ZeroDivisionError"),
    "a pass that takes arguments": (
        "systolith.passes",
        "p = bad:P",
        "def P(chip): pass",
        "must be a function that can take no argument, and give a pass",
    ),
    "no pass": ("systolith.passes", "p = bad:P", "def P(): return 5", "gives a int, which has no run(module)"),
    "a pass that fails": (
        "systolith.passes",
        "p = bad:P",
        "class P:\n    def run(self, module): raise KeyError('x')",
        "failed: KeyError: 'x'",
    ),
    "a pass that says nothing": (
        "systolith.passes",
        "p = bad:P",
        "class P:\n    def run(self, module): pass",
        "its run gives None",
    ),
    "a pass that breaks the module": (
        "systolith.passes",
        "p = bad:P",
        "class P:\n    def run(self, module):\n        module.entry.instructions.reverse()\n        return True",
        "broke the module",
    ),
    "the name of another pass": ("systolith.passes", "dce = bad:P", "def P(): pass", "systolith has a pass of this"),
    "an expander that gives no instruction": (
        "systolith.expanders",
        "tanh = bad:E",
        "def E(r, i): return 'tanh'",
        "gives a str for 'y', not an instruction or None",
    ),
    "an expander without arguments": ("systolith.expanders", "tanh = bad:E", "def E(): pass", "must be a function"),
    "a lowering of what has one": (
        "systolith.lowerings",
        "tanh = bad:L",
        "def L(b, i, o, r): pass",
        "systolith has a lowering of tanh",
    ),
    "a custom call of the evaluator's": (
        "systolith.custom_calls",
        "TopK = bad:C",
        "def C(i, v): pass",
        "the evaluator has a custom call of this target",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_entry_point_is_refused_in_a_line_that_names_it(
    case: str, packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group, point, text, message = BAD[case]
    name, value = point.split(" = ")
    install(packages, "bad", text, {group: {name: value}})
    module = packages / "m.hlo"
    module.write_text("HloModule m\nENTRY e { x = f32[4] parameter(0)  ROOT y = f32[4] tanh(x) }\n")
    words = ("opt", module, "--passes", name) if group == "systolith.passes" else ("compile", module, "-o", "x.slb")
    ran = systolith(capsys, *words)
    assert ran.code == 2, ran.err
    (line,) = ran.err.splitlines()
    assert line.startswith(f"systolith: entry point {group} {name!r} ({value}) of bad 1.0: ")
    assert message in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def L(b, i, o, r): b.append(5)", "appends a int for 'y', not tile IR"),
        ("def L(b, i, o, r): o[0].nothing", "failed: AttributeError"),
        (
            "from systolith.compiler.tile.ir import TileOp\n"
            "def L(b, i, o, r): b.append(TileOp('mxu.latch', {'x': 1}, b.origin('bad')))",
            "tile IR: mxu.latch of 'y' (bad): arguments ['x']",
        ),
    ],
)
def test_a_bad_lowering_is_refused(text: str, message: str, packages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(packages, "bad", text, {"systolith.lowerings": {"mine": "bad:L"}})
    module = packages / "m.hlo"
    call = 'ROOT y = f32[4] custom-call(x), custom_call_target="mine"'
    module.write_text(f"HloModule m\nENTRY e {{ x = f32[4] parameter(0)  {call} }}\n")
    ran = systolith(capsys, "compile", module, "--chip", "tiny", "-o", packages / "x.slb")
    assert ran.code == 2, ran.err
    assert message in ran.err


def test_entry_points_are_looked_up_when_a_module_is_compiled_not_before(
    packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, "bad", "1 / 0", {"systolith.passes": {"p": "bad:P"}})
    assert systolith(capsys, "chips").code == 0
    assert "bad" not in sys.modules
