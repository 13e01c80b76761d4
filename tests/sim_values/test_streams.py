"""Streams against the definition of patterns, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Space, Stream
from systolith.isa.numerics.formats import narrow, widen
from systolith.isa.pattern import Coord, Pattern
from systolith.sim import native_streams
from systolith.sim import streams as io
from systolith.sim.memory import Machine, SimulationError
from tests.sim_values.build import TINY, Builder
from tests.sim_values.slow import visit

BASE, INDEX = 20000, 100
_bounds = st.tuples(st.integers(-4, 6), st.integers(0, 9)).map(lambda t: (t[0], t[0] + t[1]))


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    n = draw(st.integers(1, 5))
    counts = draw(st.lists(st.integers(1, 6), min_size=n, max_size=n))
    dtype = DTYPES[draw(st.sampled_from(["f32", "bf16", "s8", "pred", "f16", "u4", "f8e5m2"]))]
    step = draw(st.sampled_from([dtype.size, 4, 1]))
    strides = [step * s for s in draw(st.lists(st.integers(-40, 40), min_size=n, max_size=n))]
    coords = []
    for _ in range(draw(st.integers(0, 3))):
        lo, hi = draw(_bounds)
        coefs = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, -1, 3]), min_size=n, max_size=n))
        div = draw(st.sampled_from([1, 1, 1, 2, 3]))
        more = draw(st.sampled_from([0, step, 4 * step, -step]))
        coords.append(Coord(tuple(coefs), draw(st.integers(-4, 4)), lo, hi, div, more, draw(st.integers(-1, 1))))
    indirect = draw(st.sampled_from([-1, -1, draw(st.integers(0, n - 1))]))
    fill = draw(st.sampled_from([0, 0x3F800000, 0xFF800000, 0x12345678]))
    return Pattern(dtype, tuple(counts), tuple(strides), tuple(coords), fill, indirect)


def machine_with(p: Pattern, index: list[int]) -> Machine:
    b = Builder()
    b.program.patterns.append(p)
    m = Machine(b.program, TINY, {})
    m.vmem[:] = np.random.default_rng(7).integers(0, 250, m.vmem.size, np.uint8)
    if p.indirect >= 0:
        n = p.counts[p.indirect]
        m.vmem[INDEX : INDEX + 4 * n] = np.array((index * 6)[:n], np.int32).view(np.uint8)
    return m


_index = st.lists(st.integers(-3, 9), min_size=1, max_size=6)
_bias = st.tuples(st.integers(-5, 5), st.integers(-5, 5))


@given(patterns(), _bias, _index)
def test_reading(p: Pattern, bias: tuple[int, int], index: list[int]) -> None:
    m = machine_with(p, index)
    access = io.access(m, Stream(Space.VMEM, 0, BASE, bias=bias, index=INDEX))
    want = np.full(p.counts, p.fill, np.uint32)
    for at, address in visit(p, BASE, bias, (index * 6)):
        if address is not None:
            want[at] = widen(m.vmem[address : address + p.dtype.size], p.dtype)[0]
    assert np.array_equal(io.read_bits(m, access), want)


@given(patterns(), _bias, _index)
def test_writing(p: Pattern, bias: tuple[int, int], index: list[int]) -> None:
    m = machine_with(p, index)
    access = io.access(m, Stream(Space.VMEM, 0, BASE, bias=bias, index=INDEX))
    values = np.arange(prod(p.counts), dtype=np.uint32).reshape(p.counts) * 0x01030101 + 0x3F800000
    want = m.vmem.copy()
    for at, address in visit(p, BASE, bias, (index * 6)):
        if address is not None:
            want[address : address + p.dtype.size] = narrow(values[at].reshape(1), p.dtype).view(np.uint8)
    io.write_bits(m, access, values)
    assert np.array_equal(m.vmem, want)


@given(patterns(), _bias, _index, st.data())
def test_a_part_is_that_part_of_the_whole(p: Pattern, bias: tuple[int, int], index: list[int], data: Any) -> None:
    m = machine_with(p, index)
    access = io.access(m, Stream(Space.VMEM, 0, BASE, bias=bias, index=INDEX))
    depth = data.draw(st.integers(0, len(p.counts)))
    starts = tuple(data.draw(st.integers(0, c - 1)) for c in p.counts[:depth])
    counts = tuple(data.draw(st.integers(1, c - s)) for c, s in zip(p.counts[:depth], starts, strict=True))
    box = tuple(slice(s, s + c) for s, c in zip(starts, counts, strict=True))
    some = io.part(m, access, starts, counts)
    assert np.array_equal(io.read_bits(m, some), io.read_bits(m, access)[box])
    for j in range(len(p.coords)):
        whole = np.broadcast_to(io.coordinate(m, access, j), p.counts)
        assert np.array_equal(np.broadcast_to(io.coordinate(m, some, j), some.pattern.counts), whole[box])
    whole = np.broadcast_to(io.inside(m, access), p.counts)
    assert np.array_equal(np.broadcast_to(io.inside(m, some), some.pattern.counts), whole[box])


def test_inside_agrees_with_what_is_read() -> None:
    p = Pattern(DTYPES["s8"], (7, 5), (5, 1), (Coord((1, 1), -2, 0, 3, 2, 7),), fill=0x7F000001)
    m = machine_with(p, [0])
    access = io.access(m, Stream(Space.VMEM, 0, BASE))
    inside = np.broadcast_to(io.inside(m, access), p.counts)
    assert np.array_equal(inside == 0, io.read_bits(m, access) == p.fill)
    assert 0 < inside.sum() < inside.size


@pytest.mark.parametrize("base", [-1, 262144 - 7])
def test_out_of_bounds_names_instruction_operation_and_limit(base: int) -> None:
    b = Builder()
    p = b.dense("f32", (2, 1, 1))
    k = b.kernel([("ld", 0, (), 0), ("st", -1, (0,), 1)])
    b.run_kernel(k, (2,), (b.vmem(p, base), b.vmem(p, 0)))
    with pytest.raises(SimulationError, match=r"instruction 0 \(vpu.run, %op1\): vmem: bytes .* out of bounds.*262144"):
        b.run()


def test_elements_outside_may_have_any_address() -> None:
    b = Builder()
    p = b.pattern("f32", (1, 2, 8), (0, 1 << 30, 4), (Coord((0, 1, 0), 0, 0, 1),), fill=0x3F800000)
    k = b.kernel([("ld", 0, (), 0), ("st", -1, (0,), 1)])
    b.run_kernel(k, (1,), (b.vmem(p, 64), b.vmem(b.dense("f32", (1, 2, 8)), 256)))
    x = np.arange(8, dtype=np.float32)
    out = b.run({64: x}).machine.vmem[256:320].view(np.float32)
    assert np.array_equal(out, np.r_[x, np.ones(8, np.float32)])


@pytest.mark.parametrize(("dtype", "stride"), [("f32", -2), ("f32", 1), ("bf16", -1), ("s32", 3)])
def test_elements_that_overlap_are_written_in_loop_order(dtype: str, stride: int) -> None:
    p = Pattern(DTYPES[dtype], (17,), (stride,))
    m = machine_with(p, [0])
    want, size = m.vmem.copy(), p.dtype.size
    values = np.arange(17, dtype=np.uint32) * 0x01030105 + 0x3F800000
    for i, v in enumerate(values):
        at = BASE + stride * i
        want[at : at + size] = narrow(v.reshape(1), p.dtype).view(np.uint8)
    io.write_bits(m, io.access(m, Stream(Space.VMEM, 0, BASE)), values)
    assert np.array_equal(m.vmem, want)


@pytest.mark.parametrize("op", ["dma.load", "xlu.shuffle"])
@pytest.mark.parametrize("shift", [-64, -4, 4, 68])
def test_a_copy_onto_itself_reads_everything_first(op: str, shift: int) -> None:
    b = Builder()
    counts = (8, 16)
    source = b.dense("f32", counts)
    target = b.dense("f32", counts, [Coord((1, 1), 0, 0, 20)])  # a box for each row
    b.add(op, src=b.vmem(source, 1024), dst=b.vmem(target, 1024 + shift))
    x = np.arange(1024, dtype=np.float32)
    want = x.copy()
    rows, columns = np.nonzero(np.add.outer(np.arange(8), np.arange(16)) < 20)
    want[256 + shift // 4 + rows * 16 + columns] = x[256 + rows * 16 + columns]
    assert np.array_equal(b.run({0: x}).machine.vmem[:4096].view(np.float32), want)


@pytest.mark.parametrize("stride", [2, 8, -1, -3])
@pytest.mark.parametrize("shift", [-3, 0, 1, 5])
def test_a_strided_copy_onto_itself_reads_everything_first(stride: int, shift: int) -> None:
    b = Builder()
    source, target = b.pattern("u8", (17,), (stride,)), b.pattern("u8", (17,), (1,))
    b.add("dma.load", src=b.vmem(source, 200), dst=b.vmem(target, 200 + shift))
    x = np.random.default_rng(3).integers(0, 256, 400, np.uint8)
    want = x.copy()
    want[200 + shift : 217 + shift] = x[200 + stride * np.arange(17)]
    assert np.array_equal(b.run({0: x}).machine.vmem[:400], want)


@st.composite
def strides(draw: st.DrawFn, counts: Sequence[int]) -> list[int]:
    """For loops of such counts; often two loops are one."""
    found, span = [4], 4
    for n in counts[:0:-1]:
        span = n * found[-1]
        found.append(draw(st.sampled_from((span, span, span + 4, 4, -8))))
    return found[::-1][: len(counts)]


def offsets(nest: Sequence[tuple[int, int]]) -> list[int]:
    """Where loops of (count, stride) go, in order."""
    return [sum(i * s for i, (_, s) in zip(at, nest, strict=True)) for at in product(*(range(n) for n, _ in nest))]


shapes = st.lists(st.integers(1, 4), max_size=5)


@given(shapes.flatmap(lambda counts: st.tuples(st.just(counts), strides(counts))))
def test_fewer_loops_visit_the_same_addresses_in_order(nest: tuple[list[int], list[int]]) -> None:
    fewer = native_streams.merged(*nest)
    assert offsets(fewer) == offsets([*zip(*nest, strict=True)])
    assert all(a != n * b for (_, a), (n, b) in pairwise(fewer))


@given(shapes.flatmap(lambda counts: st.tuples(st.just(counts), strides(counts), strides(counts[::-1]))))
def test_one_nest_for_two_visits_the_addresses_of_both_in_order(two: tuple[list[int], list[int], list[int]]) -> None:
    counts, a, b = two
    found = native_streams.matched(counts, a, counts[::-1], b)
    if found is not None:
        assert offsets([(n, s) for n, s, _ in found]) == offsets([*zip(counts, a, strict=True)])
        assert offsets([(n, t) for n, _, t in found]) == offsets([*zip(counts[::-1], b, strict=True)])
