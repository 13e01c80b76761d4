"""Runs of one program that share what is decoded of it: as if each instruction were looked at by itself."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.isa.chip import Chip, load_chip, variant
from systolith.isa.chip_energy import ENERGY
from systolith.isa.events import EventModel
from systolith.isa.instruction import Space
from systolith.isa.program import Program
from systolith.isa.timing import CostModel
from systolith.runtime.sweep.work import moved
from systolith.sim.decoded import Decoded
from systolith.sim.simulate import simulate
from tests.corpus.load import load
from tests.examples import examples

TINY = load_chip("tiny", {name: n + 3 for n, name in enumerate(ENERGY)} | {"energy.leakage": 1.5})
FIELDS = {"hbm.p": st.integers(1, 64), "hbm.latency": st.integers(10, 400), "mxu.load_latency": st.integers(1, 40)}


@lru_cache(maxsize=1)
def program() -> tuple[Program, Decoded]:
    made = compile_module(parse_hlo(load("lstm_scan").text), TINY).program
    return made, Decoded(made)


@examples(3, 100)
@given(st.fixed_dictionaries(FIELDS))
def test_runs_on_other_chips(settings: dict[str, int]) -> None:
    chip = variant(TINY, settings)
    made, decoded = program()
    there = moved(made, chip)
    shared, alone = (simulate(there, chip, mode="time", decoded=d) for d in (decoded, None))
    assert (shared.cycles, shared.units, shared.instructions) == (alone.cycles, alone.units, alone.instructions)
    assert shared.trace is not None
    assert alone.trace is not None
    for column in ("index", "queue", "issue", "start", "end", "retire"):
        assert np.array_equal(getattr(shared.trace, column), getattr(alone.trace, column))
    _check_each(there, chip, shared.facts, None if shared.energy is None else shared.energy.once)


def _check_each(made: Program, chip: Chip, facts: object, once: list[int] | None) -> None:
    """Facts and energies of instructions, computed one by one."""
    costs, events = CostModel(made, chip), EventModel(made, chip)
    rows, energies = [], []
    for instr, origin in zip(made.code, made.debug, strict=True):
        cost, src = costs.of(instr), instr.args.get("src")
        reads = getattr(src, "space", None) is Space.HBM
        macs = made.origins[origin].macs if instr.op == "mxu.matmul" else 0
        active = cost.array_active if instr.op == "mxu.matmul" else 0
        rows.append((cost.hbm_bytes * reads, cost.hbm_bytes * (not reads), macs, active))
        energies.append(sum(n * getattr(chip.energy, event) for event, n in events.of(instr).items()))
    for name, column in zip(("read", "written", "macs", "active"), zip(*rows, strict=True), strict=True):
        assert getattr(facts, name).tolist() == list(column)
    assert once is not None
    assert [a for a, b in zip(once, energies, strict=True) if a != b and a] == []
