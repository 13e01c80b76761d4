"""vpu.run against the definition of kernels, one lane of one iteration after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.errors import ProgramError
from systolith.isa.instruction import Reg
from systolith.isa.kernel import Kernel
from systolith.isa.pattern import Coord
from systolith.sim import kernels
from systolith.sim.kernel_code import compile_kernel
from systolith.sim.memory import Machine, SimulationError
from systolith.sim.serial import run_serial
from tests.sim_values.build import TINY, Builder, take
from tests.sim_values.slow import SlowVpu

ONE, NAN = 0x3F800000, 0x7F812345
IN, OUT = 0, 100_000
_UNARY = ["mov", "neg.f32", "abs.f32", "exp.f32", "cvt.s32.f32", "round.bf16", "not", "sign.f32"]
_BINARY = ["add.f32", "mul.f32", "max.f32", "min.f32", "sub.f32", "xor", "lt.f32", "add.s32", "div.f32"]
Ops = list[tuple[Any, ...]]


def both(b: Builder, start: np.ndarray[Any, Any]) -> None:
    """Run the program's only instruction on both; memory must be the same after."""
    machines = []
    for slow in (False, True):
        m = Machine(b.program, TINY, b.data)
        m.vmem[: start.nbytes] = start.view(np.uint8)
        with np.errstate(all="ignore"):
            if slow:
                SlowVpu(m, b.program.code[0]).run()
            else:
                kernels.run(kernels.prepare(m, b.program.code[0]))
        machines.append(m)
    assert np.array_equal(machines[0].vmem, machines[1].vmem)


def numbers(n: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n).astype(np.float32) * np.float32(10.0) ** rng.integers(-6, 7, n)
    x[rng.random(n) < 0.1] = rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, 1e-42], np.float32))
    x = x.astype(np.float32)
    x.view(np.uint32)[rng.random(n) < 0.03] = NAN
    return x


@st.composite
def bodies(draw: st.DrawFn, carried: tuple[int, ...]) -> Ops:
    """A body that loads r0, reads and writes some of the carried registers, and stores."""
    ops: Ops = [("ld", 0, (), 0)]
    live = [0, *carried]
    for _ in range(draw(st.integers(1, 7))):
        dst = draw(st.sampled_from([1, 2, 3, *carried, *carried]))
        source = st.sampled_from([*live, 64])
        if draw(st.booleans()):
            ops.append((draw(st.sampled_from(_UNARY)), dst, (draw(source),)))
        else:
            ops.append((draw(st.sampled_from(_BINARY)), dst, (draw(source), draw(source))))
        if draw(st.integers(0, 9)) == 0:
            ops.append(("select", dst, (draw(source), draw(source), draw(source))))
        live.append(dst)
    ops.append(("st", -1, (draw(st.sampled_from(live)),), 1))
    return ops


@given(bodies(carried=()), st.sampled_from([(3,), (2, 3), (1, 4, 2)]), st.integers(0, 2))
def test_independent_iterations(body: Ops, counts: tuple[int, ...], inner: int) -> None:
    b = Builder()
    p = b.dense("f32", (*counts, 2, 3))
    k = b.kernel(body, constants=[ONE])
    b.run_kernel(k, counts, (b.vmem(p, IN), b.vmem(p, OUT)), inner=min(inner, len(counts)))
    both(b, numbers(200))


@given(bodies(carried=(8, 9)), st.sampled_from([((3,), 1), ((2, 3), 1), ((2, 2, 3), 2), ((3, 2), 0), ((2, 5), 2)]))
def test_carried_registers(body: Ops, nest: tuple[tuple[int, ...], int]) -> None:
    counts, inner = nest
    b = Builder()
    p = b.dense("f32", (*counts, 2, 3))
    outer = counts[: len(counts) - inner]
    sums = b.pattern("f32", (*counts, 2, 3), (*(24 * (i + 1) for i in range(len(outer))), *(0,) * inner, 12, 4))
    k = b.kernel(
        body,
        prologue=[("mov", 8, (64,)), ("ld", 9, (), 0)],
        epilogue=[("add.f32", 5, (8, 9)), ("st", -1, (5,), 2), ("st", -1, (8,), 3)],
        constants=[ONE],
    )
    b.run_kernel(k, counts, [b.vmem(p, IN), b.vmem(p, OUT), b.vmem(sums, 2 * OUT), b.vmem(sums, 2 * OUT + 999)], inner)
    both(b, numbers(200))


