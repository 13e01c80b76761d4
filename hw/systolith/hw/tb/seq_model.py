"""A model of SEQ: values from the simulator, cycles from its time plane or with random queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from systolith.isa.chip import Chip
from systolith.isa.encode import encode_instruction
from systolith.isa.instruction import Instruction, Reg
from systolith.isa.layout import Bits
from systolith.isa.opcodes import MAX_WAITS, NO_TOKEN, OPCODES, STREAM, STREAM_WORDS, FieldKind, queues, size_words
from systolith.isa.program import Program
from systolith.sim.decoded import Issue
from systolith.sim.plane import TimePlane
from systolith.sim.sequencer import Hooks, Sequencer
from systolith.sim.trace import Trace

Flags = NDArray[np.bool_]
STEPS = 5000  # instructions after which a program counts as one that does not end
STREAM_FLAGS = sum(b.most << b.lo for b in STREAM if b.name.endswith("_reg"))


class Push(NamedTuple):
    """An instruction handed to a queue: offered, then accepted."""

    offered: int
    accepted: int
    queue: int
    number: int
    waits: tuple[int, ...]
    signals: tuple[int, ...]
    fence: bool
    idle: bool
    alone: bool
    words: tuple[int, ...]


class Sync(NamedTuple):
    """SEQ took tokens; the signals are there a cycle later."""

    start: int
    number: int
    waits: tuple[int, ...]
    signals: tuple[int, ...]


class Store(NamedTuple):
    """A word written to SMEM at the end of the cycle."""

    cycle: int
    address: int
    value: int


@dataclass
class Stimulus:
    """The inputs of SEQ.

    Attributes:
        ready: [cycle, queue].
        tokens: for each cycle, whether the tokens that a sync waits for are there.
    """

    ready: Flags
    tokens: Flags


@dataclass
class Expectation:
    """The expected outputs of SEQ, in order; `halted`: the first cycle after its halt."""

    pushes: list[Push] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    halted: int = 0


def queue_numbers(chip: Chip) -> dict[str, int]:
    """Of the RTL's queues, by name."""
    mxus = [f"{q}{i}" for i in range(chip.mxu.count) for q in "ws"]
    return {name: n for n, name in enumerate(["ld", "st", "vpu", "xlu", *mxus])}


