"""Load modules of the corpus: their text, their arguments, and what XLA computed from them.

Values come as they are stored: bf16 as its bits in uint16.
"""

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.corpus import inputs

Array = NDArray[Any]

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "build" / "corpus"

INDEX: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in json.loads((HERE / "index.json").read_text())}


@dataclass(frozen=True)
class Case:
    """One module of the corpus."""

    name: str

    @property
    def path(self) -> Path:
        """The unoptimized module's file."""
        return HERE / f"{self.name}.hlo"

    @property
    def text(self) -> str:
        """The unoptimized module: what a compiler is given."""
        return self.path.read_text()

    @property
    def optimized_text(self) -> str:
        """The module as XLA's CPU compiler left it: fusions, layouts, schedules."""
        return (HERE / f"{self.name}.opt.hlo").read_text()

    @cached_property
    def args_path(self) -> Path:
        """A file of `arg0`, `arg1`, ...: the stored one, or a generated one, which is kept for the next run."""
        if self.name not in inputs.CASES:
            return HERE / f"{self.name}.in.npz"
        version = hashlib.sha256(Path(inputs.__file__).read_bytes()).hexdigest()[:8]
        made = CACHE / f"{self.name}-{version}.npz"
        if not made.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            # Under another name first: another process may be making it, or reading it, at the same time.
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                fresh = Path(folder) / "args.npz"
                inputs.main(self.name, str(fresh))
                os.replace(fresh, made)
        return made

    @property
    def expected_path(self) -> Path:
        """The file of `out0`, `out1`, ..."""
        return HERE / f"{self.name}.out.npz"

    @cached_property
    def args(self) -> list[Array]:
        """The arguments, in parameter order."""
        return _arrays(self.args_path, "arg")

    @cached_property
    def expected(self) -> list[Array]:
        """Results of XLA's CPU backend, tuples flattened, f32 products in full f32."""
        return _arrays(self.expected_path, "out")


def load(name: str) -> Case:
    """The module called `name`."""
    if name not in INDEX:
        raise KeyError(f"the corpus has no module {name}; it has {', '.join(INDEX)}")
    return Case(name)


def names(group: str | None = None) -> list[str]:
    """Names of all modules, or of those in group `path` (run since the first release) or `later`."""
    return [name for name, entry in INDEX.items() if group in (None, entry["group"])]


def _arrays(path: Path, prefix: str) -> list[Array]:
    """`prefix`0, `prefix`1, ... of an .npz file."""
    with np.load(path) as stored:
        return [stored[f"{prefix}{i}"] for i in range(len(stored.files))]
