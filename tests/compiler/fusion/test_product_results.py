"""Products whose groups make several results: an optimiser's step of the gradient that a product makes."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import Compiled
from systolith.compiler.errors import LimitError
from systolith.compiler.explain import Decision
from systolith.compiler.groups import product_results
from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.groups.multi_output import FuseOutputs
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.ops.expression_builder import group_roots
from systolith.compiler.ops.group import Group, read_groups
from systolith.compiler.passes.base import run_pass, run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import DTYPES
from tests.compiler.machine import TINY, Array, compare
from tests.runtime.command import systolith

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


def joins(made: Compiled) -> bool:
    """Whether a group has joined a product's."""
    return any(d.kind == "outputs" and "cycles saved" in d.numbers for d in made.explain)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups join products' wherever that can be."""
    monkeypatch.setattr(product_results, "ALIKE", -inf)


def grouped(text: str, chip: str = "tpu_v3") -> tuple[Module, tuple[Decision, ...]]:
    """The module in groups, and the decisions about their results."""
    made = run_passes(canonicalise(parse_hlo(text)), [Fuse()])
    return made, run_pass(made, FuseOutputs(load_chip(chip))).decisions


def groups(module: Module) -> list[tuple[str, int]]:
    """Kind and number of results of each group of the entry."""
    return [(i.kind, len(group_roots(i.body))) for i in module.entry.instructions if isinstance(i, Group)]


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


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("sizes", [(40, 24, 56), (130, 8, 300), (3, 64, 64)])
@pytest.mark.parametrize("head", ["", DONATED])
def test_results_are_those_of_the_evaluator(sizes: tuple[int, int, int], head: str) -> None:
    made = compare(momentum(*sizes, head), arguments(*sizes), TINY)
    assert joins(made)
    if head:
        assert [b.alias for b in made.program.buffers if b.role == "result"] == [0, 1]


@pytest.mark.usefixtures("always")
@given(
    st.tuples(*[st.sampled_from((2, 3, 8, 17, 40, 64))] * 3),
    st.sampled_from(("f32", "bf16")),
    st.sampled_from(("", "g", "m")),
    st.sampled_from((TINY, load_chip("small"))),
    st.sampled_from(("", DONATED)),
)
def test_any_sizes(sizes: tuple[int, int, int], dtype: str, more: str, chip: Chip, head: str) -> None:
    assert joins(compare(momentum(*sizes, head, dtype, more), arguments(*sizes, dtype), chip))


@pytest.mark.usefixtures("always")
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
    ran = systolith(capsys, "run", path, "--chip", "tiny", "--random", 0, "--check", "--hostile", "--json")
    assert ran.code == 0, ran.err
    (row,) = (g for g in json.loads(ran.out)["groups"] if g["name"])
    assert row["cycles"] > 0
    explained = json.loads(systolith(capsys, "explain", path, "--chip", "tiny", "--json").out)
    (about,) = (g for g in explained["groups"] if g["name"] == row["name"])
    assert about["predicted"] > 0
    assert any("in one pass" in d["chosen"] and d["numbers"].get("cycles saved") for d in about["decisions"])
