"""Invariants of passes: a valid module, which reads back, with the same values."""

from __future__ import annotations

from typing import Any

import numpy as np

from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.base import Pass
from systolith.runtime.arrays import random_array

Array = np.ndarray[Any, np.dtype[Any]]


def arguments_of(module: Module, seed: int = 0) -> list[Array]:
    """Random arguments, with a -0, an infinity and a NaN in every float array that has room."""
    rng = np.random.default_rng(seed)
    found = []
    for shape in (leaf for p in module.entry.parameters for leaf in p.shape.leaves() if leaf.is_array):
        array = random_array(rng, shape.dtype, shape.dims)
        if shape.dtype.is_float and array.size > 3:
            array.reshape(-1)[:3] = (-0.0, np.inf, np.nan)
        found.append(array)
    return found


def transformed(module: Module, *steps: Pass) -> Module:
    """The module after passes, verified after each, printed and read again."""
    made = clone(module)
    for step in steps:
        step.run(made)
        verify(made)
    read = parse_hlo(print_hlo(made))
    verify(read)
    return read


def assert_same_bits(want: list[Array], got: list[Array]) -> None:
    assert len(want) == len(got)
    for a, b in zip(want, got, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.atleast_1d(a).view(np.uint8), np.atleast_1d(b).view(np.uint8))


def assert_unchanged(module: Module, *steps: Pass, arguments: list[Array] | None = None) -> Module:
    """Passes keep every bit of a module's results; returns their module."""
    arguments = arguments_of(module) if arguments is None else arguments
    made = transformed(module, *steps)
    with np.errstate(all="ignore"):
        assert_same_bits(evaluate(module, *arguments), evaluate(made, *arguments))
    return made


def opcodes(module: Module) -> list[str]:
    """Opcodes of the entry computation, sorted, without parameters."""
    return sorted(i.opcode for i in module.entry.instructions if i.opcode != "parameter")
