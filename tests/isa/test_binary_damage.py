"""Errors of binaries that are wrong, though their checksum is right; tests/fuzz/slb.py damages them at random."""

from __future__ import annotations

import json
from typing import Any

import pytest

from systolith.isa.asm import assemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.errors import BinaryError, ProgramError
from systolith.isa.verify import verify_program
from tests.fuzz.slb import packed, sections
from tests.isa.test_verify import GOOD

TINY = load_chip("tiny")
DATA = to_bytes(assemble(GOOD, TINY))


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
