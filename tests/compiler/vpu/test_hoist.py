"""Hoisting: values that are invariant in inner loops are computed in the prologue, and only where that pays."""

from __future__ import annotations

from systolith.isa.dtypes import F32
from systolith.isa.kernel import Kernel
from tests.compiler.vpu.harness import Outcome, run_groups, sample
from tests.compiler.vpu.machine import Bits


def normalise(rows: int, channels: int) -> str:
    return f"""HloModule m
ENTRY e {{
 x = f32[{rows},{channels}] parameter(0)
 m = f32[{channels}] parameter(1)
 s = f32[{channels}] parameter(2)
 t = f32[{channels}] multiply(s, s)
 mb = f32[{rows},{channels}] broadcast(m), dimensions={{1}}
 tb = f32[{rows},{channels}] broadcast(t), dimensions={{1}}
 d = f32[{rows},{channels}] subtract(x, mb)
 ROOT r = f32[{rows},{channels}] multiply(d, tb)
}}
"""


def arguments(rows: int, channels: int) -> tuple[Bits, ...]:
    return sample(F32, (rows, channels), 1), sample(F32, (channels,), 2), sample(F32, (channels,), 3)


def run(rows: int, channels: int) -> tuple[Outcome, Kernel]:
    text = normalise(rows, channels)
    (outcome,) = run_groups(text, *arguments(rows, channels), chip="small", budget=1 << 20, in_hbm=False)
    (kernel,) = (op.args["kernel"] for op in outcome.ops if op.op == "vpu.run")
    assert isinstance(kernel, Kernel)
    return outcome, kernel


def test_channels_are_prepared_once() -> None:
    for rows in (512, 401):  # with and without a tail
        outcome, kernel = run(rows, 64)
        assert sorted(m.op for m in kernel.prologue.ops) == ["ld", "ld", "mul.f32"]
        assert sorted(m.op for m in kernel.body.ops) == ["ld", "mul.f32", "st", "sub.f32"]
        assert not kernel.epilogue.ops
        outcome.assert_same_bits()


def test_few_rows_are_not_worth_it() -> None:
    outcome, kernel = run(4, 64)
    assert not kernel.prologue.ops
    outcome.assert_same_bits()
