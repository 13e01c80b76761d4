"""`ragged-dot`, `scaled-dot` and `scan`, which XLA's CPU backend does not run, against their definitions in numpy."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo import HloError, evaluate, parse_hlo
from tests.compiler.hlo.compare import Array, assert_matches_xla
from tests.examples import examples

FEW = examples(10, 20)


def run(entry: str, *arrays: Array, head: str = "") -> list[Array]:
    return evaluate(parse_hlo(f"HloModule m\n{head}\nENTRY e {{\n{entry}\n}}"), *arrays, precision="highest")


def normal(seed: int, *dims: int) -> Array:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def sizes_strategy(groups: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 4), min_size=groups, max_size=groups)


@FEW
@given(sizes_strategy(3), sizes_strategy(3), st.booleans())
def test_ragged_rows(first: list[int], second: list[int], shared: bool) -> None:
    """Each row meets its group's matrix; sizes may be those of every batch; rows of no group are 0."""
    a, b = normal(1, 2, 9, 5), normal(2, 3, 2, 5, 4)
    sizes = np.array(first if shared else [first, second], np.int32)
    dims = "3" if shared else "2,3"
    (result,) = run(
        f"""a = f32[2,9,5] parameter(0) b = f32[3,2,5,4] parameter(1) g = s32[{dims}] parameter(2)
        ROOT r = f32[2,9,4] ragged-dot(a, b, g), lhs_batch_dims={{0}}, rhs_batch_dims={{1}},
          lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}, lhs_ragged_dims={{1}}, rhs_group_dims={{0}}""",
        a, b, sizes,
    )  # fmt: skip
    expected = np.zeros((2, 9, 4))
    for batch in range(2):
        start = 0
        for group, n in enumerate(first if shared else (first, second)[batch]):
            rows = slice(start, min(start + n, 9))
            expected[batch, rows] = a[batch, rows].astype(np.float64) @ b[group, batch]
            start += n
    np.testing.assert_allclose(result, expected, atol=1e-5)


@FEW
@given(sizes_strategy(2))
def test_ragged_contraction(sizes: list[int]) -> None:
    """A result for each group, the sum over its part."""
    a, b = normal(3, 8, 7), normal(4, 7, 4)
    (result,) = run(
        """a = f32[8,7] parameter(0) b = f32[7,4] parameter(1) g = s32[2] parameter(2)
        ROOT r = f32[2,8,4] ragged-dot(a, b, g), lhs_contracting_dims={1}, rhs_contracting_dims={0},
          lhs_ragged_dims={1}""",
        a, b, np.array(sizes, np.int32),
    )  # fmt: skip
    first, end = sizes[0], sum(sizes)
    expected = np.stack([a[:, :first] @ b[:first], a[:, first:end] @ b[first:end]])
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_ragged_batch_is_the_plain_dot() -> None:
    a, b = normal(5, 3, 8, 5), normal(6, 3, 5, 4)
    (result,) = run(
        """a = f32[3,8,5] parameter(0) b = f32[3,5,4] parameter(1) g = s32[2] parameter(2)
        ROOT r = f32[3,8,4] ragged-dot(a, b, g), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
          rhs_contracting_dims={1}, lhs_ragged_dims={0}""",
        a, b, np.array([1, 2], np.int32),
    )  # fmt: skip
    np.testing.assert_allclose(result, a @ b, atol=1e-5)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(HloError, match="group sizes have 1 dimensions, or 1, got 2"):
        run("""a = f32[8,5] parameter(0) b = f32[3,5,4] parameter(1) g = s32[2,3] parameter(2)
            ROOT r = f32[8,4] ragged-dot(a, b, g), lhs_contracting_dims={1}, rhs_contracting_dims={1},
            lhs_ragged_dims={0}, rhs_group_dims={0}""",
            normal(1, 8, 5), normal(2, 3, 5, 4), np.zeros((2, 3), np.int32))  # fmt: skip


def test_scaled_dot_multiplies_blocks_by_their_scales() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(n).astype(ml_dtypes.float8_e4m3fn) for n in ((4, 64), (8, 64)))
    left, right = (np.exp2(rng.integers(-3, 3, n)).astype(ml_dtypes.float8_e8m0fnu) for n in ((4, 2), (8, 4)))
    entry = """a = f8e4m3fn[4,64] parameter(0) b = f8e4m3fn[8,64] parameter(1)
      s = f8e8m0fnu[4,2] parameter(2) t = f8e8m0fnu[8,4] parameter(3)
      ROOT r = f32[4,8] scaled-dot(a, b, s, t), lhs_contracting_dims={1}, rhs_contracting_dims={1}"""
    (result,) = run(entry, a, b, left, right)
    wide = [np.repeat(s.astype(np.float64), 64 // s.shape[1], axis=1) * x for x, s in ((a, left), (b, right))]
    np.testing.assert_array_equal(result, (wide[0] @ wide[1].T).astype(np.float32))
    with pytest.raises(HloError, match="a dimension of 64 elements cannot have 3 scales"):
        run(entry.replace("f8e8m0fnu[4,2]", "f8e8m0fnu[4,3]"), a, b, left.repeat(2, 1)[:, :3], right)


SUM = """sum { x = f32[2] parameter(0) c = f32[2] parameter(1) s = f32[2] add(c, x) d = f32[2] multiply(s, x)
  ROOT t = (f32[2], f32[2]) tuple(d, s) }"""


@pytest.mark.parametrize("options", ["", "is_reverse=true, "])
@pytest.mark.parametrize("dim", [0, 1])
def test_scan(dim: int, options: str) -> None:
    """XLA expands a scan into a loop, so that its CPU backend runs it."""
    pytest.importorskip("jax")
    shape = "f32[5,2]" if dim == 0 else "f32[2,5]"
    text = f"""HloModule m
{SUM}
ENTRY e {{
  x = {shape} parameter(0)
  c = f32[2] parameter(1)
  ROOT r = ({shape}, f32[2]) scan(x, c), dimensions={{{dim}}}, {options}num_carries=1, to_apply=sum
}}
"""
    x = normal(7, 5, 2)
    assert_matches_xla(text, x if dim == 0 else x.T.copy(), np.array([1, 2], np.float32))
