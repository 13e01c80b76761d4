"""Decision traces as files: the values that a run read into scalar registers, so that mode `time` can follow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from systolith.isa.chip_fields import Ge, Le
from systolith.isa.errors import BinaryError, SystolithError
from systolith.isa.files import json_text, read_bytes, text_fill, write_atomic
from systolith.isa.json_values import read_json
from systolith.isa.program import Program


class DecisionsError(SystolithError):
    """A file holds no decision trace, or that of another program."""


@dataclass(frozen=True)
class _Trace:
    """The contents of a file."""

    program: str
    chip_digest: str
    instructions: int
    decisions: list[Annotated[int, Ge(0), Le(2**32 - 1)]]


def save_decisions(path: Path, program: Program, decisions: Sequence[int]) -> None:
    """Write the decision trace of a run of `program` (one 32-bit word for each `lds` executed).

    Raises:
        OutputError: the file cannot be written.
    """
    about = {"program": program.name, "chip_digest": program.chip_digest, "instructions": len(program.code)}
    text = json_text(about | {"decisions": list(decisions)})
    write_atomic(path, text_fill(text))


def load_decisions(path: Path, program: Program) -> list[int]:
    """Read the decision trace of a run of `program`.

    Raises:
        DecisionsError: the file cannot be read, is no decision trace, or is that of another program.
    """
    try:
        trace = read_json(read_bytes(path, DecisionsError), _Trace)
    except BinaryError as error:
        raise DecisionsError(f"{path}: not a decision trace: {error}") from None
    recorded = (trace.program, trace.chip_digest, trace.instructions)
    if recorded != (program.name, program.chip_digest, len(program.code)):
        raise DecisionsError(
            f"{path}: of program {trace.program} ({trace.instructions} instructions, chip {trace.chip_digest}), "
            f"not of {program.name} ({len(program.code)} instructions, chip {program.chip_digest})"
        )
    return trace.decisions
