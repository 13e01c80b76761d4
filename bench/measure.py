"""One case measured: cycles against the chip's bound, and host time."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from bench.losses import Loss, losses
from bench.modules import module, native_seconds
from bench.prediction import Predicted, predictions
from systolith.compiler.bounds.bound import Bound, bound
from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.clone import clone
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import load_chip
from systolith.isa.program import Program
from systolith.sim.simulate import simulate


@dataclass(frozen=True)
class Measured:
    """A case on a chip.

    Attributes:
        cycles: of the run in mode `time`.
        bound: cycles that it takes at least, by the rules of `compiler/bounds/`.
        hbm_share: part of the HBM's bandwidth that was used.
        useful_macs: multiply-accumulates of the module over the peak of the arrays in that time.
        executed, program: instructions of the run, and of the binary.
        compile_seconds, simulate_seconds: host time, mode `time`.
        peak_bytes: high-water mark of the process that compiled and simulated in mode `time`.
        values_seconds: host time of a run with values and time, the second one; None: not measured.
        native_seconds: of XLA's CPU backend, after its first run; None: not measured.
        groups: cycles of each group, as the compiler expected them and as simulated.
        losses: groups that took longer than their own bound.
    """

    name: str
    cycles: int
    bound: Bound
    hbm_share: float
    useful_macs: float
    executed: int
    program: int
    compile_seconds: float
    simulate_seconds: float
    peak_bytes: int
    values_seconds: float | None = None
    native_seconds: float | None = None
    groups: tuple[Predicted, ...] = ()
    losses: tuple[Loss, ...] = ()


def measure(name: str, chip_name: str, native: bool, values: bool) -> Measured:
    """Compile a case, run it in mode `time`, and, if asked for, with values and natively.

    Raises:
        AssertionError: the run with values takes other cycles than the one without.
    """
    chip = load_chip(chip_name)
    parsed = module(name)
    canonical = canonicalise(clone(parsed))
    limits = bound(canonical, chip)
    started = perf_counter()
    compiled = compile_module(parsed, chip)
    compile_seconds = perf_counter() - started
    result = simulate(compiled.program, chip, mode="time")
    assert result.cycles is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    arrays = chip.mxu.count * chip.mxu.rows * chip.mxu.cols
    values_seconds = None
    if values:
        parameters = _random_parameters(compiled.program)
        simulate(compiled.program, chip, parameters)  # makes machine code of kernels, as XLA's first run does
        full = simulate(compiled.program, chip, parameters)
        assert full.cycles == result.cycles, f"{name}: {full.cycles} cycles with values, {result.cycles} without"
        values_seconds = full.wall_seconds["simulate"]
    return Measured(
        name,
        result.cycles,
        limits,
        sum(result.to_json()["hbm_bytes"].values()) / (result.cycles * chip.hbm.p / chip.hbm.q),
        limits.macs / (arrays * result.cycles),
        result.instructions,
        len(compiled.program.code),
        compile_seconds,
        result.wall_seconds["simulate"],
        peak,
        values_seconds,
        native_seconds(name) if native else None,
        predictions(name, result),
        losses(name, result, canonical, chip),
    )


def _random_parameters(program: Program) -> dict[int, np.ndarray]:
    """Normal floats, and zeros for integers, as uint8."""
    rng = np.random.default_rng(0)
    found = {}
    for number, b in enumerate(program.buffers):
        if b.role == "parameter":
            count = int(np.prod(b.dims))
            floats = rng.standard_normal(count, np.float32)
            is_float = b.dtype in ("f32", "bf16")
            memory = floats.view(np.uint8) if b.dtype == "f32" else floats.view(np.uint16)[1::2].copy().view(np.uint8)
            found[number] = memory if is_float else np.zeros(b.bytes, np.uint8)
    return found
