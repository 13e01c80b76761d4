"""An example of the seeds as a computation: built, verified, printed and read back, evaluated, and run on XLA."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from systolith import api as sl
from systolith.compiler.hlo import evaluate, parse_hlo, print_hlo, verify
from tests.compiler.hlo.compare import assert_close
from tests.compiler.hlo.oracle import run_xla

Array = np.ndarray[Any, np.dtype[Any]]


def constant(b: sl.XlaBuilder, value: Any, element: str = "f32") -> sl.XlaOp:
    """A constant of nested lists or an array."""
    return b.constant_literal(sl.Literal.create(value, element))


def scalar_computation(name: str, element: str = "f32", **types: str) -> sl.XlaComputation:
    """`name(y, x)`, a function of two scalars: a method of the builder."""
    b = sl.XlaBuilder(name)
    y = b.Parameter(0, sl.make_shape(types.get("y", element), []), "y")
    x = b.Parameter(1, sl.make_shape(types.get("x", element), []), "x")
    getattr(b, name)(y, x)
    return b.build()


def results(
    b: sl.XlaBuilder, root: sl.XlaOp, *arguments: Array, xla: bool = True, tolerance: float = 1e-6
) -> list[Array]:
    """Results of the computation of `root`, tuples flattened; they are XLA's, unless `xla` is false."""
    module = b.build(root).module()
    verify(module)
    text = print_hlo(module)
    assert print_hlo(parse_hlo(text)) == text
    found = evaluate(module, *arguments, precision="highest")
    if xla:
        for number, (a, e) in enumerate(zip(found, run_xla(text, *arguments), strict=True)):
            assert_close(a, e, tolerance, f"result {number} of\n{text}")
    return found


def check(b: sl.XlaBuilder, root: sl.XlaOp, *expected: Any, arguments: Sequence[Array] = (), xla: bool = True) -> None:
    """The computation of `root` gives exactly the arrays that the seed says, in value and shape."""
    found = results(b, root, *arguments, xla=xla)
    assert len(found) == len(expected)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(actual, np.asarray(wanted).astype(actual.dtype), strict=True)
