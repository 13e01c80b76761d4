"""A program from tile IR: memory plan, instructions, tokens, labels, tables for the reports and the checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from systolith.compiler.emit.codegen import Generator, LinearOp
from systolith.compiler.emit.linearize import linearize
from systolith.compiler.emit.tokens import FINE, Ordered, Orderer
from systolith.compiler.memory.vmem import MemoryPlan
from systolith.compiler.tile.ir import Array, Block, Buf, TileModule, TileOp
from systolith.isa.access import Access, Tile, accesses, size_of
from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction, Space
from systolith.isa.opcodes import queues
from systolith.isa.program import Location, Origin, Probe, Program
from systolith.isa.verify import verify_code

MEMORIES = (Space.VMEM, Space.SMEM)


def line_bytes(chip: Chip) -> int:
    """VMEM addresses are multiples of this, and tokens tell lines of this size apart."""
    return max(32, chip.vmem.bytes >> 15)


def assemble(
    name: str, block: Block, buffers: list[Buf], plan: MemoryPlan, chip: Chip, given: bool = False
) -> tuple[Program, list[TileOp | None]]:
    """The program, and for each instruction the tile operation it was made of.

    Args:
        name: of the program.
        block: operations.
        buffers: the buffer table.
        plan: addresses.
        chip: the target.
        given: the operations are a user's, so that instructions are checked before an order is derived from them.

    Raises:
        DoesNotFitError: too many scalars are live at once, or there are too few tokens.
        ProgramError: the operations of a user break a rule of the instruction set.
    """
    linear = linearize(block)
    generator = Generator(linear, plan.address, buffers)
    lines = [*generator.run(), LinearOp(Instruction("halt"))]
    instructions, labels, boundaries = _strip(lines)
    program = Program.on(chip, name)
    program.patterns = list(generator.tables.patterns)
    program.kernels = list(generator.tables.kernels)
    program.buffers = [b.decl for b in buffers if b.decl is not None]
    program.vmem_high_water = plan.high_water
    if given:
        verify_code(instructions, program, chip)
    ordered = _order(instructions, boundaries, program, chip)
    program.tokens = ordered.tokens
    real = [line for line in lines if line.instruction is not None]
    origins: dict[Origin, int] = {}
    ops: list[TileOp | None] = []
    for instruction, source in zip(ordered.instructions, ordered.sources, strict=True):
        line = real[source] if source >= 0 else LinearOp(instruction, Origin(what="join"))
        if line.target:
            target = ordered.entries[labels[line.target]]
            instruction = replace(instruction, args={**instruction.args, "target": target})
        program.code.append(instruction)
        program.debug.append(origins.setdefault(line.origin, len(origins)))
        ops.append(line.op)
    program.origins = list(origins)
    return program, ops


def _strip(lines: Sequence[LinearOp]) -> tuple[list[Instruction], dict[str, int], frozenset[int]]:
    """Instructions, the index each label stands before, and where SEQ has to join the queues."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    boundaries: set[int] = set()
    for line in lines:
        if line.instruction is None:
            labels[line.label] = len(instructions)
            boundaries.add(len(instructions))
            continue
        if line.target or line.instruction.op == "halt":
            boundaries.add(len(instructions))
        instructions.append(line.instruction)
    return instructions, labels, frozenset(boundaries)


def _order(instructions: list[Instruction], boundaries: frozenset[int], program: Program, chip: Chip) -> Ordered:
    def touches(instruction: Instruction) -> Iterable[Access]:
        return accesses(instruction, program, chip)

    sizes: dict[tuple[int, int], int] = {(int(s), 0): size_of(s, 0, program, chip) for s in MEMORIES}
    for unit in range(chip.mxu.count):
        sizes[(int(Space.ACC), unit)] = size_of(Space.ACC, unit, program, chip)
        sizes |= {(int(t), unit): 1 for t in Tile}
    for number, decl in enumerate(program.buffers):
        sizes[(int(Space.HBM), number)] = decl.bytes
    fine = FINE | {int(Space.VMEM): line_bytes(chip).bit_length() - 1}
    return Orderer(queues(chip), touches, sizes, chip.token.max, chip.fifo.depth, fine).run(instructions, boundaries)


def probes(tile: TileModule, ops: Sequence[TileOp | None], plan: MemoryPlan) -> list[Probe]:
    """For each group record, where operands lie before it and results after it.

    Args:
        tile: what the program is made of.
        ops: the operation of each instruction.
        plan: addresses.
    """
    position = {op: n for n, op in enumerate(ops) if op is not None}
    numbers = {b: n for n, b in enumerate(tile.buffers)}
    return [
        Probe(
            record.name,
            position[record.first],
            position[record.last],
            tuple(_location(name, a, plan, numbers) for name, a in record.inputs),
            tuple(_location(name, a, plan, numbers) for name, a in record.outputs),
        )
        for record in tile.records
    ]


def _location(name: str, array: Array, plan: MemoryPlan, numbers: dict[Buf, int]) -> Location:
    in_hbm = array.buf.space == Space.HBM
    return Location(
        name,
        "hbm" if in_hbm else "vmem",
        numbers[array.buf] if in_hbm else 0,
        array.offset + (0 if in_hbm else plan.address.get(array.buf, 0)),
        array.dtype.name,
        array.dims,
        array.strides,
    )
