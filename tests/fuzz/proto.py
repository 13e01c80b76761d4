"""Serialized modules: fields changed at any depth, or bytes."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from systolith.compiler.hlo.proto.schema import message_class
from systolith.runtime.inputs.sources import read_source
from tests.compiler.hlo.proto_cases import CASES
from tests.compiler.hlo.proto_oracle import around, serialized
from tests.corpus.load import HERE
from tests.fuzz.damage import damaged
from tests.fuzz.files import file_of
from tests.fuzz.fuzzer import Fuzzer, draws
from tests.fuzz.hlo_text import check_module

NUMBERS = (-(2**63), -(2**31), -(2**16), -2, -1, 0, 1, 2, 3, 4, 7, 12, 35, 64, 1000, 2**16, 2**31 - 1, 2**40, 2**62)
FLOATS = (0.0, -1.0, 1e-45, 3e38, float("inf"), float("nan"))
TEXTS = (
    "",
    "x",
    "add",
    "tuple",
    "while",
    "p",
    "e",
    "f32[4]",
    "{}",
    "\0",
    "é" * 50,
    "a" * 300,
    "\u202e",
    '"',
    "LT",
    "main",
)


@cache
def samples() -> tuple[bytes, ...]:
    """Every attribute in a small module; whole modules."""
    modules = [path.read_text() for path in sorted(HERE.glob("*.hlo")) if path.stat().st_size < 6000]
    return tuple(map(serialized, [*map(around, CASES), *modules]))


class Proto(Fuzzer):
    name, suffix, seconds = "proto", ".pb", 20

    def case(self, seed: int) -> bytes:
        dice = draws(self.name, seed)
        data = dice.choice(samples())
        if dice.random() < 0.2:
            return damaged(data, dice)
        proto = message_class("HloModuleProto").FromString(data)
        for _ in range(min(dice.randint(1, 3), dice.randint(1, 3))):
            change(proto, dice)
        return bytes(proto.SerializeToString())

    def check(self, case: bytes) -> None:
        source = read_source(file_of(case, self.suffix))
        if source.module is not None:
            check_module(source.module)

    def describe(self, case: bytes) -> str:
        return f"{len(case)} bytes of a serialized module"


def change(message: Any, dice: Random) -> None:
    """Change one field of a message, or of one inside it."""
    inside = [m for field, value in message.ListFields() for m in messages(field, value)]
    if inside and dice.random() < 0.85:
        return change(dice.choice(inside), dice)
    field = dice.choice(list(message.DESCRIPTOR.fields))
    if field.is_repeated:
        items = getattr(message, field.name)
        if len(items) and dice.random() < 0.4:
            del items[dice.randrange(len(items))]
        elif len(items) > 1 and dice.random() < 0.3:
            items.append(items[dice.randrange(len(items))])
        elif field.message_type is None:
            items.insert(dice.randint(0, len(items)), value_of(field, dice))
        elif len(items):
            items.add().CopyFrom(items[dice.randrange(len(items))])
        else:
            items.add()
    elif field.message_type is not None or dice.random() < 0.3:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, value_of(field, dice))
    return None


def messages(field: Any, value: Any) -> list[Any]:
    """The messages in a field."""
    if field.message_type is None:
        return []
    return list(value) if field.is_repeated else [value]


def value_of(field: Any, dice: Random) -> Any:
    """A value for a field: of few, so that it may be of use elsewhere; one that does not fit becomes one that does."""
    if field.cpp_type == field.CPPTYPE_STRING:
        text = dice.choice(TEXTS)
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.cpp_type == field.CPPTYPE_BOOL:
        return dice.random() < 0.5
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return dice.choice(FLOATS)
    bits = 64 if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 32
    number = dice.choice(NUMBERS) % 2**bits
    signed = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_INT32)
    return number - 2**bits if signed and number >= 2 ** (bits - 1) else number
