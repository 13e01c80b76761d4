"""Where a compilation's time goes, and whether it grows with the program: `python -m bench.bench_compile [NAME ...]`.

For each case processor seconds by stage, and microseconds an instruction.  Beside the cases of `cases.py` there are
BERTs of any depth, `bert:LAYERS:BATCHxLENGTH`: the program grows with the layers, the time an instruction must not.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import process_time
from typing import Any
from unittest.mock import patch

from bench import models
from bench.modules import lowered, module
from systolith.compiler import driver, pressure, vmem_pressure
from systolith.compiler.emit import assemble, codegen
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.lower import module as lower_module
from systolith.compiler.schedule import fitting, program
from systolith.isa.chip import load_chip

STAGES: tuple[tuple[str, object, str], ...] = (
    ("canonical HLO", driver, "canonicalise"),
    ("groups", driver, "run_pass"),
    ("placement", lower_module, "place"),
    ("lowering", vmem_pressure, "lower_module"),
    ("check of tile IR", vmem_pressure, "verify_tile_ir"),
    ("loads ahead", fitting, "prefetch"),
    ("memory plan", fitting, "plan_memory"),
    ("instructions", codegen.Generator, "run"),
    ("registers", assemble, "linearize"),
    ("tokens", assemble, "_order"),
    ("assembly", program, "assemble"),
    ("prediction", program, "predict"),
    ("table of groups", pressure, "group_infos"),
    ("probes", program, "probes"),
    ("check of the program", program, "verify_program"),
)
"""Stages by the function that does them; one that is called in another counts for itself only."""

DEPTHS = tuple(f"bert:{layers}:1x512" for layers in (1, 3, 6, 12))


class Clock:
    """Processor seconds and calls of each stage, without those of the stages in it."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._inner = [0.0]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = process_time()
        self._inner.append(0.0)
        try:
            yield
        finally:
            took = process_time() - started
            self.seconds[name] += took - self._inner.pop()
            self.calls[name] += 1
            self._inner[-1] += took

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return function(*args, **kwargs)

        return run


def parsed(name: str) -> Module:
    """The module of a case, or of a BERT of some depth."""
    if not name.startswith("bert:"):
        return module(name)
    _, layers, shape = name.split(":")
    batch, length = map(int, shape.split("x"))
    return parse_hlo(lowered(*models.bert(batch, length, int(layers))))


def measure(name: str, chip_name: str = "tpu_v3") -> None:
    """Compile one case and print a line a stage."""
    given, chip, clock = parsed(name), load_chip(chip_name), Clock()
    with ExitStack() as stack:
        for stage, where, function in STAGES:
            stack.enter_context(patch.object(where, function, clock.timed(stage, getattr(where, function))))
        with clock.stage("the rest"):
            program = driver.compile_module(given, chip).program
    total, n = sum(clock.seconds.values()), len(program.code)
    print(f"{name}: {n} instructions, {total:.2f} s, {total / n * 1e6:.0f} us an instruction")
    for stage, seconds in sorted(clock.seconds.items(), key=lambda each: -each[1]):
        print(f"  {stage:22} {seconds:7.2f} s {seconds / n * 1e6:6.1f} us, {clock.calls[stage]} calls")


if __name__ == "__main__":
    for case in sys.argv[1:] or ["resnet50_1", *DEPTHS]:
        measure(case)
