"""Whether tokens are used right: one producer and one consumer queue each, and no wait before its signals.

A token that `mxu.latch` signals is signalled by latches only: they retire alone, so that the signals of a token keep
their order.

Checked in program order: through straight-line code and hardware loops exactly; at a label that branches reach, the
counts must be the same on every way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from systolith.isa.errors import ProgramError
from systolith.isa.instruction import Instruction
from systolith.isa.opcodes import BRANCH_OPS, OPCODES, queue_of, queues

if TYPE_CHECKING:
    from systolith.isa.chip import Chip
    from systolith.isa.program import Program

Counts = dict[int, int]


def verify_tokens(program: Program, chip: Chip, ends_at_zero: bool = False) -> None:
    """Check queues and balance of tokens; `ends_at_zero`: every signal must have been taken where the program halts.

    Raises:
        ProgramError: naming instruction, token and limit.
    """
    names = queues(chip)
    for i, t in enumerate(program.tokens):
        for queue in (t.producer, t.consumer):
            if queue not in names:
                raise ProgramError(f"token {i}: queue {queue!r}: the chip has {', '.join(names)}")
    for i, instr in enumerate(program.code):
        _check_queues(i, instr, program)
    _check_retirement(program)
    _check_balance(program, chip, ends_at_zero)


def _check_queues(i: int, instr: Instruction, program: Program) -> None:
    queue = queue_of(instr)
    for verb, tokens, side in (("waits for", instr.waits, "consumer"), ("signals", instr.signals, "producer")):
        for t in tokens:
            if t >= len(program.tokens):
                raise ProgramError(f"instruction {i}: {instr.op}: {verb} token {t}: there are {len(program.tokens)}")
            wanted = getattr(program.tokens[t], side)
            if wanted != queue:
                raise ProgramError(f"instruction {i}: {instr.op} of {queue} {verb} token {t}: its {side} is {wanted}")


def _check_retirement(program: Program) -> None:
    first: dict[int, tuple[int, Instruction]] = {}
    for i, instr in enumerate(program.code):
        for t in instr.signals:
            j, other = first.setdefault(t, (i, instr))
            if OPCODES[instr.op].retires_alone != OPCODES[other.op].retires_alone:
                raise ProgramError(
                    f"instruction {i}: {instr.op}: signals token {t}, as instruction {j}, {other.op}, does: "
                    f"they do not retire in order"
                )


def _step(i: int, instr: Instruction, counts: Counts, chip: Chip) -> None:
    for t in instr.waits:
        counts[t] = counts.get(t, 0) - 1
        if counts[t] < 0:
            raise ProgramError(f"instruction {i}: {instr.op}: waits for token {t}: nothing before it signals it")
    for t in instr.signals:
        counts[t] = counts.get(t, 0) + 1
        if counts[t] > chip.token.max:
            raise ProgramError(
                f"instruction {i}: {instr.op}: token {t} counts {counts[t]}: token.max is {chip.token.max}"
            )


def _nonzero(counts: Counts) -> Counts:
    return {t: n for t, n in counts.items() if n}


def _join(i: int, known: dict[int, Counts], counts: Counts) -> None:
    """Counts with which control reaches instruction i, on another way than before."""
    before = known.setdefault(i, _nonzero(counts))
    if before != _nonzero(counts):
        t = next(t for t in {**before, **counts} if before.get(t, 0) != counts.get(t, 0))
        raise ProgramError(
            f"instruction {i}: token {t} counts {before.get(t, 0)} on one way here and {counts.get(t, 0)} on another"
        )


def _check_balance(program: Program, chip: Chip, ends_at_zero: bool) -> None:
    """Follow every way through the program once, with the counts that tokens have if nothing is late.

    A hardware loop that may run other than once must leave the counts as it found them.
    """
    targets = {cast(int, c.args["target"]) for c in program.code if c.op in (*BRANCH_OPS, "jmp")}
    bodies = _loop_bodies(program)
    known: dict[int, Counts] = {}
    work: list[tuple[int, Counts]] = [(0, {})]
    while work:
        i, counts = work.pop()
        while i < len(program.code):
            seen = i in known
            if i in targets or seen:
                _join(i, known, counts)
                if seen:
                    break
            instr = program.code[i]
            _step(i, instr, counts, chip)
            if instr.op == "loop" and i + 1 in bodies.get(cast(int, instr.args["end"]), ()):
                targets.add(i + 1)
            if instr.op in (*BRANCH_OPS, "jmp"):
                work.append((cast(int, instr.args["target"]), dict(counts)))
            if instr.op == "halt" and ends_at_zero and _nonzero(counts):
                t, n = next(iter(_nonzero(counts).items()))
                raise ProgramError(f"instruction {i}: {instr.op}: token {t} counts {n}: must be 0 at the end")
            if instr.op in ("jmp", "halt", "trap"):
                break
            i += 1
            for body in bodies.get(i, ()):
                _join(body, known, counts)


def _loop_bodies(program: Program) -> dict[int, list[int]]:
    """End of a hardware loop to the starts of the bodies that end there, but for loops that run once."""
    bodies: dict[int, list[int]] = {}
    for i, instr in enumerate(program.code):
        if instr.op == "loop" and instr.args["count"] != 1:
            bodies.setdefault(cast(int, instr.args["end"]), []).append(i + 1)
    return bodies
