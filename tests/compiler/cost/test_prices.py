"""Prices from sizes, against the closed forms of instructions and against kernels as they are scheduled."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.cost.prices import UnitCycles, full_vectors, kernel_length, transfer_cycles, vectors
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dependence import slot_interval
from systolith.isa.dtypes import dtype
from systolith.isa.instruction import Space
from systolith.isa.kernel import CONST0, MicroOp
from systolith.isa.microops import MICROOPS, Slot
from systolith.isa.pattern import Pattern
from systolith.isa.schedule import VIRTUAL0, schedule_kernel
from systolith.isa.timing import dma_cost, nest_cycles, vpu_cost

F32 = dtype("f32")
chips = st.sampled_from([load_chip(name) for name in ("tiny", "small", "tpu_v3")])


@given(st.integers(1, 1 << 16), chips)
def test_a_transfer_takes_what_its_instruction_does_but_for_a_chunk(elements: int, chip: Chip) -> None:
    pattern = Pattern(F32, (elements,), (4,))
    cost = dma_cost(pattern, Space.HBM, pattern, Space.VMEM, chip)
    chunk = -(-(chip.hbm.chunk + chip.hbm.granule) * chip.hbm.q // chip.hbm.p) + 1
    assert cost.causes["self_conflict"] == 0
    assert 0 <= cost.occupancy - transfer_cycles(4 * elements, chip) <= chunk


@given(st.integers(1, 300), st.integers(1, 300), chips)
def test_vectors_are_fewest_where_they_are_full(rows: int, columns: int, chip: Chip) -> None:
    assert vectors(rows, columns, chip) >= full_vectors(rows * columns, chip)
    full = rows * chip.vpu.sublanes, columns * chip.vpu.lanes
    assert vectors(*full, chip) == full_vectors(prod(full), chip) == rows * columns


UNARY = sorted(op for op, info in MICROOPS.items() if info.sources == 1 and info.slot in (Slot.ALU, Slot.TRANS))


@given(st.lists(st.sampled_from(UNARY), max_size=8), st.integers(1, 3), chips)
def test_a_kernel_is_scheduled_at_its_slots_interval(operations: list[str], loads: int, chip: Chip) -> None:
    """Independent iterations start as often as there are slots; the runs' cycles follow."""
    body = [MicroOp("ld", VIRTUAL0 + n, imm=n) for n in range(loads)]
    body += [MicroOp(op, VIRTUAL0 + loads + n, (VIRTUAL0 + n % loads,)) for n, op in enumerate(operations)]
    body.append(MicroOp("st", -1, (body[-1].dst,), imm=loads))
    ops = [m.op for m in body]
    kernel = schedule_kernel("k", (), body, (), (), chip)
    assert slot_interval(ops, chip) == kernel.ii
    vector = Pattern(F32, (5, 3, chip.vpu.sublanes, chip.vpu.lanes), (0, 0, 4 * chip.vpu.lanes, 4))
    cost = vpu_cost(kernel, (5, 3), 0, False, [vector] * (loads + 1), chip)
    assert cost.occupancy == nest_cycles(1, 15, slot_interval(ops, chip), kernel.body.length)
    transcendental = chip.vpu.trans_latency * sum(MICROOPS[op].slot is Slot.TRANS for op in operations)
    assert kernel.body.length <= kernel_length(ops, chip) + transcendental + chip.vpu.alu_latency * len(ops)


def test_sums_wait_for_one_another() -> None:
    """An inner loop that carries a register runs apart each time."""
    chip = load_chip("tiny")
    start = [MicroOp("mov", VIRTUAL0, (CONST0,))]
    body = [MicroOp("ld", VIRTUAL0 + 1, imm=0), MicroOp("add.f32", VIRTUAL0, (VIRTUAL0, VIRTUAL0 + 1))]
    kernel = schedule_kernel("sum", start, body, [MicroOp("st", -1, (VIRTUAL0,), imm=1)], (0,), chip)
    around = kernel.prologue.length + kernel.body.length + kernel.epilogue.length
    vector = Pattern(F32, (5, 3, chip.vpu.sublanes, chip.vpu.lanes), (0, 0, 4 * chip.vpu.lanes, 4))
    cost = vpu_cost(kernel, (5, 3), 1, False, [vector] * 2, chip)
    assert cost.occupancy == nest_cycles(5, 3, kernel.ii, around)
    assert kernel.ii == chip.vpu.alu_latency > slot_interval([m.op for m in body], chip)


@pytest.mark.parametrize(
    ("work", "on_chip", "bound"),
    [
        (UnitCycles(), 0, 0),
        (UnitCycles(compute=5, transfer=9, vector=3), 5, 9),
        (UnitCycles(compute=5, transfer=9, cross_lane=8, ends=4), 12, 12),
        (UnitCycles(compute=5, transfer=9, vector=7, ends=1), 8, 9),
    ],
)
def test_the_unit_that_has_most_to_do_bounds_the_work(work: UnitCycles, on_chip: int, bound: int) -> None:
    assert (work.on_chip, work.bound) == (on_chip, bound)
