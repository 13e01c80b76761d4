"""An optimiser's step on stacks of weights, in the loop that leaves their gradients: where it may be, same values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.modules import lowered
from systolith.compiler.groups.loop_updates import UpdateInLoops
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.pipeline import canonicalise
from systolith.hw.lockstep import lockstep
from systolith.isa.chip import Chip
from systolith.isa.program import Role
from tests.compiler.machine import CHIPS, TINY, Array, check, compiled, memory, with_vmem
from tests.examples import examples

CHIP = with_vmem(TINY, 8 << 10)
"""With so little memory that the loop's stacks of gradients are large."""


@dataclass(frozen=True)
class Case:
    """A training step of layers in a scan.

    Attributes:
        step: gives what becomes of the weights and the state, of these, the gradients, and the number of the step.
        donated: whether the new values have the memory of the old ones.
        next: whether each layer reads the next one's weights, too, in the backward pass again.
        layers, width: sizes.
    """

    step: Callable[..., Any]
    donated: bool = True
    next: bool = False
    layers: int = 3
    width: int = 16

    @cached_property
    def text(self) -> str:
        def loss(w: jax.Array, x: jax.Array) -> jax.Array:
            def layer(x: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
                own, at = given
                own = own + jax.lax.stop_gradient(w)[(at + 1) % self.layers] if self.next else own
                return x + jnp.tanh(x @ own), None

            body = jax.checkpoint(layer, prevent_cse=False) if self.next else layer
            return jnp.sum(jax.lax.scan(body, x, (w, jnp.arange(self.layers)))[0] ** 2)

        def train(w: jax.Array, m: jax.Array, v: jax.Array, x: jax.Array, at: jax.Array) -> Any:
            value, g = jax.value_and_grad(loss)(w, x)
            return *self.step(w, m, v, g, at), value + at

        donated = (0, 1, 2) if self.donated else ()
        with jax.default_matmul_precision("highest"):
            return lowered(train, self.arguments, donated)

    @cached_property
    def arguments(self) -> list[Array]:
        rng = np.random.default_rng(3)
        w, m, v = (0.2 * rng.standard_normal((self.layers, self.width, self.width)) for _ in range(3))
        x = rng.standard_normal((8, self.width))
        return [a.astype(np.float32) for a in (w, m, v**2, x)] + [np.array(3, np.float32)]


def sgd(w: Any, m: Any, v: Any, g: Any, at: Any) -> tuple[Any, ...]:
    return w - 0.1 * g, m, v


def momentum(w: Any, m: Any, v: Any, g: Any, at: Any) -> tuple[Any, ...]:
    m = 0.9 * m + g
    return w - 0.1 * m, m, v


def adam(w: Any, m: Any, v: Any, g: Any, at: Any) -> tuple[Any, ...]:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return w - 0.01 * (m / (1 - 0.9**at)) / (jnp.sqrt(v / (1 - 0.99**at)) + 0.1), m, v


def decayed(w: Any, m: Any, v: Any, g: Any, at: Any) -> tuple[Any, ...]:
    return w - 0.1 * (g + v[0, 0] * w), m, v


def clipped(w: Any, m: Any, v: Any, g: Any, at: Any) -> tuple[Any, ...]:
    """By the norm of all gradients, which only their last row gives."""
    return w - 0.1 * g / jnp.sqrt(jnp.sum(g * g)), m, v


def kept(w: Any, m: Any, v: Any, g: Any, at: Any) -> tuple[Any, ...]:
    """The gradients are a result, too."""
    return w - 0.1 * g, g, m + v


def exchanged(w: Any, m: Any, v: Any, g: Any, at: Any) -> tuple[Any, ...]:
    """New values have the memory of others."""
    return m, w - 0.1 * g, v


def turned(w: Any, m: Any, v: Any, g: Any, at: Any) -> tuple[Any, ...]:
    """A layer's step has the weights of another one."""
    return w[::-1] - 0.1 * g, m, v


MOVED = [sgd, momentum, adam, decayed]
OTHERS = [clipped, kept, exchanged, turned]


def moved(module: Module, chip: Chip = CHIP) -> bool:
    return bool(run_pass(module, UpdateInLoops(chip)).decisions)


@pytest.mark.parametrize(
    ("step", "donated"),
    [
        *((step, True) for step in (adam, kept, exchanged)),
        *((step, False) for step in (decayed, exchanged)),
        *(pytest.param(step, True, marks=pytest.mark.slow) for step in (sgd, momentum, decayed, clipped, turned)),
        *(pytest.param(step, False, marks=pytest.mark.slow) for step in (sgd, momentum, adam, clipped, kept, turned)),
    ],
)
def test_a_step_is_in_the_loop(step: Callable[..., Any], donated: bool) -> None:
    case = Case(step, donated)
    module, same = (canonicalise(parse_hlo(case.text)) for _ in range(2))
    expected = step in MOVED or (step is exchanged and not donated)
    assert moved(module) == expected
    for got, want in zip(evaluate(module, *case.arguments), evaluate(same, *case.arguments), strict=True):
        np.testing.assert_array_equal(got, want)
    check(case.text, case.arguments, CHIP)


@pytest.mark.parametrize("donated", [True, False])
def test_weights_that_other_layers_read_are_not_changed_before(donated: bool) -> None:
    case = Case(adam, donated, next=True)
    module = canonicalise(parse_hlo(case.text))
    assert moved(module) != donated
    for got, want in zip(
        evaluate(module, *case.arguments), evaluate(parse_hlo(case.text), *case.arguments), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    check(case.text, case.arguments, CHIP)


def test_no_gradients_are_stored() -> None:
    case = Case(adam, layers=4, width=32)
    made = compiled(case.text, CHIPS[32])
    stacks = [i.shape.bytes for i in parse_hlo(case.text).entry.parameters][:3]
    assert all(b.bytes < min(stacks) for b in made.program.buffers if b.role is Role.TEMP)
    assert sum(b.role is Role.RESULT and b.alias is None and b.bytes >= min(stacks) for b in made.program.buffers) == 0


def test_the_core_does_the_same() -> None:
    case, chip = Case(adam, layers=2, width=24), CHIPS[32]
    assert moved(canonicalise(parse_hlo(case.text)), chip)
    made = compiled(case.text, chip)
    result = lockstep(made.program, chip, memory(made.program, case.arguments))
    assert result.difference is None, result.difference


@examples(3, 4)
@given(
    layers=st.integers(2, 5), width=st.sampled_from([12, 16, 20]), step=st.sampled_from(MOVED), donated=st.booleans()
)
def test_any_sizes(layers: int, width: int, step: Callable[..., Any], donated: bool) -> None:
    case = Case(step, donated, layers=layers, width=width)
    check(case.text, case.arguments, CHIP)
