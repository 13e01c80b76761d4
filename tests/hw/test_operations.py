"""Every operation that the compiler has, on simulator and RTL: the evaluator's values, no bit or cycle apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.hw.lockstep import Case, Lockstep
from systolith.isa.chip import load_chip
from systolith.isa.program import Role
from systolith.runtime.arrays import random_array
from systolith.runtime.executable import bind, numbered
from tests.compiler.machine import Array, check
from tests.compiler.ops.test_table import stated
from tests.hw.operation_modules import MODULES


@pytest.fixture(scope="module")
def both() -> Iterator[Lockstep]:
    with Lockstep(load_chip("tiny")) as running:
        yield running


def arguments_of(text: str) -> list[Array]:
    rng = np.random.default_rng(7)
    return [random_array(rng, p.shape.dtype, p.shape.dims) for p in parse_hlo(text).entry.parameters]


def test_the_modules_have_every_operation_that_runs() -> None:
    found = {i.opcode for text in MODULES.values() for i in parse_hlo(text).instructions()}
    assert {opcode for opcode, state in stated() if state.startswith("runs")} - found == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_operations_in_lockstep(both: Lockstep, name: str) -> None:
    text = MODULES[name]
    given = arguments_of(text)
    with np.errstate(all="ignore"):
        program = check(text, given, most=1e-4).program
    raw = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in given]
    results = [np.zeros(d.bytes, np.uint8) for _, d in numbered(program, Role.RESULT)]
    result = both.run(Case(program, bind(program, raw, results)))
    assert result.ok, result.difference
