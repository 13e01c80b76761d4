"""Input files of the commands: HLO text, a serialized HloModuleProto, StableHLO, a binary; some, assembly."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from systolith.isa.binary import MAGIC, load
from systolith.isa.checked import checked
from systolith.isa.chip import Chip, load_chip, preset_names, variant
from systolith.isa.errors import AsmError, SystolithError
from systolith.isa.files import read_bytes, read_text
from systolith.isa.program import Program
from systolith.runtime.inputs.stablehlo import is_mlir, is_mlir_text, proto_of_mlir

if TYPE_CHECKING:  # the compiler takes long to import, and binaries do without it
    from systolith.compiler.hlo.ir import Module

# Text has none of these; a serialized module always has: the tag of the field of its computations is one.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")


_CHIP_LINE = re.compile(r"^\s*\.chip\s+(\w+)", re.MULTILINE)
ASSEMBLY_CHIP = "tiny"

FORMS = "HLO text, an HloModuleProto, StableHLO"

IMPORTED = (".onnx", ".csv")
"""Ends of the names of other tools' models, of which `systolith import` makes modules."""

STDIN = Path("-")
"""Stands for the contents of standard input."""


class SourceError(SystolithError):
    """An input file cannot be read as its format."""


@dataclass(frozen=True)
class Source:
    """An input: a module to compile, or a program that needs no compiling."""

    path: Path
    module: Module | None = None
    program: Program | None = None


def read_source(path: Path) -> Source:
    """Read an input file: a binary, or a module as `parse_module` takes it.

    Raises:
        SystolithError: it is empty, cut, ill-formed, or of no known kind.
    """
    data = sys.stdin.buffer.read() if path == STDIN else read_bytes(path, SourceError)
    if not data:
        raise SourceError(f"{path}: the file is empty; expected {FORMS} or a .slb binary")
    if data.startswith(MAGIC) or path.suffix == ".slb":
        return Source(path, program=load(path))
    return Source(path, module=parse_module(data, str(path)))


def read_given(path: Path) -> str:
    """The text of a file, or of standard input for `-`.

    Raises:
        SourceError: it cannot be read, or is no UTF-8.
    """
    if path != STDIN:
        return read_text(path, SourceError)
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"stdin: {error}") from None


def elided_note(module: Module | None) -> str:
    """A note that constants whose values the text leaves out are zeros; empty if there are none."""
    count = sum(i.opcode == "constant" and i.literal is None for i in module.instructions()) if module else 0
    are = "constant is zeros: the text leaves its" if count == 1 else "constants are zeros: the text leaves their"
    return f"{count} {are} values out ('{{...}}')" if count else ""


def read_runnable(
    path: Path, chip: Chip | str | None, default: str, changes: Mapping[str, Any] | None = None
) -> tuple[Source, Chip]:
    """Read an input file to run it, assembly (`.s`) too, and say on which chip.

    Args:
        path: the file.
        chip: a configuration, or the name or file of one; None: the chip that a binary or assembly is for.
        default: preset for a module.
        changes: other values of fields of the chip.

    Raises:
        SystolithError: as for `read_source`; there is no such chip; the binary does not name its chip.
    """
    given = load_chip(chip) if isinstance(chip, str) else chip
    if path.suffix == ".s":
        if changes:
            given = variant(given or assembly_chip(read_text(path, SourceError)), changes)
        program = read_assembly(path, given)
        return Source(path, program=program), own_chip(program)
    source = read_source(path)
    if given is None:
        given = own_chip(source.program) if source.program is not None else load_chip(default)
    return source, variant(given, changes) if changes else given


def own_chip(program: Program) -> Chip:
    """The chip that a program is for.

    Raises:
        SourceError: only its name is known.
    """
    if program.target is None:
        raise SourceError(
            f"{program.name} is for chip {program.chip} {program.chip_digest}, whose values the binary does not hold:"
            " give that chip with --chip"
        )
    return program.target


def read_assembly(path: Path, chip: Chip | None) -> Program:
    """Assemble a file for a chip; None: for the preset that its `.chip` names, else for `tiny`.

    Raises:
        SystolithError: it cannot be read, or does not assemble: with the line and a caret.
    """
    from systolith.isa.asm import assemble  # late: binaries do without it

    text = read_text(path, SourceError)
    try:
        return assemble(text, chip or assembly_chip(text))
    except AsmError as error:
        raise AsmError(f"{path}: {error}", error.line, error.excerpt) from None


def assembly_chip(text: str) -> Chip:
    """The chip of assembly: the preset that its `.chip` names, else `tiny`."""
    named = _CHIP_LINE.search(text)
    return load_chip(named[1] if named and named[1] in preset_names() else ASSEMBLY_CHIP)


@checked
def parse_module(data: str | bytes, name: str = "<string>") -> Module:
    """Read and verify a module, telling the form from the contents; constants of text may have no values (`{...}`).

    Args:
        data: HLO text, a serialized HloModuleProto, or StableHLO or VHLO (text, bytecode, portable artifact, what
            `jax.export` serializes), which JAX has to be installed for.
        name: of the source, for messages.

    Raises:
        SystolithError: it is empty, cut, ill-formed, or of no known form.
    """
    if name.endswith(IMPORTED):
        raise SourceError(
            f"{name}: a model of another tool: `systolith import {name} -o MODULE.hlo` makes a module of it"
        )
    text = data if isinstance(data, str) else _text(data)
    if text is None:
        assert isinstance(data, bytes)
        return parse_proto(_converted(data, name) if is_mlir(data) else data, name)
    if is_mlir_text(text):
        return parse_proto(proto_of_mlir(text.encode(), name), name)
    from systolith.compiler.hlo.rules.verifier import verify
    from systolith.compiler.hlo.text.parser import parse_hlo
    from systolith.runtime.inputs.source_lines import mark

    module = parse_hlo(text, name, left_out=True)
    mark(module)
    verify(module)
    return module


def _converted(data: bytes, name: str) -> bytes:
    from systolith.runtime.inputs.stablehlo_apart import converted_apart

    return converted_apart(data, name)


def _text(data: bytes) -> str | None:
    """The text that data is; None: it is none."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def parse_proto(data: bytes, name: str = "jax") -> Module:
    """Read and verify a serialized HloModuleProto, HloProto or HloSnapshot; instructions know their lines of Python."""
    from systolith.compiler.hlo.errors import HloError
    from systolith.compiler.hlo.proto.reader import read_proto
    from systolith.compiler.hlo.rules.verifier import verify
    from systolith.runtime.inputs.source_lines import mark

    module = read_proto(data, name)
    mark(module)
    try:
        verify(module)
    except HloError as error:  # its instructions have no line that would name the file
        raise HloError(f"{name}: {error.message}") from None
    return module
