"""Binaries that are wrong, though their checksum is right: refused in words, by the loader or by the verifier."""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import VERSION, from_bytes, to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.errors import BinaryError, ProgramError, SystolithError
from systolith.isa.verify import verify_program
from tests.isa.test_verify import GOOD

TINY = load_chip("tiny")
DATA = to_bytes(assemble(GOOD, TINY))
_ENTRY = struct.Struct("<4sQ")


def sections(data: bytes) -> list[list[bytes]]:
    """[name, contents] of each section."""
    (count,) = struct.unpack_from("<I", data, 16)
    at, out = 20 + 12 * count, []
    for i in range(count):
        name, length = _ENTRY.unpack_from(data, 20 + 12 * i)
        out.append([name, data[at : at + length]])
        at += length
    return out


def packed(parts: list[list[bytes]]) -> bytes:
    """A file with a right checksum."""
    table = b"".join(_ENTRY.pack(name, len(body)) for name, body in parts)
    rest = struct.pack("<I", len(parts)) + table + b"".join(body for _, body in parts)
    return struct.pack("<8sII", b"SYSTOLTH", VERSION, zlib.crc32(rest)) + rest


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a JSON value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [here, *(p for k in keys for p in places(value[k], (*here, k)))]


def changed(meta: Any, r: Random) -> Any:
    """JSON with one value deleted or replaced."""
    path = r.choice(places(meta))
    new: Any = r.choice([None, -1, 0, 10**30, 1.5, "", "x", [], {}, [1], {"a": 1}, True, 2**31, [[]]])
    if not path:
        return new
    inside = meta
    for key in path[:-1]:
        inside = inside[key]
    if r.random() < 0.2:
        del inside[path[-1]]
    else:
        inside[path[-1]] = new
    return meta


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_any_damage_is_refused_in_words_or_harmless(seed: int) -> None:
    r, parts = Random(seed), sections(DATA)
    if r.random() < 0.5:
        parts[-1][1] = json.dumps(changed(json.loads(parts[-1][1]), r)).encode()
    else:
        part = r.choice([p for p in parts if p[1]])
        body = bytearray(part[1])
        for _ in range(r.choice([1, 1, 2, 5])):
            body[r.randrange(len(body))] ^= 1 << r.randrange(8)
        part[1] = bytes(body)
    with contextlib.suppress(SystolithError):
        program = from_bytes(packed(parts))
        disassemble(program)
        verify_program(program, TINY)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("debug", [0], "debug map of 1"),
        ("debug", ["x"], "META.*debug.0"),
        ("vmem_high_water", -1, "META.*vmem_high_water"),
        ("tokens", [["vpu"]], "META.*tokens.0"),
    ],
)
def test_what_the_loader_says(key: str, value: Any, message: str) -> None:
    parts = sections(DATA)
    parts[-1][1] = json.dumps(json.loads(parts[-1][1]) | {key: value}).encode()
    with pytest.raises(BinaryError, match=message):
        from_bytes(packed(parts))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"dtype": "f33"}, "no element type f33"), ({"dims": [4, 9]}, r"f32\[4, 9\] takes 144 bytes: it has 128")],
)
def test_what_the_verifier_says_of_a_buffer(change: dict[str, Any], message: str) -> None:
    parts = sections(DATA)
    meta = json.loads(parts[-1][1])
    meta["buffers"][0] |= change
    parts[-1][1] = json.dumps(meta).encode()
    with pytest.raises(ProgramError, match=message):
        verify_program(from_bytes(packed(parts)), TINY)
