"""Groups: their kinds, that their text reads back to the same groups, and which texts are refused."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import Front, compile_grouped, compile_groups
from systolith.compiler.errors import CompileError
from systolith.compiler.groups.fuse_pair import join
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.expression_builder import group_roots
from systolith.compiler.ops.group import Group, Tiling, Unit, read_groups, root_operation, unit_of
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass
from systolith.compiler.tiling.pipeline import GROUPING
from systolith.isa.chip import Chip, load_chip
from tests.compiler.driver.random_modules import random_module
from tests.compiler.fusion.test_batch_loops import mlp
from tests.compiler.fusion.test_blocking import SMALL, attention, softmax
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import TINY, compiled, error, run
from tests.corpus.load import Case
from tests.corpus.load import names as corpus_names
from tests.examples import examples, with_slow


def groups(module: Module) -> dict[str, Group]:
    return {i.name: i for i in module.instructions() if isinstance(i, Group)}


def facts(module: Module) -> dict[str, tuple[object, ...]]:
    """The compiler's facts about each group."""
    return {
        name: (g.unit, g.tiling, g.root.name, g.reduces, g.body.name, g.shape, [o.name for o in g.operands])
        for name, g in groups(module).items()
    }


def grouped(text: str, chip: Chip) -> Module:
    """A module in groups, as it is before anything is lowered."""
    return Front(parse_hlo(text))._grouped(chip, Options(), ())[0]


def same_groups(module: Module) -> None:
    text = print_hlo(module)
    again = read_groups(parse_hlo(text))
    verify(again)
    assert facts(again) == facts(module)
    assert print_hlo(again) == text
    assert facts(clone(again)) == facts(module)


LONG = {
    *("resnet50_infer_224", "resnet18_infer_224", "resnet18_infer_32_small", "gpt2_block_bf16", "sort_topk_argmax"),
    *("elementwise_zoo", "rng_threefry", "complex_ops", "gpt2_tiny_infer"),
}


@pytest.mark.parametrize("name", with_slow(corpus_names("path"), LONG))
def test_grouped_modules_of_the_corpus_read_back_equal(name: str) -> None:
    module = grouped(Case(name).text, load_chip("tpu_v3"))
    assert groups(module)
    same_groups(module)


@examples(6, 30)
@given(seed=st.integers(0, 1 << 20))
def test_random_grouped_modules_read_back_equal(seed: int) -> None:
    same_groups(grouped(random_module(seed)[0], TINY))


@pytest.mark.parametrize("seed", range(4))
def test_a_grouped_module_that_is_read_back_compiles_to_the_same_program(seed: int) -> None:
    made = compiled(random_module(seed)[0], TINY)
    again = compile_grouped(read_groups(parse_hlo(made.stages["grouped.hlo"])), TINY, Options())
    assert again.program.code == made.program.code
    assert again.program.groups == made.program.groups


@pytest.mark.parametrize(("text", "kind"), [(softmax(96, 100), "blocks"), (mlp(8, 40, 16, 64), "loop")])
def test_tilings_that_are_read_back_compile_to_the_same_program(text: str, kind: str) -> None:
    chip = replace(SMALL, hbm=replace(SMALL.hbm, q=4))
    made = compiled(text, chip)
    assert any(d.kind == kind for d in made.explain)
    again = compile_groups(read_groups(parse_hlo(made.stages["grouped.hlo"])), chip, Options())
    assert again.program.code == made.program.code


@pytest.mark.parametrize("text", [random_module(3)[0], softmax(96, 100)])
def test_passes_keep_nothing_of_a_run(text: str) -> None:
    """Two copies of a module become the same, with the same decisions, by the same passes."""
    passes = [make(SMALL, Options()) for make in GROUPING.values()]
    copies = [clone(Front(parse_hlo(text)).canonical) for _ in range(2)]
    outcomes = [[run_pass(copy, step) for step in passes] for copy in copies]
    assert outcomes[0] == outcomes[1]
    assert any(outcome.changed for outcome in outcomes[0])
    assert print_hlo(copies[0]) == print_hlo(copies[1])


