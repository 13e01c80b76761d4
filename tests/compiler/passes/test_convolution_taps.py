"""Convolutions of f64 and c128 as products of what the window sees, against XLA."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.pipeline import canonicalise
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import check

CASES = {
    "one dimension": ("1,4,6", "2,3,6", "1,3,3", "window={size=2}, dim_labels=b0f_0oi->b0f"),
    "groups of features": (
        "2,5,6,4",
        "3,2,2,6",
        "2,3,5,6",
        "window={size=3x2 stride=2x1 pad=1_1x0_0}, dim_labels=b01f_01io->b01f, feature_group_count=2",
    ),
    "dilated and reversed": (
        "2,7,6,4",
        "3,2,4,6",
        "2,12,4,6",
        "window={size=3x2 pad=1_0x-1_0 lhs_dilate=2x1 rhs_dilate=1x1 rhs_reversal=1x0}, dim_labels=b01f_01io->b01f",
    ),
    "groups of batches": ("4,5,3", "2,3,6", "2,4,6", "window={size=2}, dim_labels=b0f_0io->b0f, batch_group_count=2"),
    "many places": ("1,330,1", "300,1,1", "1,31,1", "window={size=300}, dim_labels=b0f_0io->b0f"),
    "many places of two dimensions": (
        "1,30,40,1",
        "9,40,1,1",
        "1,14,2,1",
        "window={size=9x40 stride=2x1 pad=2_3x3_-2 rhs_reversal=0x1}, dim_labels=b01f_01io->b01f",
    ),
    "many dilated places": (
        "1,40,2",
        "260,2,1",
        "1,122,1",
        "window={size=260 pad=300_300 rhs_dilate=2 rhs_reversal=1}, dim_labels=b0f_0io->b0f",
    ),
    "no window": ("3,4", "4,5", "3,5", "dim_labels=bf_io->bf"),
}


def arguments(t: str, *dims: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = [rng.standard_normal([int(n) for n in d.split(",")]) for d in dims]
    return found if t == "f64" else [x * (1 - 2j) for x in found]


def module(name: str, t: str = "f64") -> str:
    x, k, o, attributes = CASES[name]
    given = f" x = {t}[{x}] parameter(0)\n k = {t}[{k}] parameter(1)\n"
    return f"HloModule m\nENTRY e {{\n{given} ROOT r = {t}[{o}] convolution(x, k), {attributes}\n}}\n"


LONG = ("many places", "many dilated places")
"""As the ones of two dimensions, which have many places, too."""


@pytest.mark.parametrize(
    ("name", "t"),
    [
        *(pytest.param(name, "f64", marks=pytest.mark.slow if name in LONG else ()) for name in CASES),
        ("one dimension", "c128"),
    ],
)
def test_against_xla(name: str, t: str) -> None:
    text, given = module(name, t), arguments(t, *CASES[name][:2])
    made = canonicalise(parse_hlo(text))
    assert not any(i.opcode == "convolution" for i in made.instructions())
    np.testing.assert_allclose(evaluate(made, *given)[0], run_xla(text, *given)[0], rtol=1e-13, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_on_the_chip(name: str) -> None:
    check(module(name), arguments("f64", *CASES[name][:2]), "tiny", most=1e-14)
