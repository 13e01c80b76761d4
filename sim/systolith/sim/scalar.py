"""SEQ's arithmetic: 32-bit scalars as Python ints 0 .. 2^32 - 1."""

from __future__ import annotations

from collections.abc import Callable

MASK = 0xFFFFFFFF


def signed(x: int) -> int:
    """The s32 with these bits."""
    return x - (1 << 32) if x & 0x80000000 else x


ALU: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: (a + b) & MASK,
    "sub": lambda a, b: (a - b) & MASK,
    "mul": lambda a, b: (a * b) & MASK,
    "mulhu": lambda a, b: (a * b) >> 32,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: (a << (b & 31)) & MASK,
    "shr": lambda a, b: a >> (b & 31),
    "sra": lambda a, b: (signed(a) >> (b & 31)) & MASK,
    "slt": lambda a, b: int(signed(a) < signed(b)),
    "sltu": lambda a, b: int(a < b),
    "min": lambda a, b: a if signed(a) < signed(b) else b,
    "max": lambda a, b: a if signed(a) > signed(b) else b,
    "divu": lambda a, b: a // b if b else MASK,
    "remu": lambda a, b: a % b if b else a,
}

BRANCH: dict[str, Callable[[int, int], bool]] = {
    "beq": lambda a, b: a == b,
    "bne": lambda a, b: a != b,
    "blt": lambda a, b: signed(a) < signed(b),
    "bge": lambda a, b: signed(a) >= signed(b),
    "bltu": lambda a, b: a < b,
    "bgeu": lambda a, b: a >= b,
}
