"""Arrays without elements, anywhere: every operation on them gives what XLA gives, on the chip and in the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.program import Role
from tests.compiler.driver.random_modules import random_module
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import TINY, Array, check, compare, compiled

HEAD = """HloModule m
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
both { a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = f32[] parameter(2)
 d = f32[] parameter(3)
 e = f32[] add(a, c)
 f = f32[] maximum(b, d)
 ROOT t = (f32[], f32[]) tuple(e, f) }
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT p = pred[] compare(a, b), direction=GE }
less { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT p = pred[] compare(a, b), direction=LT }
twice { p = (f32[0,3], s32[]) parameter(0)
 x = f32[0,3] get-tuple-element(p), index=0
 y = f32[0,3] add(x, x)
 i = s32[] get-tuple-element(p), index=1
 o = s32[] constant(1)
 j = s32[] add(i, o)
 ROOT t = (f32[0,3], s32[]) tuple(y, j) }
goes { p = (f32[0,3], s32[]) parameter(0)
 i = s32[] get-tuple-element(p), index=1
 n = s32[] constant(4)
 ROOT l = pred[] compare(i, n), direction=LT }
same { x = f32[0,3] parameter(0)
 ROOT y = f32[0,3] copy(x) }
negated { x = f32[0,3] parameter(0)
 ROOT y = f32[0,3] negate(x) }
"""
GIVEN: dict[str, Array] = {
    "x": np.zeros((0, 3), np.float32),
    "w": np.zeros((3, 0), np.float32),
    "y": np.arange(12, dtype=np.float32).reshape(4, 3) - 5,
    "z": np.asarray(1.5, np.float32),
    "k": np.zeros((2, 3, 0), np.float32),
    "i": np.asarray(2, np.int32),
    "n": np.zeros((0, 1), np.int32),
    "p": np.asarray(True),
}
OPERATIONS = {
    "a parameter": "ROOT r = f32[0,3] parameter(0)",
    "a constant": "ROOT r = f32[3,0] constant({{},{},{}})",
    "unary": "ROOT r = f32[0,3] sine(x)",
    "binary": "ROOT r = f32[0,3] add(x, x)",
    "compare": "ROOT r = pred[0,3] compare(x, x), direction=EQ",
    "convert": "ROOT r = bf16[0,3] convert(x)",
    "clamp": "ROOT r = f32[0,3] clamp(z, x, z)",
    "broadcast": "ROOT r = f32[0,4] broadcast(z), dimensions={}",
    "broadcast of nothing": "ROOT r = f32[5,0,3] broadcast(x), dimensions={1,2}",
    "reshape": "ROOT r = f32[7,0] reshape(x)",
    "transpose": "ROOT r = f32[3,0] transpose(x), dimensions={1,0}",
    "slice": "ROOT r = f32[4,0] slice(y), slice={[0:4],[2:2]}",
    "reverse": "ROOT r = f32[0,3] reverse(x), dimensions={0,1}",
    "pad": "ROOT r = f32[3,9] pad(x, z), padding=1_2x3_1_1",
    "pad to nothing": "ROOT r = f32[4,0] pad(y, z), padding=0_0x-1_-2",
    "pad between no elements": "ROOT r = f32[5,3] pad(x, z), padding=2_3_4x0_0",
    "concatenate": "ROOT r = f32[4,3] concatenate(x, y, x), dimensions={0}",
    "concatenate of nothing": "ROOT r = f32[0,6] concatenate(x, x), dimensions={1}",
    "iota": "ROOT r = s32[3,0] iota(), iota_dimension=0",
    "select": "q = pred[0,3] compare(x, x), direction=LT\n ROOT r = f32[0,3] select(q, x, x)",
    "reduce": "ROOT r = f32[3] reduce(x, z), dimensions={0}, to_apply=sum",
    "reduce to nothing": "ROOT r = f32[0] reduce(x, z), dimensions={1}, to_apply=sum",
    "reduce to a scalar": "ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=sum",
    "reduce of two": "ROOT r = (f32[3], f32[3]) reduce(x, x, z, z), dimensions={0}, to_apply=both",
    "reduce-window": "ROOT r = f32[0,2] reduce-window(x, z), window={size=1x2}, to_apply=sum",
    "reduce-window of padding": "ROOT r = f32[3,2] reduce-window(x, z), window={size=2x2 pad=3_1x0_0}, to_apply=sum",
    "reduce-window of two": "ROOT r = (f32[3,3], f32[3,3]) reduce-window(x, x, z, z), window={size=2x1 pad=2_2x0_0},"
    " to_apply=both",
    "dot": "ROOT r = f32[3,3] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "dot to nothing": "ROOT r = f32[0,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "dot of no batches": "ROOT r = f32[0,3,3] dot(x, x), lhs_batch_dims={0}, rhs_batch_dims={0}",
    "dot of integers": "ROOT r = s32[1,1] dot(n, n), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "convolution of no channels": "c = f32[3,0,4] broadcast(z), dimensions={}\n"
    " ROOT r = f32[2,2,4] convolution(k, c), window={size=3 pad=1_0}, dim_labels=b0f_0io->b0f",
    "convolution of no positions": "a = f32[2,0,3] broadcast(z), dimensions={}\n"
    " c = f32[2,3,4] broadcast(z), dimensions={}\n"
    " ROOT r = f32[2,3,4] convolution(a, c), window={size=2 pad=2_2}, dim_labels=b0f_0io->b0f",
    "convolution to no features": "a = f32[2,5,3] broadcast(z), dimensions={}\n"
    " c = f32[2,3,0] broadcast(z), dimensions={}\n"
    " ROOT r = f32[2,4,0] convolution(a, c), window={size=2}, dim_labels=b0f_0io->b0f",
    "dynamic-slice": "ROOT r = f32[4,0] dynamic-slice(y, i, i), dynamic_slice_sizes={4,0}",
    "dynamic-update-slice": "ROOT r = f32[4,3] dynamic-update-slice(y, x, i, i)",
    "dynamic-update-slice in nothing": "ROOT r = f32[0,3] dynamic-update-slice(x, x, i, i)",
    "gather": "ROOT r = f32[0,3] gather(y, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
    " index_vector_dim=1, slice_sizes={1,3}",
    "scatter": "ROOT r = f32[4,3] scatter(y, n, x), update_window_dims={1}, inserted_window_dims={0},"
    " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
    "select-and-scatter": "s = f32[0,2] slice(y), slice={[1:1],[0:2]}\n o = f32[1,3] slice(y), slice={[0:1],[0:3]}\n"
    " ROOT r = f32[1,3] select-and-scatter(o, s, z), window={size=2x2}, select=larger, scatter=sum",
    "sort": "ROOT r = f32[0,3] sort(x), dimensions={0}, to_apply=less",
    "sort of two": "ROOT r = (f32[0,3], f32[0,3]) sort(x, x), dimensions={1}, to_apply=larger4",
    "map": "ROOT r = f32[0,3] map(x, x), dimensions={0,1}, to_apply=sum",
    "part of a tuple": "g = f32[0,3] negate(x)\n h = f32[4,3] negate(y)\n"
    " ROOT r = (f32[0,3], f32[4,3], (f32[3,0], f32[0,3])) tuple(g, h, v)\n v = (f32[3,0], f32[0,3]) tuple(w, x)",
    "while": "t = (f32[0,3], s32[]) tuple(x, i)\n ROOT r = (f32[0,3], s32[]) while(t), condition=goes, body=twice",
    "conditional": "ROOT r = f32[0,3] conditional(p, x, x), true_computation=same, false_computation=negated",
    "call": "ROOT r = f32[0,3] call(x), to_apply=negated",
}
PARAMETERS = "\n".join(
    f" {name} = {t}[{','.join(map(str, GIVEN[name].shape))}] parameter({k})"
    for k, (name, t) in enumerate({"x": "f32", "w": "f32", "y": "f32", "z": "f32", "k": "f32"}.items())
)
PARAMETERS += "\n i = s32[] parameter(5)\n n = s32[0,1] parameter(6)\n p = pred[] parameter(7)\n"
LARGER4 = (
    HEAD
    + """larger4 { a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = f32[] parameter(2)
 d = f32[] parameter(3)
 ROOT q = pred[] compare(a, b), direction=GT }
