"""Assemble and run the programs."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from systolith.isa.asm import assemble
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import dtype
from systolith.isa.program import Program, Role
from systolith.sim.memory import Machine
from systolith.sim.simulate import RunResult, simulate
from tests.programs.cases import CASES, Array, Arrays

SEED = 20260401


@lru_cache
def assembled(name: str, chip: str) -> Program:
    """The program called `name` for a chip."""
    return assemble(CASES[name].path.read_text(), load_chip(chip))


def arguments(name: str) -> Arrays:
    """Its arguments, the same every time."""
    return CASES[name].arguments(np.random.default_rng(SEED))


def _bound(program: Program, given: Arrays) -> dict[int, Array]:
    parameters = {b.number: i for i, b in enumerate(program.buffers) if b.role is Role.PARAMETER}
    bound = {}
    for number, array in enumerate(given):
        decl = program.buffers[parameters[number]]
        assert (array.dtype, array.shape) == (dtype(decl.dtype).stored, decl.dims)
        bound[parameters[number]] = np.frombuffer(array.tobytes(), np.uint8).copy()
    return bound


def _through_queues(program: Program, given: Arrays, chip: str) -> RunResult:
    """A run whose arguments and results (f32) go through host queues."""
    machines = []

    def fill(machine: Machine) -> None:
        machines.append(machine)
        for array in given:
            machine.infeed[0].push(array)

    result = simulate(program, load_chip(chip), hostile=True, setup=fill)
    sent = machines[0].outfeed[1].contents().view(np.float32)
    result.outputs = [sent.reshape(given[0].shape)]
    return result


@lru_cache
def ran(name: str, chip: str) -> RunResult:
    """A run of the program called `name` in hostile mode, with values and time."""
    program, given = assembled(name, chip), arguments(name)
    if CASES[name].host:
        return _through_queues(program, given, chip)
    return simulate(program, load_chip(chip), _bound(program, given), hostile=True)
