"""Modules that do not fit in HBM: run in another order, with values computed again, or refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from systolith.compiler.driver import Compiled
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Computation, Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.memory.linear_schedule import ORDERS, LinearSchedule, line_of, rewritten
from systolith.compiler.memory.rematerialise import Rematerialiser
from systolith.compiler.memory.residency import Leaf
from systolith.compiler.ops.group import Group, read_groups
from systolith.isa.chip import Chip
from tests.compiler.driver.random_modules import random_module
from tests.compiler.machine import TINY, Array, check, compare, compiled
from tests.compiler.memory.random_donations import random_donation
from tests.compiler.memory.random_training import random_training
from tests.examples import seeds


def chip_of(vmem: int, hbm: int = TINY.hbm.bytes) -> Chip:
    """`tiny` with so many bytes."""
    return replace(TINY, vmem=replace(TINY.vmem, bytes=vmem), hbm=replace(TINY.hbm, bytes=hbm))


def floor(result: Compiled) -> int:
    """Bytes of HBM without any temporaries."""
    return result.memory.hbm - result.memory.temporaries


@cache
def grouped(text: str) -> Module:
    return compiled(text, chip_of(32 << 10)).module


def all_leaves(module: Module) -> set[Leaf]:
    """Every value that a group, a loop or a conditional makes."""
    made = (i for i in module.instructions() if isinstance(i, Group) or i.opcode in ("while", "conditional"))
    return {(i, k) for i in made for k in range(len(i.shape.arrays))}


# Schedules before and after.


def same_values(before: Module, after: Module, args: list[Array]) -> None:
    """The second module is well-formed, reads back from its text, and computes the bits of the first."""
    verify(after)
    again = parse_hlo(print_hlo(after))
    for a, b in zip(evaluate(before, *args), evaluate(again, *args), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", seeds(10, 30))
def test_what_is_computed_again_has_the_same_value(seed: int) -> None:
    for text, args in (random_module(seed), random_donation(seed), random_donation(seed, donors=True)):
        module = grouped(text)
        found = Rematerialiser(module, all_leaves(module), {})
        peaks = [found.peak]
        for change in found.lower(0):
            assert change.bytes > 0
            assert found.peak == change.peak
            peaks.append(change.peak)
        assert peaks == sorted(peaks, reverse=True)
        same_values(module, rewritten(module, found.lines), args)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("seed", seeds(10, 15))
def test_another_order_has_the_same_values(seed: int, name: str) -> None:
    for text, args in (random_module(seed), random_donation(seed)):
        module = grouped(text)
        lines = {c: ORDERS[name](line_of(c, (), ())) for c in module.computations if runs(c)}
        for computation, line in lines.items():
            assert {s.instruction for s in line.steps} == {s.instruction for s in line_of(computation, (), ()).steps}
        same_values(module, rewritten(module, lines), args)


def runs(computation: Computation) -> bool:
    """Whether it has groups."""
    return any(isinstance(i, Group) for i in computation.instructions)


def test_a_module_written_anew_as_it_is_has_the_same_groups() -> None:
    text, args = random_module(5)
    module = grouped(text)
    again = rewritten(module, {module.entry: line_of(module.entry, (), ())})
    assert [i.name for i in again.entry.instructions if isinstance(i, Group)] == [
        i.name for i in module.entry.instructions if isinstance(i, Group)
    ]
    same_values(module, again, args)
    assert print_hlo(clone(module)) == print_hlo(module)


def test_arguments_in_tuples_of_tuples_are_read_as_they_were() -> None:
    text = """HloModule m
