"""Each kind of instruction in small programs, against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from systolith.isa.instruction import Space, Stream
from systolith.isa.pattern import Coord
from systolith.sim import native_kernels
from systolith.sim.memory import POISON, Machine, SimulationError
from systolith.sim.sequencer import run_values
from tests.sim_values.build import TINY, Builder, take

Array = np.ndarray[Any, Any]
W, OUT = 50_000, 100_000
PASSES = ((1, 0), (0, 1), (0, 0))
RNG = np.random.default_rng(5)


def matmul(b: Builder, lhs: Stream, rhs: Stream, acc: int = 0, **more: int) -> None:
    plain = {"row_loops": 1, "part": 0, "integer": 0}
    accumulate, transpose = more.pop("accumulate", 0), more.pop("transpose", 0)
    right = more.pop("right_part", more.get("part", 0))
    b.add("mxu.load", src=rhs, transpose=transpose, **{**plain, **more, "part": right})
    b.add("mxu.latch")
    b.add("mxu.matmul", src=lhs, acc=acc, accumulate=accumulate, **{**plain, **more})


def accumulators(m: Machine, rows: int, cols: int, dtype: type = np.float32) -> Array:
    return m.acc[0][:rows, :cols].view(dtype)


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def bf16(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_matmul_with_a_tail_in_k() -> None:
    b = Builder()
    x, w = f32(20, 13), f32(13, 8)
    xs, ws = x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16)
    for k, first in ((0, 0), (8, 1)):
        tail = (Coord((0, 1), k, 0, 13),)
        rows = b.pattern("bf16", (20, 8), (26, 2), tail)
        weights = b.pattern("bf16", (8, 8), (16, 2), (Coord((1, 0), k, 0, 13),))
        matmul(b, b.vmem(rows, 2 * k), b.vmem(weights, W + 16 * k), accumulate=first)
    m = b.run({0: xs, W: ws, 20 * 26: np.full(50, np.nan, np.float32), W + 13 * 16: np.full(99, np.nan)}).machine
    want = np.zeros((20, 8), np.float32)
    for tile in (slice(0, 8), slice(8, 13)):
        total = np.zeros((20, 8), np.float64)
        for k in range(*tile.indices(13)):
            total = (
                (total + np.outer(bf16(x[:, k]), bf16(w[k])).astype(np.float64)).astype(np.float32).astype(np.float64)
            )
        want = want + total.astype(np.float32)
    assert np.array_equal(accumulators(m, 20, 8), want)


@pytest.mark.parametrize(("parts", "tolerance"), [(((0, 0),), 5e-2), (PASSES, 1e-4)])
def test_passes_of_parts_approach_f32(parts: tuple[tuple[int, int], ...], tolerance: float) -> None:
    b = Builder()
    x, w = f32(9, 8), f32(8, 8)
    for n, (left, right) in enumerate(parts):
        matmul(b, b.vmem(b.dense("f32", (9, 8))), b.vmem(b.dense("f32", (8, 8)), W),
               accumulate=int(n > 0), part=left, right_part=right)  # fmt: skip
    got = accumulators(b.run({0: x, W: w}).machine, 9, 8)
    error = np.abs(got - x.astype(np.float64) @ w)
    assert error.max() < tolerance
    assert error.max() > tolerance / 1000


@pytest.mark.parametrize("shift", [0, 3, 8])
def test_rows_from_the_accumulators_are_those_before_the_sums(shift: int) -> None:
    """Weights of one: row `shift + r` becomes row `r` of before, however many rows are computed at once."""
    b, count = Builder(), 20
    before = np.arange(8 * (count + shift), dtype=np.float32).reshape(-1, 8)
    load = Stream(Space.ACC, b.dense("f32", before.shape), 0, buffer=0)
    b.add("dma.load", src=b.vmem(b.dense("f32", before.shape), OUT), dst=load)
    matmul(b, Stream(Space.ACC, b.dense("f32", (count, 8)), 0, buffer=0), b.vmem(b.dense("f32", (8, 8)), W), shift)
    m = b.run({W: np.eye(8, dtype=np.float32), OUT: before}).machine
    want = before.view(np.uint32).copy().view(np.float32)
    want[shift:] = before[:count].astype(ml_dtypes.bfloat16)
    assert np.array_equal(accumulators(m, count + shift, 8), want)


@pytest.mark.parametrize(("shift", "apart"), [(0, False), (19, False), (20, True)])
def test_hostile_mode_refuses_rows_that_the_sums_overwrite(shift: int, apart: bool) -> None:
    b, count = Builder(), 20
    before = np.ones((count, 8), np.float32)
    load = Stream(Space.ACC, b.dense("f32", before.shape), 0, buffer=0)
    b.add("dma.load", src=b.vmem(b.dense("f32", before.shape), OUT), dst=load)
    matmul(b, Stream(Space.ACC, b.dense("f32", (count, 8)), 0, buffer=0), b.vmem(b.dense("f32", (8, 8)), W), shift)
    given = {W: np.eye(8, dtype=np.float32), OUT: before}
    if apart:
        b.run(given, hostile=True)
        return
    with pytest.raises(SimulationError, match="src and acc share byte"):
        b.run(given, hostile=True)


def test_transposed_weights_and_accumulator_rows() -> None:
    b = Builder()
    x, w = bf16(f32(6, 8)), bf16(f32(5, 8))
    matmul(b, b.vmem(b.dense("f32", (2, 3, 8))), b.vmem(b.dense("f32", (5, 8)), W), acc=7, transpose=1, row_loops=1)
    b.program.code[-1].args["row_loops"] = 2
    m = b.run({0: x, W: w}).machine
    assert np.allclose(m.acc[0][7:13, :5].view(np.float32), x @ w.T, rtol=1e-6, atol=1e-6)
    assert not m.acc[0][7:13, 5:].any()
    assert not m.acc[0][:7].any()


@pytest.mark.parametrize("part", [0, 1])
def test_weights_beyond_a_bound_are_every_bit_of_the_fill(part: int) -> None:
    b, fill = Builder(), 0x3F800001
    weights = b.pattern("f32", (8, 8), (32, 4), (Coord((1, 0), 0, 0, 5),), fill)
    matmul(b, b.vmem(b.dense("f32", (8, 8))), b.vmem(weights, W), part=0, right_part=part)
    got = accumulators(b.run({0: np.eye(8, dtype=np.float32), W: np.ones((5, 8), np.float32)}).machine, 8, 8)
    assert (got[:5] == (1, 0)[part]).all()
    assert (got[5:] == (1, 2.0**-23)[part]).all()


def test_weights_of_zero_meet_an_infinity() -> None:
    b = Builder()
    x = np.ones((2, 8), np.float32)
    x[1, 7] = np.inf
    matmul(b, b.vmem(b.dense("f32", (2, 8))), b.vmem(b.dense("f32", (4, 3)), W))
    m = b.run({0: x, W: np.ones((4, 3), np.float32)}).machine
    assert np.array_equal(accumulators(m, 1, 8)[0], [4, 4, 4, 0, 0, 0, 0, 0])
    assert (m.acc[0][1] == 0x7FC00000).all()


@pytest.mark.parametrize(("left", "right"), [("s8", "s8"), ("u8", "s8"), ("u8", "u8"), ("s4", "u4"), ("pred", "s8")])
def test_integer_products_wrap(left: str, right: str) -> None:
    b = Builder()
    x = RNG.integers(0, 256, (8, 8), np.uint8)
    w = RNG.integers(0, 256, (8, 8), np.uint8)
    for _ in range(2):
        matmul(b, b.vmem(b.dense(left, (8, 8))), b.vmem(b.dense(right, (8, 8)), W), integer=1, accumulate=1)
    start = 2**31 - 5

    def value(a: Array, dtype: str) -> Array:
        v = a.astype(np.int64)
        cut: dict[str, Array] = {
            "s8": (v + 128) % 256 - 128,
            "u8": v,
            "u4": v % 16,
            "s4": (v + 8) % 16 - 8,
            "pred": (v != 0) * 1,
        }
        return cut[dtype]

    def setup(m: Machine) -> None:
        m.acc[0][:] = start
        m.vmem[:64], m.vmem[W : W + 64] = x.reshape(-1), w.reshape(-1)

    b.add("halt")
    m = run_values(b.program, TINY, {}, setup=setup).machine
    want = start + 2 * (value(x, left) @ value(w, right))
    assert np.array_equal(accumulators(m, 8, 8, np.int32), want.astype(np.uint32).view(np.int32))


def test_convolution_7x7x3_with_packed_taps() -> None:
    """K holds (kw, c) pairs of one kernel row merged into one loop; height and width are padded by coordinates."""
    b = Builder()
    h, w, c, n, k = 10, 12, 3, 4, 7
    image, weights = bf16(f32(h, w, c)), bf16(f32(k, k, c, n))
    oh, ow = h // 2, w // 2
    at, first = 0, True
    taps = [(kh, start) for kh in range(k) for start in range(0, k * c, 8)]
    for kh, start in taps:
        size = min(8, k * c - start)
        coords = (
            Coord((2, 0, 0), kh - 3, 0, h, stride=w * c * 4),
            Coord((0, 2 * c, 1), start - 3 * c, 0, w * c, stride=4),
        )
        rows = b.pattern("f32", (oh, ow, size), (0, 0, 0), coords)
        tile = b.dense("f32", (size, n))
        matmul(b, b.vmem(rows), b.vmem(tile, W + (kh * k * c + start) * n * 4), acc=at, accumulate=int(not first))
        b.program.code[-1].args["row_loops"] = 2
        first = False
    m = b.run({0: image, W: weights}, hostile=True).machine
    padded = np.zeros((h + 6, w + 6, c))
    padded[3:-3, 3:-3] = image
    want = np.zeros((oh, ow, n))
    for y in range(oh):
        for x in range(ow):
            want[y, x] = np.tensordot(padded[2 * y : 2 * y + 7, 2 * x : 2 * x + 7], weights.astype(np.float64), 3)
    assert np.allclose(accumulators(m, oh * ow, n).reshape(oh, ow, n), want, rtol=1e-4, atol=1e-4)


def test_input_dilation_reads_zeros_between() -> None:
    b = Builder()
    x = np.arange(1, 6, dtype=np.float32)
    spread = b.pattern("f32", (2, 8), (0, 0), (Coord((8, 1), -1, 0, 5, 2, 4),))
    b.add("xlu.shuffle", src=b.vmem(spread), dst=b.vmem(b.dense("f32", (2, 8)), OUT))
    out = take(b.run({0: x}).machine, OUT, np.zeros(16, np.float32))
    want = np.zeros(16, np.float32)
    want[1:10:2] = x
    assert np.array_equal(out, want)


def test_indirect_gather_and_scatter_by_dma() -> None:
    b = Builder()
    table, index = f32(9, 5), np.array([3, 8, 0, 3], np.int32)
    source = Stream(Space.HBM, b.pattern("f32", (4, 5), (20, 4), indirect=0), buffer=b.buffer(table), index=W)
    target = b.buffer(np.zeros((9, 5), np.float32))
    b.add("dma.load", src=source, dst=b.vmem(b.dense("f32", (4, 5)), 400))
    scattered = Stream(Space.HBM, b.pattern("f32", (4, 5), (20, 4), indirect=0), buffer=target, index=W + 16)
    b.add("dma.store", src=b.vmem(b.dense("f32", (4, 5)), 400), dst=scattered)
    back = np.array([1, 2, 2, 4], np.int32)
    m = b.run({W: np.r_[index, back]}).machine
    want = np.zeros((9, 5), np.float32)
    for i, row in zip(back, table[index], strict=True):
        want[i] = row
    assert np.array_equal(take(m, 400, table[index]), table[index])
    assert np.array_equal(b.data[target].view(np.float32).reshape(9, 5), want)


def test_a_bad_index_is_out_of_bounds() -> None:
    b = Builder()
    source = Stream(
        Space.HBM, b.pattern("f32", (2, 5), (20, 4), indirect=0), buffer=b.buffer(f32(9, 5), "table"), index=W
    )
    b.add("dma.load", src=source, dst=b.vmem(b.dense("f32", (2, 5)), 400))
    with pytest.raises(SimulationError, match=r"dma.load.*buffer 0 \(table\): bytes 60 to 199 .* it has 180"):
        b.run({W: np.array([3, 9], np.int32)})


@pytest.mark.parametrize("function", ["add.f32", "max.f32", "add.s32", "min.u32", "xor"])
@pytest.mark.parametrize("width", [8, 5, 1])
def test_lane_reduction_is_a_tree(function: str, width: int) -> None:
    b = Builder()
    identity = {"add.f32": 0, "max.f32": 0xFF800000, "add.s32": 0, "min.u32": 0xFFFFFFFF, "xor": 0}[function]
    x = f32(3, 4, width)
    src = b.vmem(b.dense("f32", (3, 4, width), fill=identity))
    b.add("xlu.reduce", src=src, dst=b.vmem(b.dense("f32", (12,)), OUT), function=function)
    rows = np.full((12, 8), identity, np.uint32)
    rows[:, :width] = x.view(np.uint32).reshape(12, width)
    steps: dict[str, Any] = {
        "add.f32": lambda a, c: (a.view(np.float32) + c.view(np.float32)).view(np.uint32),
        "max.f32": lambda a, c: np.maximum(a.view(np.float32), c.view(np.float32)).view(np.uint32),
        "add.s32": np.add,
        "min.u32": np.minimum,
        "xor": np.bitwise_xor,
    }
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        rows = steps[function](np.ascontiguousarray(rows[:, :half]), np.ascontiguousarray(rows[:, half:]))
    assert np.array_equal(take(b.run({0: x}).machine, OUT, rows[:, 0]), rows[:, 0])


def test_shuffle_transposes() -> None:
    b = Builder()
    x = RNG.integers(0, 2**16, (5, 7), np.uint16)
    b.add("xlu.shuffle", src=b.vmem(b.dense("bf16", (5, 7))), dst=b.vmem(b.pattern("bf16", (5, 7), (2, 10)), OUT))
    assert np.array_equal(take(b.run({0: x}).machine, OUT, x.T), x.T)


def test_host_queues() -> None:
    b = Builder()
    p = b.dense("s32", (2, 3))
    queue = Stream(Space.HOST, p, buffer=0)
    b.add("dma.load", src=queue, dst=b.vmem(p, OUT))
    b.add("dma.store", src=b.vmem(p, OUT), dst=queue)
    b.add("halt")

    def setup(m: Machine) -> None:
        m.infeed[0].push(np.arange(4, dtype=np.int32))
        m.infeed[0].push(np.arange(4, 9, dtype=np.int32))

    m = run_values(b.program, TINY, {}, setup=setup).machine
    assert np.array_equal(m.outfeed[0].take(24).view(np.int32), np.arange(6))
    with pytest.raises(SimulationError, match="infeed queue 0: has fewer than 24 bytes"):
        run_values(b.program, TINY, {})


def test_hostile_memory_is_full_of_nans() -> None:
    b = Builder()
    b.add("halt")
    m = run_values(b.program, TINY, {}, hostile=True).machine
    assert np.isnan(m.vmem.view(np.float32)).all()
    assert np.isnan(m.vmem.view(ml_dtypes.bfloat16).astype(np.float32)).all()
    assert (m.acc[0] == POISON).all()
    assert not run_values(b.program, TINY, {}).machine.vmem.any()


@pytest.mark.parametrize(
    ("op", "args", "message"),
    [
        ("mxu.latch", {}, "no weights were loaded"),
        ("mxu.matmul", {"row_loops": 1, "acc": 0, "accumulate": 0, "part": 0, "integer": 0}, "no weights were latched"),
        ("mxu.load", {"row_loops": 1, "transpose": 0, "part": 0, "integer": 0}, "tile of 9 x 8, the array is 8 x 8"),
        ("mxu.load", {"row_loops": 1, "transpose": 0, "part": 0, "integer": 1}, "integer products of f32"),
    ],
)
def test_errors_of_the_matrix_unit(op: str, args: dict[str, Any], message: str) -> None:
    b = Builder()
    source: dict[str, Any] = {"src": b.vmem(b.dense("f32", (9, 8)))} if args else {}
    b.add(op, **args, **source)
    with pytest.raises(SimulationError, match=rf"instruction 0 \({op}, %op1\): .*{message}"):
        b.run()


@pytest.mark.parametrize(
    ("src", "dst", "shared"),
    [(0, 64, None), (0, 60, 60), (60, 0, 60), (0, 0, 0)],
)
def test_hostile_mode_refuses_a_copy_that_writes_what_it_reads(src: int, dst: int, shared: int | None) -> None:
    b = Builder()
    row = b.dense("f32", (16,))
    b.add("xlu.shuffle", src=b.vmem(row, src), dst=b.vmem(row, dst))
    memory = {0: f32(40)}
    if shared is None:
        b.run(memory, hostile=True)
        return
    with pytest.raises(SimulationError, match=f"vmem: src and dst share byte {shared}:"):
        b.run(memory, hostile=True)


def test_hostile_mode_refuses_a_copy_that_writes_its_index_list() -> None:
    b = Builder()
    rows = b.pattern("f32", (4, 8), (32, 4), indirect=0)
    b.add("xlu.shuffle", src=b.vmem(rows, 256, index=1020), dst=b.vmem(b.dense("f32", (32,)), 1024))
    with pytest.raises(SimulationError, match="vmem: the index list of src and dst share byte 1024:"):
        b.run({1020: np.arange(4, dtype=np.int32), 256: f32(32)}, hostile=True)


def test_hostile_mode_refuses_indices_that_nothing_wrote() -> None:
    """Without it indices of zeros are read, with it those of NaNs, which are beyond any array: rows would be lost."""
    b = Builder()
    rows = b.pattern("f32", (4, 8), (32, 4), indirect=0)
    b.add("xlu.shuffle", src=b.vmem(rows, 256, index=1020), dst=b.vmem(b.dense("f32", (32,)), 2048))
    with pytest.raises(SimulationError, match=r"\(xlu.shuffle.*\): index list of 4 at 1020: nothing has written 3"):
        b.run({1020: np.arange(1, dtype=np.int32), 256: f32(32)}, hostile=True)


def _stores(path: str, worth: int, monkeypatch: pytest.MonkeyPatch) -> Builder:
    """A program that stores four numbers to buffer 1, by a way of its own each."""
    monkeypatch.setattr(native_kernels, "WORTH", worth)
    b = Builder()
    number = b.buffer(np.arange(4, dtype=np.float32)), b.buffer(np.zeros(4, np.float32))
    src, dst = (Stream(Space.HBM, b.dense("f32", (1, 4)), 0, buffer=n) for n in number)
    if path == "copy":
        b.add("dma.store", src=src, dst=dst)
    elif path == "scatter":
        b.add("dma.store", src=src, dst=Stream(Space.HBM, b.pattern("f32", (1, 4), (0, 0)), 0, buffer=number[1]))
    else:
        b.run_kernel(b.kernel([("ld", 1, (), 0), ("st", -1, (1,), 1)]), (), (src, dst))
    return b


@pytest.mark.parametrize(("path", "worth"), [("copy", 0), ("scatter", 0), ("kernel", 0), ("kernel", 1 << 62)])
def test_read_only_memory_is_not_stored_to(path: str, worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    b, constant = _stores(path, worth, monkeypatch), bytes(16)
    with pytest.raises(SimulationError, match=r"buffer 1 \(b1\): is stored to, but bound to a read-only array"):
        run_values(b.program, TINY, b.data | {1: np.frombuffer(constant, np.uint8)}, setup=None)
    assert constant == bytes(16)
    b.data[0].flags.writeable = False  # which is only read
    assert b.run().machine.buffers[1].view(np.float32).any()


def test_buffers_are_contiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    b = _stores("copy", 0, monkeypatch)
    with pytest.raises(SimulationError, match=r"buffer 1 .*: bound to bytes that do not lie side by side"):
        run_values(b.program, TINY, {1: np.zeros(64, np.uint8)[::2]})


def test_buffers_that_overlap_are_copied_as_if_at_once() -> None:
    """Two buffers bound to parts of one array."""
    memory = np.arange(80, dtype=np.uint8)
    b = Builder()
    number = b.buffer(memory[:64]), b.buffer(memory[:64])
    src, dst = (Stream(Space.HBM, b.dense("u8", (64,)), 0, buffer=n) for n in number)
    b.add("dma.store", src=src, dst=dst)
    b.add("halt")
    run_values(b.program, TINY, {number[0]: memory[:64], number[1]: memory[8:72]})
    assert memory.tolist() == [*range(8), *range(64), *range(72, 80)]
