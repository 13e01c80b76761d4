"""The writes of the host's driver before a program starts: its instructions and tables, and contents of memories.

Memories are those of the simulator's machine before its first instruction: so a setup fills both sides at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systolith.hw.kernels import KERNEL_WORDS, MICROOP_WORDS, columns, kernel_tables
from systolith.hw.model import CAPACITIES, Job, ModelError, Read, Write, core_parameters
from systolith.hw.patterns import PATTERN_BITS, pattern_entry
from systolith.isa.access import place_of
from systolith.isa.chip import Chip
from systolith.isa.encode import encode_code
from systolith.isa.program import Program
from systolith.sim.host_times import ALL_THERE, HostTimes, NumberedTimes, totals
from systolith.sim.memory import Bytes, Machine

PATTERN_WORDS = -(-PATTERN_BITS // 32)
ALIGNMENT = 256  # bytes, of HBM buffers

IMEM, PATTERNS, BUFFERS = "u_issue.u_imem", "u_issue.u_patterns.u_table", "u_dma.u_buffers"
KERNELS, CONTROL, CONSTANTS = "u_units.u_vpu.u_kernels", "u_units.u_vpu.u_control", "u_units.u_vpu.u_constants"
VMEM, SMEM, HBM = "u_memories.u_vmem.u_memory", "u_memories.u_smem", "u_memories.u_hbm"
HOST = "u_memories.gen_host.u_host_queues"

ALL = 2**31
"""Bytes, more than a run moves."""

NEVER = 2**32 - 1
"""The cycle of nothing."""


def accumulators(unit: int) -> str:
    """The instance of a matrix unit's accumulators."""
    return f"u_units.u_matrix.gen_mxu[{unit}].u_mxu.u_acc.u_memory"


def remote(link: int) -> str:
    """The instance of the VMEM at the other end of a link."""
    return f"u_memories.gen_links[{link}].u_remote"


@dataclass(frozen=True)
class Contents:
    """Contents of memories, as bytes.

    Attributes:
        memories: instance to bytes; those left out are zero.
        outfeed: bytes in each outfeed queue.
        bases: where each buffer of the buffer table begins in HBM.
    """

    memories: dict[str, Bytes]
    outfeed: list[Bytes]
    bases: list[int]


