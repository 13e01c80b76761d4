"""Gathers and scatters with one index for each window: the same bits, and a form that the passes leave alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.expand import gathers, scatters
from systolith.compiler.passes.expand.gathers import SimplifyGathers
from systolith.compiler.passes.expand.scatters import SimplifyScatters
from systolith.compiler.passes.pipeline import canonicalise
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.index_cases import Draw, gather_module, index_arguments, numbers, scatter_module
from tests.compiler.passes.differential import assert_unchanged, opcodes
from tests.examples import examples

INDICES = ("s32", "u32", "s8", "u8", "s16", "s64", "u64")


def expanded(module: Module, seed: int) -> Module:
    """The module after both passes, which keep its bits and then find nothing more to do."""
    made = assert_unchanged(module, SimplifyGathers(), SimplifyScatters(), arguments=index_arguments(module, seed))
    assert all(gathers.is_simple(i) for i in made.entry.instructions if i.opcode == "gather")
    assert all(scatters.is_simple(i) for i in made.entry.instructions if i.opcode == "scatter")
    assert not SimplifyGathers().run(made)
    assert not SimplifyScatters().run(made)
    return made


@examples(20, 60)
@given(numbers(), st.integers(0, 1000))
def test_any_gather(draw: Draw, seed: int) -> None:
    expanded(gather_module(draw, ("f32", "u8", "pred"), INDICES), seed)


@examples(10, 60)
@given(numbers(), st.integers(0, 1000), st.sampled_from([1, 1, 3]))
def test_any_scatter(draw: Draw, seed: int, arrays: int) -> None:
    expanded(scatter_module(draw, ("f32", "s32"), INDICES, arrays=arrays), seed)


def gather_of(operand: str, indices: str, result: str, numbers: str) -> Module:
    body = f" x = f32[{operand}] parameter(0)\n i = s32[{indices}] parameter(1)\n ROOT r = f32[{result}] gather(x, i)"
    return parse_hlo(f"HloModule g\nENTRY e {{\n{body}, {numbers}\n}}\n")


def test_one_window_is_a_dynamic_slice() -> None:
    numbers = "offset_dims={0,1}, collapsed_slice_dims={}, start_index_map={0,1}, index_vector_dim=0, slice_sizes={3,2}"
    made = expanded(gather_of("8,9", "2", "3,2", numbers), 0)
    assert "dynamic-slice" in opcodes(made)
    assert "gather" not in opcodes(made)


def test_rows_are_taken_as_they_lie() -> None:
    """Nothing but reshapes around a lookup in a table: no index arithmetic, no transposes."""
    numbers = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,16}"
    module = gather_of("100,16", "7,1", "7,16", numbers)
    made = expanded(module, 0)
    canonicalise(made)
    assert set(opcodes(made)) == {"gather", "reshape"}


def test_dimensions_between_indexed_ones_are_not_moved_for_a_few_windows() -> None:
    """An entry a batch and position of f32[4,8,64,16]: the offsets count the heads, the array stays as it is."""
    numbers = (
        "offset_dims={1,2}, collapsed_slice_dims={0,2}, start_index_map={0,2}, index_vector_dim=1,"
        " slice_sizes={1,8,1,16}"
    )
    few, many = (gather_of("4,8,64,16", f"{n},2", f"{n},8,16", numbers) for n in (4, 4000))
    assert "transpose" not in opcodes(expanded(few, 0))
    assert "transpose" in opcodes(expanded(many, 0))


@pytest.mark.parametrize("count", [0, 5])
def test_index_vectors_without_components_take_the_whole_array_again_and_again(count: int) -> None:
    numbers = "offset_dims={1}, collapsed_slice_dims={}, start_index_map={}, index_vector_dim=1, slice_sizes={3}"
    made = assert_unchanged(gather_of("3", f"{count},0", f"{count},3", numbers), SimplifyGathers())
    assert ("broadcast" in opcodes(made)) == (count > 0)


@pytest.mark.parametrize(
    ("indices", "values"), [("s32", [3, -1, 4, 6]), ("u8", [3, 0, 255, 5]), ("s64", [3, -1, 2**32 + 3, 5])]
)
def test_updates_of_an_element_of_each_row_need_no_list(indices: str, values: list[int]) -> None:
    """The gradient of take_along_axis, with indices that are outside."""
    text = f"""HloModule s
{scalar_computation("add", name="combine")}ENTRY e {{
 x = f32[4,6] parameter(0)
 i = {indices}[4,1] parameter(1)
 u = f32[4] parameter(2)
 ROOT r = f32[4,6] scatter(x, i, u), to_apply=combine, update_window_dims={{}}, inserted_window_dims={{1}},
  input_batching_dims={{0}}, scatter_indices_batching_dims={{0}}, scatter_dims_to_operand_dims={{1}}, index_vector_dim=1
}}
"""
    module = parse_hlo(text)
    x, i, u = index_arguments(module, 0)
    made = assert_unchanged(module, SimplifyScatters(), arguments=[x, np.array(values, i.dtype).reshape(4, 1), u])
    assert "scatter" not in opcodes(made)


def test_scatter_into_a_scalar() -> None:
    text = (
        "HloModule s\n"
        + scalar_computation("subtract", name="combine")
        + """ENTRY e {
 x = f32[] parameter(0)
 i = s32[4,0] parameter(1)
 u = f32[4] parameter(2)
 ROOT r = f32[] scatter(x, i, u), to_apply=combine, update_window_dims={}, inserted_window_dims={},
  scatter_dims_to_operand_dims={}, index_vector_dim=1
}
"""
    )
    arguments = [np.float32(2), np.zeros((4, 0), np.int32), np.arange(4, dtype=np.float32)]
    assert_unchanged(parse_hlo(text), SimplifyScatters(), arguments=list(map(np.asarray, arguments)))


def test_scatter_of_no_updates_is_the_array() -> None:
    text = """HloModule s
combine {
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = f32[] parameter(2)
 d = f32[] parameter(3)
 ROOT r = (f32[], f32[]) tuple(c, d)
}
ENTRY e {
 x = f32[3] parameter(0)
 y = f32[3] parameter(1)
 i = s32[0] parameter(2)
 u = f32[0] parameter(3)
 v = f32[0] parameter(4)
 ROOT r = (f32[3], f32[3]) scatter(x, y, i, u, v), to_apply=combine, update_window_dims={}, inserted_window_dims={0},
  scatter_dims_to_operand_dims={0}, index_vector_dim=1
}
"""
    assert opcodes(assert_unchanged(parse_hlo(text), SimplifyScatters())) == ["tuple"]
