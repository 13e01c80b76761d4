"""Commands import what they use: libraries that take long to import are not among it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from systolith import api as sl

ADD = "HloModule m\nENTRY e {\n a = f32[8] parameter(0)\n ROOT s = f32[8] add(a, a)\n}\n"
SCRIPT = """
import contextlib, io, json, sys
{work}
print(json.dumps([name for name in sys.modules]))
"""
COMMAND = """
sys.argv = ["systolith", *{words!r}]
from systolith.runtime.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
"""


def imported(work: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(work=work)], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_what_a_command_that_lists_needs() -> None:
    assert not imported(COMMAND.format(words=["chips"])) & {
        "numpy",
        "systolith.compiler",
        "systolith.sim",
        "pydantic",
        "rich",
        "tempfile",
    }


def test_a_binary_runs_without_the_compiler(tmp_path: Path) -> None:
    path = str(sl.Client("tiny").compile(ADD).save(tmp_path / "m.slb"))
    found = imported(COMMAND.format(words=["run", path, "--mode", "time", "-q"]))
    assert "systolith.sim.simulate" in found
    assert not found & {"systolith.compiler.hlo", "systolith.compiler.driver", "systolith.reports.run_data", "jax"}
    assert not found & {"pydantic", "rich", "llvmlite", "systolith.sim.values"}  # of times only, and nothing is shown
    assert not found & {"importlib.metadata", "concurrent.futures", "systolith.isa.asm_kernel"}
    shown = imported(COMMAND.format(words=["run", path, "--mode", "time"]))
    assert "rich" in shown
    assert not shown & {"pydantic", "numpy.ma"}


def test_threads_of_products_sleep_from_the_start() -> None:
    asked = imported(COMMAND.format(words=["chips"]) + "import os; sys.modules = os.environ['OPENBLAS_THREAD_TIMEOUT']")
    assert asked == {"4"}


def test_what_the_interface_needs() -> None:
    found = imported("from systolith import api as sl; sl.Client")
    assert not found & {"systolith.compiler.driver", "systolith.reports.run_data", "pandas", "matplotlib", "jax"}
    assert not found & {"pydantic", "llvmlite"}


def test_names_that_come_later_are_there() -> None:
    assert callable(sl.sweep)
    assert callable(sl.plot.roofline)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = sl.nothing  # type: ignore[attr-defined]


def test_the_collector_leaves_to_the_system_what_there_is_at_the_end() -> None:
    asked = imported(
        COMMAND.format(words=["chips"])
        + "import atexit, gc; atexit._run_exitfuncs(); sys.modules = ['frozen'] * (gc.get_freeze_count() > 1000)"
    )
    assert asked == {"frozen"}
