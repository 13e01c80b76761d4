"""Attention's backward pass: one region, which computes again what the forward pass need not store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.models import attention
from bench.modules import lowered
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.error_bounds import bounded
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.group import Group
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.tiling.blocking import BlockNormalisations
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import FOLDS, SMALL, blocked
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import TINY, assert_within, compare, compiled, error, run, with_vmem

HEADS, LENGTH, DEPTH = 4, 32, 8
SCORES = (1, HEADS, LENGTH, LENGTH)


def gradients(q: Any, k: Any, v: Any, w: Any) -> Any:
    """Attention and its gradients; what comes back to it depends on all that it gave."""
    made, back = jax.vjp(attention, q, k, v)
    return made, *back(jnp.einsum("bhqd,de->bhqe", made, w))


def step(*dims: int) -> str:
    return lowered(gradients, arguments(*dims))


def arguments(*dims: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(d, np.float32) / 2 for d in (dims, dims, dims, (dims[-1], dims[-1]))]


def of_scores(group: Group) -> list[str]:
    """The opcodes of a group's results of the scores' size."""
    return [i.opcode for i in group.body.result.operands if i.dims == SCORES]


def test_regions_of_attention() -> None:
    """The exponentials are stored alone; all products of either pass are in its region."""
    forward, backward = blocked(step(1, HEADS, LENGTH, DEPTH), SMALL)[1]
    assert of_scores(forward) == ["exponential"]
    assert [sum(i.opcode == "dot" for i in g.body.instructions) for g in (forward, backward)] == [2, 4]
    assert not of_scores(backward)
    read = [p for p in backward.body.parameters if p.dims == SCORES]
    assert len(read) == 1


@pytest.mark.parametrize(
    ("dims", "kib"),
    [
        ((2, 2, 9, 4), 3),
        pytest.param((1, 2, LENGTH, DEPTH), 16, marks=pytest.mark.slow),
        pytest.param((1, HEADS, LENGTH, DEPTH), 32, marks=pytest.mark.slow),
        pytest.param((2, HEADS, LENGTH, DEPTH), 32, marks=pytest.mark.slow),
        pytest.param((3, 2, 33, 16), 32, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_those_of_the_evaluator_and_of_xla(dims: tuple[int, ...], kib: int) -> None:
    text, given, chip = step(*dims), arguments(*dims), with_vmem(TINY, kib << 10)
    assert len(blocked(text, chip)[1]) == 2
    got = run(compiled(text, chip, "highest").program, chip, given)
    assert_within(got, bounded(parse_hlo(text).entry, given, "highest"))
    for a, b in zip(got, run_xla(text, *given), strict=True):
        assert error(a, b) <= 1e-5


def test_nothing_stored_is_read_back_in_its_block() -> None:
    """What a block both stores and goes on with is read from VMEM; of products the smaller operand is turned."""
    dims, chip = (2, 2, 512, 64), with_vmem(load_chip("tpu_v3"), 4096 << 10)
    result = simulate(compiled(step(*dims), chip).program, chip, mode="time")
    wide, scores = 4 * int(np.prod(dims)), 4 * 2 * 2 * 512 * 512
    blocks = [g for g in result.groups() if g.get("kind") == "kCustom" and "dot" in g["opcodes"]]
    forward, backward = sorted(blocks, key=lambda g: g["first_start"])
    assert forward["hbm_bytes"]["read"] < 1.05 * 3 * wide
    assert forward["hbm_bytes"]["written"] < 1.05 * (scores + wide)
    assert backward["hbm_bytes"]["read"] < 1.05 * (scores + 4 * wide)
    assert backward["hbm_bytes"]["written"] < 1.05 * 3 * wide
    assert backward["busy"]["xlu"] < backward["busy"]["s0"]


CHAIN = """HloModule m
{folds}
ENTRY e {{
 x = f32[64,128] parameter(0)
 zero = f32[] constant(0)
 s = f32[64] reduce(x, zero), dimensions={{1}}, to_apply=add
 sb = f32[64,128] broadcast(s), dimensions={{0}}
 d = f32[64,128] subtract(x, sb)
 t = f32[64] reduce(d, zero), dimensions={{1}}, to_apply=max
 tb = f32[64,128] broadcast(t), dimensions={{0}}
 p = f32[64,128] {near}
{after}
 ROOT r = ({types}) tuple({results})
}}
"""


def chain(near: str, after: str, results: str) -> Module:
    shapes = {"d": "f32[64,128]", "p": "f32[64,128]", "t": "f32[64]", "u": "f32[128,128]", "w": "f32[64,128]"}
    types = ", ".join(shapes[name] for name in results.split(", "))
    return parse_hlo(CHAIN.format(folds=FOLDS, near=near, after=after, types=types, results=results))


TWICE = " w = f32[64,128] add(p, p)"
PRODUCT = " u = f32[128,128] dot(p, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(
    ("near", "after", "results", "stored"),
    [
        ("multiply(d, tb)", "", "d, p, t", ["d", "p", "t"]),  # a result of the module
        ("multiply(d, tb)", PRODUCT, "d, t, u", ["d", "p", "t"]),  # a product reads it from memory
        ("exponential(d)", PRODUCT, "d, t, u", ["d", "p", "t"]),
    ],
)
def test_what_is_stored(near: str, after: str, results: str, stored: list[str]) -> None:
    module = canonicalise(chain(near, after, results))
    BlockNormalisations(SMALL).run(module)
    verify(module)
    (group,) = (i for i in module.entry.instructions if isinstance(i, Group))
    names = {"d": "subtract", "p": near.split("(")[0], "t": "reduce"}
    assert sorted(i.opcode for i in group.body.result.operands) == sorted(names[n] for n in stored)


def test_what_is_computed_again_reads_what_another_region_gives() -> None:
    """The factor of `p` is of a region that is made after the one of `p`, before the one that computes `p` again."""
    wide, batch = "f32[2,16,32]", "lhs_batch_dims={0}, rhs_batch_dims={0}"
    text = f"""HloModule m
{FOLDS}
ENTRY e {{
 x = {wide} parameter(0)
 z = {wide} parameter(1)
 w = f32[32,32] parameter(2)
 zero = f32[] constant(0)
 m = f32[2,16] reduce(x, zero), dimensions={{2}}, to_apply=max
 mb = {wide} broadcast(m), dimensions={{0,1}}
 d = {wide} subtract(x, mb)
 s = f32[2,16] reduce(z, zero), dimensions={{2}}, to_apply=add
 sb = {wide} broadcast(s), dimensions={{0,1}}
 wz = {wide} subtract(z, sb)
 y = f32[2,16] multiply(s, s)
 yb = {wide} broadcast(y), dimensions={{0,1}}
 p = {wide} multiply(d, yb)
 wy = {wide} multiply(wz, yb)
 h = {wide} dot(d, w), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
 q = f32[2,32,32] dot(p, h), {batch}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
 t = f32[2,32] reduce(q, zero), dimensions={{2}}, to_apply=max
 tb = f32[2,32,32] broadcast(t), dimensions={{0,1}}
 r = f32[2,32,32] subtract(q, tb)
 ROOT o = (f32[2,32,32], {wide}) tuple(r, wy)
}}
"""
    chip = with_vmem(TINY, 8 << 10)
    module, groups = blocked(text, chip)
    assert len(groups) == 3
    assert not any(i.name == "p" for i in module.entry.instructions)
    rng = np.random.default_rng(0)
    compare(text, [rng.standard_normal(p.dims, np.float32) / 4 for p in module.entry.parameters], chip)


Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def normalisations(draw: Draw) -> str:
    """Two normalisations, the second on what the first gave by way of a product, with random steps between."""
    width = "f32[48,64]"
    unary, binary = (
        ("negate({})", "exponential({})", "tanh({})"),
        ("add({}, {})", "multiply({}, {})", "subtract({}, {})"),
    )
    lines = [
        f" x = {width} parameter(0)", " w = f32[64,64] parameter(1)", " zero = f32[] constant(0)",
        " one = f32[] constant(1)",
    ]  # fmt: skip
    known = ["x"]

    def add(expression: str) -> str:
        name = f"v{len(lines)}"
        lines.append(f" {name} = {width} {expression}")
        known.append(name)
        return name

    def some() -> None:
        for _ in range(draw(st.integers(0, 4))):
            rule = draw(st.sampled_from(unary + binary))
            add(rule.format(*(draw(st.sampled_from(known)) for _ in range(rule.count("{}")))))

    for last in (False, True):
        some()
        of = known[-1]
        name = f"r{len(lines)}"
        lines.append(
            f" {name} = f32[48] reduce({of}, zero), dimensions={{1}}, to_apply={draw(st.sampled_from(('add', 'max')))}"
        )
        spread = add(f"broadcast({name}), dimensions={{0}}")
        low = add(f"tanh({draw(st.sampled_from((of, spread)))})")
        add(f"multiply({of}, {spread})")
        add(f"subtract({known[-1]}, {low})")
        some()
        if not last:
            add(f"dot({known[-1]}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
    results = sorted({known[-1], *(draw(st.sampled_from(known[1:])) for _ in range(2))})
    root = f" ROOT r = ({', '.join([width] * len(results))}) tuple({', '.join(results)})"
    return f"HloModule m\n{FOLDS}\nENTRY e {{\n" + "\n".join([*lines, root]) + "\n}\n"


@given(normalisations())
def test_any_normalisations_keep_their_bits(text: str) -> None:
    """What groups in blocks compute again, and leave out of their results, changes no value."""
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(d, np.float32) / 8 for d in ((48, 64), (64, 64))]
    module = canonicalise(parse_hlo(text))
    with np.errstate(all="ignore"):
        wanted = evaluate(module, *given)
        BlockNormalisations(load_chip("tiny")).run(module)
        verify(module)
        for i in module.entry.instructions:
            assert not _is_unused_part(module, i)
        for a, b in zip(evaluate(module, *given), wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def _is_unused_part(module: Module, i: Instruction) -> bool:
    return i.opcode == "get-tuple-element" and not module.entry.users()[i] and i is not module.entry.result
