"""Loop groups on the machine against the reference evaluator: bit for bit, over shapes, types, chains and tilings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.index.affine import Box
from systolith.compiler.ops.expression_builder import analyze
from systolith.compiler.tile.arrays import dense
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Buf, TileOp
from systolith.compiler.vpu.emit import emit
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DTYPES, F32
from systolith.isa.instruction import Space
from systolith.isa.kernel import Kernel
from systolith.isa.program import Origin
from tests.compiler.vpu.harness import bits, run_groups, sample
from tests.compiler.vpu.machine import Machine
from tests.compiler.vpu.movement import Chain, chains, show

INTEGERS = ("s32", "u8", "s16")
FLOATS = ("f32", "bf16")
BUDGETS = (700, 1 << 14)


@given(chains(), st.sampled_from((*INTEGERS, *FLOATS, "pred")), st.sampled_from(BUDGETS), st.booleans())
def test_data_movement(chain: Chain, element: str, budget: int, in_hbm: bool) -> None:
    lines = "\n".join(chain.lines).replace("f32[", f"{element}[")
    fill, last = "true" if element == "pred" else "3", f"{element}[{show(chain.last)}]"
    text = (
        f"HloModule m\nENTRY e {{\n x = {element}[{show(chain.first)}] parameter(0)\n"
        f" fill = {element}[] constant({fill})\n{lines}\n c = {last} maximum({chain.result}, {chain.result})\n"
        f" ROOT r = ({last}, {last}) tuple({chain.result}, c)\n}}\n"
    )
    for outcome in run_groups(text, sample(DTYPES[element], chain.first, 1), budget=budget, in_hbm=in_hbm):
        outcome.assert_same_bits()


BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
UNARY = ("negate", "abs", "sign")


@st.composite
def expressions(draw: st.DrawFn, element: str, dims: tuple[int, ...]) -> str:
    """Elementwise chains over two parameters, a row, a scalar and earlier results."""
    shape = f"{element}[{show(dims)}]"
    lines = [
        f" a = {shape} parameter(0)",
        f" b = {shape} parameter(1)",
        f" row = {element}[{dims[-1]}] parameter(2)",
        f" one = {element}[] parameter(3)",
        f" rows = {shape} broadcast(row), dimensions={{{len(dims) - 1}}}",
        f" ones = {shape} broadcast(one), dimensions={{}}",
        f" place = {shape} iota(), iota_dimension=0",
    ]
    names = ["a", "b", "rows", "ones", "place"]
    for k in range(draw(st.integers(1, 12))):
        operands = [draw(st.sampled_from(names)) for _ in range(2)]
        op = draw(st.sampled_from((*BINARY, *UNARY, "select")))
        if op == "select":
            lines.append(f" p{k} = pred[{show(dims)}] compare({operands[0]}, {operands[1]}), direction=LT")
            lines.append(f" n{k} = {shape} select(p{k}, {operands[1]}, {draw(st.sampled_from(names))})")
        else:
            used = ", ".join(operands if op in BINARY else operands[:1])
            lines.append(f" n{k} = {shape} {op}({used})")
        names.append(f"n{k}")
    lines.append(f" ROOT r = {shape} add({names[-1]}, {names[-1]})")
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


@given(
    st.sampled_from((*FLOATS, "f16", "s32", "s8")),
    st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    st.sampled_from(("tiny", "small", "tpu_v3")),
    st.data(),
)
def test_fused_chain_is_the_evaluator_to_the_bit(
    element: str, dims: tuple[int, ...], chip: str, data: st.DataObject
) -> None:
    text = data.draw(expressions(element, dims))
    t = DTYPES[element]
    arguments = (sample(t, dims, 1), sample(t, dims, 2), sample(t, dims[-1:], 3), sample(t, (), 4))
    for outcome in run_groups(text, *arguments, chip=chip, budget=data.draw(st.sampled_from(BUDGETS))):
        outcome.assert_same_bits()


def test_box_of_accumulators_to_a_box_of_a_tile() -> None:
    text = """HloModule m
