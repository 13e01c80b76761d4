"""Grouping: the operations of a grouped module, their groups, and that it gives the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from systolith.compiler.groups.fusion import OUTSIDE, Fuse, Limits
from systolith.compiler.hlo.ir import Computation, Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.expression_builder import analyze, group_roots
from systolith.compiler.ops.group import Group, Unit, is_cheap
from systolith.compiler.ops.pieces import kernel_sizes
from systolith.compiler.ops.table import Family, family, info
from systolith.compiler.passes.base import run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.passes.simplify.dead_code import has_effects
from systolith.compiler.tile.views import is_view_chain, view_base
from systolith.isa.kernel import MAX_STREAMS
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import TINY, compare, with_vmem
from tests.corpus.load import Case
from tests.examples import with_slow

NAMES = (
    "mlp_infer lenet_infer lstm_scan cond_switch fori_while_dynamic elementwise_zoo reduce_variants"
    " cumsum_reduce_window mlp_train_sgd gpt2_decode_kvcache sort_topk_argmax gpt2_tiny_infer"
    " lenet_train_maxpool_selscatter"
).split()


def grouped(text: str, limits: Limits | None = None) -> Module:
    return run_passes(canonicalise(parse_hlo(text)), [Fuse(limits or Limits())])


def running(module: Module) -> list[Computation]:
    """The entry and the computations that control flow runs."""
    found, todo = [], [module.entry]
    while todo:
        found.append(todo.pop())
        todo.extend(c for i in found[-1].instructions if i.opcode in ("while", "conditional") for c in i.called)
    return found


def groups(module: Module) -> list[Group]:
    return [i for c in running(module) for i in c.instructions if isinstance(i, Group)]


def kinds(text: str) -> list[str]:
    return [g.kind for g in groups(grouped(text))]


@pytest.mark.parametrize("name", with_slow(NAMES, {"sort_topk_argmax"}))
def test_corpus(name: str, corpus: Callable[[str], Case]) -> None:
    case = corpus(name)
    module = grouped(case.text)
    for computation in running(module):
        for i in computation.instructions:
            assert family(i) in OUTSIDE or has_effects(i), i
    for group in groups(module):
        check_group(group)
    stored = np.load(case.args_path)
    arguments = [stored[f"arg{k}"] for k in range(len(stored.files))]
    want = evaluate(parse_hlo(case.text), *arguments)
    for a, b in zip(evaluate(module, *arguments), want, strict=True):
        np.testing.assert_array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))
    again = parse_hlo(print_hlo(module))
    assert [i.opcode for i in again.entry.instructions] == [i.opcode for i in module.entry.instructions]


def check_group(group: Group) -> None:
    inner = [i for i in group.body.instructions if i.opcode not in ("parameter", "constant")]
    others = [i for i in inner if not is_cheap(i)]
    if group.unit is Unit.DMA:
        assert len(inner) == 1
    elif group.unit is Unit.VPU and not group.reduces:
        assert not others
        assert kernel_sizes(analyze(group_roots(group.body)))[1] <= MAX_STREAMS
    else:
        assert others == [group.root]
        assert family(group.root) is (Family.CONTRACTION if group.unit is Unit.MXU else Family.REDUCTION)
        if group.unit is Unit.MXU:
            assert all(is_view_chain(o) and view_base(o).opcode == "parameter" for o in group.root.operands)


DENSE = """HloModule m
ENTRY e {
 x = f32[8,16] parameter(0)
 w = f32[16,4] parameter(1)
 b = f32[4] parameter(2)
 y = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 c = f32[8,4] broadcast(b), dimensions={1}
 s = f32[8,4] add(y, c)
 z = f32[] constant(0)
 zs = f32[8,4] broadcast(z), dimensions={}
 ROOT r = f32[8,4] maximum(s, zs)
}
"""


def test_epilogue_goes_with_its_dot() -> None:
    (group,) = groups(grouped(DENSE))
    assert group.kind == "kOutput"
    assert [o.name for o in group.operands] == ["x", "w", "b"]


def test_dot_used_twice_is_stored() -> None:
    text = DENSE.replace(
        " ROOT r = f32[8,4] maximum(s, zs)", " m = f32[8,4] maximum(s, zs)\n ROOT r = (f32[8,4], f32[8,4]) tuple(m, y)"
    )
    assert kinds(text) == ["kOutput", "kLoop"]


def test_views_of_a_dots_operands_stay_in_its_group() -> None:
    dims = "lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, rhs_contracting_dims={3}"
    text = """HloModule m
