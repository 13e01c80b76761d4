"""Gathers of elementwise values: what is computed afterwards is the same, to the bit, and of less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.pipeline import canonicalise, legalise
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.gather_mover import MoveGathers
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.machine import run
from tests.compiler.passes.differential import transformed
from tests.examples import examples

TAKEN = """HloModule m
ENTRY e {{
  all = f32[{all},{columns}] parameter(0)
  x = f32[{rows},{columns}] slice(all), slice={{[{low}:{end}], [0:{columns}]}}
  r = f32[{rows}] parameter(1)
  k = s32[{rows},{few},1] parameter(2)
  two = f32[] constant(2)
  twos = f32[{rows},{columns}] broadcast(two), dimensions={{}}
  rs = f32[{rows},{columns}] broadcast(r), dimensions={{0}}
  {steps}
  ROOT g = {dtype}[{rows},{few}] gather(v, k), offset_dims={{}}, collapsed_slice_dims={{1}}, start_index_map={{1}},
    operand_batching_dims={{0}}, start_indices_batching_dims={{0}}, index_vector_dim=2, slice_sizes={{1,1}}
}}
"""

STEPS = {
    "subtract": "f32 subtract({x}, rs)",
    "divide": "f32 divide(rs, {x})",
    "multiply": "f32 multiply({x}, twos)",
    "exponential": "f32 exponential({x})",
    "again": "f32 add({x}, x)",
    "square": "f32 multiply({x}, {x})",
}


def taken(
    rows: int, columns: int, few: int, steps: list[str], dtype: str = "f32", cut: tuple[int, int] = (0, 0)
) -> str:
    """A gather of so many elements a row of a value; `cut`: rows before and after those that it is computed of."""
    lines, x = [], "x"
    for n, step in enumerate(steps):
        made, _, rest = STEPS[step].partition(" ")
        lines.append(f"v{n} = {made}[{rows},{columns}] {rest.format(x=x)}")
        x = f"v{n}"
    lines.append(f"v = {dtype}[{rows},{columns}] convert({x})")
    low, high = cut
    fields = {"all": low + rows + high, "low": low, "end": low + rows, "rows": rows, "columns": columns, "few": few}
    return TAKEN.format(**fields, steps="\n  ".join(lines), dtype=dtype)


def arguments(rows: int, columns: int, few: int, seed: int, cut: tuple[int, int] = (0, 0)) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    x, r = rng.standard_normal((sum(cut) + rows, columns)), rng.standard_normal(rows)
    return [x.astype(np.float32), r.astype(np.float32), rng.integers(-2, columns + 2, (rows, few, 1)).astype(np.int32)]


def sizes(module: Module) -> list[int]:
    """Elements of the values that its operations make."""
    return [i.shape.size for i in module.entry.instructions if i.opcode not in ("parameter", "broadcast", "constant")]


@given(
    st.integers(1, 5),
    st.integers(8, 40),
    st.integers(0, 2),
    st.lists(st.sampled_from(sorted(STEPS)), max_size=6),
    st.sampled_from(["f32", "bf16", "s32"]),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.integers(0, 2**32),
)
@examples(30, 200)
def test_values_are_the_same(
    rows: int, columns: int, few: int, steps: list[str], dtype: str, cut: tuple[int, int], seed: int
) -> None:
    text, args = taken(rows, columns, few, steps, dtype, cut), arguments(rows, columns, few, seed, cut)
    module = transformed(parse_hlo(text), MoveGathers(), DeadCode())
    assert max(sizes(module)) <= (rows + sum(cut)) * few
    with np.errstate(all="ignore"):
        (wanted,), (got,) = evaluate(parse_hlo(text), *args), evaluate(module, *args)
    np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize(
    "text",
    [
        taken(4, 8, 3, ["exponential"]),  # many of the elements
        taken(4, 64, 1, ["exponential"]).replace("exponential(x)", "multiply(x, numbers)"),
        taken(4, 64, 1, ["exponential"]).replace("exponential(x)", "exponential(turned)"),
        taken(4, 64, 1, ["subtract"])
        .replace("r = f32[4]", "r = f32[64]")
        .replace("(r), dimensions={0}", "(r), dimensions={1}"),
    ],
    ids=["many", "index", "reversed", "along-the-index"],
)
def test_it_stays(text: str) -> None:
    others = "numbers = f32[4,64] iota(), iota_dimension=1\n  turned = f32[4,64] reverse(x), dimensions={1}"
    assert not MoveGathers().run(parse_hlo(text.replace("  two =", f"  {others}\n  two =")))


def test_zeros_beside_sorted_indices_are_not_said_to_be_sorted() -> None:
    text = taken(4, 64, 1, ["exponential"], cut=(1, 1)).replace("slice_sizes=", "indices_are_sorted=true, slice_sizes=")
    module = transformed(parse_hlo(text), MoveGathers(), DeadCode())
    (gather,) = [i for i in module.entry.instructions if i.opcode == "gather"]
    assert gather.operands[1].opcode == "pad"
    assert "indices_are_sorted" not in gather.attributes


def test_a_table_is_looked_up_before_it_is_converted() -> None:
    module = parse_hlo("""HloModule m
ENTRY e {
  table = s8[1000,64] parameter(0)
  ids = s32[7,1] parameter(1)
  scale = f32[] parameter(2)
  wide = f32[1000,64] convert(table)
  scales = f32[1000,64] broadcast(scale), dimensions={}
  values = f32[1000,64] multiply(wide, scales)
  ROOT g = f32[7,64] gather(values, ids), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,64}
}
""")
    changed = transformed(module, MoveGathers(), DeadCode())
    assert max(sizes(changed)) == 7 * 64
    table = np.arange(64000).astype(np.int8).reshape(1000, 64)
    args: list[np.ndarray] = [table, np.arange(7, dtype=np.int32)[:, None] * 99, np.full((), 0.5, np.float32)]
    np.testing.assert_array_equal(evaluate(changed, *args)[0], evaluate(module, *args)[0])


def test_the_canonical_form_does_not_change() -> None:
    module = canonicalise(parse_hlo(taken(4, 64, 1, ["subtract", "exponential"])))
    assert not MoveGathers().run(module)
    legalise(module)


def test_one_logarithm_a_row_is_computed() -> None:
    """On the chip: the same bits, and no array of all logarithms in HBM."""
    text = taken(64, 4096, 1, ["subtract", "exponential"])
    chip, args = load_chip("small"), arguments(64, 4096, 1, 0)
    program = compile_module(parse_hlo(text), chip).program
    np.testing.assert_allclose(run(program, chip, args)[0], evaluate(parse_hlo(text), *args)[0], rtol=1e-6)
    assert sum(simulate(program, chip, mode="time").to_json()["hbm_bytes"].values()) < 64 * 4096
