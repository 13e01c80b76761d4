"""Which tests can see a fault in a module: fast ones first."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

AREAS = ("compiler/systolith/compiler", "sim/systolith/sim", "isa/systolith/isa")

TESTS: dict[str, str] = {
    "isa/systolith/isa/numerics": "isa_numerics sim_values programs",
    "isa/systolith/isa": "isa isa_numerics sim_time sim_values programs test_goldens.py reports runtime hw",
    "sim/systolith/sim": "sim_time sim_values programs test_goldens.py reports runtime hw",
    "compiler/systolith/compiler/hlo": "compiler/hlo compiler/passes",
    "compiler/systolith/compiler/xla_builder": "compiler/xla_builder",
    "compiler/systolith/compiler/passes": "compiler/passes",
    "compiler/systolith/compiler/ops": "compiler/vpu",
    "compiler/systolith/compiler/index": "compiler/vpu compiler/gemm",
    "compiler/systolith/compiler/vpu": "compiler/vpu",
    "compiler/systolith/compiler/mxu": "compiler/gemm",
    "compiler/systolith/compiler/groups": "compiler/fusion",
    "compiler/systolith/compiler/tiling": "compiler/fusion",
    "compiler/systolith/compiler/lower": "compiler/fusion",
    "compiler/systolith/compiler/memory": "compiler/memory",
    "compiler/systolith/compiler/tile": "compiler/tile compiler/vpu",
    "compiler/systolith/compiler/emit": "compiler/codegen compiler/tokens",
    "compiler/systolith/compiler": "test_goldens.py compiler seeds bench runtime",
}
"""Source folder to folders and files of `tests`: those of the longest folder that a module is in, then the others'."""


def select(module: str, root: Path) -> list[str]:
    """Tests that can see a module, paths below `root`: those that name it, then those of its folder.

    Args:
        module: its path below `root`.
        root: where `tests` is.
    """
    folders = sorted((f for f in TESTS if module.startswith(f + "/")), key=len, reverse=True)
    name = module.split("/", 1)[1].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    found: list[Path] = []
    for word in " ".join(TESTS[f] for f in folders).split():
        path = root / "tests" / word
        found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    naming = [path for path, names in _imports(root).items() if name in names]
    direct = sorted(naming, key=lambda path: found.index(path) if path in found else len(found))
    return list(dict.fromkeys(str(path.relative_to(root)) for path in [*direct, *found]))


@cache
def _imports(root: Path) -> dict[Path, set[str]]:
    """The modules that each test imports from."""
    statement = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)
    return {p: set(statement.findall(p.read_text())) for p in sorted((root / "tests").rglob("test_*.py"))}
