"""Known cycles, compared exactly.  `python -m tests.bless` rewrites them, after a change that is meant to."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from systolith.isa.chip import load_chip
from systolith.runtime.jobs.job import Request, run
from tests.corpus.load import load

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs" / "goldens.json"
CORPUS = HERE / "goldens.json"

# Quick to compile for every chip.
MODULES = (
    "mlp_infer", "mlp_infer_bf16", "lenet_infer", "int8_dot_i32", "bf16_dot_f32", "cond_switch", "gpt2_decode_kvcache",
)  # fmt: skip
CHIPS = ("tiny", "small", "tpu_v3")
PRECISIONS = ("default", "highest")
DATA_DEPENDENT = ("cond_switch",)  # which way it goes: values are needed


def corpus_keys() -> list[str]:
    """`module chip precision` of everything that is recorded."""
    return [f"{m} {c} {p}" for m in MODULES for c in CHIPS for p in PRECISIONS]


def corpus_cycles(key: str) -> int | None:
    """Compile and time the module, chip and precision of a key."""
    name, chip, precision = key.split()
    case, values = load(name), name in DATA_DEPENDENT
    arguments, mode = (case.args_path, "full") if values else (None, "time")
    request = Request(case.path, load_chip(chip), args=arguments, mode=mode, precision=precision)
    return run(request).result.cycles


@cache
def known(path: Path) -> dict[str, int]:
    """The entries of a file of cycles."""
    cycles: dict[str, int] = json.loads(path.read_text())
    return cycles


def check(path: Path, key: str, cycles: int | None) -> None:
    """Compare with the file's entry."""
    want = known(path).get(key)
    assert cycles == want, f"{key}: {cycles} cycles, {path.name} says {want}; if meant: python -m tests.bless"