def tokens(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The four of an instruction word."""
    return (*numbers, *[NO_TOKEN] * (MAX_WAITS - len(numbers)))


def _bit(bits: Bits) -> int:
    return bits.most << bits.lo


def register_flags(instr: Instruction) -> dict[int, int]:
    """The bits that mark registers, by word: after resolution they mean nothing."""
    masks: dict[int, int] = {}
    streams: list[int] = []
    for f in OPCODES[instr.op].fields:
        if f.kind in (FieldKind.OPERAND, FieldKind.SCALARS) and f.aux is not None:
            masks[f.aux.word] = _bit(f.aux)
        elif f.kind is FieldKind.STREAM:
            streams.append(f.value.word)
        elif f.kind is FieldKind.STREAMS:
            streams += range(f.value.word, size_words(instr), STREAM_WORDS)
    return masks | dict.fromkeys(streams, STREAM_FLAGS)


def resolved_words(instr: Instruction) -> tuple[int, ...]:
    """Words of a resolved instruction, with the flags clear."""
    words = encode_instruction(instr)
    for word, mask in register_flags(instr).items():
        words[word] &= ~mask
    return tuple(words)


class Model:
    """Follows a program through the simulator's sequencer, and keeps SEQ's time.

    A scalar instruction takes a cycle, a taken branch the penalty more; a unit instruction is offered after its fetch
    and SEQ goes on when it is accepted; a sync takes a cycle once its tokens are there.
    """

    def __init__(self, program: Program, chip: Chip, stimulus: Stimulus) -> None:
        self.expected = Expectation()
        self._program = program
        self._chip = chip
        self._stimulus = stimulus
        self._numbers = queue_numbers(chip)
        self._sequencer = Sequencer(program, None, max_steps=STEPS)
        self._time = self._number = 0

    def run(self) -> Expectation:
        """Execute the program.

        Raises:
            SimulationError: it runs away.
        """
        for issue in self._sequencer.execute(Hooks()):
            if issue.queue != "seq":
                self._push(issue)
            elif issue.instr.op == "sync":
                self._sync(issue.instr)
            else:
                if issue.instr.op == "sts":
                    self._store(issue.instr)
                self._time += 1 + (self._chip.seq.branch_penalty if issue.taken else 0)
        self.expected.halted = self._time
        return self.expected

    def _first(self, flags: Flags, cycle: int) -> int:
        """The first cycle from `cycle` on with the flag set."""
        later = np.flatnonzero(flags[cycle:])
        if not len(later):
            raise RuntimeError(f"program {self._program.name}: the stimulus ends before SEQ can go on")
        return cycle + int(later[0])

    def _push(self, issue: Issue) -> None:
        instr, queue = issue.instr, self._numbers[issue.queue]
        offered = self._time - -size_words(instr) // self._chip.seq.fetch_words
        self._time = self._first(self._stimulus.ready[:, queue], offered)
        kind = (instr.fence, instr.op == "nop", OPCODES[instr.op].retires_alone)
        waits, signals = tokens(instr.waits), tokens(instr.signals)
        words = resolved_words(instr)
        self.expected.pushes.append(Push(offered, self._time, queue, self._number, waits, signals, *kind, words))
        self._number += 1

    def _sync(self, instr: Instruction) -> None:
        start = self._first(self._stimulus.tokens, self._time)
        self.expected.syncs.append(Sync(start, self._number, tokens(instr.waits), tokens(instr.signals)))
        self._number += 1
        self._time = start + 1

    def _store(self, instr: Instruction) -> None:
        a, registers = instr.args, self._sequencer.registers
        base, value, offset = a["ra"], a["rb"], a["imm"]
        assert isinstance(base, Reg)
        assert isinstance(value, Reg)
        assert isinstance(offset, int)
        address, word = registers[base.n], registers[value.n]
        assert address is not None
        assert word is not None
        self.expected.stores.append(Store(self._time, (address + offset) & 0xFFFFFFFF, word))


def random_stimulus(chip: Chip, seed: int, cycles: int) -> Stimulus:
    """Queues that are full and tokens that are missing at random, for as long as it happens, or never."""
    random = np.random.default_rng(seed)
    p = random.choice([1.0, 0.8, 0.3, 0.08], 1 + len(queue_numbers(chip)))
    flags = random.random((cycles, len(p))) < p
    flags[-1] = True
    return Stimulus(flags[:, 1:], flags[:, 0])


def timed_stimulus(program: Program, chip: Chip) -> tuple[Stimulus, Trace]:
    """Queues as full, and tokens as late, as the simulator's time plane has them; and its times of the instructions.

    Raises:
        SystolithError: the program does something that the machine cannot do.
    """
    plane = TimePlane(program, chip)
    for issue in Sequencer(program, None, max_steps=STEPS).execute(Hooks()):
        plane.execute(issue.index, issue.queue, issue.taken)
    cycles, _, trace, _ = plane.finish()
    names, numbers = queues(chip), queue_numbers(chip)
    cycle = np.arange(cycles + 1)
    ready = np.ones((cycles + 1, len(numbers)), bool)
    for name, number in numbers.items():
        of_queue = trace.queue == names.index(name)
        pushed = np.searchsorted(np.sort(trace.issue[of_queue]), cycle, "left")
        started = np.searchsorted(np.sort(trace.start[of_queue]), cycle, "right")
        ready[:, number] = pushed - started < chip.fifo.depth
    late = np.zeros(cycles + 1, bool)
    for i in np.flatnonzero(trace.queue == 0):
        late[trace.issue[i] : trace.start[i]] = True
    return Stimulus(ready, ~late), trace


def expected_of(program: Program, chip: Chip, stimulus: Stimulus) -> Expectation:
    """The expected outputs of SEQ in the program."""
    return Model(program, chip, stimulus).run()


def check_times(expected: Expectation, trace: Trace) -> None:
    """Raise AssertionError unless SEQ's times are those of the time plane."""
    times = {p.number: p.accepted for p in expected.pushes} | {s.number: s.start for s in expected.syncs}
    want = np.where(trace.queue == 0, trace.start, trace.issue).tolist()
    assert [times[n] for n in range(len(times))] == want, "the rule for SEQ's times and the time plane differ"
