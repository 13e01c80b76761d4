"""Comparing a run of the core with one of the simulator: times of every instruction, and all memories at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from systolith.hw.image import HBM, HOST, SMEM, VMEM, Contents, accumulators, remote
from systolith.hw.model import Job, Outcome, Words
from systolith.isa.access import accesses
from systolith.isa.asm import instruction_text
from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction, Space
from systolith.isa.program import Program
from systolith.sim.memory import Bytes
from systolith.sim.naming import Iterations, during
from systolith.sim.trace import Trace, origin_of

Ints = NDArray[np.int64]
KINDS = ("issue", "start", "retire")
NEVER = -1
SHOWN = 6  # events of the unit before a difference


@dataclass(frozen=True)
class Times:
    """When the instructions of a run were issued, started and retired; NEVER: they were not.

    Attributes:
        cycles: [3, n]: `KINDS`, instructions in the order of issue.
        queue: name of each one's queue.
    """

    cycles: Ints
    queue: list[str]


@dataclass
class Reference:
    """The simulator's run.

    Attributes:
        program, chip: of the run.
        trace: its times.
        issued: the instructions of the trace, registers resolved.
        iterations: of the loops around each of them.
        cycles: of the run.
        executed: instructions, SEQ's included.
        after: memories at the end.
        held: by infeed queue whose times are given, cycles in which it held the host.
    """

    program: Program
    chip: Chip
    trace: Trace
    issued: list[Instruction]
    iterations: list[Iterations]
    cycles: int
    executed: int
    after: Contents
    held: dict[int, int]

    def times(self) -> Times:
        """Its times."""
        t = self.trace
        return Times(np.stack([t.issue, t.start, t.retire]), [t.queues[q] for q in t.queue])


def times_of(outcome: Outcome, queues: list[str], count: int) -> Times:
    """The core's times; `queues` and `count` are the simulator's."""
    events = outcome.events
    most = max(count, int(events["number"].max()) + 1 if events.size else 0)
    cycles = np.full((len(KINDS), most), NEVER, np.int64)
    cycles[events["kind"], events["number"]] = events["cycle"]
    return Times(cycles, queues)


@dataclass(frozen=True)
class Difference:
    """Where the core differs from the simulator.

    Attributes:
        what: the quantity compared, such as `start` or `vmem`.
        cycle: when; NEVER: at the end.
        unit: queue.
        instruction: as assembly.
        origin: the HLO operation and the instruction's part in it; empty: not known.
        expected, got: of the simulator, of the core.
        context: lines: the unit's last events on both sides.
    """

    what: str
    cycle: int
    unit: str
    instruction: str
    origin: str
    expected: str
    got: str
    context: tuple[str, ...] = ()

    def __str__(self) -> str:
        at = f"cycle {self.cycle}: " if self.cycle >= 0 else ""
        head = f"{at}{self.unit + ': ' if self.unit else ''}{self.what}: expected {self.expected}, got {self.got}"
        lines = [head]
        if self.instruction:
            lines.append(f"  instruction {self.instruction}")
        if self.origin:
            lines.append(f"  for {self.origin}")
        return "\n".join([*lines, *(f"  {line}" for line in self.context)])


def _describe(reference: Reference, n: int) -> tuple[str, str]:
    """Instruction and origin of the n-th of the trace."""
    index = int(reference.trace.index[n])
    text = f"{index}: {instruction_text(reference.issued[n], reference.program)}{during(reference.iterations[n])}"
    origin = origin_of(reference.program, index)
    parts = [origin.what, origin.hlo or origin.group]
    return text, " of ".join(p for p in parts if p)


def _text(cycle: int) -> str:
    return "never" if cycle == NEVER else f"cycle {cycle}"


def _recent(times: Times, unit: str, until: int, names: list[str]) -> Iterator[str]:
    """The unit's last events up to a cycle."""
    of_unit = np.array([queue == unit for queue in times.queue], np.bool_)
    cycles = times.cycles[:, : len(of_unit)]
    kinds, numbers = np.nonzero(of_unit & (cycles >= 0) & (cycles <= until))
    events = sorted(zip(cycles[kinds, numbers].tolist(), kinds.tolist(), numbers.tolist(), strict=True))
    for cycle, kind, n in events[-SHOWN:]:
        yield f"  cycle {cycle:>6} {KINDS[kind]:<6} #{n} {names[n]}"


