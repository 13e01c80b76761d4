"""What the commands take: HLO text, a serialized HloModuleProto, a binary; some, assembly."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.proto.reader import read_proto
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.isa.asm import assemble
from systolith.isa.binary import MAGIC, load
from systolith.isa.chip import Chip
from systolith.isa.errors import AsmError, SystolithError
from systolith.isa.program import Program

# Text has none of these; a serialized module always has: the tag of the field of its computations is one.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")


STDIN = Path("-")
"""Stands for what is read from standard input."""


class SourceError(SystolithError):
    """An input file cannot be read as what it should be."""


@dataclass(frozen=True)
class Source:
    """An input: a module to compile, or a program that needs no compiling."""

    path: Path
    module: Module | None = None
    program: Program | None = None


def read_source(path: Path, left_out: bool = False) -> Source:
    """Read an input file, telling its kind from its contents; `left_out` as for `parse_hlo`.

    Raises:
        SystolithError: it is empty, cut, ill-formed, or of no known kind.
    """
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
    if not data:
        raise SourceError(f"{path}: the file is empty; expected HLO text, an HloModuleProto or a .slb binary")
    if data.startswith(MAGIC) or path.suffix == ".slb":
        return Source(path, program=load(path))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return Source(path, module=parse_proto(data, str(path)))
    if _CONTROL.search(text):
        return Source(path, module=parse_proto(data, str(path)))
    return Source(path, module=parse_module(text, str(path), left_out))


def read_assembly(path: Path, chip: Chip) -> Program:
    """Assemble a file.

    Raises:
        SystolithError: it cannot be read, or does not assemble: with the line and a caret.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SourceError(f"{path}: {reason}") from None
    try:
        return assemble(text, chip)
    except AsmError as error:
        raise AsmError(f"{path}: {error}", error.line, error.excerpt) from None


def parse_module(text: str, name: str, left_out: bool = False) -> Module:
    """Parse and verify HLO text; `left_out` as for `parse_hlo`."""
    module = parse_hlo(text, name, left_out)
    verify(module)
    return module


def parse_proto(data: bytes, name: str) -> Module:
    """Read and verify a serialized HloModuleProto, HloProto or HloSnapshot."""
    module = read_proto(data, name)
    try:
        verify(module)
    except HloError as error:  # its instructions have no line that would name the file
        raise HloError(f"{name}: {error.message}") from None
    return module
