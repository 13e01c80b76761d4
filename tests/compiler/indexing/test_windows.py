"""Gather and scatter on the chip: bits of the evaluator and of XLA, without a race, in VMEM and in HBM."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.driver import Compiled
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import Chip, load_chip
from systolith.isa.program import Role
from systolith.runtime.arrays import random_array
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.index_cases import (
    ADD,
    TAKE,
    Draw,
    gather_module,
    index_arguments,
    lookup,
    numbers,
    row_arguments,
    scatter_module,
    update,
)
from tests.compiler.machine import TINY, compiled, run, with_vmem
from tests.examples import examples

Array = npt.NDArray[Any]
INDICES = ("s32", "u32", "s8", "u16")


def same_bits(text: str, arguments: list[Array], chip: Chip = TINY) -> Compiled:
    """Run a module on a chip in hostile mode; the results have the evaluator's bits."""
    made = compiled(text, chip, "highest")
    got = run(made.program, chip, arguments)
    with np.errstate(all="ignore"):
        wanted = evaluate(parse_hlo(text), *arguments)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(np.atleast_1d(a).view(np.uint8), np.atleast_1d(b).view(np.uint8))
    return made


@examples(5, 25)
@given(numbers(), st.integers(0, 1000), st.sampled_from([TINY, load_chip("small")]))
def test_any_gather(draw: Draw, seed: int, chip: Chip) -> None:
    module = gather_module(draw, ("f32", "u8", "bf16", "s16", "pred"), INDICES)
    same_bits(print_hlo(module), index_arguments(module, seed), chip)


@examples(5, 25)
@given(numbers(), st.integers(0, 1000), st.sampled_from([1, 1, 2]))
def test_any_scatter(draw: Draw, seed: int, arrays: int) -> None:
    module = scatter_module(draw, ("f32", "s32", "bf16", "s8", "u16"), INDICES, arrays=arrays)
    same_bits(print_hlo(module), index_arguments(module, seed))


@pytest.mark.slow
@settings(max_examples=400)
@given(numbers(), st.integers(0, 1000), st.sampled_from([0, 1, 2]))
def test_any_of_larger_dimensions(draw: Draw, seed: int, arrays: int) -> None:
    types = ("f32", "s32", "bf16", "s8", "u16")
    module = scatter_module(draw, types, INDICES, 12, arrays) if arrays else gather_module(draw, types, INDICES, 12)
    same_bits(print_hlo(module), index_arguments(module, seed))


@pytest.mark.parametrize(
    ("depth", "row", "count", "t"),
    [
        (3000, 64, 400, "f32"),
        (3, 20000, 9, "f32"),
        (5000, 1, 3000, "f32"),
        (100, 3, 3000, "bf16"),
        (70000, 1, 40, "u8"),
        (2001, 75, 2500, "bf16"),
    ],
    ids=["rows in parts", "rows larger than parts", "elements", "a small table", "bytes in HBM", "boxes of odd sizes"],
)
def test_lookups_in_tables(depth: int, row: int, count: int, t: str) -> None:
    text = lookup(depth, row, count, t)
    same_bits(text, row_arguments(text))


@pytest.mark.parametrize(
    ("outer", "depth", "inner", "count", "t"),
    [(1, 1500, 64, 3000, "f32"), (6, 900, 24, 2000, "f32"), (2, 4000, 32, 4001, "u8")],
)
def test_tables_of_fewer_bytes_than_their_windows_are_read_once(
    outer: int, depth: int, inner: int, count: int, t: str
) -> None:
    text = (
        f"HloModule m\nENTRY e {{\n x = {t}[{outer},{depth},{inner}] parameter(0)\n i = s32[{count},1] parameter(1)\n"
        f" ROOT r = {t}[{outer},{count},{inner}] gather(x, i), offset_dims={{0,2}}, collapsed_slice_dims={{1}},"
        f" start_index_map={{1}}, index_vector_dim=1, slice_sizes={{{outer},1,{inner}}}\n}}\n"
    )
    rng = np.random.default_rng(0)
    i = rng.integers(-2, depth + 2, (count, 1)).astype(np.int32)
    shape = parse_hlo(text).entry.parameters[0].shape
    made = same_bits(text, [random_array(rng, shape.dtype, shape.dims), i])
    times = simulate(made.program, load_chip("tiny"), mode="time")
    read = times.to_json()["hbm_bytes"]["read"]
    assert read < 1.2 * (shape.bytes + i.nbytes)


