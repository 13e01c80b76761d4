"""A program from tile IR: memory plan, instructions, tokens, labels, tables for the reports and the checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from systolith.compiler.emit.codegen import Generator, LinearOp
from systolith.compiler.emit.linearize import SCRATCH, linearize
from systolith.compiler.emit.loops import Span
from systolith.compiler.emit.overlap import INNER, ordered
from systolith.compiler.emit.routines import RoutineTokens
from systolith.compiler.emit.tokens import FINE, Ordered, Orderer
from systolith.compiler.explain import Decision
from systolith.compiler.memory.vmem import MemoryPlan
from systolith.compiler.tile.ir import Array, Block, Buf, Ref, TileModule, TileOp, VReg
from systolith.isa.access import Access, Tile, accesses, memory_of, size_of
from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction, Reg, Space, Stream, Value
from systolith.isa.opcodes import queues
from systolith.isa.program import Location, Origin, Probe, Program
from systolith.isa.verify import verify_code

MEMORIES = (Space.VMEM, Space.SMEM)

UNKNOWN = -1
"""The count of a loop that is in a register."""


class Emitted(NamedTuple):
    """A program, and how it was made.

    Attributes:
        program: it.
        ops: for each instruction the tile operation it was made of.
        decisions: the loops whose iterations do not overlap.
    """

    program: Program
    ops: list[TileOp | None]
    decisions: list[Decision]


def line_bytes(chip: Chip) -> int:
    """VMEM addresses are multiples of this power of two, and tokens tell lines of this size apart."""
    return max(32, 1 << max(0, chip.vmem.bytes.bit_length() - 16))


def assemble(name: str, block: Block, buffers: list[Buf], plan: MemoryPlan, chip: Chip, given: bool = False) -> Emitted:
    """The program.

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
    generator = Generator(linear, plan.address, buffers, chip)
    lines = [*generator.run(), LinearOp(Instruction("halt"))]
    stripped = _strip(lines)
    program = Program.on(chip, name)
    program.patterns = list(generator.tables.patterns)
    program.kernels = list(generator.tables.kernels)
    program.buffers = [b.decl for b in buffers if b.decl is not None] + generator.tables.entries
    program.vmem_high_water = plan.high_water
    if given:
        verify_code(stripped.instructions, program, chip)
    result, joined = _order(stripped, program, chip)
    program.tokens = result.tokens
    real = [line for line in lines if line.instruction is not None]
    origins: dict[Origin, int] = {}
    ops: list[TileOp | None] = []
    why = {span.head: (span, reason) for span, reason in joined.items() if reason}
    decisions: list[Decision] = []
    sourced = [real[n] if n >= 0 else None for n in result.sources]
    places = [*accumulate((_length(line) for line in sourced), initial=0)]
    routine_tokens = RoutineTokens(program.tokens)
    for number, (instruction, source) in enumerate(zip(result.instructions, result.sources, strict=True)):
        line = sourced[number] or LinearOp(instruction, Origin(what="join"))
        if line.target:
            target = places[result.entries[stripped.labels[line.target]]]
            instruction = replace(instruction, args={**instruction.args, "target": target})
        elif line.loop:
            instruction = replace(instruction, args={**instruction.args, "end": places[result.ends[source]]})
            if source in why:
                decisions.append(_joined(*why[source], len(program.code), line.origin))
        code = line.routine.placed(places[number], routine_tokens) if line.routine else [instruction]
        program.code += code
        program.debug += [origins.setdefault(line.origin, len(origins))] * len(code)
        ops += [None if line.op is None else linear.sources.get(line.op, line.op)] * len(code)
    program.origins = list(origins)
    return Emitted(program, ops, decisions)


def _length(line: LinearOp | None) -> int:
    """How many instructions a line becomes."""
    return len(line.routine.code) if line is not None and line.routine is not None else 1


