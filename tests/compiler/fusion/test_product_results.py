"""Products whose groups make several results: an optimiser's step of the gradient that a product makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.errors import LimitError
from systolith.compiler.explain import Decision
from systolith.compiler.groups import product_results
from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.groups.multi_output import FuseOutputs
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.ops.group import read_groups
from systolith.compiler.passes.base import run_pass, run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import DTYPES
from tests.compiler.fusion.joined_products import check_command, groups, joins
from tests.compiler.machine import TINY, Array, compare
from tests.examples import examples

DONATED = "input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {}, must-alias) }"


def momentum(rows: int, k: int, n: int, head: str = "", dtype: str = "f32", more: str = "") -> str:
    """A step with momentum for a matrix p, of the gradient x^T y; results p, m, and the gradient if `more` says so."""
    p = f"{dtype}[{k},{n}]"
    results = ["pn", "mn", *filter(None, [more])]
    return f"""HloModule m{", " + head if head else ""}
ENTRY e {{
 p = {p} parameter(0)
 m = {p} parameter(1)
 x = {dtype}[{rows},{k}] parameter(2)
 y = {dtype}[{rows},{n}] parameter(3)
 g = {p} dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
 decay.s = {dtype}[] constant(0.9)
 decay = {p} broadcast(decay.s), dimensions={{}}
 rate.s = {dtype}[] constant(0.1)
 rate = {p} broadcast(rate.s), dimensions={{}}
 old = {p} multiply(decay, m)
 mn = {p} add(old, g)
 step = {p} multiply(rate, mn)
 pn = {p} subtract(p, step)
 ROOT t = ({", ".join(p for _ in results)}) tuple({", ".join(results)})
}}
"""


def arguments(rows: int, k: int, n: int, dtype: str = "f32") -> list[Array]:
    rng, stored = np.random.default_rng(0), DTYPES[dtype].stored
    every = (rng.standard_normal(dims) for dims in ((k, n), (k, n), (rows, k), (rows, n)))
    return [a.astype(np.float32).astype(stored) for a in every]


def grouped(text: str, chip: str = "tpu_v3") -> tuple[Module, tuple[Decision, ...]]:
    """The module in groups, and the decisions about their results."""
    made = run_passes(canonicalise(parse_hlo(text)), [Fuse()])
    return made, run_pass(made, FuseOutputs(load_chip(chip))).decisions


def test_an_optimisers_step_is_made_as_the_gradients_tiles_come() -> None:
    made, decisions = grouped(momentum(1024, 1024, 1024))
    assert groups(made) == [("kOutput", 2)]
    assert decisions[-1].numbers["cycles saved"] > 0
    read = read_groups(parse_hlo(print_hlo(made)))
    assert print_hlo(read) == print_hlo(made)
    assert groups(read) == groups(made)


def test_the_gradient_may_be_a_result_too() -> None:
    made, _ = grouped(momentum(1024, 1024, 1024, more="g"))
    assert groups(made) == [("kOutput", 3)]


def test_what_reads_the_product_elsewhere_stays_apart() -> None:
    """The step of the transposed gradient: its tiles are others."""
    text = momentum(1024, 1024, 1024).replace("add(old, g)", "add(old, gt)")
    text = text.replace(" mn =", " gt = f32[1024,1024] transpose(g), dimensions={1,0}\n mn =")
    text = text.replace("tuple(pn, mn)", "tuple(pn, mn, g)").replace(
        "ROOT t = (f32[1024,1024], f32[1024,1024])", "ROOT t = (f32[1024,1024], f32[1024,1024], f32[1024,1024])"
    )
    made, _ = grouped(text)
    assert ("kOutput", 1) in groups(made)
    assert all(kind != "kOutput" or results == 1 for kind, results in groups(made))


def test_what_is_made_of_a_transposed_product_stays_apart() -> None:
    """Heads are moved behind rows as the product is stored; what is made of that has its shape, not the product's."""
    batch = "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}"
    text = f"""HloModule m
ENTRY e {{
 a = f32[2,4,64,32] parameter(0)
 b = f32[2,4,32,16] parameter(1)
 c = f32[2,64,4,16] parameter(2)
 d = f32[2,4,64,16] dot(a, b), {batch}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}
 y = f32[2,64,4,16] transpose(d), dimensions={{0,2,1,3}}
 z0 = f32[2,64,4,16] multiply(y, c)
 z = f32[2,64,4,16] exponential(z0)
 ROOT t = (f32[2,64,4,16], f32[2,64,4,16]) tuple(y, z)
}}
"""
    rng = np.random.default_rng(0)
    shapes = (2, 4, 64, 32), (2, 4, 32, 16), (2, 64, 4, 16)
    assert not joins(compare(text, [rng.standard_normal(s).astype(np.float32) / 8 for s in shapes], TINY))


@pytest.mark.usefixtures("products_join")
@pytest.mark.parametrize(
    "sizes", [(40, 24, 56), (34, 8, 76), (3, 64, 64), pytest.param((130, 8, 300), marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("head", ["", DONATED])
def test_results_are_those_of_the_evaluator(sizes: tuple[int, int, int], head: str) -> None:
    made = compare(momentum(*sizes, head), arguments(*sizes), TINY)
    assert joins(made)
    if head:
        assert [b.alias for b in made.program.buffers if b.role == "result"] == [0, 1]


@pytest.mark.usefixtures("products_join")
@given(
    st.tuples(*[st.sampled_from((2, 3, 8, 17, 40, 64))] * 3),
    st.sampled_from(("f32", "bf16")),
    st.sampled_from(("", "g", "m")),
    st.sampled_from((TINY, load_chip("small"))),
    st.sampled_from(("", DONATED)),
)
@examples(4, 60)
def test_any_sizes(sizes: tuple[int, int, int], dtype: str, more: str, chip: Chip, head: str) -> None:
    assert joins(compare(momentum(*sizes, head, dtype, more), arguments(*sizes, dtype), chip))


@pytest.mark.usefixtures("products_join")
def test_a_group_that_no_instruction_holds_stays_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> int:
        raise LimitError("a stream needs more loops than there are")

    monkeypatch.setattr(product_results, "vector_cycles", refuses)
    made, decisions = grouped(momentum(1024, 1024, 1024))
    assert {kind for kind, _ in groups(made)} == {"kOutput", "kLoop"}
    assert not any("cycles saved" in d.numbers for d in decisions)


def test_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The group is checked against the evaluator, reported, predicted and explained."""
    path = tmp_path / "m.hlo"
    path.write_text(momentum(64, 64, 64))
    check_command(capsys, path)