# Kinds of groups.

DEPTHWISE = """HloModule m
ENTRY e {
 x = f32[2,20,16] parameter(0)
 w = f32[3,1,16] parameter(1)
 ROOT r = f32[2,20,16] convolution(x, w), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, feature_group_count=16
}
"""

SLICE = """HloModule m
ENTRY e {
 x = f32[2,20] parameter(0)
 n = s32[] parameter(1)
 ROOT r = f32[1,20] dynamic-slice(x, n, n), dynamic_slice_sizes={1,20}
}
"""


def test_a_convolution_on_the_vector_unit_and_a_reduction_differ_in_their_roots() -> None:
    (group,) = groups(grouped(DEPTHWISE, TINY)).values()
    assert (group.unit, group.reduces, group.root.opcode, group.kind) == (Unit.VPU, True, "convolution", "kInput")
    (group,) = groups(grouped(DEPTHWISE.replace(",1,16]", ",16,16]").replace("=16\n", "=1\n"), TINY)).values()
    assert (group.unit, group.reduces, group.root.opcode, group.kind) == (Unit.MXU, False, "convolution", "kOutput")


def test_attention_in_blocks_and_a_slice_differ_in_unit_and_tiling() -> None:
    (group,) = groups(grouped(attention(6, 40, 8), SMALL)).values()
    assert (group.unit, group.tiling, group.kind) == (None, Tiling((1,)), "kCustom")
    (group,) = groups(grouped(SLICE, TINY)).values()
    assert (group.unit, group.tiling, group.kind) == (Unit.DMA, None, "kCustom")


def test_a_copy_of_a_group_is_a_group() -> None:
    (group,) = groups(grouped(softmax(96, 100), SMALL)).values()
    copy = replace(group, name="copy")
    assert (copy.tiling, copy.kind, copy.body) == (group.tiling, group.kind, group.body)
    assert copy.attributes == group.attributes


# Texts that no group is printed as.


@pytest.mark.parametrize(
    ("pattern", "other", "message"),
    [
        ("kind=kCustom", "kind=kLoop", r"fusion 'r' .*: a group of reduce 'm' is kind=kCustom, not kind=kLoop"),
        (r", backend_config=\S*", "", r"fusion 'r' .*: a group of reduce 'm' is kind=kInput, not kind=kCustom"),
        (r'"dims":\[0\]', '"dims":[2]', r"fusion 'r' .*: the backend_config of a group is .*\[2\]"),
        (r'"dims":\[0\]', '"dims":[0,0]', r"fusion 'r' .*: the backend_config of a group is .*\[0,0\]"),
        (r'"dims":\[0\]', '"dims":[true]', r"fusion 'r' .*: the backend_config of a group is .*\[true\]"),
        (r"backend_config=\S*", 'backend_config="x"', r"fusion 'r' .*: the backend_config of a group is .* not x"),
        (r'"dims":\[0\]', '"dims":[1]', r"fusion 'r' .*: cannot run in blocks along \(1,\)"),
    ],
)
def test_a_text_that_no_group_is_printed_as_is_refused(pattern: str, other: str, message: str) -> None:
    text, count = re.subn(pattern, other, compiled(softmax(96, 100), SMALL).stages["grouped.hlo"])
    assert count
    with pytest.raises(CompileError, match=message):
        compile_grouped(read_groups(parse_hlo(text)), SMALL, Options())


