"""Stacks of the buffer table: a register names the entry that a stream reads or writes, one after another in a loop."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from systolith.hw.lockstep import lockstep
from systolith.isa.access import accesses
from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.errors import ProgramError
from systolith.isa.program import Program
from systolith.isa.verify import verify_program
from systolith.sim.memory import SimulationError
from systolith.sim.simulate import simulate

TINY = load_chip("tiny")
ROWS, WIDTH = 3, 8

TEXT = """
.program stacks
.buffer a parameter f32 [3, 8] number=0
.buffer r result f32 [3, 8] number=0
.buffer a0 part f32 [8] alias=0 stack=3
.buffer a1 part f32 [8] alias=0 offset=32
.buffer a2 part f32 [8] alias=0 offset=64
.buffer r0 part f32 [8] alias=1 stack=3
.buffer r1 part f32 [8] alias=1 offset=32
.buffer r2 part f32 [8] alias=1 offset=64
.token loaded ld -> st
.token stored st -> ld
.token done st -> seq
.pattern row f32 counts=(8) strides=(4)
    li r1, 0
    li r2, 2
    loop {count}, over
    dma.load hbm(a0, r1)[0]:row, vmem[0]:row signal loaded
    dma.store vmem[0]:row, hbm(r0, r2)[0]:row wait loaded signal done
    sync wait done
    add r1, r1, 1
    sub r2, r2, 1
over:
    halt
"""


def stacks(count: int = ROWS, others: Mapping[str, str] | None = None) -> Program:
    """Copies as many rows as `count` of a, the last one first, to r."""
    text = TEXT.replace("{count}", str(count))
    for before, after in (others or {}).items():
        text = text.replace(before, after)
    return assemble(text, TINY)


def memory() -> dict[int, np.ndarray]:
    given = np.arange(ROWS * WIDTH, dtype=np.float32) + 1
    return {0: given.view(np.uint8), 1: np.zeros(given.nbytes, np.uint8)}


def test_entries_one_after_another() -> None:
    program, buffers = stacks(), memory()
    verify_program(program, TINY)
    result = simulate(program, TINY, buffers, hostile=True)
    assert not result.hazards
    rows = buffers[1].view(np.float32).reshape(ROWS, WIDTH)
    assert (rows == buffers[0].view(np.float32).reshape(ROWS, WIDTH)[::-1]).all()
    assert simulate(program, TINY, mode="time").cycles == result.cycles


def test_the_core_does_the_same() -> None:
    result = lockstep(stacks(), TINY, memory())
    assert result.difference is None, result.difference


def test_text_and_binary_keep_them() -> None:
    program = stacks()
    for other in (assemble(disassemble(program), TINY), from_bytes(to_bytes(program))):
        assert (other.code, other.buffers) == (program.code, program.buffers)


def test_what_may_be_named_is_touched() -> None:
    program = stacks()
    (load,) = [i for i in program.code if i.op == "dma.load"]
    touched = [(a.buffer, a.lo, a.hi, a.dynamic) for a in accesses(load, program, TINY) if not a.write]
    assert touched == [(0, 32 * n, 32 * n + 32, True) for n in range(ROWS)]


def test_stacks_end_where_streams_name_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    program = stacks()
    verify_program(program, TINY)
    monkeypatch.setattr("systolith.isa.verify.ENTRIES", len(program.buffers) - 1)
    with pytest.raises(ProgramError, match="a stack of 3: streams name"):
        verify_program(program, TINY)


def test_an_entry_beyond_the_stack_stops_the_run() -> None:
    with pytest.raises(
        SimulationError, match=r"instruction 3 \(dma.load\) in iteration 4 of 4: entry 3 of the stack a0: it"
    ):
        simulate(stacks(4), TINY, memory())


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("a0, r1", "a1, r1", "src: buffer a1 begins no stack"),
        ("stack=3", "stack=9", "a stack of 9: there are not as many"),
        ("stack=3", "stack=0", "a stack of 0: there are not as many"),
        ("offset=64", "offset=96", "which it shares, has 0 from there on"),
        ("[8] alias=0 offset=32", "[4] alias=0 offset=32", "a stack of 3: must be of 32 bytes each"),
        ("part f32 [8] alias=0 offset=64", "part f32 [8]", "buffer a2: a part of no other buffer"),
        ("[3, 8] number=0", "[3, 8] number=0 offset=4", "buffer a: offset 4: shares no memory so"),
    ],
)
def test_stacks_that_are_none_are_refused(before: str, after: str, message: str) -> None:
    program = stacks(others={before: after})
    with pytest.raises(ProgramError, match=message):
        verify_program(program, TINY)