def compare_times(reference: Reference, got: Times) -> Difference | None:
    """The first difference of times, in the order of cycles."""
    want = reference.times()
    count = want.cycles.shape[1]
    if got.cycles.shape[1] > count:
        extra = got.cycles[:, count:]
        cycle = int(extra[extra >= 0].min())
        return Difference("instructions", cycle, "seq", "", "", f"{count} of them", f"{got.cycles.shape[1]}")
    sync = np.array([queue == "seq" for queue in want.queue], np.bool_)
    different = want.cycles != got.cycles
    different[0, sync] = different[2, sync] = False  # SEQ has no queue: a sync only starts
    if not different.any():
        return None
    first = np.where(got.cycles < 0, want.cycles, np.minimum(want.cycles, got.cycles))
    # In one cycle retirements come first, then starts, then SEQ: causes before effects.
    order = first * len(KINDS) + np.arange(len(KINDS))[::-1, None]
    kind, n = np.unravel_index(np.where(different, order, np.iinfo(np.int64).max).argmin(), first.shape)
    cycle = int(first[kind, n])
    instruction, origin = _describe(reference, int(n))
    names = [i.op for i in reference.issued]
    unit, until = want.queue[n], max(cycle, int(want.cycles[kind, n]), int(got.cycles[kind, n]))
    context = ["simulator:", *_recent(want, unit, until, names), "core:", *_recent(got, unit, until, names)]
    expected, found = _text(int(want.cycles[kind, n])), _text(int(got.cycles[kind, n]))
    return Difference(KINDS[kind], cycle, unit, instruction, origin, expected, found, tuple(context))


class Place(NamedTuple):
    """A word of a memory that differs."""

    scope: str
    address: int
    expected: int
    got: int


def _memory(blocks: list[tuple[int, Words]], size: int) -> Bytes:
    """At least `size` bytes, and all that was written."""
    memory = np.zeros(max([size, *(address + words.nbytes for address, words in blocks)]), np.uint8)
    for address, words in blocks:
        memory[address : address + words.nbytes] = words.view(np.uint8)
    return memory


class Ends(NamedTuple):
    """What the core has at the end: memories, outfeed queues, and by infeed queue the cycles that it held the host."""

    memories: dict[str, Bytes]
    outfeed: list[Bytes]
    held: list[int]


def ends_of(job: Job, outcome: Outcome, like: Contents) -> Ends:
    """The core's ends; pages of memories that were never written are zero."""
    memories: dict[str, Bytes] = {}
    queues: list[Bytes] = []
    sizes: list[int] = []
    for read, blocks in zip(job.reads, outcome.blocks, strict=True):
        if read.scope == HOST and not sizes:
            sizes = blocks[0][1].tolist()
        elif read.scope == HOST:
            data = blocks[0][1].view(np.uint8)
            queues.append(data[: sizes[len(queues)]])
        else:
            memories[read.scope] = _memory(blocks, like.memories.get(read.scope, np.zeros(0, np.uint8)).size)
    return Ends(memories, queues, sizes[len(queues) :])


