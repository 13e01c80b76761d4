"""Binaries: their words, their description, their sections; checksums made right again."""

from __future__ import annotations

import json
import struct
import zlib
from functools import cache
from random import Random

from systolith.compiler.driver import compile_module
from systolith.isa.binary import VERSION, to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.program import Program
from systolith.isa.verify import verify_program
from systolith.runtime.inputs.sources import parse_module, read_source
from systolith.sim.simulate import simulate
from tests.corpus.load import HERE
from tests.fuzz.assembler import check_program
from tests.fuzz.assembler import samples as assembly
from tests.fuzz.damage import changed, damaged
from tests.fuzz.files import file_of
from tests.fuzz.fuzzer import Fuzzer, draws

MODULES = ("bf16_dot_f32", "cond_switch", "cumsum_reduce_window", "reduce_variants")
MOST_CYCLES = 20_000
WORDS = (0, 1, 2, 7, 8, 63, 64, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_ENTRY = struct.Struct("<4sQ")


def sections(data: bytes) -> list[list[bytes]]:
    """[name, contents] of each section of a binary."""
    (count,) = struct.unpack_from("<I", data, 16)
    at, out = 20 + 12 * count, []
    for i in range(count):
        name, length = _ENTRY.unpack_from(data, 20 + 12 * i)
        out.append([name, data[at : at + length]])
        at += length
    return out


def packed(parts: list[list[bytes]]) -> bytes:
    """A binary with a right checksum."""
    table = b"".join(_ENTRY.pack(name, len(body)) for name, body in parts)
    rest = struct.pack("<I", len(parts)) + table + b"".join(body for _, body in parts)
    return struct.pack("<8sII", b"SYSTOLTH", VERSION, zlib.crc32(rest)) + rest


@cache
def samples() -> tuple[bytes, ...]:
    """Programs by hand, and the compiler's from modules."""
    from systolith.isa.asm import assemble

    tiny = load_chip("tiny")
    made: list[Program] = [assemble(text, tiny) for text in assembly()]
    for name in MODULES:
        made.append(compile_module(parse_module((HERE / f"{name}.hlo").read_text(), name), tiny).program)
    return tuple(map(to_bytes, made))


class Slb(Fuzzer):
    name, suffix = "slb", ".slb"

    def case(self, seed: int) -> bytes:
        dice = draws(self.name, seed)
        data = dice.choice(samples())
        if dice.random() < 0.1:
            return damaged(data, dice)
        parts = sections(data)
        for _ in range(min(dice.randint(1, 3), dice.randint(1, 3))):
            _change(parts, dice)
        return packed(parts)

    def check(self, case: bytes) -> None:
        chip = load_chip("tiny")
        program = read_source(file_of(case, self.suffix)).program
        assert program is not None
        verify_program(program, chip)
        check_program(program)
        simulate(program, chip, hostile=True, max_cycles=MOST_CYCLES)

    def describe(self, case: bytes) -> str:
        return f"{len(case)} bytes of a binary"


def _change(parts: list[list[bytes]], dice: Random) -> None:
    """Change one section, or the list of them."""
    act = dice.random()
    if act < 0.4:
        for part in parts:
            if part[0] == b"META":
                part[1] = json.dumps(changed(json.loads(part[1]), dice)).encode()
        return
    part = dice.choice([p for p in parts if p[1] and p[0] != b"META"])
    if act < 0.5:
        part[1] = damaged(part[1], dice)
    elif act < 0.55:
        parts[:] = [p for p in parts if p is not part] if act < 0.53 else [*parts, [*part]]
    else:
        body = bytearray(part[1])
        at = 4 * dice.randrange(max(1, len(body) // 4))
        (word,) = struct.unpack_from("<I", body.ljust(at + 4, b"\0"), at)
        new = dice.choice(WORDS) if dice.random() < 0.4 else word ^ 1 << dice.randrange(32)
        body[at : at + 4] = struct.pack("<I", new)
        part[1] = bytes(body)
