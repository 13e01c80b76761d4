from __future__ import annotations

import dataclasses
import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.chip import load_chip
from systolith.isa.dtypes import BF16, F32, S8, DType
from systolith.isa.geometry import row_accesses, runs, side_accesses
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.kernel import Kernel, MicroOp, Section
from systolith.isa.pattern import Coord, Pattern
from systolith.isa.program import Program
from systolith.isa.timing import (
    CostModel,
    carried,
    cost,
    dma_cost,
    issue_cycles,
    load_cost,
    matmul_cost,
    reduce_cost,
    shuffle_cost,
    vpu_cost,
)

TINY, V3 = load_chip("tiny"), load_chip("tpu_v3")


def dense(dtype: DType, *counts: int) -> Pattern:
    strides, run = [], dtype.size
    for c in reversed(counts):
        strides.append(run)
        run *= c
    return Pattern(dtype, counts, tuple(reversed(strides)))


def test_matmul_and_load() -> None:
    p = dense(BF16, 100, 128)
    c = matmul_cost(p, 1, V3)
    assert (c.occupancy, c.latency, c.array_active) == (100, 100 + 256 + V3.mxu.pipeline, 100)
    assert load_cost(p, 1, V3).latency == 100 + V3.mxu.load_latency
    # Rows gathered from single elements: 128 accesses, eight a cycle.
    column = Pattern(BF16, (100, 128), (2, 200))
    c = matmul_cost(column, 1, V3)
    assert (c.occupancy, c.array_active, c.causes["self_conflict"]) == (1600, 100, 1500)


@pytest.mark.parametrize(
    ("pattern", "row_loops", "accesses"),
    [
        (dense(F32, 4, 8), 1, 1),
        (dense(F32, 4, 9), 1, 2),
        (dense(S8, 4, 32), 1, 1),
        (dense(F32, 4, 3, 8), 1, 3),
        (dense(F32, 4), 1, 1),
        (Pattern(F32, (4, 8), (32, 8)), 1, 8),
        (Pattern(F32, (4, 8), (32, 0)), 1, 1),
        (Pattern(F32, (4, 3, 8), (0, 32, -4)), 1, 24),
        (Pattern(F32, (4, 8), (0, 0), (Coord((1, 1), stride=4),)), 1, 1),
        (Pattern(F32, (4, 8), (0, 0), (Coord((1, 1), stride=4, div=2),)), 1, 8),
        (Pattern(F32, (4, 8), (32, 4), indirect=1), 1, 8),
        (Pattern(F32, (4, 8), (32, 4), indirect=0), 1, 1),
    ],
)
def test_accesses_of_a_row(pattern: Pattern, row_loops: int, accesses: int) -> None:
    assert row_accesses(pattern, row_loops, 32) == accesses


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 4, 8, 16, 64, -4])), min_size=1, max_size=4))
def test_runs_against_addresses(loops: list[tuple[int, int]]) -> None:
    counts, strides = zip(*loops, strict=True)
    n, run = runs(Pattern(F32, counts, strides))
    addresses = [sum(i * s for i, s in zip(idx, strides, strict=True)) for idx in product(*(range(c) for c in counts))]
    assert n * run == 4 * len(addresses)
    each = run // 4
    for i in range(0, len(addresses), each):
        assert addresses[i : i + each] == list(range(addresses[i], addresses[i] + run, 4))


