"""Normalisations in blocks: which regions are taken, and that blocks compute the values of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate_computation
from systolith.compiler.ops.dim_propagation import (
    blocked_dims,
    operand_dim,
    resized,
    result_dim,
)
from systolith.compiler.ops.dim_rules import NotBlockableError
from systolith.compiler.ops.group import Group, Tiling, read_groups
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.tiling.blocking import BlockNormalisations
from systolith.isa.chip import Chip, load_chip
from systolith.isa.program import Role
from systolith.sim.simulate import simulate
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import compare, compiled, with_vmem

TINY = load_chip("tiny")
BATCH = "lhs_batch_dims={0}, rhs_batch_dims={0}"
SMALL = with_vmem(TINY, 32 << 10)

FOLDS = scalar_computation("add") + scalar_computation("maximum", name="max")


def exponentials(x: str, *dims: int) -> str:
    """Of a value less its maximum along the last dimension, `e`, and their sums, `sb`."""
    row, wide = f"f32[{','.join(map(str, dims[:-1]))}]", f"f32[{','.join(map(str, dims))}]"
    last, others = len(dims) - 1, ",".join(map(str, range(len(dims) - 1)))
    return f""" low = f32[] constant(-inf)
 m = {row} reduce({x}, low), dimensions={{{last}}}, to_apply=max
 mb = {wide} broadcast(m), dimensions={{{others}}}
 d = {wide} subtract({x}, mb)
 e = {wide} exponential(d)
 zero = f32[] constant(0)
 s = {row} reduce(e, zero), dimensions={{{last}}}, to_apply=add
 sb = {wide} broadcast(s), dimensions={{{others}}}"""


def softmax(rows: int, width: int) -> str:
    return f"""HloModule softmax
{FOLDS}
ENTRY e {{
 x = f32[{rows},{width}] parameter(0)
{exponentials("x", rows, width)}
 ROOT r = f32[{rows},{width}] divide(e, sb)
}}
"""


def attention(heads: int, length: int, depth: int) -> str:
    scores, wide = f"f32[{heads},{length},{length}]", f"f32[{heads},{length},{depth}]"
    return f"""HloModule attention
{FOLDS}
ENTRY e {{
 q = {wide} parameter(0)
 k = {wide} parameter(1)
 v = {wide} parameter(2)
 bias = f32[{length},{length}] parameter(3)
 qk = {scores} dot(q, k), {BATCH}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
 bb = {scores} broadcast(bias), dimensions={{1,2}}
 x = {scores} add(qk, bb)
{exponentials("x", heads, length, length)}
 p = {scores} divide(e, sb)
 o = {wide} dot(p, v), {BATCH}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
 ROOT r = f32[{length},{heads},{depth}] transpose(o), dimensions={{1,0,2}}
}}
"""


def blocked(text: str, chip: Chip) -> tuple[Module, list[Group]]:
    """A module after blocking, and its blocked groups."""
    module = canonicalise(parse_hlo(text))
    BlockNormalisations(chip).run(module)
    verify(module)
    return module, [i for i in module.entry.instructions if isinstance(i, Group)]


@pytest.mark.parametrize(("rows", "width"), [(96, 100), (97, 128), (7, 1000), (256, 33)])
def test_softmax_in_blocks(rows: int, width: int) -> None:
    text = softmax(rows, width)
    result = compare(text, [np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)], SMALL)
    assert any(d.kind == "blocks" for d in result.explain)


@pytest.mark.parametrize(("heads", "length", "depth"), [(4, 32, 8), pytest.param(5, 33, 16, marks=pytest.mark.slow)])
def test_attention_in_blocks(heads: int, length: int, depth: int) -> None:
    rng = np.random.default_rng(1)
    wide = [rng.normal(size=(heads, length, depth)).astype(np.float32) for _ in range(3)]
    text = attention(heads, length, depth)
    (group,) = blocked(text, SMALL)[1]
    assert sum(i.opcode == "dot" for i in group.body.instructions) == 2
    result = compare(text, [*wide, rng.normal(size=(length, length)).astype(np.float32)], SMALL)
    assert any(d.kind == "blocks" for d in result.explain)


def test_matrix_units_go_on_while_lanes_are_reduced() -> None:
    """Users of the cross-lane unit are a stage later, so that no stage waits for a result that it has just started."""
    program = compiled(attention(12, 512, 64), "tpu_v3").program
    result = simulate(program, load_chip("tpu_v3"), mode="time")
    units = result.to_json()["units"]
    assert result.cycles is not None
    assert min(units["s0"]["busy"], units["s1"]["busy"]) > 0.85 * result.cycles


def test_what_fits_is_loaded_and_stored_while_other_blocks_are_computed() -> None:
    chip = load_chip("tpu_v3")
    program = compiled(softmax(512, 512), chip, "highest").program
    moved = 2 * 512 * 512 * 4 * chip.hbm.q // chip.hbm.p
    assert (simulate(program, chip, mode="time").cycles or 0) < 1.2 * moved


def test_grouped_text_reads_back() -> None:
    text = compiled(softmax(96, 100), SMALL, "highest").stages["grouped.hlo"]
    group = read_groups(parse_hlo(text)).entry.result
    assert isinstance(group, Group)
    assert group.tiling == Tiling((0,))
    assert print_hlo(read_groups(parse_hlo(text))) == text


@pytest.mark.slow
def test_one_index_that_is_too_much_runs_in_blocks_of_another_dimension() -> None:
    batched = attention(6, 40, 8).replace("HloModule attention", "HloModule batched")
    for short, long in (
        ("f32[6,40,40]", "f32[2,6,40,40]"),
        ("f32[6,40,8]", "f32[2,6,40,8]"),
        ("f32[6,40]", "f32[2,6,40]"),
    ):
        batched = batched.replace(short, long)
    batched = batched.replace("_batch_dims={0}", "_batch_dims={0,1}").replace("f32[40,6,8]", "f32[2,40,6,8]")
    batched = batched.replace("contracting_dims={2}", "contracting_dims={3}").replace(
        "rhs_contracting_dims={1}", "rhs_contracting_dims={2}"
    )
    for old, new in (
        ("dimensions={1,2}", "dimensions={2,3}"),
        ("dimensions={2}", "dimensions={3}"),
        ("dimensions={0,1}", "dimensions={0,1,2}"),
        ("dimensions={1,0,2}", "dimensions={0,2,1,3}"),
    ):
        batched = batched.replace(old, new)
    rng = np.random.default_rng(4)
    wide = [rng.normal(size=(2, 6, 40, 8)).astype(np.float32) for _ in range(3)]
    result = compare(batched, [*wide, rng.normal(size=(40, 40)).astype(np.float32)], SMALL)
    lines = [d.why for d in result.explain if d.kind == "blocks"]
    assert {line.split(" along dimension ")[1][0] for line in lines} >= {"0", "1"}


def test_attention_whose_scores_of_one_head_do_not_fit_runs_in_blocks_of_queries() -> None:
    text, chip = attention(2, 32, 8), with_vmem(TINY, 4 << 10)
    rng = np.random.default_rng(5)
    wide = [rng.normal(size=(2, 32, 8)).astype(np.float32) for _ in range(3)]
    result = compare(text, [*wide, rng.normal(size=(32, 32)).astype(np.float32)], chip)
    lines = [d.why for d in result.explain if d.kind == "blocks"]
    assert len({line.split(" along ")[1] for line in lines}) == 2
    assert not any(b.bytes >= 32 * 32 * 4 for b in result.program.buffers if b.role is Role.TEMP)


def scaled_attention(batch: int, heads: int, length: int, depth: int) -> str:
    """Of queries f32[batch,length,heads*depth] that get a bias and a scale before they are cut into heads."""
    wide, apart = f"f32[{batch},{length},{heads * depth}]", f"f32[{batch},{length},{heads},{depth}]"
    by_head = f"f32[{batch},{heads},{length},{depth}]"
    scores = f"f32[{batch},{heads},{length},{length}]"
    dims = "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}"
    return f"""HloModule attention
{FOLDS}
ENTRY e {{
 x = {wide} parameter(0)
 k = {by_head} parameter(1)
 v = {by_head} parameter(2)
 bias = f32[{heads * depth}] parameter(3)
 bb = {wide} broadcast(bias), dimensions={{2}}
 xb = {wide} add(x, bb)
 c = f32[] constant(0.25)
 cb = {wide} broadcast(c), dimensions={{}}
 xs = {wide} multiply(xb, cb)
 xr = {apart} reshape(xs)
 q = {by_head} transpose(xr), dimensions={{0,2,1,3}}
 qk = {scores} dot(q, k), {dims}, rhs_contracting_dims={{3}}
{exponentials("qk", batch, heads, length, length)}
 p = {scores} divide(e, sb)
 o = {by_head} dot(p, v), {dims}, rhs_contracting_dims={{2}}
 ROOT r = {apart} transpose(o), dimensions={{0,2,1,3}}
}}
"""


def test_blocks_run_along_heads_though_more_could_run_along_the_rows_of_all_heads() -> None:
    """Each block of rows would load the keys and the values of every head."""
    rng = np.random.default_rng(6)
    x, k, v = (rng.normal(size=dims).astype(np.float32) for dims in ((2, 32, 32), (2, 4, 32, 8), (2, 4, 32, 8)))
    result = compare(scaled_attention(2, 4, 32, 8), [x, k, v, rng.normal(size=32).astype(np.float32)], SMALL)
    along = [d.why.partition("; of ")[2] for d in result.explain if d.kind == "blocks"]
    assert along == ["2 along dimension 0", "4 along dimension 2"]


def test_an_iota_that_counts_along_the_blocks_is_read_and_another_is_made() -> None:
    for d in (0, 1):
        text = f"""HloModule m
{FOLDS}
ENTRY e {{
 x = f32[64,128] parameter(0)
 i = f32[64,128] iota(), iota_dimension={d}
 y = f32[64,128] add(x, i)
 z = f32[] constant(0)
 s = f32[64] reduce(y, z), dimensions={{1}}, to_apply=add
 b = f32[64,128] broadcast(s), dimensions={{0}}
 ROOT r = f32[64,128] subtract(y, b)
}}
"""
        result = compare(text, [np.random.default_rng(6).normal(size=(64, 128)).astype(np.float32)], SMALL)
        assert any(decision.kind == "blocks" for decision in result.explain)


def test_what_fits_stays_as_it_is() -> None:
    assert not blocked(softmax(8, 100), load_chip("tpu_v3"))[1]


def test_a_value_used_elsewhere_is_a_second_result() -> None:
    text = (
        softmax(96, 100)
        .replace("ROOT r =", "r =")
        .replace("divide(e, sb)", "divide(e, sb)\n ROOT t = (f32[96,100], f32[96]) tuple(r, s)")
    )
    module, (group,) = blocked(text, SMALL)
    assert group.shape.is_tuple
    assert group.tiling == Tiling((0, 0))
    compare(text, [np.random.default_rng(2).normal(size=(96, 100)).astype(np.float32)], SMALL)
    assert module.entry.result.opcode == "tuple"


def test_values_of_which_many_ways_lead_to_others_are_looked_at_once() -> None:
    doubled = "\n".join(f" y{n + 1} = f32[96,100] multiply(y{n}, y{n})" for n in range(60))
    text = (
        softmax(96, 100)
        .replace(" low =", " y0 = f32[96,100] parameter(1)\n low =")
        .replace(" e =", f"{doubled}\n e =")
        .replace("divide(e, sb)", "divide(e, sb)\n t = f32[96,100] add(r, y60)\n ROOT u = f32[96,100] add(t, y60)")
        .replace("ROOT r =", "r =")
    )
    _, groups = blocked(text, SMALL)
    assert [group.operands[0].name for group in groups] == ["x"]


def test_blocks_put_together_are_the_whole() -> None:
    _, (group,) = blocked(attention(6, 40, 8), SMALL)
    assert group.tiling is not None
    computation, (d,) = group.body, group.tiling.dims
    dims = blocked_dims(computation, [(computation.result, d)])
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=p.dims).astype(np.float32) for p in computation.parameters]
    whole = evaluate_computation(computation, arrays)
    small = resized(computation, dims, 2)
    parts = []
    for start in range(0, 6, 2):
        cut = [
            a if (b := dims[p]) is None else a.take(range(start, start + 2), axis=b)
            for p, a in zip(computation.parameters, arrays, strict=True)
        ]
        parts.append(np.asarray(evaluate_computation(small, cut)))
    np.testing.assert_array_equal(np.concatenate(parts, axis=d), np.asarray(whole))


CASES = [
    ("broadcast(x), dimensions={2,0}", "f32[4,5,3]", "f32[3,4]", [1, None, 0]),
    ("transpose(x), dimensions={2,0,1}", "f32[5,3,4]", "f32[3,4,5]", [2, 0, 1]),
    ("reshape(x)", "f32[3,20]", "f32[3,4,5]", [0, NotBlockableError]),
    ("reshape(x)", "f32[1,3,20]", "f32[3,20]", [NotBlockableError, 0, 1]),
    ("slice(x), slice={[0:3], [1:4]}", "f32[3,3]", "f32[3,4]", [0, NotBlockableError]),
    ("reverse(x), dimensions={1}", "f32[3,4]", "f32[3,4]", [0, NotBlockableError]),
    ("negate(x)", "f32[3,4]", "f32[3,4]", [0, 1]),
]


@pytest.mark.parametrize(("call", "result", "operand", "want"), CASES)
def test_dimension_of_an_operand(call: str, result: str, operand: str, want: list[object]) -> None:
    text = f"HloModule m\nENTRY e {{\n x = {operand} parameter(0)\n ROOT r = {result} {call}\n}}\n"
    root = parse_hlo(text).entry.result
    for d, expected in enumerate(want):
        if expected is NotBlockableError:
            with pytest.raises(NotBlockableError):
                operand_dim(root, 0, d)
            continue
        found = operand_dim(root, 0, d)
        assert found == expected
        if found is not None and root.dims[d] not in (*root.dims[:d], *root.dims[d + 1 :]):
            assert result_dim(root, root.operands[0], found) == d


def test_what_a_reduction_computes_from_a_result_is_not_stored() -> None:
    """The negated softmax, whose largest element is looked for: each block would store it beside the softmax."""
    text = softmax(64, 256).replace("ROOT r", "r").replace("ENTRY", f"{ARGMAX}\nENTRY")
    text = text.rstrip("}\n") + (
        "\n n = f32[64,256] negate(r)\n i = s32[64,256] iota(), iota_dimension=0\n first = s32[] constant(0)\n"
        " a = (f32[256], s32[256]) reduce(n, i, low, first), dimensions={0}, to_apply=argmax\n"
        " at = s32[256] get-tuple-element(a), index=1\n ROOT t = (f32[64,256], s32[256]) tuple(r, at)\n}\n"
    )
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    program = compare(text, [x], SMALL).program
    written = sum(g["hbm_bytes"]["written"] for g in simulate(program, SMALL, mode="time").groups())
    assert written < 1.1 * 4 * (64 * 256 + 256)


ARGMAX = """argmax {
 a = f32[] parameter(0)
 i = s32[] parameter(1)
 b = f32[] parameter(2)
 j = s32[] parameter(3)
 m = pred[] compare(b, a), direction=GT
 v = f32[] select(m, b, a)
 w = s32[] select(m, j, i)
 ROOT r = (f32[], s32[]) tuple(v, w)
}
"""
