from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.chip import Chip, load_chip
from systolith.isa.dependence import latency_of
from systolith.isa.errors import ProgramError
from systolith.isa.kernel import SCALAR0, Kernel, MicroOp, Section
from systolith.isa.microops import MICROOPS
from systolith.isa.schedule import VIRTUAL0, schedule_kernel
from systolith.isa.verify_kernel import verify_kernel
from tests.examples import examples

TINY = load_chip("tiny")
Stores = list[tuple[int, int, Any]]
V = VIRTUAL0


def _value(m: MicroOp, where: int, srcs: tuple[Any, ...]) -> Any:
    """The result of a micro-operation, as a term; loads and coordinates depend on the iteration."""
    return (m.op, m.imm, where if MICROOPS[m.op].sources == 0 else 0, srcs)


def run_in_order(prologue: list[MicroOp], body: list[MicroOp], epilogue: list[MicroOp], n: int) -> Stores:
    """The stores of the sections, run one micro-operation after another: (iteration, stream, value stored)."""
    regs: dict[int, Any] = {}
    out: Stores = []
    for where, ops in ((-1, prologue), *((i, body) for i in range(n)), (-2, epilogue)):
        for m in ops:
            srcs = tuple(regs.get(s, s) for s in m.srcs)
            if m.dst < 0:
                out.append((where, m.imm, srcs[0]))
            else:
                regs[m.dst] = _value(m, where, srcs)
    return sorted(out, key=lambda s: (s[0], s[1]))


def run_pipelined(kernel: Kernel, n: int, chip: Chip) -> Stores:
    """The hardware: physical registers, results that land after their latency, overlapping iterations."""
    regs: dict[int, Any] = {}
    out: Stores = []

    def run(section: Section, iterations: list[tuple[int, int, int]]) -> None:
        events = defaultdict(list)
        for where, start, turn in iterations:
            for m in section.ops:
                events[start + m.cycle].append((m, where, turn))
        landing: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        end = max([start for _, start, _ in iterations], default=0) + section.length
        for t in range(end + 1):
            for reg, value in landing.pop(t, []):
                regs[reg] = value
            for m, where, turn in events.pop(t, []):

                def at(r: int, turn: int = turn) -> int:
                    return (r + turn) % kernel.rotating if r < kernel.rotating else r

                srcs = tuple(regs[at(s)] if s < 64 else s for s in m.srcs)
                if m.dst < 0:
                    out.append((where, m.imm, srcs[0]))
                else:
                    landing[t + latency_of(m.op, chip)].append((at(m.dst), _value(m, where, srcs)))
        assert not landing, "the section's length does not hold the last result"
        assert not events

    run(kernel.prologue, [(-1, 0, 0)])
    run(kernel.body, [(i, i * kernel.ii, i) for i in range(n)])
    run(kernel.epilogue, [(-2, 0, 0)])
    return sorted(out, key=lambda s: (s[0], s[1]))


@st.composite
def sections(draw: st.DrawFn) -> tuple[list[MicroOp], list[MicroOp], list[MicroOp]]:
    """Random kernels with carried registers, invariants and kept values."""
    constant = st.integers(64, 65) | st.integers(128, 131)
    names = iter(range(V, V + 1000))
    ops = ["add.f32", "mul.s32", "exp.f32", "select", "mov", "div.f32"]

    def section(known: list[int], size: int, stores: int) -> tuple[list[MicroOp], list[int]]:
        out: list[MicroOp] = []
        mine: list[int] = []
        for _ in range(draw(st.integers(0, size))):
            op = draw(st.sampled_from([*ops, "ld", "coord"]))
            source = st.sampled_from(known + mine) | constant if known + mine else constant
            srcs = tuple(draw(source) for _ in range(MICROOPS[op].sources))
            mine.append(next(names))
            out.append(MicroOp(op, mine[-1], srcs, draw(st.integers(0, 3)) if not srcs else 0))
        for s in range(draw(st.integers(0, stores))):
            if known + mine:
                out.append(MicroOp("st", -1, (draw(st.sampled_from(known + mine)),), 4 + s))
        return out, mine

    prologue, first = section([], 4, 0)
    body, local = section(first, 14, 3)
    for r in first:
        if draw(st.booleans()):
            # A new value for a register of the prologue, at any place of the body.
            known = [m.dst for m in body if m.dst >= 0] + first
            place = draw(st.integers(0, len(body)))
            before = {m.dst for m in body[:place]} | set(first)
            srcs = tuple(draw(st.sampled_from([k for k in known if k in before])) for _ in range(2))
            body.insert(place, MicroOp("add.f32", r, srcs))
    epilogue, _ = section(first + local, 4, 2)
    return prologue, body, epilogue


