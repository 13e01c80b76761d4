"""Whatever the arguments, an operation gives a value or an error that waits for build()."""

import inspect
import random

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from tests.compiler.xla_builder.cases import combine
from tests.examples import seeds


def _makes_a_value(name: str) -> bool:
    """Whether it is an operation; a check fails at once."""
    method = getattr(sl.XlaBuilder, name)
    return name[0].islower() and method is not sl.XlaBuilder.check_shape and _result(method) == "XlaOp"


def _result(method: object) -> object:
    return getattr(method, "__annotations__", {}).get("return")


ADD = combine("Add")
OPERATIONS = [name for name in dir(sl.XlaBuilder) if _makes_a_value(name)]


def _anything(b: sl.XlaBuilder) -> list[object]:
    x, v, s, token = b.constant(np.ones((2, 3))), b.constant([1, 2]), b.constant(1.0), b.create_token()
    values: list[object] = [x, v, s, token, b.tuple([x, v]), [x], [v, s], ADD, [ADD]]
    plain: list[object] = [3, -1, 0, 1.5, True, None, "x", "kSame", "f32[2]", sl.F32, {"a": 1}, np.arange(2)]
    lists: list[object] = [[], [1], [0, 1], [(0, 1)], [[0]], (1, 2, 3), sl.Layout((0,))]
    numbers: list[object] = [
        sl.DotDimensionNumbers((1,), (0,)),
        sl.GatherDimensionNumbers((0,), (), (0,), 1),
        sl.ScatterDimensionNumbers((0,), (), (0,), 1),
        sl.XlaBuilder.create_default_conv_dimension_numbers(1),
    ]
    return [*values, *plain, *lists, *numbers]


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_but_an_error_comes_out(name: str) -> None:
    method = getattr(sl.XlaBuilder, name)
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    count = sum(p.kind in kinds for p in inspect.signature(method).parameters.values()) - 1
    rng = random.Random(name)
    for _ in seeds(20, 40):
        b = sl.XlaBuilder("any")
        made = method(b, *rng.choices(_anything(b), k=count))
        if b.first_error is None:
            assert made.valid
            continue
        assert not made.valid
        with pytest.raises(HloError):
            b.build()
