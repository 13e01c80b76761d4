"""The time plane and the race detector of a program; each executed instruction is handed to them."""

from __future__ import annotations

from functools import partial

from systolith.isa.access import accesses
from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction
from systolith.isa.opcodes import OPCODES, queue_of, queues, registers_of
from systolith.isa.program import Program
from systolith.sim.decoded import Decoded
from systolith.sim.engine import Engine
from systolith.sim.hazards import Hazard, RaceDetector
from systolith.sim.host_credits import Intervals
from systolith.sim.host_times import ALL_THERE, HostTimes
from systolith.sim.naming import Iterations, named
from systolith.sim.queues import SEQ, Op
from systolith.sim.trace import Facts, Trace
from systolith.sim.work import Works, limits_of


class TimePlane:
    """Times of the executed instructions of a program on a chip.

    Args:
        program: the program.
        chip: the chip.
        host: when it has data and room.
        decoded: of the program.
    """

    def __init__(
        self, program: Program, chip: Chip, host: HostTimes = ALL_THERE, decoded: Decoded | None = None
    ) -> None:
        times = host.numbered(program)
        self._engine = Engine(limits_of(chip), queues(chip)[1:], program.tokens, partial(named, program), times)
        decoded = decoded or Decoded(program)
        self._works = Works(program, chip, decoded)
        self._form = decoded.form
        self._ops: list[Op | None] = [None] * len(decoded.forms)
        self._code = program.code
        self._queues = queues(chip)

    def execute(self, index: int, queue: str, taken: bool, iterations: Iterations = ()) -> None:
        """The next instruction.

        Args:
            index: its index in the program.
            queue: that it goes to.
            taken: it is a branch that is taken.
            iterations: of the loops around it, for error messages.

        Raises:
            DeadlockError: nothing can proceed.
            ProgramError: the instruction uses a token that is not its queue's.
        """
        if queue == SEQ and self._code[index].op != "sync":
            self._engine.scalar(taken)
            return
        form = self._form[index]
        op = self._ops[form]
        if op is None:
            op = self._ops[form] = self._engine.prepare(self._works.of(index, queue))
        self._engine.iterations = iterations
        if queue == SEQ:
            self._engine.sync(op, index)
        else:
            self._engine.issue(op, index)

    def now(self) -> int:
        """Cycles until SEQ can go on, a lower bound of the run's cycles."""
        return self._engine.now

    def held(self) -> dict[int, Intervals]:
        """After `finish`: by infeed queue whose times are given, when the host was held for want of credits."""
        return self._engine.credits.held(self._engine.cycles)

    def finish(self) -> tuple[int, dict[str, dict[str, int]], Trace, Facts]:
        """Complete all that is under way: (cycles, cycles by cause for each unit, times, facts of the instructions).

        Raises:
            DeadlockError: something can never start.
            TokenOverflowError: a token exceeded its largest count.
        """
        self._engine.finish()
        trace = Trace.of(self._engine.record, self._queues)
        return self._engine.cycles, self._engine.units, trace, self._works.facts()


class HazardPlane:
    """The race detector over the executed instructions of a program.

    An instruction with registers as operands is looked at anew each time, with their values; others once.
    """

    def __init__(self, program: Program, chip: Chip) -> None:
        used = {queue_of(i) for i in program.code}
        self._names = [name for name in queues(chip) if name == "seq" or name in used]
        self._detector = RaceDetector(self._names, len(program.tokens), partial(named, program))
        self._program = program
        self._chip = chip
        self._fixed = [None if registers_of(i) else accesses(i, program, chip) for i in program.code]
        self._queue = [queue_of(i) for i in program.code]

    def execute(self, index: int, instr: Instruction, iterations: Iterations = ()) -> None:
        """The next instruction, with its operands resolved; `iterations`: of the loops around it, for messages.

        Raises:
            ProgramError: it waits for a token that nothing before it signals.
        """
        touched = self._fixed[index]
        if touched is None:
            touched = accesses(instr, self._program, self._chip)
        if touched or instr.waits or instr.signals or instr.fence:
            alone = OPCODES[instr.op].retires_alone
            queue = self._queue[index]
            self._detector.execute(index, queue, instr.waits, instr.signals, instr.fence, touched, alone, iterations)

    @property
    def hazards(self) -> list[Hazard]:
        """The first races."""
        return self._detector.hazards