ENTRY e {
 acc = f32[12,20] parameter(0)
 bias = f32[20] parameter(1)
 rows = f32[12,20] broadcast(bias), dimensions={1}
 ROOT r = f32[12,20] add(acc, rows)
}
"""
    module = parse_hlo(text)
    acc, bias = module.entry.parameters
    ctx = TileBuilder(load_chip("tiny"))
    box = Box((4, 8), (8, 8))
    rows = Buf("acc0", Space.ACC, 16 * 32)
    leaves = {
        acc: Array(rows, F32, (8, 8), (32, 4), (4, 8), offset=64),
        bias: Array(ctx.vmem("bias", 32), F32, (8,), (4,), (8,)),
    }
    out = Array(ctx.vmem("out", 400), F32, (10, 10), (40, 4), (3, 8))
    machine, x, b = Machine(), sample(F32, (12, 20), 1), sample(F32, (20,), 2)
    machine.write(leaves[acc], x[4:12, 8:16])
    machine.write(leaves[bias], b[8:16])
    emit(ctx, analyze([module.entry.result]), box, leaves, [out], Origin())
    machine.run(ctx.block)
    (want,) = evaluate(module, x, b)
    np.testing.assert_array_equal(bits(machine.read(out)[1:9, :8]), bits(want[4:12, 8:16]))


def test_array_that_is_too_small_is_an_error() -> None:
    module = parse_hlo("HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n ROOT r = f32[8] negate(x)\n}\n")
    (x,) = module.entry.parameters
    ctx = TileBuilder(load_chip("tiny"))
    part = Array(ctx.vmem("x", 16), F32, (4,), (4,), (0,))
    out = Array(ctx.vmem("out", 32), F32, (8,), dense((8,), 4), (0,))
    with pytest.raises(ValueError, match=r"x covers \(0,\) \(4,\)"):
        emit(ctx, analyze([module.entry.result]), Box((0,), (8,)), {x: part}, [out], Origin())


def test_equal_kernels_are_one_object() -> None:
    def kernels(dims: str) -> set[Kernel]:
        text = f"HloModule m\nENTRY e {{\n x = f32[{dims}] parameter(0)\n ROOT r = f32[{dims}] add(x, x)\n}}\n"
        sizes = tuple(map(int, dims.split(",")))
        (outcome,) = run_groups(text, np.ones(sizes, np.float32))
        found = [op.args["kernel"] for op in outcome.ops if op.op == "vpu.run"]
        return {k for k in found if isinstance(k, Kernel)}

    assert kernels("4,9") == kernels("100")
    assert len(kernels("4,9")) == 1


def test_interior_needs_no_bounds() -> None:
    """Away from the edges of a padded array a kernel has no coordinate operations and no bounds."""
    text = """HloModule m
ENTRY e {
 x = f32[16,16] parameter(0)
 z = f32[] constant(0)
 p = f32[18,18] pad(x, z), padding=1_1x1_1
 ROOT r = f32[18,18] negate(p)
}
"""
    module = parse_hlo(text)
    (x,) = module.entry.parameters
    ctx = TileBuilder(load_chip("tiny"))
    whole = ctx.array("x", F32, (16, 16))
    out = ctx.array("out", F32, (18, 18))
    emit(ctx, analyze([module.entry.result]), Box((1, 1), (16, 16)), {x: whole}, [out], Origin())
    (op,) = (op for op in ctx.block.items if isinstance(op, TileOp))
    streams = op.args["streams"]
    assert isinstance(streams, tuple)
    assert all(not getattr(s, "pattern").coords for s in streams)  # noqa: B009


def test_slice_of_nothing_but_padding_around_pieces() -> None:
    text = """HloModule m
ENTRY e {
 x = s32[1,1] parameter(0)
 fill = s32[] constant(3)
 a = s32[1,2] concatenate(x, x), dimensions={1}
 b = s32[1,3] pad(a, fill), padding=0_0_0x0_1_0
 c = s32[1,1] slice(b), slice={[0:1], [2:3]}
 ROOT r = s32[1,1] negate(c)
}
"""
    (outcome,) = run_groups(text, np.ones((1, 1), np.int32))
    outcome.assert_same_bits()
    assert outcome.got[0] == -3