ENTRY e {
 x = f32[2,5,24] parameter(0)
 a = f32[2,5,12] slice(x), slice={[0:2], [0:5], [0:12]}
 b = f32[2,5,3,4] reshape(a)
 q = f32[2,3,5,4] transpose(b), dimensions={0,2,1,3}
 c = f32[2,5,12] slice(x), slice={[0:2], [0:5], [12:24]}
 d = f32[2,5,3,4] reshape(c)
 k = f32[2,3,5,4] transpose(d), dimensions={0,2,1,3}
 ROOT s = f32[2,3,5,5] dot(q, k), DIMS
}
""".replace("DIMS", dims)
    (group,) = groups(grouped(text))
    assert [o.name for o in group.operands] == ["x"]
    assert sum(info(i).view for i in group.computation("calls").instructions) == 6


def test_transposed_result_of_a_dot_goes_with_it() -> None:
    text = DENSE.replace(" ROOT r = f32[8,4]", " m = f32[8,4]").replace(
        "\n}\n", "\n ROOT r = f32[4,8] transpose(m), dimensions={1,0}\n}\n"
    )
    assert kinds(text) == ["kOutput"]


def test_normalisation_is_four_groups_and_repeats_cheap_work() -> None:
    text = (
        "HloModule m\n"
        + scalar_computation("add", name="f")
        + """ENTRY e {
 x = f32[4,64] parameter(0)
 z = f32[] constant(0)
 n = f32[] constant(60)
 ns = f32[4] broadcast(n), dimensions={}
 s = f32[4] reduce(x, z), dimensions={1}, to_apply=f
 m = f32[4] divide(s, ns)
 ms = f32[4,64] broadcast(m), dimensions={0}
 d = f32[4,64] subtract(x, ms)
 d2 = f32[4,64] multiply(d, d)
 v = f32[4] reduce(d2, z), dimensions={1}, to_apply=f
 vn = f32[4] divide(v, ns)
 i = f32[4] rsqrt(vn)
 is = f32[4,64] broadcast(i), dimensions={0}
 ROOT r = f32[4,64] multiply(d, is)
}
"""
    )
    assert kinds(text) == ["kInput", "kInput", "kLoop"]


def test_expensive_work_is_not_repeated() -> None:
    text = (
        "HloModule m\n"
        + scalar_computation("add", name="f")
        + """ENTRY e {
 x = f32[4,64] parameter(0)
 z = f32[] constant(0)
 y = f32[4,64] exponential(x)
 s = f32[4] reduce(y, z), dimensions={1}, to_apply=f
 ss = f32[4,64] broadcast(s), dimensions={0}
 ROOT r = f32[4,64] divide(y, ss)
}
"""
    )
    module = grouped(text)
    inside = [i.opcode for g in groups(module) for i in g.computation("calls").instructions]
    assert inside.count("exponential") == 1
    assert kinds(text) == ["kLoop", "kInput", "kLoop"]


@pytest.mark.parametrize(("rows", "times", "stored"), [(65536, 128, True), (65536, 8, False), (64, 128, False)])
def test_cheap_work_is_repeated_a_few_times_only(rows: int, times: int, stored: bool) -> None:
    """Indices that are brought into range, and compared with the number of each segment."""
    text = f"""HloModule m
