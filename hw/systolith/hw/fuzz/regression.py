"""Cases as files: assembly, with contents of memories in comments of their own, 32 bytes a line.

#: vmem 0 0x1f40 00000000aabbccdd...          space, number (of the buffer or queue), address, bytes
"""

from __future__ import annotations

import re
from pathlib import Path

from systolith.hw.fuzz.case import Case, Piece
from systolith.isa.asm import assemble, disassemble
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space

_LINE = re.compile(r"#: (\w+) (\d+) (0x[0-9a-f]+) ([0-9a-f]+)")
_BYTES = 32


def _data_lines(piece: Piece) -> list[str]:
    """Lines of bytes; those that are zero are left out, but not in queues."""
    lines = []
    for at in range(0, len(piece.data), _BYTES):
        data = piece.data[at : at + _BYTES]
        if any(data) or piece.space is Space.HOST:
            lines.append(f"#: {piece.space.name.lower()} {piece.number} {piece.address + at:#x} {data.hex()}")
    return lines


def to_text(case: Case, why: str = "") -> str:
    """A case as text; `why`: its purpose."""
    comments = [f"# {line}" for line in why.splitlines()]
    data = [line for piece in case.pieces for line in _data_lines(piece)]
    # The chip is whoever's that replays it.
    code = [line for line in disassemble(case.program).splitlines() if not line.startswith(".chip ")]
    return "\n".join([*comments, *data, *code]) + "\n"


def from_text(text: str, chip: Chip) -> Case:
    """The case that a text holds.

    Raises:
        AsmError: it does not assemble.
    """
    pieces = []
    for space, number, address, data in _LINE.findall(text):
        pieces.append(Piece(Space[space.upper()], int(number), int(address, 16), bytes.fromhex(data)))
    program = assemble(text, chip)
    return Case(program.name, program, chip, tuple(pieces))


def save(case: Case, path: Path, why: str = "") -> None:
    """Write a case to a file."""
    path.write_text(to_text(case, why), encoding="utf-8")


def load(path: Path, chip: Chip) -> Case:
    """Read a case from a file.

    Raises:
        AsmError: it does not assemble.
    """
    return from_text(path.read_text(encoding="utf-8"), chip)
