"""Rewrite the known cycles: python -m tests.bless [programs] [corpus]; prints the changes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from tests.goldens import CORPUS, PROGRAMS, corpus_cycles, corpus_keys, known
from tests.programs.cases import CASES, CHIPS
from tests.programs.run import ran


def _programs() -> dict[str, int | None]:
    return {f"{name} {chip}": ran(name, chip).cycles for name in CASES for chip in CHIPS}


def _corpus() -> dict[str, int | None]:
    return {key: corpus_cycles(key) for key in corpus_keys()}


FILES: dict[str, tuple[Path, Callable[[], dict[str, int | None]]]] = {
    "programs": (PROGRAMS, _programs),
    "corpus": (CORPUS, _corpus),
}


def main(wanted: list[str]) -> int:
    """Write the files named, or both; an exit code."""
    if unknown := [w for w in wanted if w not in FILES]:
        print(f"bless: {unknown[0]}: must be {' or '.join(FILES)}", file=sys.stderr)
        return 2
    for name in wanted or FILES:
        path, measure = FILES[name]
        old = known(path) if path.exists() else {}
        new = dict(sorted(measure().items()))
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                print(f"{key}: {old.get(key)} -> {new.get(key)}")
        path.write_text(json.dumps(new, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
