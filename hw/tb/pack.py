"""Instructions as the matrix unit takes them: `instr_t` of mxu_pkg.sv, as one integer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from systolith.isa.instruction import Instruction, Stream
from systolith.isa.pattern import MAX_COORDS, MAX_LOOPS, UNBOUNDED, Coord, Pattern

NO_TOKEN = 255
TOKENS_PER_INSTRUCTION = 4
OPS = {"nop": 0, "mxu.load": 1, "mxu.latch": 2, "mxu.matmul": 3}

Field = tuple[int, int]  # value, bits


def pack(fields: Sequence[Field]) -> int:
    """Fields of a packed struct, the first at the top; values may be negative.

    Raises:
        ValueError: a value that its field does not hold.
    """
    bits = 0
    for value, width in fields:
        if not -(1 << (width - 1)) <= value < 1 << width:
            raise ValueError(f"{value} does not fit {width} bits")
        bits = bits << width | value & (1 << width) - 1
    return bits


def _array(values: Sequence[int], size: int, width: int, rest: int = 0) -> list[Field]:
    """A packed array: element 0 at the bottom."""
    padded = [*values, *[rest] * (size - len(values))]
    return [(v, width) for v in reversed(padded)]


def _loops(values: Sequence[int], rest: int) -> list[Field]:
    """One value a loop; the innermost loop is the last entry, missing ones are outermost."""
    return _array([*[rest] * (MAX_LOOPS - len(values)), *values], MAX_LOOPS, 32)


def _coord(c: Coord) -> list[Field]:
    scalars = (c.offset, c.lo, c.hi, c.div, c.stride)
    return [*_loops(c.coefs, 0), *((v, 32) for v in scalars)]


_NO_COORD = Coord((), 0, *UNBOUNDED)


def _pattern(p: Pattern, base: int, bias: tuple[int, int]) -> list[Field]:
    if p.indirect >= 0:
        raise ValueError("the matrix unit has no indirect patterns")
    coords = [*p.coords, *[_NO_COORD] * (MAX_COORDS - len(p.coords))]
    return [
        (p.dtype.code, 5),
        *_array([1 << c.bias if c.bias >= 0 else 0 for c in coords], MAX_COORDS, 2),
        (p.fill & 0xFFFFFFFF, 32),
        (base, 32),
        *_array(bias, 2, 32),
        *_loops(p.counts, 1),
        *_loops(p.strides, 0),
        *(f for c in reversed(coords) for f in _coord(c)),
    ]


PATTERN_BITS = 5 + MAX_COORDS * 2 + 4 * 32 + 2 * MAX_LOOPS * 32 + MAX_COORDS * (MAX_LOOPS + 5) * 32
INSTRUCTION_BITS = 2 * TOKENS_PER_INSTRUCTION * 8 + 1 + 2 + 3 + 2 + 32 + 4 + PATTERN_BITS


def pack_instruction(instr: Instruction, patterns: Sequence[Pattern]) -> int:
    """An mxu.* or nop instruction whose operands are resolved."""
    args = instr.args

    def number(name: str) -> int:
        return cast(int, args.get(name, 0))

    fields = [
        *_array(instr.waits, TOKENS_PER_INSTRUCTION, 8, NO_TOKEN),
        *_array(instr.signals, TOKENS_PER_INSTRUCTION, 8, NO_TOKEN),
        (int(instr.fence), 1),
        (OPS[instr.op], 2),
        *((number(name), 1) for name in ("transpose", "accumulate", "integer")),
        (number("part"), 2),
        (number("acc"), 32),
    ]
    src = args.get("src")
    if not isinstance(src, Stream):
        return pack([*fields, (0, 4), (0, PATTERN_BITS)])
    pattern = patterns[src.pattern]
    row_loops = number("row_loops") + MAX_LOOPS - len(pattern.counts)
    operands = cast(int, src.base), cast(tuple[int, int], src.bias)
    return pack([*fields, (row_loops, 4), *_pattern(pattern, *operands)])