def test_dma() -> None:
    c = dma_cost(dense(F32, 4096), Space.HBM, dense(F32, 4096), Space.VMEM, V3)
    assert (c.chunks, c.hbm_bytes, c.causes["granularity"]) == (32, 16384, 0)
    assert c.occupancy == -(-16384 * 47 // 22500)
    assert c.latency == c.occupancy + V3.hbm.latency
    # Elements of four bytes, each a granule of 32.
    scattered = Pattern(F32, (4096,), (512,))
    c = dma_cost(scattered, Space.HBM, dense(F32, 4096), Space.VMEM, V3)
    assert (c.chunks, c.hbm_bytes, c.causes["granularity"]) == (256, 131072, 224)
    # Scattered on the other side: 4096 accesses of VMEM, eight a cycle.
    c = dma_cost(dense(F32, 4096), Space.HBM, scattered, Space.VMEM, V3)
    assert (c.chunks, c.hbm_bytes, c.causes["self_conflict"]) == (512, 16384, 480)
    c = dma_cost(dense(F32, 4096), Space.VMEM, dense(F32, 4096), Space.VMEM, V3)
    assert (c.chunks, c.occupancy, c.latency) == (0, 32, 32 + V3.dma.local_latency)


def test_bandwidth_is_felt() -> None:
    half = dataclasses.replace(V3, hbm=dataclasses.replace(V3.hbm, q=2 * V3.hbm.q))
    p = dense(F32, 2**16)
    full = dma_cost(p, Space.HBM, p, Space.VMEM, V3).occupancy
    assert dma_cost(p, Space.HBM, p, Space.VMEM, half).occupancy in (2 * full, 2 * full - 1)


LD = MicroOp("ld", 0, (), 0, 0, 0)
ADD = MicroOp("add.f32", 8, (8, 0), 0, 3, 0)
STORE = MicroOp("st", -1, (0,), 1, 3, 0)


def test_kernels_whose_iterations_all_overlap() -> None:
    kernel = Kernel("copy", Section((LD, STORE), 4), ii=1, rotating=8)
    unit = dense(F32, 5, 3, 2, 8)
    assert vpu_cost(kernel, (5, 3), 1, False, [unit, unit], TINY).occupancy == 14 * 1 + 4
    assert vpu_cost(kernel, (5, 3), 1, True, [unit, unit], TINY).occupancy == 15 * 4
    # A store of single elements: 16 accesses, two a cycle, so 7 more cycles each iteration.
    strided = Pattern(F32, unit.counts, (0, 0, 512, 64))
    c = vpu_cost(kernel, (5, 3), 1, False, [unit, strided], TINY)
    assert (c.occupancy, c.causes["self_conflict"]) == (14 * 8 + 4 + 7, 15 * 7)


def test_kernels_with_carried_registers_start_afresh() -> None:
    body = Section((LD, ADD), 5)
    kernel = Kernel("sum", body, 2, Section((MicroOp("mov", 8, (64,)),), 2), Section((STORE,), 1), (0,), 8)
    unit = dense(F32, 5, 3, 2, 8)
    assert carried(kernel)
    assert vpu_cost(kernel, (5, 3), 1, False, [unit, unit], TINY).occupancy == 5 * (2 + 2 * 2 + 5 + 1)
    assert vpu_cost(kernel, (5, 3), 2, False, [unit, unit], TINY).occupancy == 2 + 14 * 2 + 5 + 1


def test_xlu() -> None:
    a, b = dense(F32, 8, 8), Pattern(F32, (8, 8), (4, 32))
    assert side_accesses(a, 8) == side_accesses(b, 8) == 8
    assert shuffle_cost(a, b, TINY).latency == TINY.xlu.latency + 8
    assert shuffle_cost(a, Pattern(F32, (8, 8), (512, 64)), TINY).latency == TINY.xlu.latency + 64
    assert reduce_cost(dense(F32, 6, 8), TINY).latency == TINY.xlu.latency + 6


def test_issue() -> None:
    assert issue_cycles(Instruction("add"), TINY) == 1
    assert issue_cycles(Instruction("sync"), TINY) == 1
    assert issue_cycles(Instruction("dma.load"), TINY) == 2  # 15 words, eight a cycle
    assert issue_cycles(Instruction("dma.load"), V3) == 1


def test_a_long_program_is_costed_quickly() -> None:
    program = Program("p", "tpu_v3", "", patterns=[dense(BF16, 100, 128)])
    args = {"row_loops": 1, "acc": 0, "accumulate": 0, "part": 0, "integer": 0}
    code = [Instruction("mxu.matmul", {"src": Stream(Space.VMEM, 0, i), **args}) for i in range(20000)]
    model = CostModel(program, V3)
    start = time.process_time()
    assert len({id(model.of(i)) for i in code}) == 1
    assert time.process_time() - start < 1
    assert cost(code[0], program, V3) == model.of(code[0])
    assert cost(Instruction("mxu.latch"), program, V3).latency == 1