ENTRY e {{
 x = s32[{rows}] parameter(0)
 z = s32[] constant(0)
 zs = s32[{rows}] broadcast(z), dimensions={{}}
 n = s32[] constant({times})
 ns = s32[{rows}] broadcast(n), dimensions={{}}
 below = pred[{rows}] compare(x, zs), direction=LT
 y = s32[{rows}] add(x, ns)
 i = s32[{rows}] select(below, y, x)
 is = s32[{rows},{times}] broadcast(i), dimensions={{0}}
 k = s32[{rows},{times}] iota(), iota_dimension=1
 ROOT r = pred[{rows},{times}] compare(is, k), direction=EQ
}}
"""
    assert kinds(text) == ["kLoop"] * (1 + stored)


def test_reshape_that_does_not_fold_becomes_a_view() -> None:
    text = """HloModule m
ENTRY e {
 x = f32[3,4] parameter(0)
 y = f32[12] parameter(1)
 n = f32[3,4] negate(x)
 s = f32[12] reshape(n)
 ROOT r = f32[12] add(s, y)
}
"""
    module = grouped(text)
    assert [i.opcode for i in module.entry.instructions if i.opcode not in ("parameter", "constant")] in (
        ["fusion", "bitcast", "fusion"],
        ["bitcast", "fusion"],
    )


def test_limits_split_groups() -> None:
    lines = "\n".join(f" n{k + 1} = f32[9] sine(n{k})" for k in range(40))
    text = f"HloModule m\nENTRY e {{\n n0 = f32[9] parameter(0)\n{lines}\n ROOT r = f32[9] abs(n40)\n}}\n"
    assert len(groups(grouped(text))) == 1
    assert len(groups(grouped(text, Limits(micro_ops=10)))) in range(5, 9)


def test_many_operands_split_groups() -> None:
    count = 30
    parameters = "\n".join(f" p{k} = f32[9] parameter({k})" for k in range(count))
    sums = "\n".join(f" s{k} = f32[9] add({'p0' if k == 1 else f's{k - 1}'}, p{k})" for k in range(1, count))
    text = f"HloModule m\nENTRY e {{\n{parameters}\n{sums}\n ROOT r = f32[9] negate(s{count - 1})\n}}\n"
    module = grouped(text)
    assert all(len(g.operands) < MAX_STREAMS for g in groups(module))
    arguments = [np.full(9, k, np.float32) for k in range(count)]
    np.testing.assert_array_equal(evaluate(module, *arguments)[0], np.full(9, -435, np.float32))


GELU = """HloModule m
ENTRY e {
 x = f32[64,64] parameter(0)
 w = f32[64,64] parameter(1)
 d = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 y = f32[64,64] add(d, w)
 t = f32[64,64] tanh(y)
 g = f32[64,64] multiply(y, t)
 p = f32[64,64] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 q = f32[64,64] dot(x, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 r = f32[64,64] multiply(q, t)
 ROOT s = f32[64,64] add(r, y)
}
"""


SLICED = GELU.replace(
    " y = f32[64,64] add(d, w)",
    """ all = f32[2,64,64] parameter(2)
 at = s32[] parameter(3)
 zero = s32[] constant(0)
 one = f32[1,64,64] dynamic-slice(all, at, zero, zero), dynamic_slice_sizes={1,64,64}
 y = f32[64,64] reshape(one)""",
)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("text", [GELU, SLICED])
def test_a_transcendental_function_is_done_again_rather_than_moved(text: str, large: bool) -> None:
    """Where its value would go to HBM, and what it is of, perhaps in another shape, is in memory in any case."""
    size = 4 * 64 * 64
    module = parse_hlo(text)
    Fuse(Limits(large=size if large else size + 1)).run(module)
    found = groups(module)
    assert sum(i.opcode == "tanh" for g in found for i in g.body.instructions) == 1 + large
    assert any([i.opcode for i in g.body.instructions if i.opcode != "parameter"] == ["tanh"] for g in found) != large


def test_values_of_a_function_that_is_done_again() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((32, 32)).astype(np.float32) / 8 for _ in range(2)]
    chip = with_vmem(TINY, 8 << 10)
    made = compare(GELU.replace("64,64", "32,32"), arrays, chip)
    assert made.stages["grouped.hlo"].count(" tanh(") == 2
