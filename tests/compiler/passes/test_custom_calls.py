"""Custom calls that JAX makes for TPUs, and which there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.custom_calls import targets
from systolith.compiler.passes.expand.partial_reduce import ExpandPartialReduce
from systolith.isa.chip import load_chip
from tests.compiler.machine import compiled, run
from tests.compiler.passes.differential import transformed

jax: Any = pytest.importorskip("jax")


def lowered(function: Any, *arguments: Any) -> str:
    lowering = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",))
    return str(lowering.compiler_ir("hlo").as_hlo_text())


@pytest.mark.parametrize("name", ["approx_max_k", "approx_min_k"])
@pytest.mark.parametrize("size", [1024, 1000])
def test_approximate_largest_elements(name: str, size: int) -> None:
    """In order, at their places, the very largest first, and most of the others that are to be found."""
    x = np.random.default_rng(0).permutation(2 * size).reshape(2, size).astype(np.float32)
    text = lowered(lambda x: getattr(jax.lax, name)(x, 8), x)
    assert "PartialReduce" in text
    values, places = evaluate(transformed(parse_hlo(text), ExpandPartialReduce()), x)
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), values)
    best = np.sort(x, 1)[:, ::-1][:, :8] if name == "approx_max_k" else np.sort(x, 1)[:, :8]
    assert (values[:, 0] == best[:, 0]).all()
    assert np.isin(values, best).mean() >= 0.7


def test_approximate_largest_elements_on_the_chip() -> None:
    x = np.random.default_rng(0).permutation(300).reshape(1, 300).astype(np.float32)
    text = lowered(lambda x: jax.lax.approx_max_k(x, 2, aggregate_to_topk=False), x)
    values, places = run(compiled(text).program, load_chip("tiny"), [x])
    np.testing.assert_array_equal(
        np.take_along_axis(np.pad(x, ((0, 0), (0, 1))), places, 1)[places >= 0], values[places >= 0]
    )
    assert values.max() == x.max()


def test_pinned_values_are_as_they_are() -> None:
    text = lowered(
        lambda x: jax._src.state.primitives.unpin(jax._src.state.primitives.pin(x)) + 1, np.zeros(4, np.float32)
    )
    assert 'custom_call_target="Unpin"' in text
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run(compiled(text).program, load_chip("tiny"), [x])[0], x + 1)
    np.testing.assert_array_equal(evaluate(parse_hlo(text), x)[0], x + 1)


def test_others_are_refused_with_what_there_is() -> None:
    text = 'HloModule m\nENTRY e { x = f32[4] parameter(0) ROOT r = f32[4] custom-call(x), custom_call_target="mine" }'
    with pytest.raises(CompileError, match="'mine'") as refused:
        compiled(text)
    assert all(name in str(refused.value) for name in targets())
    assert {"TopK", "lapack_?gesdd_ffi", "Sharding", "PadToStatic", "SliceToDynamic"} <= set(targets())