def _hbm(machine: Machine) -> tuple[Bytes, list[int]]:
    """HBM with every buffer, those that share memory once; and the bases of the table's entries."""
    found = [place_of(n, machine.program) for n in range(len(machine.buffers))]
    places: dict[int, int] = {}
    owners: list[Bytes] = []
    end = 0
    for root, _ in found:
        data = machine.buffers[root]
        if id(data) not in places:
            places[id(data)] = end
            owners.append(data)
            end += -(-data.size // ALIGNMENT) * ALIGNMENT
    memory = np.zeros(end, np.uint8)
    for data in owners:
        memory[places[id(data)] : places[id(data)] + data.size] = data
    return memory, [places[id(machine.buffers[root])] + offset for root, offset in found]


def contents(machine: Machine) -> Contents:
    """A copy of the contents of the machine's memories."""
    hbm, bases = _hbm(machine)
    memories = {VMEM: machine.vmem.copy(), SMEM: machine.smem.copy(), HBM: hbm}
    memories |= {accumulators(i): a.reshape(-1).view(np.uint8).copy() for i, a in enumerate(machine.acc)}
    memories |= {remote(n): other.vmem.copy() for n, other in machine.links.items()}
    return Contents(memories, [q.contents() for q in machine.outfeed], bases)


def _words(data: Bytes) -> NDArray[np.uint32]:
    """Bytes as words, the last one filled up with zeros; zeros at the end left out."""
    used = np.flatnonzero(data)
    size = -(-(int(used[-1]) + 1) // 4) * 4 if used.size else 0
    padded = np.zeros(size, np.uint8)
    padded[: min(size, data.size)] = data[:size]
    return padded.view("<u4")


def _table(scope: str, words: list[int]) -> Write:
    return Write(scope, 0, np.array(words, np.uint32), by=1)


def _patterns(program: Program) -> Write:
    entries = [pattern_entry(p) for p in program.patterns]
    data = b"".join(e.to_bytes(4 * PATTERN_WORDS, "little") for e in entries)
    return Write(PATTERNS, 0, np.frombuffer(data, "<u4"), by=1)


def tables(program: Program, chip: Chip) -> list[Write]:
    """Instructions, patterns and kernels of a program.

    Raises:
        ModelError: a table has no room for them.
    """
    code = encode_code(program.code)
    kernels = kernel_tables(program.kernels, chip)
    used = {
        "ImemWords": len(code),
        "Patterns": len(program.patterns),
        "Buffers": len(program.buffers),
        "Kernels": len(kernels.kernels) // KERNEL_WORDS,
        "ControlRows": len(kernels.control) // (MICROOP_WORDS * columns(chip)),
        "Constants": len(kernels.constants),
    }
    for name, size in used.items():
        if size > CAPACITIES[name]:
            raise ModelError(f"{program.name}: needs {name} = {size}, the model has {CAPACITIES[name]}")
    return [
        _table(IMEM, code),
        _patterns(program),
        _table(KERNELS, kernels.kernels),
        _table(CONTROL, kernels.control),
        _table(CONSTANTS, kernels.constants),
    ]


def _memories(before: Contents, chip: Chip) -> Iterator[Write]:
    room = core_parameters(chip)["HbmModelBytes"]
    if before.memories[HBM].size > room:
        raise ModelError(f"buffers of {before.memories[HBM].size} bytes, the model of HBM has {room}")
    for scope, data in before.memories.items():
        words = _words(data)
        if words.size:
            yield Write(scope, 0, words)
    yield _table(BUFFERS, [word for base in before.bases for word in (base & 0xFFFFFFFF, base >> 32)])


def _host(machine: Machine, times: NumberedTimes) -> Iterator[Write]:
    """The contents of the infeed queues, and when the host sends and takes bytes of all queues."""
    size, most, count = CAPACITIES["HostBytes"], CAPACITIES["HostTimes"], len(machine.infeed)
    for n, queue in enumerate(machine.infeed):
        data = queue.contents()
        if data.size > size:
            raise ModelError(f"infeed queue {n}: {data.size} bytes, the model has {size}")
        # All of it, zeros too: the queues' memory still has values of the run before.
        words = np.zeros(-(-data.size // 4), "<u4")
        words.view(np.uint8)[: data.size] = data
        if words.size:
            yield Write(HOST, n * size, words)
    for side, given in enumerate((times.infeed, times.outfeed)):
        for n in range(count):
            entry, steps = side * count + n, totals(given.get(n, [(0, ALL)]))
            first = steps.pop(0)[1] if steps and not steps[0][0] else 0
            if len(steps) >= most:
                raise ModelError(f"host queue {n}: {len(steps)} times of the host, the model has {most - 1}")
            yield Write(HOST, count * size + 4 * entry, np.array([first], np.uint32))
            columns = zip(*steps, (NEVER, 0), strict=True)
            for base, column in zip((0, 8 * count * most), columns, strict=True):
                address = count * (size + 8) + base + 4 * entry * most
                yield Write(HOST, address, np.array(column, np.uint32))


@dataclass(frozen=True)
class Start:
    """A run's beginning: the writes, and the contents of memories."""

    writes: list[Write]
    before: Contents


def start_of(program: Program, chip: Chip, machine: Machine, times: HostTimes = ALL_THERE) -> Start:
    """The writes for a program and for the contents of a machine before it runs; `times`: of the host.

    Raises:
        ModelError: there is no room for it.
    """
    before = contents(machine)
    return Start([*tables(program, chip), *_memories(before, chip), *_host(machine, times.numbered(program))], before)


def job(chip: Chip, start: Start, outfeed: list[int], limit: int) -> Job:
    """A run of at most `limit` cycles.

    `outfeed`: bytes to read of each queue; how many it has, and how long infeeds held the host, are read, too.
    """
    scopes = [VMEM, SMEM, HBM, *map(accumulators, range(chip.mxu.count)), *map(remote, range(chip.link.count))]
    size = CAPACITIES["HostBytes"]
    reads = [Read(scope) for scope in scopes]
    if outfeed:
        reads.append(Read(HOST, len(outfeed) * size, 2 * len(outfeed)))
        reads += [Read(HOST, n * size, max(-(-count // 4), 1)) for n, count in enumerate(outfeed)]
    return Job(scopes, start.writes, reads, limit)
