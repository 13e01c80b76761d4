"""Autotuning with this simulator: options that ask for it get a tuner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from systolith.compiler.options import Options
from systolith.isa.chip import Chip
from systolith.isa.program import Program
from systolith.sim.sequencer import TraceNeededError
from systolith.sim.simulate import simulate


def with_tuner(options: Options, chip: Chip, stage: Callable[[str], None] = lambda _: None) -> Options:
    """The options, able to autotune where they ask for it.

    Args:
        options: as the user gave them.
        chip: the target.
        stage: told each trial, for progress.
    """
    if not options.autotune or options.tuner is not None:
        return options
    from systolith.compiler.autotune import Tuner, default_cache  # late: it takes long to import

    def measure(program: Program) -> int | None:
        try:
            return simulate(program, chip, mode="time").cycles
        except TraceNeededError:
            return None

    return replace(options, tuner=Tuner(options.autotune, measure, options.autotune_cache or default_cache(), stage))
