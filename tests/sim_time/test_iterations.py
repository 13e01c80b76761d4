"""Traps, races and deadlocks name the iterations of the hardware loops that the instruction was issued in."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.asm import assemble
from systolith.isa.chip import load_chip
from systolith.isa.program import Program
from systolith.sim.deadlock import DeadlockError
from systolith.sim.limit import CycleLimitError
from systolith.sim.memory import SimulationError
from systolith.sim.simulate import simulate

CHIP = load_chip("tiny")


def program(text: str) -> Program:
    return assemble(f".program p\n{text}    halt\n", CHIP)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_a_trap_names_the_iteration_of_every_loop(counts: list[int], data: st.DataObject) -> None:
    at = [data.draw(st.integers(0, count - 1)) for count in counts]
    number = 0
    for count, n in zip(counts, at, strict=True):
        number = number * count + n
    heads = "".join(f"    loop {count}, end{n}\n" for n, count in enumerate(counts))
    ends = "".join(f"end{n}:\n" for n in reversed(range(len(counts))))
    body = "    bne r1, r2, on\n    trap 7\non:\n    add r1, r1, 1\n"
    trapped = program(f"    li r2, {number}\n{heads}{body}{ends}")
    where = ", ".join(f"{n + 1} of {count}" for n, count in zip(at, counts, strict=True))
    with pytest.raises(SimulationError, match=rf"\(trap\) in iteration {where}: the program traps with code 7"):
        simulate(trapped, CHIP)
    with pytest.raises(SimulationError, match=rf"\(trap\) in iteration {where}: the program traps with code 7"):
        simulate(trapped, CHIP, mode="time")


def test_after_a_loop_no_iteration_is_named() -> None:
    with pytest.raises(SimulationError, match=r"instruction 3 \(trap\): the"):
        simulate(program("    loop 2, a\n    loop 3, a\n    nop vpu\na:\n    trap 1\n"), CHIP)


WORDS = """.buffer a parameter u32 [8] number=0
.pattern word u32 counts=(1) strides=(4)
"""


def test_an_address_out_of_range_names_the_iteration() -> None:
    """The ninth iteration loads beyond the 8 words."""
    text = f"{WORDS}    loop 10, end\n    dma.load hbm(a)[r1]:word, vmem[0]:word\n    add r1, r1, 4\nend:\n"
    with pytest.raises(SimulationError, match="in iteration 9 of 10: "):
        simulate(program(text), CHIP)


def test_a_race_names_the_iterations_of_both() -> None:
    """Iteration n stores word n - 1; the load of word 5 meets it in iteration 6, and is met by the next load in 7."""
    text = f"""{WORDS}    loop 8, end
    fence dma.load hbm(a)[20]:word, vmem[0]:word
    fence dma.store vmem[64]:word, hbm(a)[r1]:word
    add r1, r1, 4
end:
"""
    found = [str(hazard) for hazard in simulate(program(text), CHIP, hostile=True).hazards]
    load, store = (rf"instruction {n} \(dma.{op}\) in iteration" for n, op in ((1, "load"), (2, "store")))
    assert len(found) == 2
    assert re.search(rf"write after read: hbm 0 bytes 20 to 23: {load} 6 of 8 and {store} 6 of 8 are not", found[0])
    assert re.search(rf"read after write: hbm 0 bytes 20 to 23: {store} 6 of 8 and {load} 7 of 8 are not", found[1])


def test_a_race_with_one_of_many_accesses_names_its_iteration() -> None:
    """So many words are in flight that the detector has to make room."""
    text = f"""{WORDS.replace("[8]", "[2000]")}    li r2, 2800
    loop 1000, end
    fence dma.load hbm(a)[r1]:word, vmem[r1]:word
    add r1, r1, 4
end:
    dma.store vmem[{4 * 1000}]:word, hbm(a)[r2]:word
"""
    (hazard,) = simulate(program(text), CHIP, hostile=True).hazards
    assert "(dma.load) in iteration 701 of 1000 and instruction 4 (dma.store) are not ordered" in str(hazard)


def test_a_deadlock_names_the_iterations_in_which_instructions_were_issued() -> None:
    """Two tokens for three iterations: the third waits, when SEQ has issued all five."""
    text = """.token t xlu -> vpu
    nop xlu signal t
    nop xlu signal t
    loop 5, end
    nop vpu wait t
end:
"""
    with pytest.raises(DeadlockError, match=r"vpu: instruction 3 \(nop\) in iteration 3 of 5 waits for token 0"):
        simulate(program(text), CHIP)
    full = text.replace("loop 5", "loop 64")
    with pytest.raises(
        DeadlockError, match=r"iteration 3 of 64 waits .* seq: instruction 3 \(nop\) in iteration \d+ of"
    ):
        simulate(program(full), CHIP)
    sync = text.replace("xlu -> vpu", "xlu -> seq").replace("nop vpu wait", "sync wait")
    with pytest.raises(DeadlockError, match=r"seq: instruction 3 \(sync\) in iteration 3 of 5 waits for token 0"):
        simulate(program(sync), CHIP)


def test_a_limit_of_cycles_names_the_iteration() -> None:
    with pytest.raises(CycleLimitError, match=r"in instruction 1 \(li\) in iteration \d+ of 1000$"):
        simulate(program("    loop 1000, end\n    li r1, 1\nend:\n"), CHIP, max_cycles=100)