"""
)


def module(body: str) -> tuple[str, list[Array]]:
    if "parameter(0)" in body:
        return f"{LARGER4}ENTRY e {{ {body} }}\n", [GIVEN["x"]]
    if " v = " in body:
        body, last = body.rsplit("\n", 1)
        body = f"{last}\n {body}"
    return f"{LARGER4}ENTRY e {{\n{PARAMETERS} {body}\n}}\n", list(GIVEN.values())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_arrays_without_elements(operation: str) -> None:
    text, args = module(OPERATIONS[operation])
    check(text, args, most=0.0)
    for got, want in zip(evaluate(parse_hlo(text), *args), run_xla(text, *args), strict=True):
        np.testing.assert_array_equal(got, want, strict=True)


def test_a_fusion_of_nothing() -> None:  # which XLA's CPU backend breaks
    check(*module("ROOT r = f32[0,3] fusion(x), kind=kLoop, calls=negated"))


@pytest.mark.parametrize("seed", range(12))
def test_random_modules_with_dimensions_of_size_0(seed: int) -> None:
    text, args = random_module(seed, empty=True)
    compare(text, args, TINY)


HUGE = """HloModule m
ENTRY e {
 i = f32[1000000000000,0] iota(), iota_dimension=0
 ROOT n = f32[1000000000000,0] negate(i)
}
"""


def test_a_huge_shape_without_elements_takes_no_memory() -> None:
    result = check(HUGE, [])
    assert [b.bytes for b in result.program.buffers if b.role is Role.RESULT] == [0]
    assert "constant({...})" in result.stages["grouped.hlo"]
    canonical = print_hlo(canonicalise(parse_hlo(HUGE)))
    assert len(canonical) < 1000
    again = parse_hlo(canonical)
    assert print_hlo(again) == canonical
    assert evaluate(again)[0].shape == (10**12, 0)


def test_sizes_beside_a_zero_that_no_array_has_are_refused() -> None:
    text = HUGE.replace("000000000000,0", "000000000000,1000000000000,0")
    with pytest.raises(HloError, match=r"f32\[1000000000000,1000000000000,0\] has more than 2\*\*63"):
        verify(parse_hlo(text))


def test_nothing_is_moved_for_arrays_without_elements() -> None:
    text, _ = module(OPERATIONS["part of a tuple"])
    program = compiled(text).program
    assert [b.bytes for b in program.buffers if b.role is Role.RESULT] == [0, 48, 0, 0]
    assert sum(1 for i in program.code if i.op.startswith("dma")) == 2


def test_operations_without_a_lowering_are_still_refused_where_they_have_elements() -> None:
    text, _ = module('ROOT r = f32[4,3] custom-call(z), custom_call_target="nobody"')
    with pytest.raises(CompileError, match="custom-call 'r'"):
        compiled(text)
