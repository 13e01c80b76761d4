"""SEQ: interprets a program and gives the stream of executed instructions, with or without values.

`run_values` executes everything.  `run_control` has no data: a value read from scalar memory is unknown unless SEQ
itself stored it, the program says which value it expects (`Origin.expected`), or a full run's record of those reads
(`decisions`) is replayed; where control depends on an
unknown value it refuses, naming the loop or branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from systolith.isa.chip import Chip
from systolith.isa.errors import SystolithError
from systolith.isa.instruction import Instruction, Reg, Space, Stream
from systolith.isa.opcodes import MAX_LOOP_NEST, NREGISTERS
from systolith.isa.program import ENTRIES, Program
from systolith.sim.decoded import Decoded, Issue
from systolith.sim.memory import Bytes, Machine, SimulationError, error_at
from systolith.sim.naming import Iterations, named
from systolith.sim.scalar import ALU, BRANCH, MASK, signed

MAX_STEPS = 50_000_000


class TraceNeededError(SystolithError):
    """Control flow depends on data, and there are none: a decision trace of a full run is needed."""


Hook = Callable[[Machine], None]


@dataclass(frozen=True)
class Hooks:
    """Calls at points of a run with values: before and after each execution of an instruction, by its index."""

    before: Mapping[int, Hook] = field(default_factory=dict)
    after: Mapping[int, Hook] = field(default_factory=dict)


@dataclass
class ValueRun:
    """A finished run with values.

    Attributes:
        machine: its state at the end.
        issues: every executed instruction, in order.
        decisions: the value that each `lds` read, for `run_control`.
    """

    machine: Machine
    issues: list[Issue]
    decisions: list[int]


def run_values(
    program: Program,
    chip: Chip,
    buffers: Mapping[int, Bytes],
    hostile: bool = False,
    hooks: Hooks | None = None,
    setup: Hook | None = None,
    max_steps: int = MAX_STEPS,
) -> ValueRun:
    """Execute a program in program order.

    Args:
        program: the one to run.
        chip: on which chip.
        buffers: HBM: buffer-table entry to its bytes (uint8, changed in place); entries left out start as their data,
            as zeros, or, hostile, as NaNs.
        hostile: memory starts as NaNs.
        hooks: calls during the run.
        setup: called before the first instruction (to fill infeed queues or connect links).
        max_steps: instructions after which a program counts as runaway.

    Raises:
        SimulationError: the program does something that the machine cannot do.
    """
    machine = Machine(program, chip, buffers, hostile)
    if setup:
        setup(machine)
    sequencer = Sequencer(program, machine, max_steps=max_steps)
    with np.errstate(all="ignore"):
        issues = list(sequencer.execute(hooks or Hooks()))
    return ValueRun(machine, issues, sequencer.decisions)


def run_control(
    program: Program, decisions: Sequence[int] | None = None, max_steps: int = MAX_STEPS
) -> Iterator[Issue]:
    """The executed instructions of a program without data; unknown registers in streams and scalars count as 0.

    Raises:
        TraceNeededError: control depends on unknown values.
        SimulationError: the program traps or runs away, or the trace does not belong to it.
    """
    return Sequencer(program, None, decisions, max_steps).execute(Hooks())


class Sequencer:
    """SEQ's state.

    Attributes:
        registers: r0 to r31; None: unknown (only without a machine).
        iterations: of the hardware loops around the instruction that was executed last.
        decoded: of the program.
        decisions: the values that `lds` read so far.
    """

    def __init__(
        self,
        program: Program,
        machine: Machine | None,
        decisions: Sequence[int] | None = None,
        max_steps: int = MAX_STEPS,
        decoded: Decoded | None = None,
    ) -> None:
        self.program = program
        self.machine = machine
        self.registers: list[int | None] = [0] * NREGISTERS
        self.iterations: Iterations = ()
        self.decisions: list[int] = []
        self._trace = decisions
        self._known: dict[int, int | None] = {}
        self._limit = max_steps
        self._loops: list[list[int]] = []
        self.decoded = decoded or Decoded(program)
        self._plain, self._resolvers = self.decoded.issues, self.decoded.resolvers
        self._branched = False
        self._effects: Mapping[str, Callable[[Machine, Instruction], None]] = {}
        if machine is not None:
            from systolith.sim.values import EXECUTE  # late: it takes long to import, and times do without it

            self._effects = EXECUTE
            machine.registers = self.registers

    def execute(self, hooks: Hooks) -> Iterator[Issue]:
        """Run to the `halt`; each instruction is given after it was executed."""
        code, machine, queues = self.program.code, self.machine, self.decoded.queues
        pc = steps = 0
        while True:
            if not 0 <= pc < len(code):
                raise self._error(len(code) - 1, f"the program runs on to {pc}, it has {len(code)}")
            steps += 1
            if steps > self._limit:
                raise self._error(pc, f"still running after {self._limit} instructions")
            instr = code[pc]
            if machine is not None:
                machine.at = pc
                if pc in hooks.before:
                    machine.calls.wait()
                    hooks.before[pc](machine)
            if queues[pc] != "seq":
                yield self._unit(pc)
                target = pc + 1
            elif instr.op == "halt":
                yield self._plain[pc]
                return
            else:
                target = self._scalar(pc, instr)
                yield self._plain[pc] if not self._branched else Issue(pc, instr, "seq", True)
            if machine is not None and pc in hooks.after:
                machine.calls.wait()
                hooks.after[pc](machine)
            pc = self._loop_end(target) if self._loops else target

    def _unit(self, pc: int) -> Issue:
        issue = self._plain[pc]
        resolver = self._resolvers.get(pc)
        if resolver is not None:
            if resolver.entries and self.machine is not None:
                self._check_entries(resolver.entries, self.machine)
            issue = Issue(pc, resolver(self.registers), issue.queue)
        if self.machine is not None:
            try:
                self._effects[issue.instr.op](self.machine, issue.instr)
            except MemoryError:
                raise self.machine.error("takes more memory than this process may have") from None
        elif self._known and _stores_scalars(issue.instr):
            self._known.clear()
        return issue

    def _check_entries(self, entries: Sequence[tuple[int, int]], machine: Machine) -> None:
        """Whether registers name entries of the stacks that streams begin with."""
        for buffer, register in entries:
            first, number = machine.program.buffers[buffer], (self.registers[register] or 0) % ENTRIES
            if number >= first.stack:
                raise machine.error(f"entry {number} of the stack {first.name}: it has {first.stack}")

    def _loop_end(self, pc: int) -> int:
        """Where to go on from `pc`: back to the start of a loop at its end, out of loops that were left."""
        while self._loops:
            start, end, left = self._loops[-1]
            if pc == end and left > 1:
                self._loops[-1][2] -= 1
                *around, (number, count) = self.iterations
                self._now_in((*around, (number + 1, count)))
                return start
            if start <= pc < end:
                return pc
            self._loops.pop()
            self._now_in(self.iterations[:-1])
        return pc

    def _now_in(self, iterations: Iterations) -> None:
        self.iterations = iterations
        if self.machine is not None:
            self.machine.iterations = iterations

    def _scalar(self, pc: int, instr: Instruction) -> int:
        """Execute a scalar instruction; where to go on."""
        op, a = instr.op, instr.args
        self._branched = False
        if op in ALU:
            self._set(a["rd"], _apply(ALU[op], self._get(a["ra"]), self._get(a["b"])))
        elif op in BRANCH:
            taken = _apply(BRANCH[op], self._get(a["ra"]), self._get(a["rb"]))
            if taken is None:
                raise self._unknown(pc, "branch")
            self._branched = bool(taken)
        elif op == "jmp":
            self._branched = True
        elif op in _SCALAR:
            return _SCALAR[op](self, pc, instr)
        else:
            raise self._error(pc, f"{op} is not an instruction of seq")
        return int(a["target"]) if self._branched else pc + 1  # type: ignore[arg-type, unused-ignore]

    def _get(self, operand: object) -> int | None:
        if isinstance(operand, Reg):
            return self.registers[operand.n]
        assert isinstance(operand, int)
        return operand & MASK

    def _set(self, register: object, value: int | None) -> None:
        assert isinstance(register, Reg)
        if register.n:
            self.registers[register.n] = value

    def _unknown(self, pc: int, what: str) -> TraceNeededError:
        name = named(self.program, pc, self.iterations)
        return TraceNeededError(f"{name}: the {what} depends on data: mode time needs the decisions of a full run")

    def _error(self, pc: int, message: str) -> SimulationError:
        return error_at(self.program, pc, message, self.iterations)

    def _li(self, pc: int, instr: Instruction) -> int:
        self._set(instr.args["rd"], self._get(instr.args["imm"]))
        return pc + 1

    def _loop(self, pc: int, instr: Instruction) -> int:
        count, end = self._get(instr.args["count"]), instr.args["end"]
        assert isinstance(end, int)
        if count is None:
            raise self._unknown(pc, "trip count")
        if signed(count) <= 0:
            return end
        if len(self._loops) == MAX_LOOP_NEST:
            raise self._error(pc, f"loops nest deeper than {MAX_LOOP_NEST}")
        if end <= pc + 1:
            raise self._error(pc, f"loop of an empty body, end {end}")
        self._loops.append([pc + 1, end, signed(count)])
        self._now_in((*self.iterations, (1, signed(count))))
        return pc + 1

    def _address(self, pc: int, instr: Instruction) -> int | None:
        base, offset = self._get(instr.args["ra"]), self._get(instr.args["imm"])
        if base is None or offset is None:
            return None
        address = (base + offset) & MASK
        if self.machine is not None and (address % 4 or address + 4 > len(self.machine.smem)):
            raise self._error(pc, f"smem word at {address}: not a word of its {len(self.machine.smem)} bytes")
        return address

    def _expected(self, pc: int) -> int | None:
        """What the program expects an `lds` to read."""
        number = self.program.debug[pc] if self.program.debug else -1
        expected = self.program.origins[number].expected if number >= 0 else -1
        return None if expected < 0 else expected

    def _lds(self, pc: int, instr: Instruction) -> int:
        address = self._address(pc, instr)
        value: int | None
        if self.machine is not None:
            assert address is not None
            self.machine.calls.wait()
            value = int(self.machine.smem[address : address + 4].view(np.uint32)[0])
            self.decisions.append(value)
        elif self._trace is not None:
            if len(self.decisions) == len(self._trace):
                raise self._error(pc, f"the decision trace ends after {len(self._trace)} reads")
            value = self._trace[len(self.decisions)] & MASK
            self.decisions.append(value)
        else:
            value = self._expected(pc) if address is None else self._known.get(address, self._expected(pc))
        self._set(instr.args["rd"], value)
        return pc + 1

    def _sts(self, pc: int, instr: Instruction) -> int:
        address, value = self._address(pc, instr), self._get(instr.args["rb"])
        if self.machine is not None:
            assert address is not None
            assert value is not None
            self.machine.calls.wait()
            self.machine.smem[address : address + 4].view(np.uint32)[0] = value
        elif address is None:
            self._known.clear()
        else:
            self._known[address] = value
        return pc + 1

    def _trap(self, pc: int, instr: Instruction) -> int:
        raise self._error(pc, f"the program traps with code {instr.args['code']}")

    def _nothing(self, pc: int, instr: Instruction) -> int:
        return pc + 1


_SCALAR: dict[str, Callable[[Sequencer, int, Instruction], int]] = {
    "li": Sequencer._li,
    "loop": Sequencer._loop,
    "lds": Sequencer._lds,
    "sts": Sequencer._sts,
    "trap": Sequencer._trap,
    "sync": Sequencer._nothing,
    "nop": Sequencer._nothing,
}


def _apply(function: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else function(a, b)


def _stores_scalars(instr: Instruction) -> bool:
    dst = instr.args.get("dst")
    return isinstance(dst, Stream) and dst.space is Space.SMEM
