"""A step of training of layers that are written out, as two loops: forward, and backward with updates of weights."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.groups.layer_loops import LoopOverLayers
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.memory.update_places import update_places
from systolith.compiler.ops.group import read_groups
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.pipeline import canonicalise
from systolith.hw.lockstep import lockstep
from systolith.runtime.memories import overwritten
from tests.compiler.machine import CHIPS, Array, check, compiled, memory

CHIP = CHIPS[32]
COUNT = 6
X, W, B = "f32[16,32]", "f32[32,32]", "f32[32]"


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("systolith.compiler.groups.layer_loops.LEAST", 0)


def text(count: int = COUNT, donated: bool = True, momentum: bool = True) -> str:
    """Layers `x + tanh(x w + b)`, the gradient of half the sum of squares, and a step of gradient descent.

    Args:
        count: of layers.
        donated: whether new weights have the memory of the old ones.
        momentum: whether the step has one, in parameters of its own, which come in the order of the weights.
    """
    given, forward, backward, steps, results, aliases = [f"x0 = {X} parameter(0)"], [], [], [], [], []
    shapes = []
    for k, (name, shape) in enumerate([("w", W), ("b", B), *([("m", W)] if momentum else [])]):
        for n in range(count):
            number = 1 + k * count + n
            given.append(f"{name}{n} = {shape} parameter({number})")
            aliases.append(f"{{{number - 1}}}: ({number}, {{}}, may-alias)")
            results.append(f"{name}{n}.new")
            shapes.append(shape)
    for n in range(count):
        forward.append(f"""h{n} = {X} dot(x{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  wide{n} = {X} broadcast(b{n}), dimensions={{1}}
  s{n} = {X} add(h{n}, wide{n})
  t{n} = {X} tanh(s{n})
  x{n + 1} = {X} add(x{n}, t{n})""")
    for n in reversed(range(count)):
        g = f"g{n + 1}" if n + 1 < count else f"x{count}"
        backward.append(f"""square{n} = {X} multiply(t{n}, t{n})
  slope{n} = {X} subtract(ones, square{n})
  d{n} = {X} multiply({g}, slope{n})
  dw{n} = {W} dot(x{n}, d{n}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  db{n} = {B} reduce(d{n}, zero), dimensions={{0}}, to_apply=sum
  back{n} = {X} dot(d{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  g{n} = {X} add({g}, back{n})""")
    for n in range(count):
        step = f"dw{n}"
        if momentum:
            steps.append(f"kept{n} = {W} multiply(m{n}, rates)\n  m{n}.new = {W} add(kept{n}, dw{n})")
            step = f"m{n}.new"
        steps.append(f"""step{n} = {W} multiply({step}, rates)
  w{n}.new = {W} subtract(w{n}, step{n})
  bstep{n} = {B} multiply(db{n}, brates)
  b{n}.new = {B} subtract(b{n}, bstep{n})""")
    lines = "\n  ".join([*forward, *backward, *steps])
    head = f", input_output_alias={{ {', '.join(aliases)} }}" if donated else ""
    return f"""HloModule training{head}

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  {chr(10).join("  " + g for g in given).lstrip()}
  zero = f32[] constant(0)
  one = f32[] constant(1)
  rate = f32[] constant(0.01)
  ones = {X} broadcast(one), dimensions={{}}
  rates = {W} broadcast(rate), dimensions={{}}
  brates = {B} broadcast(rate), dimensions={{}}
  {lines}
  ROOT all = ({", ".join([*shapes, X])}) tuple({", ".join([*results, "g0"])})
}}
"""


def arguments(count: int = COUNT, momentum: bool = True) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = [(16, 32), *[(32, 32)] * count, *[(32,)] * count, *[(32, 32)] * (count if momentum else 0)]
    return [(rng.standard_normal(s) / 8).astype(np.float32) for s in shapes]


def looped(source: str) -> tuple[Module, list[str]]:
    module = canonicalise(parse_hlo(source))
    return module, [d.chosen for d in run_pass(module, LoopOverLayers(CHIP)).decisions]


def loops(module: Module) -> list[Instruction]:
    return [i for i in module.entry.instructions if i.opcode == "while"]


@pytest.mark.parametrize("momentum", [False, True])
def test_both_passes_become_loops(momentum: bool) -> None:
    source = text(momentum=momentum)
    module, chosen = looped(source)
    assert [c.split(" layers")[0] for c in chosen] == [f"a loop of {COUNT}", f"a loop of {COUNT - 1}"]
    args = arguments(momentum=momentum)
    for got, want in zip(evaluate(module, *args), evaluate(parse_hlo(source), *args), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_is_elementwise_in_other_rows_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward pass reads x and tanh; the difference from one is its own."""
    module, _ = looped(text())
    forward, _ = loops(module)
    rows = [s for s in forward.shape.elements if s.dims == (COUNT, 16, 32)]
    assert len(rows) == 2


@pytest.mark.parametrize("donated", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_step_is_the_same(donated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("systolith.compiler.groups.layer_loops.COPIED", 10.0)
    made = check(text(donated=donated), arguments(), CHIP, most=1e-4)
    assert sum(d.kind == "loop" for d in made.explain) == 2
    assert overwritten(made.program) == ({*range(1, 1 + 3 * COUNT)} if donated else set())


def test_weights_are_updated_where_they_are() -> None:
    """Momentum and weights of a layer are read out of their stacks, and the new ones put there, element by element."""
    made = compiled(text(), CHIPS[16], "highest")
    grouped = read_groups(parse_hlo(made.stages["grouped.hlo"]))
    places = {
        (maker.name.rstrip("0123456789"), k): place.view is not None
        for computation in grouped.computations
        for (maker, k), place in update_places(computation).items()
    }
    assert {leaf for leaf, read in places.items() if read} == {("w4.new.outputs", 0), ("w4.new.outputs", 1)}
    assert {("t", 0), ("x", 0)} <= places.keys()


def test_the_core_does_the_same() -> None:
    args = arguments(5, momentum=False)
    made = compiled(text(5, momentum=False), CHIP)
    result = lockstep(made.program, CHIP, memory(made.program, args))
    assert result.difference is None, result.difference