def test_the_kind_says_which_unit_computes_a_convolution() -> None:
    text = print_hlo(grouped(DEPTHWISE, TINY))
    (group,) = groups(read_groups(parse_hlo(text.replace("kind=kInput", "kind=kOutput")))).values()
    assert group.unit is Unit.MXU
    (group,) = groups(read_groups(parse_hlo(text))).values()
    assert group.unit is Unit.VPU


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("d = f32[4,4] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
         " ROOT r = f32[4,4] dot(d, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "several products"),
        ("d = f32[4,4] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
         " s = f32[2,4] slice(p), slice={[0:2], [0:4]}\n ROOT r = (f32[4,4], f32[2,4]) tuple(d, s)",
         "several results, not all of"),
        ("i = s32[] constant(1)\n d = f32[4,4] dynamic-update-slice(p, p, i, i)\n ROOT r = f32[4,4] negate(d)",
         "dynamic-update-slice 'd' is in no kernel"),
        ("i = s32[] constant(1)\n n = f32[4,4] negate(p)\n ROOT r = f32[4,4] dynamic-update-slice(n, p, i, i)",
         "dynamic-update-slice 'r' runs alone"),
        ("z = f32[] constant(0)\n s = f32[4,4] reduce-window(p, z), window={size=3x3 pad=1_1x1_1}, to_apply=sum\n"
         " ROOT r = f32[4,4] transpose(s), dimensions={1,0}", "'r' reads 's' elsewhere than at its own index"),
        ("z = f32[] constant(0)\n a = f32[4] reduce(p, z), dimensions={0}, to_apply=sum\n"
         " b = f32[4] reduce(p, z), dimensions={1}, to_apply=sum\n ROOT r = f32[4] add(a, b)", "are not alike"),
        ("d = f32[4,4] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
         " ROOT r = f32[4,4] negate(p)", "its result is not made of 'd'"),
        ("n = f32[4,4] negate(p)\n s = f32[2,4] slice(p), slice={[0:2], [0:4]}\n"
         " ROOT r = (f32[4,4], f32[2,4]) tuple(n, s)", "results of different shapes"),
    ],
)  # fmt: skip
def test_operations_that_no_unit_computes_together_are_refused(body: str, message: str) -> None:
    shape = re.findall(r"ROOT r = (\(.*\)|\S+) [\w-]+\(", body)[0]
    kind = "kOutput" if " dot(" in body else "kInput" if " reduce" in body else "kLoop"
    kind = "kCustom" if "ROOT r = f32[4,4] dynamic" in body else kind
    text = f"""HloModule m
{scalar_computation("add", name="sum")}group {{
 p = f32[4,4] parameter(0)
 {body}
}}
ENTRY e {{
 x = f32[4,4] parameter(0)
 ROOT y = {shape} fusion(x), kind={kind}, calls=group
}}
"""
    with pytest.raises(CompileError, match=rf"fusion 'y' .*: its operations are not those of one group: .*{message}"):
        read_groups(parse_hlo(text))


@examples(5, 25)
@given(seed=st.integers(0, 1 << 20), number=st.integers(0, 1 << 10))
def test_two_groups_written_as_one_are_refused_or_computed_as_written(seed: int, number: int) -> None:
    text, args = random_module(seed)
    module = grouped(text, TINY)
    users = {i: u for c in module.computations for i, u in c.users().items()}
    pairs = [
        (first, second)
        for first, (second, *others) in ((i, u) for i, u in users.items() if u)
        if isinstance(first, Group) and isinstance(second, Group) and first.shape.is_array and not others
    ]
    if not pairs:
        return
    first, second = pairs[number % len(pairs)]
    joint = join(first, second, {first: 0}, range(1, 1 + len(group_roots(second.body))))
    joint.computation.name = "joined"
    unit = unit_of(root_operation(joint.computation))
    for computation in module.computations:
        if second in computation.instructions:
            made = Group.of(second.name, joint.computation, joint.leaves, second, unit)
            computation.replace(second, made)
            computation.instructions = [made if i is second else i for i in computation.instructions if i is not first]
    module.computations.insert(0, joint.computation)
    written = print_hlo(module)
    with np.errstate(all="ignore"):
        want = evaluate(parse_hlo(written), *args, precision="highest")
    try:
        program = compile_grouped(read_groups(parse_hlo(written)), TINY, Options(precision="highest")).program
    except CompileError:
        return
    for a, b in zip(run(program, TINY, args), want, strict=True):
        assert error(a, b) < 2.0**-5
