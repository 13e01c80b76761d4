from __future__ import annotations

from systolith.isa.chip import load_chip
from systolith.isa.instruction import Instruction, Reg, Space, Stream, Value
from systolith.isa.microops import MICROOPS
from systolith.isa.opcodes import BY_CODE, OPCODES, QUEUE_CODES, queue_of, queues, registers_of, size_words

STREAM = Stream(Space.VMEM, 0, Reg(5), 0, (1, Reg(6)), 9)


def test_queues_of_chips() -> None:
    assert queues(load_chip("tiny")) == ("seq", "ld", "st", "w0", "s0", "vpu", "xlu")
    assert queues(load_chip("tpu_v3")) == ("seq", "ld", "st", "w0", "s0", "w1", "s1", "vpu", "xlu")
    assert set(queues(load_chip("tpu_v3"))) <= set(QUEUE_CODES)


def test_queues_of_instructions() -> None:
    assert queue_of(Instruction("mxu.load", unit=1)) == "w1"
    assert queue_of(Instruction("mxu.latch", unit=1)) == "s1"
    assert queue_of(Instruction("nop", {"queue": "s0"})) == "s0"
    assert queue_of(Instruction("dma.store")) == "st"
    assert queue_of(Instruction("add")) == "seq"


def test_latches_retire_alone() -> None:
    assert {o.name for o in OPCODES.values() if o.retires_alone} == {"mxu.latch"}


def test_sizes() -> None:
    assert size_words(Instruction("halt")) == 3
    args: dict[str, Value] = {
        "kernel": 0,
        "counts": (1,),
        "inner": 0,
        "serial": 0,
        "scalars": (0,) * 4,
        "streams": (STREAM,) * 3,
    }
    assert size_words(Instruction("vpu.run", args)) == 14 + 18


def test_codes_are_unique() -> None:
    assert len(BY_CODE) == len(OPCODES)
    assert len({m.code for m in MICROOPS.values()}) == len(MICROOPS)
    assert max(m.code for m in MICROOPS.values()) < 256


def test_registers_of_an_instruction() -> None:
    assert list(registers_of(Instruction("add", {"rd": Reg(1), "ra": Reg(2), "b": 3}))) == [Reg(1), Reg(2)]
    assert list(registers_of(Instruction("x", {"src": STREAM}))) == [Reg(5), Reg(6)]
    assert list(registers_of(Instruction("x", {"streams": (STREAM,), "scalars": (Reg(7), 1)}))) == [
        Reg(5),
        Reg(6),
        Reg(7),
    ]
