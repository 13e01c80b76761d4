"""Which tests can see a fault in a module: fast ones first."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

AREAS = ("compiler/systolith/compiler", "sim/systolith/sim", "isa/systolith/isa")

_BACK_END = "codegen tile tokens memory gemm vpu fusion driver"
TESTS: dict[str, str] = {
    "isa/systolith/isa/numerics": "isa_numerics sim_values programs",
    "isa/systolith/isa": "isa isa_numerics sim_time sim_values programs test_goldens.py reports hw",
    "sim/systolith/sim": "sim_time sim_values programs test_goldens.py reports hw",
    "compiler/systolith/compiler/hlo": "compiler/hlo compiler/passes seeds runtime",
    "compiler/systolith/compiler/xla_builder": "compiler/xla_builder seeds",
    "compiler/systolith/compiler/passes": "compiler/passes compiler/driver seeds",
    "compiler/systolith/compiler": " ".join(f"compiler/{name}" for name in _BACK_END.split())
    + " test_goldens.py seeds bench runtime",
}
"""Source folder to folders and files of `tests`; the longest folder that a module is in counts."""


def select(module: str, root: Path) -> list[str]:
    """Tests that can see a module, paths below `root`: those that name it, then those of its folder.

    Args:
        module: its path below `root`.
        root: where `tests` is.
    """
    folder = max((f for f in TESTS if module.startswith(f + "/")), key=len)
    name = module.split("/", 1)[1].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    found = [path for path, names in _imports(root).items() if name in names]
    for word in TESTS[folder].split():
        path = root / "tests" / word
        found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    return list(dict.fromkeys(str(path.relative_to(root)) for path in found))


@cache
def _imports(root: Path) -> dict[Path, set[str]]:
    """The modules that each test imports from."""
    statement = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)
    return {p: set(statement.findall(p.read_text())) for p in sorted((root / "tests").rglob("test_*.py"))}