ENTRY e {
  p = ((f32[8], f32[4]), (f32[8], f32[4])) parameter(0)
  a = (f32[8], f32[4]) get-tuple-element(p), index=0
  b = (f32[8], f32[4]) get-tuple-element(p), index=1
  x = f32[8] get-tuple-element(a), index=0
  y = f32[8] get-tuple-element(b), index=0
  z = f32[4] get-tuple-element(b), index=1
  d = f32[8] subtract(x, y)
  e = f32[4] exponential(z)
  ROOT t = (f32[8], f32[4]) tuple(d, e)
}
"""
    module = grouped(text)
    args = [np.arange(n, n + size, dtype=np.float32) for n, size in enumerate((8, 4, 8, 4))]
    same_values(module, rewritten(module, {module.entry: line_of(module.entry, (), ())}), args)


# Which value is computed again.


def value(name: str, size: int) -> str:
    return f"  {name} = f32[{size}] "


def group(name: str, size: int, *operands: str) -> str:
    """A line of grouped HLO: a group of its own computation."""
    return f"{value(name, size)}fusion({', '.join(operands)}), kind=kLoop, calls=c_{name}\n"


def callee(name: str, size: int, sizes: dict[str, int]) -> str:
    body = [f"  p{n} = f32[{s}] parameter({n})\n" for n, s in enumerate(sizes.values())]
    zero = "  z = f32[] constant(0)\n"
    root = f"  ROOT b = f32[{size}] broadcast(z), dimensions={{}}\n"
    return f"c_{name} {{\n{''.join(body)}{zero}{root}}}\n"


def program(steps: list[tuple[str, int, list[str]]], given: dict[str, int]) -> Module:
    """A module of groups: name, elements of its result, operands; the last one is the result."""
    sizes = given | {name: size for name, size, _ in steps}
    computations = "".join(callee(name, size, {o: sizes[o] for o in used}) for name, size, used in steps)
    parameters = "".join(f"{value(p, size)}parameter({n})\n" for n, (p, size) in enumerate(given.items()))
    lines = [group(name, size, *used) for name, size, used in steps]
    lines[-1] = "  ROOT" + lines[-1][1:]
    return read_groups(parse_hlo(f"HloModule t\n{computations}ENTRY e {{\n{parameters}{''.join(lines)}}}\n"))


def steps_of(line: LinearSchedule) -> list[str]:
    return [s.instruction.name for s in line.steps]


def lowered(module: Module, cycles: dict[str, int], goal: int = 0) -> tuple[list[tuple[str, str, int, int]], list[str]]:
    """The changes (group, before, groups, cycles) and the entry's groups in their order afterwards."""
    spilled = {leaf for leaf in all_leaves(module) if leaf[0] is not module.entry.result}
    found = Rematerialiser(module, spilled, cycles)
    changes = [(c.group, c.before, c.groups, c.cycles) for c in found.lower(goal)]
    return changes, steps_of(found.lines[module.entry])


def test_the_cheapest_value_over_the_peak_is_computed_again() -> None:
    module = program(
        [
            ("dear", 100, ["p"]),
            ("cheap", 100, ["p"]),
            ("use", 10, ["dear", "cheap"]),
            ("large", 300, ["use"]),
            ("small", 10, ["large"]),
            ("end", 10, ["small", "dear", "cheap"]),
        ],
        {"p": 100},
    )
    changes, order = lowered(module, {"dear": 500, "cheap": 20}, 4 * 410)
    assert changes == [("cheap", "end", 1, 20)]
    assert order == ["dear", "cheap", "use", "large", "small", "cheap", "end"]


def test_what_nothing_used_before_is_only_made_later() -> None:
    module = program(
        [
            ("early", 100, ["p"]),
            ("large", 300, ["p"]),
            ("small", 10, ["large"]),
            ("end", 10, ["small", "early"]),
        ],
        {"p": 100},
    )
    changes, order = lowered(module, {"early": 500}, 4 * 310)
    assert changes == [("early", "end", 1, 0)]
    assert order == ["large", "small", "early", "end"]


def test_what_it_is_made_of_is_computed_again_where_it_is_not_alive() -> None:
    module = program(
        [
            ("first", 100, ["p"]),
            ("second", 100, ["first"]),
            ("use", 10, ["second"]),
            ("large", 300, ["use"]),
            ("small", 10, ["large"]),
            ("end", 10, ["small", "second"]),
        ],
        {"p": 100},
    )
    changes, order = lowered(module, {"first": 30, "second": 40}, 4 * 310)
    assert changes == [("second", "end", 2, 70)]
    assert order == ["first", "second", "use", "large", "small", "first", "second", "end"]


def test_what_only_it_is_made_of_is_made_later_too() -> None:
    module = program(
        [
            ("first", 100, ["p"]),
            ("second", 100, ["first"]),
            ("large", 300, ["p"]),
            ("small", 10, ["large"]),
            ("end", 10, ["small", "second"]),
        ],
        {"p": 100},
    )
    changes, order = lowered(module, {"first": 30, "second": 40}, 4 * 310)
    assert changes == [("second", "end", 2, 0)]
    assert order == ["large", "small", "first", "second", "end"]


def test_what_nothing_reads_runs_all_the_same() -> None:
    module = program(
        [("early", 100, ["p"]), ("unread", 300, ["p"]), ("end", 10, ["p", "early"])],
        {"p": 100},
    )
    changes, order = lowered(module, {}, 4 * 310)
    assert changes == [("early", "end", 1, 0)]
    assert order == ["unread", "early", "end"]


def test_what_is_needed_at_the_peak_stays() -> None:
    module = program([("a", 100, ["p"]), ("b", 100, ["a"]), ("end", 10, ["a", "b"])], {"p": 100})
    assert lowered(module, {})[0] == []