def _words(data: Bytes, size: int) -> NDArray[np.uint32]:
    padded = np.zeros(-(-size // 4) * 4, np.uint8)
    padded[: data.size] = data
    return padded.view("<u4")


def compare_memories(after: Contents, got: dict[str, Bytes]) -> tuple[int, list[Place]]:
    """How many words were compared, and those that differ."""
    total, places = 0, []
    for scope, found in got.items():
        expected = after.memories.get(scope, np.zeros(0, np.uint8))
        size = max(found.size, expected.size)
        want, have = _words(expected, size), _words(found, size)
        total += want.size
        places += [Place(scope, 4 * int(i), int(want[i]), int(have[i])) for i in np.flatnonzero(want != have)]
    return total, places


def _scope_of(space: int, buffer: int, bases: list[int]) -> tuple[str, int]:
    """The instance that an access reaches, and where its address 0 is; an empty name: none."""
    if space == Space.HBM:
        return HBM, bases[buffer]
    if space == Space.ACC:
        return accumulators(buffer), 0
    if space == Space.LINK:
        return remote(buffer), 0
    return {Space.VMEM: VMEM, Space.SMEM: SMEM}.get(Space(space), "") if space <= Space.LINK else "", 0


def writers(reference: Reference, places: list[Place]) -> list[int]:
    """For each place, the last instruction of the trace that may have written it; NEVER: none."""
    found = [NEVER] * len(places)
    addresses: dict[str, list[tuple[int, int]]] = {}
    for i, place in enumerate(places):
        addresses.setdefault(place.scope, []).append((place.address, i))
    for n, instr in enumerate(reference.issued):
        for a in accesses(instr, reference.program, reference.chip):
            if not a.write:
                continue
            scope, base = _scope_of(int(a.space), a.buffer, reference.after.bases)
            for address, i in addresses.get(scope, ()):
                if a.lo + base < address + 4 and address < a.hi + base:
                    found[i] = n
    return found


MOST_TRACED = 256  # differing words whose writers are looked for


def _name(scope: str, address: int, reference: Reference) -> str:
    """A place as people know it."""
    if scope == HBM:
        owner = max((b, -i) for i, b in enumerate(reference.after.bases) if b <= address)
        return f"buffer {reference.program.buffers[-owner[1]].name} at byte {address - owner[0]}"
    names = {VMEM: "vmem", SMEM: "smem"}
    names |= {accumulators(i): f"accumulators of mxu {i}" for i in range(reference.chip.mxu.count)}
    names |= {remote(n): f"vmem beyond link {n}" for n in range(reference.chip.link.count)}
    return f"{names[scope]} at byte {address}"


def describe_places(reference: Reference, places: list[Place]) -> Difference:
    """The difference of memories whose writer comes first in the trace."""
    last = writers(reference, places[:MOST_TRACED])
    place, n = min(zip(places, last, strict=False), key=lambda item: (item[1] < 0, item[1]))
    what = f"{_name(place.scope, place.address, reference)} ({len(places)} words differ)"
    expected, got = f"{place.expected:#010x}", f"{place.got:#010x}"
    if n < 0:
        return Difference(what, NEVER, "", "", "", expected, got, ("nothing in the simulator's run writes there",))
    instruction, origin = _describe(reference, n)
    unit, retired = reference.trace.queues[reference.trace.queue[n]], int(reference.trace.retire[n])
    return Difference(what, retired, unit, instruction, origin, expected, got, ("which wrote there last",))


def _port(chip: Chip, element: int, written: bool) -> str:
    """Whose element of VMEM it is: places as `core_memories.sv` has them."""
    v = chip.vpu
    slots, size = (v.store_slots if written else v.load_slots), v.lanes * v.sublanes
    if element < slots * size:
        return f"vpu, slot {element // size}, element {element % size}"
    element -= slots * size
    if element < 2 * chip.hbm.chunk:
        return f"{('ld', 'st')[element // chip.hbm.chunk]}, element {element % chip.hbm.chunk}"
    return f"xlu, element {element - 2 * chip.hbm.chunk}"


def describe_failure(reference: Reference, outcome: Outcome, difference: Difference | None) -> Difference:
    """The first assertion that failed; `difference`: of the times before it."""
    said = (outcome.message.strip().splitlines() or ["no message"])[0]
    access = re.search(r"u_vmem.* element (\d+) is (read|written)", said)
    port = [f"port: {_port(reference.chip, int(access[1]), access[2] == 'written')}"] if access else []
    context = [*port, *(str(difference).splitlines() if difference else ())]
    return Difference("assertion", outcome.cycles, "", "", "", "none", said, tuple(context))


def compare_queues(want: list[Bytes], got: list[Bytes]) -> Difference | None:
    """The first difference of the outfeed queues."""
    for n, (a, b) in enumerate(zip(want, got, strict=True)):
        if a.size != b.size:
            return Difference(f"outfeed queue {n}", NEVER, "st", "", "", f"{a.size} bytes", f"{b.size} bytes")
        wrong = np.flatnonzero(a != b)
        if wrong.size:
            i = int(wrong[0])
            return Difference(f"byte {i} of outfeed queue {n}", NEVER, "st", "", "", f"{a[i]:#04x}", f"{b[i]:#04x}")
    return None


def compare_held(want: dict[int, int], got: list[int]) -> Difference | None:
    """The first difference of the cycles in which infeed queues held the host."""
    for n, cycles in want.items():
        if got[n] != cycles:
            what = f"cycles that infeed queue {n} holds the host"
            return Difference(what, NEVER, "ld", "", "", str(cycles), str(got[n]))
    return None
