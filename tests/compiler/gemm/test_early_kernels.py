"""Kernels whose parts start before the product that they read is made."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from systolith.compiler.driver import Compiled
from systolith.compiler.schedule import fitting
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import TINY, Array, checked, compiled, error, run


def pooled(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """A convolution of few features, and a pool whose windows overlap."""
    numbers = ("NHWC", "HWIO", "NHWC")
    y: jax.Array = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers) + b)
    largest: jax.Array = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    return largest


SHAPES = [(1, 64, 16, 3), (3, 3, 3, 8), (8,)]


def made() -> tuple[Compiled, str, list[Array]]:
    rng = np.random.default_rng(0)
    args: list[Array] = [(rng.standard_normal(s) / 2).astype(np.float32) for s in SHAPES]
    text = hlo(pooled, args)
    return compiled(text, TINY, "highest"), text, args


def parts(program: Compiled) -> list[str]:
    return [d.chosen for d in program.explain if d.kind == "schedule" and d.group]


def test_values_are_those_of_xla() -> None:
    program, text, args = made()
    assert parts(program) == ["in 8 parts, each after the last operation that it depends on"]
    (got,), (wanted,) = run(program.program, TINY, args), run_xla(text, *args)
    assert error(got, wanted) < 1e-5


def test_each_group_is_checked() -> None:
    """Operands of the kernel lie where they are until its last part."""
    program, _, args = made()
    report = checked(program, TINY, args)
    assert report.executions == report.groups == len(program.program.probes)


def scaled(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    """A group that first reads the first of two products, and the second one only later."""
    y: jax.Array = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    s: jax.Array = (y.reshape(128, -1) @ v).sum(0)
    return jnp.exp(y - y.max((1, 2), keepdims=True)) * s


def test_operands_of_a_group_lie_where_they_are_with_its_first_kernel() -> None:
    """Those, too, that this kernel has no use for: unwritten ones would leave the group unchecked."""
    rng = np.random.default_rng(0)
    args: list[Array] = [rng.standard_normal(s).astype(np.float32) for s in ((2, 64, 16, 3), (3, 3, 3, 16), (256, 16))]
    report = checked(compiled(hlo(scaled, args), TINY, "highest"), TINY, args)
    assert report.executions == report.groups
    assert report.unchecked == 0


def test_a_pool_is_made_while_the_matrix_units_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    early = simulate(made()[0].program, TINY, mode="time").cycles

    monkeypatch.setattr(fitting, "start_early", lambda block, chip: (block, {}))
    program, _, _ = made()
    assert not parts(program)
    late = simulate(program.program, TINY, mode="time").cycles
    assert early is not None
    assert late is not None
    assert early < late
