"""The state of the time plane: queues, tokens, prepared instructions, and the record of events."""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import NamedTuple

from systolith.sim import causes as why
from systolith.sim.naming import Iterations

SEQ = "seq"


class Work(NamedTuple):
    """An instruction, as the time plane sees it.

    Attributes:
        queue: which queue it goes to; `seq` for sync.
        fetch: cycles SEQ takes to fetch it.
        occupancy: cycles until the next one of the queue may start; with `chunks`, ignored.
        latency: cycles from start to signal; with `chunks`, from the last grant to the signal.
        chunks: chunks asked of HBM; 0: it does not touch HBM.
        losses: cycles of the occupancy (or chunks) that are not useful work: (cause, cycles) pairs.
        shifts: it shifts a weight tile in: who waits for it while it runs has cause `weight_shift`.
        waits, signals: tokens, each at most once.
        fence: start only when all earlier ones of the queue have retired.
        alone: it retires at start + latency, not in order.  Those of a queue have one latency: they stay in order.
        host: the host queue of its bytes; -1: none.  Its occupancy and latency count from when the host is ready.
        host_bytes: of it.
    """

    queue: str
    fetch: int = 1
    occupancy: int = 1
    latency: int = 1
    chunks: int = 0
    losses: tuple[tuple[str, int], ...] = ()
    shifts: bool = False
    waits: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    fence: bool = False
    alone: bool = False
    host: int = -1
    host_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """The parameters of the chip that the time plane uses.

    Attributes:
        fifo_depth: instructions a queue holds.
        token_max: largest count of a token.
        branch_penalty: cycles.
        host_room: bytes that an outfeed queue holds.
        p, q, chunk: HBM moves p/q bytes a cycle in chunks of `chunk` bytes.
        hbm_clients: the queues that have access to HBM, in the arbiter's order.
    """

    fifo_depth: int
    token_max: int
    branch_penalty: int
    p: int
    q: int
    chunk: int
    host_room: int = 0
    hbm_clients: tuple[str, ...] = ("ld", "st")


class Token:
    """A token and its history.

    Attributes:
        times: when each signal is visible.
        delays: from when on each signal is only a matter of a known delay, the cause of which is `delay`.
        taken: when each was consumed; `used` of them.
        waiter: the queue whose next instruction needs the next signal.
        alone: whether its signallers retire alone; None: not known yet.
    """

    __slots__ = (
        *("alone", "cause", "consumer", "delay", "delays"),
        *("number", "producer", "taken", "times", "used", "waiter"),
    )

    def __init__(self, number: int, producer: str, consumer: str) -> None:
        self.number = number
        self.producer = producer
        self.consumer = consumer
        self.cause = why.wait_on(producer)
        self.delay = self.cause
        self.times = array("q")
        self.delays = array("q")
        self.taken = array("q")
        self.used = 0
        self.waiter: Queue | None = None
        self.alone: bool | None = None


class Queue:
    """A queue and its unit.

    Attributes:
        client: its number at the HBM arbiter; -1: none.
        free: when the occupancy of the last instruction that started ends.
        retire: when all that started have retired.
        starts: start times of those that started, in order.
        pushed: how many were issued.
        pending: those issued that have not started: (op, position in the record, iterations of the loops around it).
        transfer: the one at the HBM arbiter: (op, position, start).
        blocked: its next instruction cannot start with the times known (waiting for a token or the arbiter).
        tail: cause of the time from `free` to `retire`, if nothing follows.
        causes: cycles by cause (stalls are added at the end).
    """

    __slots__ = (
        *("blocked", "causes", "client", "free", "full", "name", "number"),
        *("pending", "pushed", "retire", "starts", "tail", "transfer"),
    )

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.client = -1
        self.full = why.fifo_full(name)
        self.free = 0
        self.retire = 0
        self.starts = array("q")
        self.pushed = 0
        self.pending: deque[tuple[Op, int, Iterations]] = deque()
        self.transfer: tuple[Op, int, int] | None = None
        self.blocked = False
        self.tail = why.DRAIN
        self.causes: defaultdict[str, int] = defaultdict(int)


class Op:
    """A `Work` made ready for the engine."""

    __slots__ = (
        *("alone", "busy", "chunks", "fence", "fetch", "host", "host_bytes", "latency", "losses", "occupancy", "queue"),
        *("shifts", "signals", "waits"),
    )

    def __init__(self, work: Work, queue: Queue, waits: tuple[Token, ...], signals: tuple[Token, ...]) -> None:
        self.queue = queue
        self.fetch = work.fetch
        self.occupancy = work.occupancy
        self.latency = work.latency
        self.chunks = work.chunks
        self.losses = work.losses
        self.busy = (work.chunks or work.occupancy) - sum(n for _, n in work.losses)
        self.shifts = work.shifts
        self.waits = waits
        self.signals = signals
        self.fence = work.fence
        self.alone = work.alone
        self.host = work.host
        self.host_bytes = work.host_bytes


class Record:
    """Per executed unit instruction or sync, in program order: columns of equal length.

    Attributes:
        index: instruction index in the program.
        queue: queue number, 0 for SEQ.
        issue, start, end, retire: cycles; the occupancy ends at `end`.

    The gaps before starts, in parts, and waits for the host after them, are a log: position `stall_at`
    waited `stall_cycles` because of cause number `stall_cause` (in `cause_numbers`).
    """

    def __init__(self) -> None:
        self.index = array("i")
        self.queue = array("b")
        self.issue = array("q")
        self.start = array("q")
        self.end = array("q")
        self.retire = array("q")
        self.stall_at = array("q")
        self.stall_cause = array("h")
        self.stall_cycles = array("q")
        self.cause_numbers: dict[str, int] = {}

    def add(self, index: int, queue: int, issue: int) -> int:
        """Append an instruction whose other times are not known yet; its position."""
        self.index.append(index)
        self.queue.append(queue)
        self.issue.append(issue)
        self.start.append(-1)
        self.end.append(-1)
        self.retire.append(-1)
        return len(self.issue) - 1

    def set(self, i: int, start: int, end: int, retire: int) -> None:
        """Fill in the times of the instruction at position `i`."""
        self.start[i] = start
        self.end[i] = end
        self.retire[i] = retire

    def stall(self, i: int, cause: str, cycles: int) -> None:
        """The instruction at position `i` waited."""
        self.stall_at.append(i)
        self.stall_cause.append(self.cause_numbers.setdefault(cause, len(self.cause_numbers)))
        self.stall_cycles.append(cycles)
