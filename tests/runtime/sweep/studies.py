"""A small model, and studies of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MODEL = """\
HloModule layer
ENTRY e {
  x = f32[16,24] parameter(0)
  w = f32[24,32] parameter(1)
  y = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[16,32] tanh(y)
}
"""


def model(folder: Path, name: str = "layer.hlo", text: str = MODEL) -> str:
    (folder / name).write_text(text)
    return name


def study(folder: Path, **changes: Any) -> dict[str, Any]:
    """A study of four points on `tiny`."""
    path = folder / "layer.hlo"
    if not path.exists():
        model(folder)
    plain = {"models": [str(path)], "chips": ["tiny"], "vary": {"vmem.bytes": [4096, "64KiB"], "hbm.gbps": [1, 2]}}
    return {**plain, **changes}


def toml(folder: Path, text: str, name: str = "s.toml") -> Path:
    model(folder)
    path = folder / name
    path.write_text(text)
    return path


TEXT = """\
models = ["layer.hlo"]
chips = ["tiny"]
pareto = ["seconds", "vmem.bytes"]

[vary]
"vmem.bytes" = ["4KiB", "64KiB"]
"hbm.gbps" = [1, 2]
"""