@pytest.mark.parametrize("chip", ["tiny", "small", "tpu_v3"])
@examples(20, 120)
@given(sections(), st.integers(1, 7))
def test_the_pipeline_computes_what_the_text_says(
    chip: str, given: tuple[list[MicroOp], list[MicroOp], list[MicroOp]], n: int
) -> None:
    machine = load_chip(chip)
    kernel = schedule_kernel("k", *given, [1, 2], machine)
    verify_kernel(kernel, machine)
    assert run_pipelined(kernel, n, machine) == run_in_order(*given, n)


def _axpy() -> list[MicroOp]:
    return [
        MicroOp("ld", V, (), 0),
        MicroOp("ld", V + 1, (), 1),
        MicroOp("mul.f32", V + 2, (128, V)),
        MicroOp("add.f32", V + 3, (V + 2, V + 1)),
        MicroOp("st", -1, (V + 3,), 2),
    ]


def test_the_interval_is_that_of_the_scarcest_slot() -> None:
    assert schedule_kernel("k", [], _axpy(), [], [], TINY).ii == 2  # two loads, one slot
    assert schedule_kernel("k", [], _axpy(), [], [], load_chip("small")).ii == 1
    trans = [MicroOp("ld", V, (), 0)] + [MicroOp("exp.f32", V + 1 + i, (V + i,)) for i in range(3)]
    assert schedule_kernel("k", [], trans, [], [], TINY).ii == 3


def test_the_interval_of_a_recurrence_is_its_latency() -> None:
    start = [MicroOp("mov", V + 9, (64,))]
    body = [MicroOp("ld", V, (), 0), MicroOp("add.f32", V + 9, (V + 9, V))]
    kernel = schedule_kernel("sum", start, body, [MicroOp("st", -1, (V + 9,), 1)], [0], TINY)
    assert kernel.ii == TINY.vpu.alu_latency
    body[1:] = [MicroOp("mul.f32", V + 1, (V + 9, V)), MicroOp("add.f32", V + 9, (V + 1, V))]
    kernel = schedule_kernel("horner", start, body, [MicroOp("st", -1, (V + 9,), 1)], [0], TINY)
    assert kernel.ii == 2 * TINY.vpu.alu_latency


def test_a_kernel_of_forty_operations_is_quick_and_small() -> None:
    ops = [MicroOp("ld", V + i, (), i) for i in range(8)]
    ops += [MicroOp("add.f32", V + 8 + i, (V + i, V + 7 + i // 2)) for i in range(32)]
    ops.append(MicroOp("st", -1, (V + 39,), 8))
    schedule_kernel("warm", [], ops, [], [], TINY)
    start = time.process_time()
    for _ in range(10):
        kernel = schedule_kernel("k", [], ops, [], [], TINY)
    assert (time.process_time() - start) / 10 < 0.05  # a thousandth of it as a rule; a slow machine may take more
    assert kernel.ii == 16


def test_many_values_at_once_are_scheduled_with_less_overlap() -> None:
    ops = [MicroOp("ld", V + i, (), i % 12) for i in range(50)]
    ops += [MicroOp("add.f32", V + 50 + i, (V + i, V + 49 - i)) for i in range(50)]
    ops += [MicroOp("st", -1, (V + 50 + i,), i % 12) for i in range(50)]
    kernel = schedule_kernel("k", [], ops, [], [], TINY)
    verify_kernel(kernel, TINY)
    assert run_pipelined(kernel, 3, TINY) == run_in_order([], ops, [], 3)


def test_more_values_than_registers_are_refused() -> None:
    ops = [MicroOp("ld", V + i, (), i % 12) for i in range(70)]
    last = V
    for i in range(1, 70):
        ops.append(MicroOp("add.f32", V + 100 + i, (last, V + 70 - i)))
        last = V + 100 + i
    # Every load is stored again at the end, so all seventy live until then.
    ops += [MicroOp("st", -1, (V + i,), 0) for i in range(70)]
    with pytest.raises(ProgramError, match="more than 64 vector registers"):
        schedule_kernel("k", [], ops, [], [], TINY)


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([MicroOp("frob", V)], "frob"),
        ([MicroOp("mov", V, (V + 1,))], "nothing before it wrote"),
        ([MicroOp("mov", V, (3,))], "operand 3"),
        ([MicroOp("mov", V, (64,))], "operand 64"),
        ([MicroOp("mov", V, (SCALAR0 + 4,))], f"operand {SCALAR0 + 4}"),
        ([MicroOp("ld", V), MicroOp("ld", V)], "a second time"),
        ([MicroOp("add.f32", V, (128,))], "needs 2"),
        ([MicroOp("ld", V, (), 12)], "stream 12"),
    ],
)
def test_wrong_kernels_are_refused(ops: list[MicroOp], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        schedule_kernel("k", [], ops, [], [], TINY)


def test_schedules_are_the_same_every_time() -> None:
    assert schedule_kernel("k", [], _axpy(), [], [], TINY) == schedule_kernel("k", [], _axpy(), [], [], TINY)