@pytest.mark.parametrize("op", ["add.f32", "mul.f32", "max.f32", "min.f32", "sub.f32", "add.s32", "min.s32", "xor"])
@pytest.mark.parametrize("length", [1, 2, 33])
@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("swap", [False, True])
def test_accumulation_is_in_loop_order(op: str, length: int, record: bool, swap: bool) -> None:
    b = Builder()
    p = b.dense("f32", (2, length, 2, 8))
    total = b.pattern("f32", (2, length, 2, 8), (64, 0, 32, 4))
    body: Ops = [("ld", 0, (), 0), (op, 8, (0, 8) if swap else (8, 0))]
    if record:
        body.append(("st", -1, (8,), 2))
    k = b.kernel(body, [("mov", 8, (64,))], [("st", -1, (8,), 1)], [ONE])
    b.run_kernel(k, (2, length), (b.vmem(p, IN), b.vmem(total, 2 * OUT), b.vmem(p, OUT)), inner=1)
    both(b, numbers(2 * length * 16))


@pytest.mark.parametrize("chunk", [1, 8, 40, 1000])
def test_chunks_do_not_show(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_CHUNK", chunk)
    b = Builder()
    coord = Coord((8, 0, 4, 1), -3, 0, 17, stride=4)
    p = b.pattern("f32", (3, 4, 2, 4), (0, 64, 0, 0), (coord,), fill=NAN)
    k = b.kernel([("ld", 0, (), 0), ("coord", 1, (), 0), ("inside", 2, (), 0), ("add.s32", 1, (1, 2)),
                  ("max.f32", 0, (0, 1)), ("st", -1, (0,), 1)])  # fmt: skip
    b.run_kernel(k, (3, 4), (b.vmem(p, 16), b.vmem(b.dense("f32", (3, 4, 2, 4)), OUT)))
    m = Machine(b.program, TINY, {})
    start = numbers(120)
    m.vmem[: start.nbytes] = start.view(np.uint8)
    kernels.run(kernels.prepare(m, b.program.code[0]))
    positions = np.arange(3)[:, None, None, None] * 8 + np.arange(2)[:, None] * 4 + np.arange(4) - 3
    inside = (positions >= 0) & (positions < 17)
    loaded = start[(16 + 64 * np.arange(4)[:, None, None] + 4 * np.clip(positions, 0, 16)) // 4]
    integers = np.broadcast_to(positions + inside, (3, 4, 2, 4)).astype(np.int32).view(np.float32)
    nan = np.float32(np.nan)
    want = np.where(inside & ~np.isnan(loaded) & ~np.isnan(integers), np.maximum(loaded, integers), nan)
    assert np.array_equal(take(m, OUT, want), want, equal_nan=True)


def test_a_store_does_not_change_what_was_loaded_before() -> None:
    b = Builder()
    p = b.dense("f32", (4, 1, 8))
    k = b.kernel([("ld", 0, (), 0), ("neg.f32", 1, (0,)), ("st", -1, (1,), 0), ("st", -1, (0,), 1)])
    b.run_kernel(k, (4,), (b.vmem(p, IN), b.vmem(p, OUT)))
    both(b, numbers(32))


def test_shorter_streams_read_as_fill_beyond() -> None:
    b = Builder()
    short = b.pattern("f32", (2, 1, 3), (12, 12, 4), fill=ONE)
    k = b.kernel([("ld", 0, (), 0), ("ld", 1, (), 1), ("add.f32", 2, (0, 1)), ("st", -1, (2,), 2)])
    full = b.dense("f32", (2, 2, 4))
    b.run_kernel(k, (2,), (b.vmem(short, 0), b.vmem(full, 100), b.vmem(full, OUT)))
    both(b, numbers(60))


def test_bf16_stores_round_and_keep_payloads() -> None:
    b = Builder()
    x = np.array([1.00390625, 1.01171875, 3.4e38, 1e-40], np.float32)
    x = np.r_[x, np.array([0x7F812345, 0xFFC00001, 0x7F800001, 0x80000001], np.uint32).view(np.float32)]
    k = b.kernel([("ld", 0, (), 0), ("st", -1, (0,), 1)])
    b.run_kernel(k, (1,), (b.vmem(b.dense("f32", (1, 1, 8))), b.vmem(b.dense("bf16", (1, 1, 8)), OUT)))
    out = b.run({0: x}).machine.vmem[OUT : OUT + 16].view(np.uint16)
    assert [hex(v) for v in out] == ["0x3f80", "0x3f82", "0x7f80", "0x1", "0x7f81", "0xffc0", "0x7fc0", "0x8000"]


def test_nans_of_arithmetic_are_canonical_and_moved_ones_are_not() -> None:
    b = Builder()
    x = np.full(8, 0x7F812345, np.uint32).view(np.float32)
    p = b.dense("f32", (1, 1, 8))
    k = b.kernel([("ld", 0, (), 0), ("add.f32", 1, (0, 64)), ("neg.f32", 2, (1,)), ("neg.f32", 3, (0,)),
                  ("st", -1, (1,), 1), ("st", -1, (2,), 2), ("st", -1, (3,), 3)], constants=[ONE])  # fmt: skip
    b.run_kernel(k, (1,), (b.vmem(p), b.vmem(p, OUT), b.vmem(p, OUT + 32), b.vmem(p, OUT + 64)))
    out = b.run({0: x}).machine.vmem[OUT : OUT + 96].view(np.uint32).reshape(3, 8)
    assert [hex(v) for v in out[:, 5]] == ["0x7fc00000", "0xffc00000", "0xff812345"]


@given(st.lists(st.integers(0, 7), min_size=12, max_size=12), st.sampled_from([(12,), (3, 4), (2, 3, 2)]))
def test_serial_scatter_add_sees_duplicates(rows: list[int], counts: tuple[int, ...]) -> None:
    b = Builder()
    index = np.array(rows[: counts[0]], np.int32)
    strides = (64, *(32 * (i + 1) for i in range(len(counts) - 1)))
    target = b.pattern("f32", (*counts, 1, 8), (*strides, 0, 4), indirect=0)
    k = b.kernel([("ld", 0, (), 0), ("ld", 1, (), 1), ("add.f32", 0, (0, 1)), ("st", -1, (0,), 0)])
    updates = b.dense("f32", (*counts, 1, 8))
    b.run_kernel(k, counts, (b.vmem(target, 1000, index=8000), b.vmem(updates, 4000)), serial=1)
    machines = []
    for slow in (False, True):
        m = Machine(b.program, TINY, {})
        m.vmem[:4000] = np.arange(1000, dtype=np.float32).view(np.uint8)
        m.vmem[4000:7000] = np.linspace(0.1, 9, 750, dtype=np.float32).view(np.uint8)
        m.vmem[8000 : 8000 + index.nbytes] = index.view(np.uint8)
        if slow:
            SlowVpu(m, b.program.code[0]).run()
        else:
            run_serial(kernels.prepare(m, b.program.code[0]))
        machines.append(m)
    assert np.array_equal(machines[0].vmem, machines[1].vmem)


@pytest.mark.parametrize("shift", [0, 4, 32, 64, -4, -32])
def test_serial_recurrences_through_memory(shift: int) -> None:
    b = Builder()
    load, store = b.dense("f32", (6, 1, 8)), b.dense("f32", (6, 1, 8))
    k = b.kernel([("ld", 0, (), 0), ("add.f32", 0, (0, 64)), ("st", -1, (0,), 1)], constants=[ONE])
    b.run_kernel(k, (6,), (b.vmem(load, 256), b.vmem(store, 256 + shift)), serial=1)
    fast, slow = Machine(b.program, TINY, {}), Machine(b.program, TINY, {})
    run_serial(kernels.prepare(fast, b.program.code[0]))
    SlowVpu(slow, b.program.code[0]).run()
    assert np.array_equal(fast.vmem, slow.vmem)
    assert fast.vmem.any()


def test_scalars_are_read_when_issued() -> None:
    b = Builder()
    p = b.dense("f32", (1, 1, 8))
    k = b.kernel([("mov", 0, (129,)), ("st", -1, (0,), 0)])
    b.add("li", rd=Reg(3), imm=0x40400000)
    b.run_kernel(k, (1,), (b.vmem(p, OUT),), scalars=(0, Reg(3), 0, 0))
    b.add("li", rd=Reg(3), imm=0)
    assert np.array_equal(b.run().machine.vmem[OUT : OUT + 32].view(np.float32), np.full(8, 3, np.float32))


def test_rotating_registers_are_private_to_an_iteration() -> None:
    kernel = Builder()
    number = kernel.kernel([("neg.f32", 0, (0,))])
    made = kernel.program.kernels[number]
    with pytest.raises(ProgramError, match="rotating register 0"):
        compile_kernel(Kernel(made.name, made.body, 1, rotating=4))


@pytest.mark.parametrize(("shift", "good"), [(0, True), (192, True), (32, False), (-4, False), (188, False)])
def test_hostile_mode_finds_iterations_that_depend_on_each_other(shift: int, good: bool) -> None:
    b = Builder()
    p = b.dense("f32", (6, 1, 8))
    k = b.kernel([("ld", 0, (), 0), ("st", -1, (0,), 1)])
    b.run_kernel(k, (6,), (b.vmem(p, 256), b.vmem(p, 256 + shift)))
    if good:
        b.run(hostile=True)
        return
    b.run()
    with pytest.raises(SimulationError, match=r"iteration \d loads \(stream 0\) byte \d+, which iteration \d stores"):
        b.run(hostile=True)


def test_hostile_mode_lets_an_epilogue_store_over_what_its_own_iterations_load() -> None:
    b = Builder()
    p = b.dense("f32", (2, 3, 1, 8))
    total = b.pattern("f32", (2, 3, 1, 8), (96, 0, 0, 4))
    k = b.kernel([("ld", 0, (), 0), ("add.f32", 8, (8, 0))], [("mov", 8, (64,))], [("st", -1, (8,), 1)], [0])
    b.run_kernel(k, (2, 3), (b.vmem(p), b.vmem(total)), inner=1)
    x = np.arange(48, dtype=np.float32)
    m = b.run({0: x}, hostile=True).machine
    assert np.array_equal(take(m, 96, x[:8]), x[24:].reshape(3, 8).sum(0))
    b.program.code[0].args["streams"] = (b.vmem(p), b.vmem(total, 96))  # now into the next one's source
    with pytest.raises(SimulationError, match="iteration 3 loads"):
        b.run({0: x}, hostile=True)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8", "pred", "f8e5m2"])
def test_constants_and_coordinates_are_stored_in_any_type(dtype: str) -> None:
    b = Builder()
    short = b.pattern("f32", (2, 1, 3), (0, 0, 0), (Coord((10, 0, 1), 1),))
    out = b.dense(dtype, (2, 2, 4))
    k = b.kernel([("mov", 0, (64,)), ("st", -1, (0,), 1), ("coord", 1, (), 0), ("cvt.f32.s32", 1, (1,)),
                  ("cvt.s32.f32", 2, (1,)), ("st", -1, (2,), 2)], constants=[0x40400000])  # fmt: skip
    b.run_kernel(k, (2,), (b.vmem(short), b.vmem(out, OUT), b.vmem(b.dense("s32", (2, 2, 4)), 2 * OUT)))
    m = b.run().machine
    stored = {"f32": 0x40400000, "bf16": 0x4040, "s8": 0, "pred": 1, "f8e5m2": 0x42}[dtype]
    size = {"f32": 4, "bf16": 2}.get(dtype, 1)
    assert (m.vmem[OUT : OUT + 16 * size].view(f"u{size}") == stored).all()
    numbers = m.vmem[2 * OUT : 2 * OUT + 64].view(np.int32).reshape(2, 2, 4)
    assert numbers.tolist() == [[[1, 2, 3, 0], [0] * 4], [[11, 12, 13, 0], [0] * 4]]


def test_serial_iterations_load_what_later_ones_store_over() -> None:
    b = Builder()
    p = b.dense("f32", (6, 1, 8))
    k = b.kernel([("st", -1, (64,), 0), ("ld", 0, (), 1), ("st", -1, (0,), 2)], constants=[ONE])
    b.run_kernel(k, (6,), (b.vmem(p, 0), b.vmem(p, 32), b.vmem(p, OUT)), serial=1)
    x = np.arange(56, dtype=np.float32) + 2
    assert np.array_equal(take(b.run({0: x}).machine, OUT, x[8:]), x[8:])


def test_stores_of_one_iteration_stay_in_order_around_carried_registers() -> None:
    b = Builder()
    p = b.dense("f32", (3, 1, 8))
    body: Ops = [("ld", 0, (), 0), ("add.f32", 8, (8, 0)), ("st", -1, (8,), 1), ("st", -1, (0,), 1)]
    k = b.kernel(body, [("mov", 8, (64,))], constants=[ONE])
    b.run_kernel(k, (3,), (b.vmem(p), b.vmem(p, OUT)), inner=1)
    x = np.arange(24, dtype=np.float32)
    assert np.array_equal(take(b.run({0: x}).machine, OUT, x), x)


@pytest.mark.parametrize("op", ["min.s32", "max.s32", "eq.s32", "gt.u32", "abs.s32", "sign.s32"])
def test_integers_see_the_bits_of_a_nan_that_arithmetic_made(op: str) -> None:
    b = Builder()
    x = np.array([np.inf, -np.inf, 1, -1, 0, -0.0, 2, 3], np.float32)
    p = b.dense("f32", (1, 1, 8))
    unary = op in ("abs.s32", "sign.s32")
    body: Ops = [("ld", 0, (), 0), ("sub.f32", 1, (0, 0)), (op, 2, (1,) if unary else (1, 64)), ("st", -1, (2,), 1)]
    k = b.kernel(body, constants=[0x7FC00000])  # x86 gives 0xFFC00000
    b.run_kernel(k, (1,), (b.vmem(p), b.vmem(p, OUT)))
    both(b, x)


def test_hostile_mode_finds_stores_whose_order_is_the_schedule_s() -> None:
    b = Builder()
    p = b.dense("f32", (3, 1, 8))
    k = b.kernel([("mov", 0, (64,)), ("st", -1, (0,), 0), ("st", -1, (65,), 1)], constants=[ONE, NAN])
    b.run_kernel(k, (3,), (b.vmem(p), b.vmem(p, 32)))
    with pytest.raises(SimulationError, match=r"iteration 0 stores \(stream 1\) byte 32, which iteration 1 stores"):
        b.run(hostile=True)


def test_a_carried_register_made_by_arithmetic_and_then_loaded_keeps_payloads() -> None:
    b = Builder()
    infinity, nans = 0x7F800000, np.array([0xFF800001, 0x7FA00003, 0xFFC00000, 0x7F800007], np.uint32)
    prologue = [("sub.f32", 1, (64, 64))]
    body = [("popc", 2, (1,)), ("st", -1, (2,), 1), ("ld", 1, (), 0)]
    loaded, counted = (b.vmem(b.pattern("u32", (4, 1, 1), (4, 4, 4)), base) for base in (0, 64))
    b.run_kernel(b.kernel(body, prologue, constants=[infinity]), (4,), [loaded, counted], inner=1)
    m = b.run({0: nans}).machine
    want = [int(x).bit_count() for x in (0x7FC00000, *nans[:3])]
    assert take(m, 64, np.zeros(4, np.uint32)).tolist() == want


def test_integers_see_the_bits_of_a_nan_that_the_iteration_before_made() -> None:
    b = Builder()
    body = [("popc", 2, (1,)), ("st", -1, (2,), 1), ("ld", 3, (), 0), ("sub.f32", 1, (3, 3))]
    loaded, counted = (b.vmem(b.pattern("u32", (4, 1, 1), (4, 4, 4)), base) for base in (0, 64))
    b.run_kernel(b.kernel(body, [("mov", 1, (64,))], constants=[ONE]), (4,), [loaded, counted], inner=1)
    m = b.run({0: np.full(4, np.inf, np.float32)}).machine
    want = [int(x).bit_count() for x in (ONE, *[0x7FC00000] * 3)]  # x86 gives 0xFFC00000
    assert take(m, 64, np.zeros(4, np.uint32)).tolist() == want
