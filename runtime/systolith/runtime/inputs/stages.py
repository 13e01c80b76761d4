"""Stages of a compilation, to go on from: files of `compile --dump-dir`, read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from systolith.compiler.driver import Assembled, Front, Stages, compile_groups, compile_module, compile_tile
from systolith.compiler.hlo.ir import Module
from systolith.compiler.memory.report import MemoryUse
from systolith.compiler.ops.group import read_groups
from systolith.compiler.options import Options
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.isa.asm import disassemble
from systolith.isa.chip import Chip
from systolith.isa.errors import SystolithError
from systolith.isa.verify import verify_program
from systolith.runtime.inputs.sources import elided_note, parse_module, read_assembly, read_given, read_source


class Resumed(NamedTuple):
    """A program that was made from a stage, and a note about constants without values."""

    assembled: Assembled
    note: str = ""


LOWERED = ("tile", "assembly")
"""Stages in which no option of a compilation has anything to choose."""


def compile_from(stage: str, path: Path, chip: Chip, options: Options) -> Resumed:
    """Compile a file that is a stage of a compilation.

    Args:
        stage: a name in `STAGES`.
        path: the file.
        chip: the target, which is the one that earlier stages were for.
        options: those that apply from this stage on.

    Raises:
        SystolithError: the file is not that stage, or cannot be compiled.
    """
    if stage in LOWERED:
        names = (f"--{f.name.replace('_', '-')}" for f in fields(Options) if getattr(options, f.name) != f.default)
        if late := ", ".join(names):
            raise SystolithError(f"{late}: has nothing to choose with --from {stage}: instructions are there already")
    return STAGES[stage](path, chip, options)


def _hlo(path: Path, chip: Chip, options: Options) -> Resumed:
    source = read_source(path)
    if source.module is None:
        raise SystolithError(f"{path}: is a binary already")
    note = elided_note(source.module)
    return Resumed(compile_module(source.module, chip, options), note)


def _canonical(path: Path, chip: Chip, options: Options) -> Resumed:
    module = _module(path)
    return Resumed(Front(module, canonical=True).compile(chip, options), elided_note(module))


def _grouped(path: Path, chip: Chip, options: Options) -> Resumed:
    module = read_groups(_module(path))
    return Resumed(compile_groups(module, chip, options), elided_note(module))


def _module(path: Path) -> Module:
    return parse_module(read_given(path), str(path))


def _tile(path: Path, chip: Chip, options: Options) -> Resumed:
    return Resumed(compile_tile(parse_tile_ir(read_given(path), str(path)), chip))


def _assembly(path: Path, chip: Chip, options: Options) -> Resumed:
    program = read_assembly(path, chip)
    verify_program(program, chip)
    return Resumed(Assembled(program, Stages({"program.s": lambda: disassemble(program)}), MemoryUse(program)))


STAGES: dict[str, Callable[[Path, Chip, Options], Resumed]] = {
    "hlo": _hlo,
    "canonical": _canonical,
    "grouped": _grouped,
    "tile": _tile,
    "assembly": _assembly,
}
"""Compilation from a stage's file: a module, `canonical.hlo`, `grouped.hlo`, `tile.txt` or `program.s`."""