def _joined(span: Span, why: str, place: int, origin: Origin) -> Decision:
    count = "all" if span.count == UNKNOWN else f"the {span.count:,}"
    what = f"SEQ joins the queues after each of {count} iterations of the loop at instruction {place}"
    return Decision("repeat", origin.group, what, why)


@dataclass
class _Line:
    """Instructions without labels.

    Attributes:
        instructions: in order.
        labels: the index that each stands before.
        boundaries: where SEQ has to join the queues.
        spans: loops.
        joined: loops of unknown counts, and those with labels, jumps or joined loops in them, each with the reason: SEQ
            joins the queues after each iteration.
    """

    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    boundaries: set[int] = field(default_factory=set)
    spans: list[Span] = field(default_factory=list)
    joined: dict[Span, str] = field(default_factory=dict)


def _strip(lines: Sequence[LinearOp]) -> _Line:
    """Instructions, and where loops and labels lie among them."""
    line = _Line()
    heads: list[int] = []
    divided: set[int] = set()  # heads of loops with a boundary in them: of a label, a jump, or a loop that is joined
    for op in lines:
        at = len(line.instructions)
        if op.target or op.label or (op.instruction is not None and op.instruction.op == "halt"):
            line.boundaries.add(at)
            divided |= set(heads)
        if op.routine is not None:
            line.boundaries |= {at, at + 1}
            divided |= set(heads)
        if op.instruction is None:
            if op.loop:
                if _close(line, heads.pop(), divided):
                    divided |= set(heads)
            else:
                line.labels[op.label] = at
            continue
        if op.loop:
            heads.append(at)
        line.instructions.append(op.instruction)
    return line


def _close(line: _Line, head: int, divided: Collection[int]) -> bool:
    """Note the loop that ends here; whether SEQ joins the queues after each of its iterations."""
    count = line.instructions[head].args["count"]
    span = Span(head, head + 1, len(line.instructions), count if isinstance(count, int) else UNKNOWN)
    line.spans.append(span)
    if span.count < 2:
        line.joined[span] = "its count is in a register" if span.count == UNKNOWN else ""
    elif head in divided:
        line.joined[span] = INNER
    return span in line.joined


def _order(line: _Line, program: Program, chip: Chip) -> tuple[Ordered, dict[Span, str]]:
    """The order of instructions, and the loops of several iterations that do not overlap, each with the reason."""
    stacks = _stacks_of_buffers(program)

    def touches(instruction: Instruction) -> Iterable[Access]:
        """What it touches; buffers of a stack are ordered as one, or each load would be of as many as there are."""
        if not stacks:
            return accesses(instruction, program, chip)
        first = _of_first_entry(instruction, program, stacks)
        return [
            a._replace(buffer=stacks[a.buffer]) if a.space is Space.HBM and a.buffer in stacks else a
            for a in accesses(first, program, chip)
        ]

    sizes: dict[tuple[int, int], int] = {(int(s), 0): size_of(s, 0, program, chip) for s in MEMORIES}
    for unit in range(chip.mxu.count):
        sizes[(int(Space.ACC), unit)] = size_of(Space.ACC, unit, program, chip)
        sizes |= {(int(t), unit): 1 for t in Tile}
    for number, decl in enumerate(program.buffers):
        sizes[(int(Space.HBM), number)] = decl.bytes
    fine = FINE | {int(Space.VMEM): line_bytes(chip).bit_length() - 1}
    orderer = partial(Orderer, queues(chip), touches, sizes, chip.token.max, chip.fifo.depth, fine)
    return ordered(orderer, line.instructions, frozenset(line.boundaries), line.spans, line.joined)


def _stacks_of_buffers(program: Program) -> dict[int, int]:
    """Buffers that are parts of a stack, and the first of each stack's."""
    found: dict[int, int] = {}
    for n, b in enumerate(program.buffers):
        if b.stack > 1:
            owners = [memory_of(n + k, program) for k in range(b.stack)]
            if len(set(owners)) == b.stack:
                found |= dict.fromkeys(owners, owners[0])
    return found


