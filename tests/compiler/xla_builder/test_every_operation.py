"""Every operation that the seeds name is a method and a function, and makes HLO that XLA takes."""

import importlib
from typing import Any

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.hlo import evaluate, parse_hlo, print_hlo, verify
from tests.compiler.hlo.compare import assert_close
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.xla_builder.cases import BUILDER_ONLY, DEVICES, EVALUATED, NAMED, NEWER, WRAPPERS, Case


def _built(case: Case) -> sl.XlaComputation:
    b = sl.XlaBuilder("case")
    return b.build(case(b))


def _parsed_by_xla(text: str) -> str:
    hlo: Any = importlib.import_module("jaxlib._hlo")
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    parsed: str = hlo.hlo_module_from_text(text).to_string(options)
    return parsed


def test_there_is_a_case_for_every_name() -> None:
    assert set(NAMED) == set(EVALUATED) | set(DEVICES) | set(BUILDER_ONLY)


@pytest.mark.parametrize("name", [*NAMED, *NEWER, *WRAPPERS])
def test_every_name_is_a_method_and_a_function(name: str) -> None:
    assert callable(getattr(sl.XlaBuilder, name))
    assert callable(getattr(sl.ops, name))
    assert getattr(sl.XlaBuilder, name).__doc__


@pytest.mark.parametrize("name", [*EVALUATED, *WRAPPERS])
def test_evaluates_as_xla_does(name: str) -> None:
    built = _built({**EVALUATED, **WRAPPERS}[name])
    module = built.module()
    arguments = [np.ones(p.dims, np.float32) for p in built.program_shape.parameters]
    found = evaluate(module, *arguments, precision="highest")
    expected = run_xla(built.hlo_text(), *arguments)
    for actual, wanted in zip(found, expected, strict=True):
        assert_close(actual, wanted, 1e-5, built.hlo_text())


@pytest.mark.parametrize("name", [*EVALUATED, *DEVICES, *NEWER, *WRAPPERS])
def test_text_is_read_by_xla_and_by_us(name: str) -> None:
    text = _built({**EVALUATED, **DEVICES, **NEWER, **WRAPPERS}[name]).hlo_text()
    ours = parse_hlo(text)
    verify(ours)
    assert print_hlo(ours) == text
    verify(parse_hlo(_parsed_by_xla(text)))
