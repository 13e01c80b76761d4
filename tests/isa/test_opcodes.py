from __future__ import annotations

import json
from pathlib import Path

import pytest

from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Instruction, Reg, Space, Stream, Value
from systolith.isa.microops import MICROOPS
from systolith.isa.opcodes import (
    BY_CODE,
    OPCODES,
    QUEUE_CODES,
    REDUCE_FUNCTIONS,
    queue_of,
    queues,
    registers_of,
    size_words,
)

RECORDED: dict[str, dict[str, int]] = json.loads((Path(__file__).parent / "codes.json").read_text())
CODES = {
    "opcodes": {o.name: o.code for o in OPCODES.values()},
    "micro-operations": {m.name: m.code for m in MICROOPS.values()},
    "element types": {t.name: t.code for t in DTYPES.values()},
    "queues": QUEUE_CODES,
    "functions of xlu.reduce": REDUCE_FUNCTIONS,
    "spaces": {s.name: s.value for s in Space},
}

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


@pytest.mark.parametrize("table", CODES)
def test_codes_are_those_of_binaries_that_exist(table: str) -> None:
    now, recorded = CODES[table], RECORDED[table]
    assert {name: now.get(name) for name in recorded} == recorded, "a code that binaries have never changes"
    assert now == recorded, "add the new code to codes.json"
    assert len(set(now.values())) == len(now)


def test_every_narrow_element_type_has_its_conversions() -> None:
    narrow = [t for t in DTYPES.values() if t.bits < 32]
    floats = {f"round.{t}" for t in narrow if t.is_float}
    integers = {f"{op}.{t}" for op in ("wrap", "sat") for t in narrow if t.is_integer}
    assert {name for name in MICROOPS if name.split(".")[0] in ("round", "wrap", "sat")} == floats | integers


def test_registers_of_an_instruction() -> None:
    assert list(registers_of(Instruction("add", {"rd": Reg(1), "ra": Reg(2), "b": 3}))) == [Reg(1), Reg(2)]
    assert list(registers_of(Instruction("x", {"src": STREAM}))) == [Reg(5), Reg(6)]
    assert list(registers_of(Instruction("x", {"streams": (STREAM,), "scalars": (Reg(7), 1)}))) == [
        Reg(5),
        Reg(6),
        Reg(7),
    ]