SIZES = [(1000, 64, 300, 1), (20000, 7, 300, 1), (3, 20000, 9, 1), (1500, 50, 60, 3)]


@pytest.mark.parametrize("combine", [ADD, TAKE], ids=["add", "take"])
@pytest.mark.parametrize(("depth", "row", "count", "width"), SIZES, ids=["blocks", "narrow", "wide rows", "windows"])
def test_tables_in_hbm_are_updated_in_the_order_of_the_indices(
    depth: int, row: int, count: int, width: int, combine: str
) -> None:
    text = update(depth, row, count, combine, width=width)
    given = row_arguments(text)
    given[1] %= max(depth // 7, 3)  # many are equal
    same_bits(text, given)


HALF = with_vmem(TINY, TINY.vmem.bytes // 2)
HINTED = [(500, 64, 500, "f32"), (1200, 16, 1200, "bf16"), (1201, 20, 1100, "s32")]


def hinted(depth: int, count: int, equal: int, seed: int) -> Array:
    """Indices of which some are outside; so many of those inside are as others."""
    rng = np.random.default_rng(seed)
    i = rng.permutation(np.arange(-9, depth + 9))[:count].astype(np.int32)
    i[rng.permutation(count)[:equal]] = i[rng.integers(0, count, equal)]
    return i[:, None]


@pytest.mark.parametrize(
    ("depth", "row", "count", "t", "equal"),
    [
        pytest.param(*case, equal, marks=pytest.mark.slow if equal and case[3] == "s32" else (), id=f"{case[3]}-{said}")
        for case in HINTED
        for equal, said in ((0, "true"), (1, "nearly true"), (150, "false"))
    ],
)
def test_indices_that_are_said_to_be_unique(depth: int, row: int, count: int, t: str, equal: int) -> None:
    text = update(depth, row, count, "subtract(b, a)", t, unique=True)
    x, _, u = row_arguments(text)
    i = hinted(depth, count, equal, equal)
    made = same_bits(text, [x, i, u], HALF)
    unhinted = compiled(update(depth, row, count, "subtract(b, a)", t), HALF, "highest")
    assert made.program.code != unhinted.program.code
    (wanted,) = run_xla(text, x, i, u)
    (got,) = evaluate(parse_hlo(text), x, i, u)
    np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


def test_the_hint_of_unique_indices_is_worth_it_and_its_word_is_taken_without_data() -> None:
    cycles: dict[bool, int] = {}
    for unique in (False, True):
        text = update(2000, 64, 2000, ADD, unique=unique)
        made = compiled(text, "tiny", "highest")
        read_back = assemble(disassemble(made.program), load_chip("tiny")), from_bytes(to_bytes(made.program))
        timed = {simulate(p, load_chip("tiny"), mode="time").cycles for p in (made.program, *read_back)}
        (cycles[unique],) = (c or 0 for c in timed)
    x, _, u = row_arguments(text)
    given = [x, hinted(2000, 2000, 0, 0), u]
    memory = {
        n: np.ascontiguousarray(given[b.number]).reshape(-1).view(np.uint8)
        for n, b in enumerate(made.program.buffers)
        if b.role is Role.PARAMETER
    }
    assert simulate(made.program, load_chip("tiny"), memory).cycles == cycles[True]
    assert cycles[True] < 0.7 * cycles[False]


def test_several_donated_tables_at_indices_that_are_said_to_be_unique() -> None:
    depth, row, count = 900, 24, 600
    x, u, header = f"f32[{depth},{row}]", f"f32[{count},{row}]", "{0}: (0, {}, must-alias), {1}: (1, {}, must-alias)"
    text = (
        f"HloModule m, input_output_alias={{ {header} }}\nc {{\n p0 = f32[] parameter(0)\n p1 = f32[] parameter(1)\n"
        " p2 = f32[] parameter(2)\n p3 = f32[] parameter(3)\n a = f32[] add(p0, p2)\n b = f32[] subtract(p3, p0)\n"
        f" ROOT r = (f32[], f32[]) tuple(a, b)\n}}\nENTRY e {{\n x = {x} parameter(0)\n y = {x} parameter(1)\n"
        f" i = s32[{count},1] parameter(2)\n u = {u} parameter(3)\n v = {u} parameter(4)\n"
        f" ROOT r = ({x}, {x}) scatter(x, y, i, u, v), to_apply=c, update_window_dims={{1}},"
        " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true\n}\n"
    )
    rng = np.random.default_rng(0)
    tables = [rng.standard_normal((n, row)).astype(np.float32) for n in (depth, depth, count, count)]
    for equal in (0, 300):
        made = same_bits(text, [*tables[:2], hinted(depth, count, equal, 1), *tables[2:]], HALF)
    unhinted = compiled(text.replace(", unique_indices=true", ""), HALF, "highest")
    assert made.program.code != unhinted.program.code


@pytest.mark.parametrize("combine", [ADD, TAKE], ids=["add", "take"])
def test_as_xla_computes_it(combine: str) -> None:
    for text in (lookup(50, 6, 40), update(50, 6, 40, combine), update(50, 6, 40, combine, "bf16", 2)):
        given = row_arguments(text)
        got = run(compiled(text, "tiny", "highest").program, load_chip("tiny"), given)
        for a, b in zip(got, run_xla(text, *given), strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


def test_a_donated_table_is_written_where_windows_are_only() -> None:
    header = ", input_output_alias={ {}: (0, {}, must-alias) }"
    text = update(20000, 8, 5, TAKE, header=header)
    made = same_bits(text, row_arguments(text))
    assert sum(b.bytes for b in made.program.buffers if b.role is Role.RESULT and b.alias < 0) == 0
    assert sum(i.op == "dma.store" for i in made.program.code) == 1


def test_a_computation_that_the_vector_unit_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(CompileError, match=r"5:2: rng 'r' \(f32\[\]\)"):
        compiled(update(9, 1, 4, "rng(a, b), distribution=rng_uniform"))


def test_more_arrays_than_a_kernel_has_streams_are_refused_by_name() -> None:
    count = 7
    parameters = "".join(f" p{k} = f32[] parameter({k})\n" for k in range(2 * count))
    sums = "".join(f" s{k} = f32[] add(p{k}, p{count + k})\n" for k in range(count))

    def tuple_of(shape: str) -> str:
        return f"({', '.join([shape] * count)})"

    arrays = "".join(
        f" x{k} = f32[9] parameter({k})\n u{k} = f32[4] parameter({count + 1 + k})\n" for k in range(count)
    )
    names, updates, made = (", ".join(f"{stem}{k}" for k in range(count)) for stem in "xus")
    text = (
        f"HloModule m\nc {{\n{parameters}{sums} ROOT r = {tuple_of('f32[]')} tuple({made})\n}}\nENTRY e {{\n{arrays}"
        f" i = s32[4] parameter({count})\n ROOT r = {tuple_of('f32[9]')} scatter({names}, i, {updates}), to_apply=c,"
        " update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1\n}\n"
    )
    with pytest.raises(CompileError, match=r"scatter 'r.1'.*14 streams.*use fewer arrays"):
        compiled(text)
