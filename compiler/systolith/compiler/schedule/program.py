"""The program of tile IR in its final order: addresses, instructions and tokens, predicted cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from systolith.compiler.emit.assemble import Emitted, assemble, probes
from systolith.compiler.emit.known_programs import KnownPrograms
from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.memory.vmem import MemoryPlan
from systolith.compiler.schedule.fitting import memory_plan
from systolith.compiler.schedule.predict import predict
from systolith.compiler.tile.ir import TileModule
from systolith.isa.chip import Chip
from systolith.isa.program import GroupInfo, Program
from systolith.isa.verify import verify_program


def program_of(
    tile: TileModule, chip: Chip, plan: MemoryPlan, given: bool = False, known: KnownPrograms | None = None
) -> Emitted:
    """The program of a module, and how it was made.

    Args:
        tile: the module.
        chip: the target.
        plan: addresses of its buffers.
        given: its text is a user's; see `assemble`.
        known: programs that may be the same.

    Returns:
        It, with groups of which no cycles are predicted, and not checked yet: see `complete`.

    Raises:
        CompileError: it asks for more registers or tokens than there are.
        ProgramError: it breaks a rule of the instruction set.
    """

    def make(chip: Chip) -> Emitted:
        return assemble(tile.name, tile.block, tile.buffers, plan, chip, given)

    made = make(chip) if known is None else known.get(tile, plan, chip, make)
    made.program.probes = probes(tile, made, plan)
    made.program.groups = tile.groups
    return made


def complete(program: Program, chip: Chip) -> None:
    """Check a program, and predict the cycles of its groups.

    Raises:
        ProgramError: it breaks a rule of the instruction set.
    """
    verify_program(program, chip)
    program.groups = predicted(program.groups, program, chip)


def predicted(groups: Sequence[GroupInfo], program: Program, chip: Chip) -> list[GroupInfo]:
    """Groups with the cycles that are predicted of a program's code."""
    cycles = {name: round(p.cycles) for name, p in predict(program, chip).items()}
    return [replace(g, predicted=cycles.get(g.name, 0) * g.executions) for g in groups]


def planned(tile: TileModule, chip: Chip) -> MemoryPlan:
    """Addresses of a module's buffers.

    Raises:
        DoesNotFitError: a buffer has no place.
    """
    plan = memory_plan(tile.block, tile.whole, chip)
    if plan.failed is not None:
        buf = plan.failed.value
        raise DoesNotFitError(
            f"module {tile.name!r}: buffer {buf.name!r} of {buf.bytes} bytes has no place in the {buf.space.name} of"
            f" chip {chip.name!r}"
        )
    return plan