def test_a_donated_parameter_is_not_needed_for_longer() -> None:
    steps = [
        ("a", 100, ["p"]),
        ("use", 10, ["a"]),
        ("large", 300, ["use"]),
        ("small", 10, ["large"]),
        ("end", 10, ["small", "a"]),
    ]
    module = program(steps, {"p": 100})
    assert [c[0] for c in lowered(module, {"a": 5})[0]] == ["a"]
    module.attributes["buffer_donor"] = ((0, ()),)
    assert lowered(module, {"a": 5})[0] == []


# Whole modules.

LAYERS = 3


def training_step() -> tuple[str, list[Array]]:
    """Gradients of a chain of layers, whose values all live until their turn comes backwards."""

    def gradients(x: jax.Array, weights: list[jax.Array]) -> Any:
        def loss(weights: list[jax.Array]) -> jax.Array:
            h = x
            for w in weights:
                h = jnp.tanh(h @ w) * 2
            return (h * h).mean()

        return jax.grad(loss)(weights)

    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, 16)).astype(np.float32)
    weights = [(rng.standard_normal((16, 16)) / 8).astype(np.float32) for _ in range(LAYERS)]
    lowered = jax.jit(gradients).lower(x, weights)
    return lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True), [x, *weights]  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def step() -> tuple[str, list[Array]]:
    return training_step()


VMEM = 2 << 10


@pytest.mark.slow
def test_a_training_step_runs_in_less_memory(step: tuple[str, list[Array]]) -> None:
    text, args = step
    plain = compiled(text, chip_of(VMEM), "highest").memory
    assert not plain.remade
    room = plain.hbm - plain.temporaries // 3
    result = check(text, args, chip_of(VMEM, room))
    memory = result.memory
    assert memory.hbm <= room
    assert memory.remade
    assert memory.to_json()["remade"] == sum(r.bytes for r in memory.remade) > 0
    assert memory.to_json()["remade_cycles"] == sum(r.cycles for r in memory.remade) > 0
    assert "is computed again before" in result.stages["explain.txt"]
    assert "  computed again" in str(memory)
    assert memory.remade[0].group in result.stages["memory.txt"].split("computed again")[2]
    assert ".remat" in result.stages["grouped.hlo"]


@pytest.fixture(scope="module")
def plain(step: tuple[str, list[Array]]) -> Compiled:
    """The training step where there is memory."""
    return compiled(step[0], chip_of(VMEM))


def test_with_enough_memory_the_code_is_the_same(step: tuple[str, list[Array]], plain: Compiled) -> None:
    text, _ = step
    exact = compiled(text, chip_of(VMEM, plain.memory.hbm))
    assert exact.program.code == plain.program.code
    assert exact.program.patterns == plain.program.patterns
    assert exact.program.buffers == plain.program.buffers


def test_a_refusal_says_what_takes_most(step: tuple[str, list[Array]], plain: Compiled) -> None:
    text, _ = step
    with pytest.raises(
        CompileError, match=r"needs \d+ bytes of HBM \(.*temp \d+\).*most take \w+ '.*: use a"
    ) as caught:
        compiled(text, chip_of(VMEM, floor(plain) + 16))
    assert "\n" not in str(caught.value)


QUICK, OTHER = (2,), (0, 1, 3, 5, 6, 7, 8, 10, 11, 13, 15, 17, 18)


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(s, marks=pytest.mark.slow) for s in OTHER)])
def test_random_training_steps_run_in_less_memory(seed: int) -> None:
    text, args = random_training(seed)
    plain = compiled(text, chip_of(4 << 10), "highest").memory
    chip = chip_of(4 << 10, plain.hbm - plain.temporaries // 4)
    assert compare(text, args, chip).memory.hbm <= chip.hbm.bytes


@pytest.mark.parametrize("seed", [14, *(pytest.param(s, marks=pytest.mark.slow) for s in (8, 9, 12, 22))])
def test_what_is_refused_in_little_memory_is_too_large(seed: int) -> None:
    """Whatever is accepted, with hardly any room for temporaries, fits and is right."""
    accepted = 0
    for text, args in (random_training(seed), random_donation(seed), random_donation(seed, donors=True)):
        plain = compiled(text, chip_of(4 << 10), "highest")
        chip = chip_of(4 << 10, floor(plain) + plain.memory.temporaries // 5)
        small = fitting(text, chip)
        if small is not None:
            accepted += 1
            assert small.memory.hbm <= chip.hbm.bytes
            compare(text, args, chip)
    assert accepted, "another seed has something to try"


def fitting(text: str, chip: Chip) -> Compiled | None:
    """The module compiled; None if it is refused because of HBM."""
    try:
        return compiled(text, chip, "highest")
    except CompileError as refused:
        if "bytes of HBM" not in str(refused):
            raise
        return None
