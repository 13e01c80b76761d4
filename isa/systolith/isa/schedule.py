"""Scheduling of VPU kernels: modulo scheduling of the body, list scheduling around it, register allocation.

    schedule_kernel(name, prologue, body, epilogue, constants, chip) -> Kernel

The three sections are lists of `MicroOp` whose cycle and slot are ignored, in any order of execution that is right when
run one after another.  Registers are *virtual*: any number from 256 (`VIRTUAL0`); 64 to 127 are constants and 128 to
131 scalars, as in `kernel.py`.  A section writes each virtual register at most once.  Their meaning follows from where
they are used:

    written and read in one section only                        local: gets a rotating register
    body reads it before (or without) writing it                carried (or invariant): the prologue must write it
    written in one section, read in a later one                 kept: its value after the last iteration

So a sum is `prologue: v300 = mov c0;  body: v300 = add.f32 v300, v256;  epilogue: st v300`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from systolith.isa.allocate import allocate_rotating, allocate_straight
from systolith.isa.dependence import Edge, Flow, edges_of, flow_of, latency_of, slot_interval, slots_of
from systolith.isa.errors import ProgramError
from systolith.isa.kernel import CONST0, MAX_STAGES, MAX_STREAMS, NCONSTS, NREGS, SCALAR0, Kernel, MicroOp, Section
from systolith.isa.microops import MICROOPS, Slot

if TYPE_CHECKING:
    from systolith.isa.chip import Chip

VIRTUAL0 = 256
_BUDGET = 6  # placements an operation may take on average before the next interval is tried


@dataclass
class _Body:
    """A section to be scheduled: operations, dependences, resources."""

    ops: Sequence[MicroOp]
    flow: Flow
    edges: list[Edge]
    chip: Chip
    preds: dict[int, list[Edge]] = field(default_factory=lambda: defaultdict(list))
    succs: dict[int, list[Edge]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for e in self.edges:
            self.preds[e.after].append(e)
            self.succs[e.before].append(e)

    def slot(self, i: int) -> Slot:
        return MICROOPS[self.ops[i].op].slot

    def length(self, times: Sequence[int]) -> int:
        return max((t + latency_of(m.op, self.chip) for t, m in zip(times, self.ops, strict=True)), default=0)


class _Table:
    """Modulo reservation table: who issues in each class and cycle modulo ii (ii = 0: no modulo)."""

    def __init__(self, chip: Chip, ii: int) -> None:
        self.chip = chip
        self.ii = ii
        self.used: dict[tuple[Slot, int], list[int]] = defaultdict(list)

    def at(self, slot: Slot, t: int) -> list[int]:
        return self.used[slot, t % self.ii if self.ii else t]

    def free(self, slot: Slot, t: int) -> bool:
        return len(self.at(slot, t)) < slots_of(slot, self.chip)


def _heights(body: _Body, ii: int) -> list[int]:
    """Longest path from each operation to the end, iterated to a fixed point for the edges between iterations."""
    height = [latency_of(m.op, body.chip) for m in body.ops]
    for _ in range(len(height)):
        changed = False
        for i in reversed(range(len(height))):
            best = max((height[e.after] + e.delay - e.distance * ii for e in body.succs[i]), default=0)
            if best > height[i]:
                height[i], changed = best, True
        if not changed:
            break
    return height


def _place(body: _Body, ii: int) -> list[int] | None:
    """Iterative modulo scheduling (Rau): issue times for this interval; None if the budget runs out."""
    n = len(body.ops)
    priority = _heights(body, ii)
    table, times, last = _Table(body.chip, ii), [-1] * n, [-1] * n
    todo, budget = [(-priority[i], i) for i in range(n)], _BUDGET * n
    heapify(todo)

    def evict(i: int) -> None:
        table.at(body.slot(i), times[i]).remove(i)
        times[i] = -1
        heappush(todo, (-priority[i], i))

    while todo:
        if budget == 0:
            return None
        budget -= 1
        _, i = heappop(todo)
        slot = body.slot(i)
        early = max(
            (times[e.before] + e.delay - e.distance * ii for e in body.preds[i] if times[e.before] >= 0), default=0
        )
        early = max(early, 0)
        t = next((t for t in range(early, early + ii) if table.free(slot, t)), -1)
        if t < 0:
            t = max(early, last[i] + 1)
            evict(table.at(slot, t)[0])
        times[i] = last[i] = t
        table.at(slot, t).append(i)
        for e in body.succs[i]:
            if e.after != i and 0 <= times[e.after] < t + e.delay - e.distance * ii:
                evict(e.after)
        for e in body.preds[i]:
            if e.before != i and times[e.before] >= 0 and t < times[e.before] + e.delay - e.distance * ii:
                evict(e.before)
    return times


def _sink(body: _Body, times: list[int], ii: int) -> None:
    """Issue micro-operations without local operands as late as their users allow: fewer registers are live."""
    table = _Table(body.chip, ii)
    for i, t in enumerate(times):
        table.at(body.slot(i), t).append(i)
    for i in sorted(range(len(times)), key=lambda k: -times[k]):
        m = body.ops[i]
        if m.dst < 0 or any(s in body.flow.writer for s in m.srcs) or not body.succs[i]:
            continue
        slot, late = body.slot(i), min(times[e.after] - e.delay + e.distance * ii for e in body.succs[i])
        t = next((t for t in range(late, times[i], -1) if table.free(slot, t)), -1)
        if t >= 0:
            table.at(slot, times[i]).remove(i)
            times[i] = t
            table.at(slot, t).append(i)


def _in_order(body: _Body, source_order: bool) -> list[int]:
    """List scheduling without overlap: by height, or in the order written (fewest registers)."""
    n = len(body.ops)
    height = _heights(body, 0) if not source_order else []
    order = range(n) if source_order else sorted(range(n), key=lambda i: (-height[i], i))
    table, times, floor = _Table(body.chip, 0), [-1] * n, 0
    pending = list(order)
    while pending:
        i = next(k for k in pending if all(times[e.before] >= 0 or e.distance for e in body.preds[k]))
        pending.remove(i)
        early = max((times[e.before] + e.delay for e in body.preds[i] if not e.distance), default=0)
        t = max(early, floor, 0)
        while not table.free(body.slot(i), t):
            t += 1
        times[i] = t
        table.at(body.slot(i), t).append(i)
        floor = t if source_order else 0
    return times


def _least_interval(body: _Body) -> int:
    """Lower bound of the initiation interval: of resources, and of recurrences with one edge between iterations."""
    ii = slot_interval((m.op for m in body.ops), body.chip)
    for back in (e for e in body.edges if e.distance):
        longest = {back.after: 0}
        for i in range(back.after, len(body.ops)):
            for e in body.succs[i]:
                if i in longest and not e.distance:
                    longest[e.after] = max(longest.get(e.after, -(2**31)), longest[i] + e.delay)
        if back.before in longest:
            ii = max(ii, longest[back.before] + back.delay)
    return ii


def _finish(body: _Body, times: Sequence[int], ii: int, registers: dict[int, int]) -> Section:
    """Micro-operations with cycles, slots and registers, in issue order."""
    used: dict[tuple[Slot, int], int] = defaultdict(int)
    out = []
    for i in sorted(range(len(times)), key=lambda k: (times[k], k)):
        m, key = body.ops[i], (body.slot(i), times[i] % ii if ii else times[i])
        srcs = tuple(registers.get(s, s) for s in m.srcs)
        dst = registers[m.dst] if m.dst >= 0 else -1
        out.append(replace(m, dst=dst, srcs=srcs, cycle=times[i], slot=used[key]))
        used[key] += 1
    return Section(tuple(out), body.length(times))


def _schedule_body(body: _Body, statics: dict[int, int], what: str) -> tuple[Section, int]:
    rotating = NREGS - len(statics)
    locals_ = [r for r in body.flow.writer if r not in statics]
    least = _least_interval(body)
    for ii in range(least, 2 * least + 16):
        times = _place(body, ii)
        if times is None:
            continue
        _sink(body, times, ii)
        if body.length(times) > MAX_STAGES * ii:
            continue
        registers = allocate_rotating(body.ops, body.flow, locals_, times, ii, rotating, body.chip)
        if registers is not None:
            return _finish(body, times, ii, statics | registers), ii
    for source_order in (False, True):
        times = _in_order(body, source_order)
        ii = max(body.length(times), 1)
        registers = allocate_rotating(body.ops, body.flow, locals_, times, ii, rotating, body.chip)
        if registers is not None:
            return _finish(body, times, ii, statics | registers), ii
    raise ProgramError(f"{what}: body of {len(body.ops)} micro-operations: needs more than {NREGS} vector registers")


def _schedule_straight(body: _Body, statics: dict[int, int], what: str) -> Section:
    free = NREGS - len(statics)
    locals_ = [r for r in body.flow.writer if r not in statics]
    for source_order in (False, True):
        times = _in_order(body, source_order)
        registers = allocate_straight(body.ops, body.flow, locals_, times, free, body.chip)
        if registers is not None:
            return _finish(body, times, 0, statics | registers)
    raise ProgramError(f"{what}: {len(body.ops)} micro-operations: needs more than {NREGS} vector registers")


def _check_ops(ops: Sequence[MicroOp], constants: int, what: str) -> None:
    for m in ops:
        info = MICROOPS.get(m.op)
        if info is None:
            raise ProgramError(f"{what}: {m.op!r}: no such micro-operation")
        if len(m.srcs) != info.sources or (m.dst < 0) != (info.slot is Slot.STORE):
            raise ProgramError(f"{what}: {m.op}: {len(m.srcs)} operands, needs {info.sources}; result {m.dst}")
        if m.op in ("ld", "st", "coord", "inside") and not 0 <= m.imm % 16 < MAX_STREAMS:
            raise ProgramError(f"{what}: {m.op}: stream {m.imm % 16}: must be from 0 to {MAX_STREAMS - 1}")
        for r in (*m.srcs, m.dst):
            good = r >= VIRTUAL0 or (CONST0 <= r < CONST0 + constants) or SCALAR0 <= r < SCALAR0 + 4 or r == m.dst == -1
            if not good:
                raise ProgramError(
                    f"{what}: {m.op}: operand {r}: no virtual register, constant of {constants}, or scalar"
                )


def _statics(flows: dict[str, Flow], what: str) -> list[int]:
    """Registers that live across sections or iterations, in order of number."""
    written: set[int] = set()
    found: set[int] = set()
    for section, flow in flows.items():
        for reg, readers in flow.old_reads.items():
            if readers and reg not in written:
                raise ProgramError(f"{what}: {section} reads virtual register {reg} that nothing before it wrote")
            if readers:
                found.add(reg)
        found |= written & flow.writer.keys()
        written |= flow.writer.keys()
    return sorted(found)


def schedule_kernel(
    name: str,
    prologue: Sequence[MicroOp],
    body: Sequence[MicroOp],
    epilogue: Sequence[MicroOp],
    constants: Sequence[int],
    chip: Chip,
) -> Kernel:
    """A legal kernel that gives the values of the three sections run one micro-operation after another.

    Args:
        name: the kernel's name.
        prologue, body, epilogue: unscheduled micro-operations on virtual registers (see the module's docstring).
        constants: 32-bit images; operand 64 + i is constants[i].
        chip: slots and latencies.

    Raises:
        ProgramError: an operand is not defined, a register is written twice in a section, or 64 registers do not do.
    """
    what = f"kernel {name}"
    if len(constants) > NCONSTS:
        raise ProgramError(f"{what}: {len(constants)} constants: at most {NCONSTS}")
    sections = {"prologue": prologue, "body": body, "epilogue": epilogue}
    flows = {}
    for section, ops in sections.items():
        _check_ops(ops, len(constants), what)
        flows[section] = flow_of(ops, f"{what}: {section}")
    kept = _statics(flows, what)
    if len(kept) >= NREGS:
        raise ProgramError(
            f"{what}: {len(kept)} registers are kept between sections or iterations: at most {NREGS - 1}"
        )
    statics = {r: NREGS - len(kept) + i for i, r in enumerate(kept)}

    def part(section: str, static: Container[int]) -> _Body:
        edges = edges_of(sections[section], flows[section], lambda op: latency_of(op, chip), static)
        return _Body(sections[section], flows[section], edges, chip)

    scheduled, ii = _schedule_body(part("body", statics), statics, what)
    return Kernel(
        name,
        scheduled,
        ii,
        _schedule_straight(part("prologue", ()), statics, what),
        _schedule_straight(part("epilogue", ()), statics, what),
        tuple(constants),
        NREGS - len(kept),
    )
