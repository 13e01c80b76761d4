"""Every operation in every element type in which it runs: hostile mode against the evaluator, and the core in lockstep.

The evaluator is compared with XLA elsewhere (docs/oracles.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.hw.lockstep import Case, Lockstep
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DTYPES, ELEMENT_TYPES, DType, Kind
from systolith.isa.program import Program, Role
from systolith.runtime.arrays import random_array
from tests.compiler.machine import Array, run
from tests.operations.probes import FED, bodies, compiled, legal, text

TINY = load_chip("tiny")
ALONE = sorted(bodies().keys() - FED)
"""Opcodes whose probes run without a host; transfers with it run in `tests/host/test_compiled_feeds.py`."""

OFTEN = ("add", "convert", "gather", "reduce")
"""Opcodes that are run in every test run; the others are slow together. Sorts have tests of their own."""


def arguments(t: DType) -> list[Array]:
    rng = np.random.default_rng(7)
    return [*(random_array(rng, t, (4, 6)) for _ in range(2)), np.asarray(1, np.int32)]


def tolerance(t: DType) -> float:
    """Some roundings of the element type: those of functions and sums."""
    return 8 * float(t.finfo.eps) if t.kind in (Kind.FLOAT, Kind.COMPLEX) else 0.0


def assert_near(got: Array, wanted: Array, most: float, where: str) -> None:
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    if got.dtype.kind == "c":
        got, wanted = (a.view(a.real.dtype) for a in (np.ascontiguousarray(got), np.ascontiguousarray(wanted)))
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    scale = np.abs(b[np.isfinite(b)]).max(initial=0)
    with np.errstate(invalid="ignore"):
        assert (same | (np.abs(a - b) <= most * scale)).all(), f"{where}: {a} is not {b}"


@pytest.mark.parametrize("opcode", [o if o in OFTEN else pytest.param(o, marks=pytest.mark.slow) for o in ALONE])
def test_values(opcode: str) -> None:
    for t in DTYPES.values():
        made = compiled(opcode, t, TINY) if legal(opcode, t) else None
        if made is None:
            continue
        args = arguments(t)
        wanted = evaluate(parse_hlo(text(opcode, t)), *args, precision="highest")
        for got, want in zip(run(made.program, TINY, args), wanted, strict=True):
            assert_near(got, want, tolerance(t), f"{opcode} of {t}")


@pytest.fixture(scope="module")
def core() -> Iterator[Lockstep]:
    with Lockstep(TINY) as both:
        yield both


def given(program: Program, args: list[Array]) -> dict[int, Array]:
    return {
        n: np.frombuffer(args[b.number].tobytes(), np.uint8)
        for n, b in enumerate(program.buffers)
        if b.role is Role.PARAMETER
    }


def lockstep(core: Lockstep, opcode: str, most: int) -> None:
    """0 bits and 0 cycles apart, in the first types in which the operation runs."""
    for t in [DTYPES["f32"], DTYPES["s32"], DTYPES["u32"], *DTYPES.values()]:
        made = compiled(opcode, t, TINY) if most and legal(opcode, t) else None
        if made is not None:
            result = core.run(Case(made.program, given(made.program, arguments(t))))
            assert result.ok, f"{opcode} of {t}: {result.difference}"
            most -= 1


@pytest.mark.parametrize("opcode", ALONE)
def test_lockstep(core: Lockstep, opcode: str) -> None:
    lockstep(core, opcode, 1)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", ALONE)
def test_lockstep_in_every_type(core: Lockstep, opcode: str) -> None:
    lockstep(core, opcode, len(DTYPES) + 3)


@pytest.mark.slow
@pytest.mark.parametrize("t", [t for t in ELEMENT_TYPES.values() if t.code < 0], ids=str)
def test_types_that_no_instruction_has(core: Lockstep, t: DType) -> None:
    for opcode in (o for o in ALONE if legal(o, t)):
        made = compiled(opcode, t, TINY)
        if made is None:
            assert opcode in ("atan", "stochastic-convert")  # not defined for these
            continue
        args = arguments(t)
        with np.errstate(all="ignore"):
            wanted = evaluate(parse_hlo(text(opcode, t)), *args, precision="highest")
        for got, want in zip(run(made.program, TINY, args), wanted, strict=True):
            assert_near(got, want, tolerance(t), f"{opcode} of {t}")
        result = core.run(Case(made.program, given(made.program, args)))
        assert result.ok, f"{opcode} of {t}: {result.difference}"