def _of_first_entry(instruction: Instruction, program: Program, stacks: Collection[int]) -> Instruction:
    """The instruction with the first entry for those in registers, of stacks of buffers."""

    def first(value: Value) -> Value:
        if isinstance(value, Stream) and value.entry and memory_of(value.buffer, program) in stacks:
            return replace(value, entry=0)
        return value

    if not any(isinstance(v, Stream) and v.entry for v in instruction.args.values()):
        return instruction
    return replace(instruction, args={name: first(value) for name, value in instruction.args.items()})


def probes(tile: TileModule, made: Emitted, plan: MemoryPlan) -> list[Probe]:
    """For each group record, where operands lie before it and results after it.

    Args:
        tile: what the program is made of.
        made: the program.
        plan: addresses.
    """
    table, code = made.program.buffers, made.program.code
    at: dict[TileOp, list[int]] = defaultdict(list)
    for n, op in enumerate(made.ops):
        if op is not None:
            at[op].append(n)
    numbers = {b.name: n for n, b in enumerate(tile.buffers)}
    numbers |= {b.name.removesuffix("[0]"): n for n, b in enumerate(table) if b.stack > 1 and b.alias >= 0}

    def copies(op: TileOp) -> list[list[int]]:
        """The instructions of an operation: what is written out before a loop, too, has them more than once."""
        places = at[op]
        times = max(1, sum(code[n].op == op.op for n in places))
        return [places[k * len(places) // times : (k + 1) * len(places) // times] for k in range(times)]

    return [
        Probe(
            record.name,
            first[0],
            last[-1],
            tuple(_location(name, a, plan, numbers) for name, a in record.inputs),
            tuple(
                _location(name, a, plan, numbers, _register(a, made, range(first[0], last[-1] + 1), numbers))
                for name, a in record.outputs
            ),
        )
        for record in tile.records
        for first, last in zip(copies(record.first), copies(record.last), strict=True)
    ]


def _register(array: Array, made: Emitted, places: range, numbers: Mapping[str, int]) -> int:
    """The register with the place of an array in its buffer, by which instructions among these reach it; 0: none.

    Nor is there one where another of them moves it, as a loop over tiles does.
    """
    number = numbers.get(array.buf.name)
    if array.buf.space is not Space.HBM or not isinstance(array.dynamic, VReg):
        return 0
    for n in places:
        op = made.ops[n]
        refs = () if op is None else (r for r in op.args.values() if isinstance(r, Ref))
        if any(r.buf is array.buf and r.dynamic == array.dynamic and not r.moves for r in refs):
            for value in made.program.code[n].args.values():
                if isinstance(value, Stream) and value.space is Space.HBM and value.buffer == number:
                    found = _added(made.program.code, n, value.base)
                    moved = any(made.program.code[k].args.get("rd") == Reg(found) for k in range(n, places.stop))
                    return 0 if moved else found
    return 0


def _added(code: Sequence[Instruction], n: int, base: Value) -> int:
    """The register to which the base of a stream of instruction n adds a constant."""
    if not isinstance(base, Reg):
        return 0
    if base.n not in SCRATCH:
        return base.n
    last = next(code[k] for k in range(n - 1, -1, -1) if code[k].args.get("rd") == base)
    source = last.args["ra"]
    assert isinstance(source, Reg)
    return source.n


def _location(name: str, array: Array, plan: MemoryPlan, numbers: Mapping[str, int], register: int = 0) -> Location:
    if array.dynamic is not None and not register:
        return Location(name, "view", 0, 0, array.dtype.name, array.dims, ())
    in_hbm = array.buf.space == Space.HBM
    return Location(
        name,
        "stack" if array.buf.parts else "hbm" if in_hbm else "vmem",
        numbers[array.buf.name] if in_hbm else 0,
        array.offset + (0 if in_hbm else plan.address.get(array.buf, 0)),
        array.dtype.name,
        array.dims,
        array.strides,
        register,
    )
