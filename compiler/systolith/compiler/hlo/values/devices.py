"""Several devices: one thread each, of which one runs at a time, until it has to wait for others.

Turns go round in a fixed order, so that results, errors and the host's view do not depend on timing, and a deadlock
is known at once: no device can run, and some wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Literal

T = TypeVar("T")

MAX_DEVICES = 4096
"""Most devices of a run: each has a thread."""


@dataclass(frozen=True)
class Topology:
    """Devices as a grid of replicas x partitions; device number = replica * partitions + partition (a flattened id)."""

    replicas: int = 1
    partitions: int = 1

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.partitions < 1:
            raise HloError(f"replicas and partitions are 1 or more, got {self.replicas} x {self.partitions}")

    @property
    def count(self) -> int:
        return self.replicas * self.partitions

    def __str__(self) -> str:
        return f"{self.replicas} x {self.partitions} devices"


@dataclass(frozen=True)
class Host:
    """The host's side of one device: values that it gives, and a callback for those that it gets.

    Attributes:
        infeed: the values that infeeds take, in order, each of the shape of the infeed's data; by config, where the
            module has infeeds of several.
        channels: per channel, values for `recv` with `is_host_transfer=true`.  A value is asked for when the device
            receives it, so that an iterator may let it depend on values sent before.
        on_send: called with the channel and the value of every `send` with `is_host_transfer=true`.
    """

    infeed: Sequence[Literal] | Mapping[str, Sequence[Literal]] = ()
    channels: Mapping[int, Iterable[Literal]] = field(default_factory=dict)
    on_send: Callable[[int, Literal], None] | None = None

    @property
    def infeeds(self) -> Mapping[str, Sequence[Literal]]:
        """The infeed's values by config."""
        return self.infeed if isinstance(self.infeed, Mapping) else {"": self.infeed}


