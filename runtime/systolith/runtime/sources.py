"""What the commands take: HLO text, a serialized HloModuleProto, a binary; some, assembly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.parser import parse_hlo
from systolith.compiler.hlo.verifier import verify
from systolith.isa.asm import assemble
from systolith.isa.binary import MAGIC, load
from systolith.isa.chip import Chip
from systolith.isa.errors import AsmError, SystolithError
from systolith.isa.program import Program


class SourceError(SystolithError):
    """An input file cannot be read as what it should be."""


@dataclass(frozen=True)
class Source:
    """An input: a module to compile, or a program that needs no compiling."""

    path: Path
    module: Module | None = None
    program: Program | None = None


def read_source(path: Path) -> Source:
    """Read an input file, telling its kind from its contents.

    Raises:
        SystolithError: it is empty, cut, ill-formed, or of no known kind.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
    if not data:
        raise SourceError(f"{path}: the file is empty; expected HLO text, an HloModuleProto or a .slb binary")
    if data.startswith(MAGIC) or path.suffix == ".slb":
        return Source(path, program=load(path))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is None or "\0" in text:
        text = text_of_proto(path, data)
    return Source(path, module=parse_module(text, str(path)))


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


def parse_module(text: str, name: str) -> Module:
    """Parse and verify HLO text."""
    module = parse_hlo(text, name)
    verify(module)
    return module


def text_of_proto(path: Path, data: bytes) -> str:
    """HLO text of a serialized HloModuleProto, through jaxlib.

    Raises:
        SourceError: jaxlib is not installed, or the bytes are no HloModuleProto.
    """
    try:
        from jaxlib import _hlo  # type: ignore[attr-defined]
    except ImportError:
        raise SourceError(
            f"{path}: a binary HloModuleProto needs jaxlib to read: pip install 'systolith[jax]'"
        ) from None
    try:
        text = _hlo.XlaComputation(data).as_hlo_text(print_large_constants=True)
    except Exception as error:  # jaxlib raises its own types, of which none is public
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SourceError(f"{path}: neither HLO text nor a readable HloModuleProto: {reason}") from None
    if not isinstance(text, str) or not text.strip():
        raise SourceError(f"{path}: neither HLO text nor a readable HloModuleProto")
    return text
