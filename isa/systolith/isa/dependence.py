"""Dependences between the micro-operations of a kernel's section, for scheduling and for checking schedules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from systolith.isa.errors import ProgramError
from systolith.isa.kernel import CONST0, SCALAR0, MicroOp
from systolith.isa.microops import MICROOPS, Slot

if TYPE_CHECKING:
    from systolith.isa.chip import Chip

STORE_LATENCY = 1


def latency_of(op: str, chip: Chip) -> int:
    """Cycles from the issue of a micro-operation to the first cycle that may read its result (a store's: load it)."""
    slot = MICROOPS[op].slot
    return STORE_LATENCY if slot is Slot.STORE else int(getattr(chip.vpu, f"{slot}_latency"))


def slots_of(slot: Slot, chip: Chip) -> int:
    """Micro-operations of an issue slot's class that may issue in one cycle."""
    return int(getattr(chip.vpu, f"{slot}_slots"))


def slot_interval(ops: Iterable[str], chip: Chip) -> int:
    """Least initiation interval of micro-operations, by the slots in which they issue."""
    used = Counter(MICROOPS[op].slot for op in ops)
    return max((-(-n // slots_of(slot, chip)) for slot, n in used.items()), default=1)


def is_register(operand: int) -> bool:
    """Whether an operand number is a vector register (64 to 131 are constants and scalars)."""
    return operand < CONST0 or operand > SCALAR0 + 3


@dataclass(frozen=True)
class Edge:
    """`after` issues at least `delay` cycles after `before` of `distance` iterations earlier."""

    before: int
    after: int
    delay: int
    distance: int = 0


@dataclass
class Flow:
    """Which micro-operation reads what: indices into the section.

    Attributes:
        writer: register to the micro-operation that writes it.
        old_reads: register to its readers before the section writes it (or it never does).
        new_reads: register to its readers after.
    """

    writer: dict[int, int] = field(default_factory=dict)
    old_reads: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    new_reads: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


def flow_of(ops: Sequence[MicroOp], what: str) -> Flow:
    """Who writes and who reads each register.

    Raises:
        ProgramError: a register is written twice.
    """
    flow = Flow()
    for i, m in enumerate(ops):
        for s in m.srcs:
            if is_register(s):
                (flow.new_reads if s in flow.writer else flow.old_reads)[s].append(i)
        if m.dst >= 0:
            if m.dst in flow.writer:
                raise ProgramError(f"{what}: {m.op}: virtual register {m.dst} is written a second time")
            flow.writer[m.dst] = i
    return flow


def edges_of(ops: Sequence[MicroOp], flow: Flow, latency: Callable[[str], int], static: Container[int]) -> list[Edge]:
    """All dependences of a section.

    `static`: registers that stay in one place while iterations of a body overlap.  Their old value is read no later
    than the new one's issue, and the new one before the next iteration's lands.
    """
    edges = []
    for reg, w in flow.writer.items():
        lat = latency(ops[w].op)
        edges += [Edge(w, r, lat) for r in flow.new_reads[reg]]
        edges += [Edge(r, w, 0) for r in flow.old_reads[reg] if r != w]
        if reg in static:
            edges += [Edge(w, r, lat, 1) for r in flow.old_reads[reg]]
            edges += [Edge(r, w, 1 - lat, 1) for r in flow.new_reads[reg]]
    # Streams may alias: within an iteration, memory is accessed in the order written.
    memory = [i for i, m in enumerate(ops) if m.op in ("ld", "st")]
    for n, i in enumerate(memory):
        for j in memory[n + 1 :]:
            if "st" in (ops[i].op, ops[j].op):
                edges.append(Edge(i, j, STORE_LATENCY if ops[j].op == "ld" else 0))
    return edges