@dataclass
class Meeting:
    """A meeting of a group: the members' values, and results that are the same for all.

    Attributes:
        members: device numbers, in the group's order.
        brought: each member's value.
    """

    members: tuple[int, ...]
    brought: dict[int, Literal] = field(default_factory=dict)
    _made: dict[Instruction, list[np.ndarray]] = field(default_factory=dict)

    @property
    def values(self) -> list[Literal]:
        """The members' values, in the group's order."""
        return [self.brought[m] for m in self.members]

    def missing(self) -> list[int]:
        """Members who are not there."""
        return [m for m in self.members if m not in self.brought]

    def once(self, i: Instruction, make: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
        """Results that are the same for every member that runs `i`: made by the first of them."""
        if i not in self._made:
            self._made[i] = make()
        return self._made[i]


@dataclass
class Device:
    """One device of a run: its state besides the values of instructions.

    Attributes:
        number: its flattened id.
        turns: all devices' meetings.
        configs: of the module's infeeds and outfeeds.
        infeeds: the values not taken yet, by config (`feed_configs.queue_name`).
        outfeeds: the values put out so far.
        answers: of functions of the host, not taken yet.
        sent: per channel, the values sent to the host so far.
        states: counters of `rng-get-and-update-state`.
    """

    number: int
    topology: Topology
    turns: Turns
    host: Host
    configs: dict[str, tuple[str, ...]]
    infeeds: dict[str, deque[Literal]] = field(init=False)
    outfeeds: dict[str, list[Literal]] = field(default_factory=dict)
    answers: deque[Literal] = field(default_factory=deque)
    channels: dict[int, Iterator[Literal]] = field(init=False)
    sent: dict[int, list[Literal]] = field(default_factory=dict)
    states: dict[Instruction, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.infeeds = {config: deque(values) for config, values in self.host.infeeds.items()}
        self.channels = {channel: iter(values) for channel, values in self.host.channels.items()}

    @property
    def replica(self) -> int:
        return self.number // self.topology.partitions

    @property
    def partition(self) -> int:
        return self.number % self.topology.partitions

    def meet(self, i: Instruction, key: Hashable, members: tuple[int, ...], value: Literal) -> Meeting:
        """The meeting `key` of all members, to which each brings a value; waits for those who are not there.

        Raises:
            HloError: some of them never come.
        """
        return self.turns.meet(self.number, i, (key, members), members, value)

    def post(self, channel: int, target: int, value: Literal) -> None:
        """Send a value to a device; does not wait."""
        self.turns.post((channel, self.number, target), target, value)

    def receive(self, i: Instruction, channel: int, source: int) -> Literal:
        """The next value that a device has sent to this one; waits for it.

        Raises:
            HloError: it is never sent.
        """
        return self.turns.receive(self.number, i, (channel, source, self.number), source)


def frontend_text(attributes: Mapping[str, object], key: str) -> str:
    """A field of `frontend_attributes`, empty where there is none."""
    fields = attributes.get("frontend_attributes")
    return str(fields.get(key, "")) if isinstance(fields, dict) else ""


def single() -> Device:
    """The device of a run that has only one, and no host."""
    return Device(0, Topology(), Turns(1), Host(), {})


class _ReleasedError(Exception):
    """Another device has failed: this one ends."""


@dataclass
class _Wait:
    """A device's wait: the instruction, and those who have not come."""

    instruction: Instruction
    missing: Callable[[], list[int]]


class Turns:
    """The devices of one run: who runs, who waits for whom."""

    def __init__(self, count: int) -> None:
        self._locks = [threading.Semaphore(0) for _ in range(count)]
        self._ready: deque[int] = deque()
        self._waits: dict[int, _Wait] = {}
        self._meetings: dict[Hashable, Meeting] = {}
        self._mail: dict[tuple[int, int, int], deque[Literal]] = {}
        self._deadlock = ""
        self._failure: BaseException | None = None

    def run(self, programs: Sequence[Callable[[], T]]) -> list[T]:
        """Run a program on each device; their results.

        Raises:
            HloError: there are more than `MAX_DEVICES`, or than there can be threads.
            BaseException: of the first program to fail; the others end where they are.
        """
        if len(programs) > MAX_DEVICES:
            raise HloError(f"{len(programs)} devices; at most {MAX_DEVICES} are supported")
        if len(programs) == 1:
            return [programs[0]()]
        results: dict[int, T] = {}

        def body(device: int) -> None:
            self._locks[device].acquire()
            try:
                if self._failure is None:
                    results[device] = programs[device]()
            except _ReleasedError:
                pass
            except BaseException as problem:
                self._failure = problem
            self._next()

        threads = [threading.Thread(target=body, args=(n,), daemon=True) for n in range(len(programs))]
        try:
            for device, thread in enumerate(threads):
                thread.start()
                self._ready.append(device)
        except RuntimeError as problem:
            self._failure = HloError(f"cannot run {len(programs)} devices: {problem}")
        started = threads[: len(self._ready)]
        self._next()
        try:
            for thread in started:
                thread.join()
        except BaseException as problem:  # an interrupt: the device that runs finds out when it next waits
            self._failure = problem
            raise
        if self._failure is not None:
            raise self._failure
        return [results[n] for n in range(len(programs))]

    def meet(self, device: int, i: Instruction, key: Hashable, members: tuple[int, ...], value: Literal) -> Meeting:
        """As `Device.meet`."""
        meeting = self._meetings.setdefault(key, Meeting(members))
        meeting.brought[device] = value
        if len(meeting.brought) < len(members):
            self._wait(device, _Wait(i, meeting.missing))
        else:
            del self._meetings[key]
            self._wake(m for m in members if m != device)
        return meeting

    def post(self, key: tuple[int, int, int], target: int, value: Literal) -> None:
        """As `Device.post`; a key is a channel, a source and a target."""
        self._mail.setdefault(key, deque()).append(value)
        wait = self._waits.get(target)
        if wait is not None and not wait.missing():
            self._wake([target])

    def receive(self, device: int, i: Instruction, key: tuple[int, int, int], source: int) -> Literal:
        """As `Device.receive`."""
        queue = self._mail.setdefault(key, deque())
        if not queue:
            self._wait(device, _Wait(i, lambda: [] if queue else [source]))
        return queue.popleft()

    def unreceived(self) -> list[tuple[int, int, int]]:
        """Channel, source and target of values that were sent and not received."""
        return sorted(key for key, queue in self._mail.items() if queue)

    def _wait(self, device: int, wait: _Wait) -> None:
        self._waits[device] = wait
        self._next()
        self._locks[device].acquire()
        if self._failure is not None:
            raise _ReleasedError
        if self._deadlock:
            raise HloError(self._deadlock)

    def _wake(self, devices: Iterable[int]) -> None:
        for device in devices:
            del self._waits[device]
            self._ready.append(device)

    def _next(self) -> None:
        """Pass the turn on; with none to take it, to the first of those who wait: to raise a deadlock, or to end."""
        if not self._ready and self._waits:
            if self._failure is None:
                self._deadlock = self._describe()
            self._wake([min(self._waits)])
        if self._ready:
            self._locks[self._ready.popleft()].release()

    def _describe(self) -> str:
        groups: dict[str, list[int]] = {}
        for device, wait in sorted(self._waits.items()):
            i = wait.instruction
            text = f"at {i.opcode} {i.name!r} for {_listed(wait.missing())}"
            groups.setdefault(text, []).append(device)
        texts = [f"{_listed(devices)} wait{'s' * (len(devices) == 1)} {text}" for text, devices in groups.items()]
        ended = [n for n in range(len(self._locks)) if n not in self._waits]
        if ended:
            texts.append(f"{_listed(ended)} {'has' if len(ended) == 1 else 'have'} ended")
        return f"deadlock: {'; '.join(texts[:4])}{'; ...' * (len(texts) > 4)}"


def _listed(devices: Sequence[int]) -> str:
    shown = ", ".join(map(str, devices[:8])) + ", ..." * (len(devices) > 8)
    return f"device{'s' * (len(devices) != 1)} {shown}"
