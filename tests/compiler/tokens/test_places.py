"""Addresses in registers: accesses that may meet are never told apart, and those from one value are where they can be.

Random lines of instructions are run on numbers; what they touch then is compared with what their order is made of.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from systolith.compiler.emit.loops import Step, Unroller
from systolith.isa.access import Access
from systolith.isa.instruction import Instruction, Reg, Space, Stream
from tests.examples import seeds

SIZE, WIDTH = 4096, 32


def stream(base: int | Reg, buffer: int) -> Stream:
    return Stream(Space.HBM, 0, base, buffer)


def store(base: int | Reg, buffer: int = 0) -> Instruction:
    return Instruction("dma.store", {"src": Stream(Space.VMEM, 0, 0), "dst": stream(base, buffer)})


def load(base: int | Reg, buffer: int = 0) -> Instruction:
    return Instruction("dma.load", {"src": stream(base, buffer), "dst": Stream(Space.VMEM, 0, 0)})


def touches(i: Instruction) -> Iterable[Access]:
    """As the model of the machine: all of a buffer where the address is not known."""
    for name, write in (("src", False), ("dst", True)):
        s = i.args.get(name)
        if isinstance(s, Stream) and s.space is Space.HBM:
            known = isinstance(s.base, int)
            low, high = (s.base, s.base + WIDTH) if isinstance(s.base, int) else (0, SIZE)
            yield Access(Space.HBM, s.buffer, low, high, write, not known)


def read(rd: int) -> Instruction:
    return Instruction("lds", {"rd": Reg(rd), "ra": 0})


def add(rd: int, ra: int, b: int) -> Instruction:
    return Instruction("add", {"rd": Reg(rd), "ra": Reg(ra), "b": b})


def seen(code: list[Instruction]) -> list[list[Access]]:
    steps = Unroller(code, [], touches, lambda i: i.op).steps(0, len(code))
    return [step.touched for step in steps if isinstance(step, Step)]


def drawn(dice: Random) -> list[Instruction]:
    code: list[Instruction] = []
    for _ in range(dice.randint(2, 14)):
        rd, ra, number = dice.randint(1, 3), dice.randint(1, 3), WIDTH * dice.randint(0, 4)
        base = Reg(ra) if dice.random() < 0.8 else number
        code.append(
            dice.choice([
                read(rd),
                Instruction("li", {"rd": Reg(rd), "imm": number}),
                add(rd, ra, number),
                Instruction("mul", {"rd": Reg(rd), "ra": Reg(ra), "b": 3}),
                store(base, dice.randint(0, 1)),
                load(base, dice.randint(0, 1)),
            ])
        )  # fmt: skip
    return code


def run(code: list[Instruction], dice: Random) -> list[list[Access]]:
    """What instructions touch when registers have random values before, and what is read is random."""
    registers = {n: WIDTH * dice.randint(0, 3) for n in range(1, 4)}

    def value(of: object) -> int:
        return registers[of.n] if isinstance(of, Reg) else int(str(of))

    def result(i: Instruction) -> int:
        if i.op == "lds":
            return WIDTH * dice.randint(0, 3)
        if i.op == "li":
            return value(i.args["imm"])
        a, b = value(i.args["ra"]), value(i.args["b"])
        return a + b if i.op == "add" else a * b

    touched: list[list[Access]] = []
    for i in code:
        a = i.args
        streams = {k: s for k, s in a.items() if isinstance(s, Stream) and s.space is Space.HBM}
        known = {k: stream(value(s.base), s.buffer) for k, s in streams.items()}
        touched.append(list(touches(Instruction(i.op, a | known))))
        rd = a.get("rd")
        if isinstance(rd, Reg):
            registers[rd.n] = result(i)
    return touched


def conflict(first: list[Access], second: list[Access]) -> bool:
    return any((a.write or b.write) and a.meets(b) for a in first for b in second)


@pytest.mark.parametrize("seed", seeds(60, 300))
def test_what_may_meet_is_not_told_apart(seed: int) -> None:
    dice = Random(seed)
    code = drawn(dice)
    known = seen(code)
    for _ in range(8):
        for n, first in enumerate(real := run(code, dice)):
            for k, second in enumerate(real[:n]):
                assert not conflict(first, second) or conflict(known[n], known[k])


def test_two_places_from_one_value_are_told_apart() -> None:
    code = [read(1), store(Reg(1)), add(2, 1, WIDTH), store(Reg(2))]
    _, (first,), _, (second,) = seen(code)
    assert not first.meets(second)


def test_places_from_two_values_are_not() -> None:
    for second in (read(1), Instruction("mul", {"rd": Reg(1), "ra": Reg(1), "b": 3})):
        _, (first,), _, (other,) = seen([read(1), store(Reg(1)), second, store(Reg(1))])
        assert first.meets(other)
    _, (first,), (fixed,) = seen([read(1), store(Reg(1)), store(WIDTH)])
    assert first.meets(fixed)
