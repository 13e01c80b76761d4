"""Assembly of routines (`routines.py`): a program whose arrays are the operands and results of a custom call.

It is written as a program is (`asm.py`), but for where its data are:

    .buffer x parameter f32 [rows, n] number=0       operand 0, row-major in HBM: `hbm(x)[...]`
    .array  y result f32 [rows, n] number=0          result 0, row-major in VMEM: `y` is its address, `vmem[y + ...]`
    .scratch partial vmem 4 * n                      bytes of VMEM or SMEM whose contents are lost: `partial` likewise

Every operand and result is declared once, in its order, tuples array by array; `number=` may be left out.  A name that
nothing has defined is, as a dimension, the size that the call has there.  Registers are r1 to r27.  The text ends with
its only `halt`, and then every signal has been taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from systolith.isa.access import accesses
from systolith.isa.asm_lex import Line
from systolith.isa.asm_parser import DIRECTIVES, Parser
from systolith.isa.dtypes import ELEMENT_TYPES
from systolith.isa.errors import ProgramError
from systolith.isa.host_functions import Signature, size_of
from systolith.isa.instruction import Instruction, Reg, Space, Stream, Value
from systolith.isa.program import BufferDecl, Program, Role
from systolith.isa.verify import verify_program

if TYPE_CHECKING:
    from systolith.isa.chip import Chip

REGISTERS = range(1, 28)
"""Those that a routine may use."""

LINE = 32
"""Bytes of VMEM, of a multiple of which addresses are while a routine is checked by itself."""

ROLES = {Role.PARAMETER: "operands", Role.RESULT: "results"}
SCRATCH = {"vmem": Space.VMEM, "smem": Space.SMEM}


@dataclass(frozen=True)
class Place:
    """What a routine calls by a name.

    Attributes:
        name: in the text.
        space: HBM, VMEM or SMEM.
        bytes: size.
        role, number: of the operand or result that is there; role None: scratch.
    """

    name: str
    space: Space
    bytes: int
    role: Role | None = None
    number: int = -1


@dataclass(frozen=True)
class AssembledRoutine:
    """A routine for the shapes of one call.

    Attributes:
        program: its code ends with `halt`; its buffers are the places in HBM, in their order.
        places: in the order of the text.
    """

    program: Program
    places: tuple[Place, ...]

    @property
    def registers(self) -> list[int]:
        """Numbers of the registers that it names, but for r0."""
        return sorted({r.n for instr in self.program.code for r in registers_of(instr.args.values()) if r.n})


Spans = dict[Space, list[tuple[int, int, Place]]]
"""First byte, end and place of each piece of memory on the chip, as they lie while a routine is checked by itself."""


def registers_of(values: Iterable[Value]) -> Iterable[Reg]:
    """Every register among arguments."""
    for value in values:
        if isinstance(value, Reg):
            yield value
        elif isinstance(value, Stream):
            yield from registers_of((value.base, *value.bias, value.index))
        elif isinstance(value, tuple):
            yield from registers_of(value)


class _RoutineParser(Parser):
    """Reads a routine; `addresses` of its names in VMEM and SMEM, as far as they are known."""

    def __init__(self, chip: Chip, call: Signature, addresses: Mapping[str, int]) -> None:
        super().__init__(chip)
        self.call, self.addresses = call, addresses
        self.places: list[Place] = []
        self.directives = {**DIRECTIVES, ".buffer": self._in_hbm, ".array": self._in_vmem, ".scratch": self._scratch}
        self.spans: Spans = {space: [] for space in SCRATCH.values()}

    def _in_hbm(self, _: Parser, line: Line) -> None:
        place, dtype, dims = self._bound(line, Space.HBM)
        decl = BufferDecl(place.name, place.role or Role.TEMP, dtype, dims, place.bytes, place.number)
        self._define(line, "buffer", place.name, self.program.buffers, decl)
        self.places.append(place)

    def _in_vmem(self, _: Parser, line: Line) -> None:
        place, _dtype, _dims = self._bound(line, Space.VMEM)
        self._place(line, place)

    def _scratch(self, _: Parser, line: Line) -> None:
        name = line.name("a name")
        column, space = line.peek.column, line.name("a memory")
        if space not in SCRATCH:
            line.fail(f"{space}: scratch is in {' or '.join(SCRATCH)}", column)
        size = line.integer("bytes")
        if size < 1:
            line.fail(f"{size} bytes of scratch", column)
        line.finish()
        self._place(line, Place(name, SCRATCH[space], size))

    def _place(self, line: Line, place: Place) -> None:
        if place.name in self.constants or place.name in self.registers:
            line.fail(f"{place.name}: defined before", 0)
        spans = self.spans[place.space]
        at = -(-spans[-1][1] // LINE) * LINE if spans else 0
        spans.append((at, at + place.bytes, place))
        self.constants[place.name] = self.addresses.get(place.name, at)
        self.places.append(place)

    def _bound(self, line: Line, space: Space) -> tuple[Place, str, tuple[int, ...]]:
        """An operand or result of the call, and its type."""
        name, column = line.name("a name"), line.peek.column
        role, dtype = line.name("a role"), ""
        if role not in ROLES:
            line.fail(f"{role}: an array of a routine is {' or '.join(ROLES)}", column)
        arrays = self.call.operands if role == Role.PARAMETER else self.call.results
        number = sum(p.role == role for p in self.places)
        column = line.peek.column
        dtype = self._dtype(line, ELEMENT_TYPES)
        if number >= len(arrays):
            line.fail(f"{name}: the call has {len(arrays)} {ROLES[Role(role)]}", 0)
        wanted = arrays[number]
        dims = self._dims(line, wanted[1])
        if (dtype, dims) != wanted:
            given, text = (f"{d}[{','.join(map(str, n))}]" for d, n in ((dtype, dims), wanted))
            line.fail(f"{name} is {given}, {role} {number} of the call {text}", column)
        if line.keyword() == "number" and line.integer("a number") != number:
            line.fail(f"{name}: is {role} {number}: they are declared in their order", 0)
        line.finish()
        return Place(name, space, size_of(wanted), Role(role), number), dtype, dims

    def _dims(self, line: Line, given: tuple[int, ...]) -> tuple[int, ...]:
        """Dimensions; names without a value get those of the call."""
        coming = iter(given)

        def one() -> int:
            size = next(coming, None)
            if size is not None and line.peek.kind == "name" and line.peek.text not in self.constants:
                self.constants[line.peek.text] = size
            return line.integer("a dimension")

        return self._list(line, "[", "]", one)


def assemble_routine(
    text: str, chip: Chip, call: Signature, addresses: Mapping[str, int] | None = None
) -> AssembledRoutine:
    """A routine for the shapes of a call.

    Args:
        text: of the routine.
        chip: that it is for.
        call: the shapes.
        addresses: of what it has in VMEM and SMEM; None: it is checked by itself, with other ones.

    Raises:
        AsmError: a line is no assembly, or does not fit the call.
        ProgramError: it breaks a rule of the instruction set or of routines.
    """
    parser = _RoutineParser(chip, call, addresses or {})
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        parser.feed(line, number)
    made = AssembledRoutine(parser.finish(len(lines) + 1), tuple(parser.places))
    if addresses is None:
        _check(made, chip, call, parser.spans)
    return made


def _check(routine: AssembledRoutine, chip: Chip, call: Signature, spans: Spans) -> None:
    for role, arrays in ((Role.PARAMETER, call.operands), (Role.RESULT, call.results)):
        found = sum(p.role is role for p in routine.places)
        if found != len(arrays):
            raise ProgramError(f"declares {found} {ROLES[role]}, the call has {len(arrays)}")
    code = routine.program.code
    halts = [n for n, instr in enumerate(code) if instr.op == "halt"]
    if halts != [len(code) - 1]:
        raise ProgramError("must end with halt, and have no other")
    beyond = [n for n in routine.registers if n not in REGISTERS]
    if beyond:
        raise ProgramError(f"r{beyond[0]}: a routine has r{REGISTERS.start} to r{REGISTERS.stop - 1}")
    # Numbers of buffers are those of the call, which programs count differently.
    plain = replace(routine.program, buffers=[replace(b, number=-1, role=Role.TEMP) for b in routine.program.buffers])
    verify_program(plain, chip, ends_at_zero=True)
    for space, size in ((Space.VMEM, chip.vmem.bytes), (Space.SMEM, chip.smem.bytes)):
        end = max((hi for _, hi, _ in spans[space]), default=0)
        if end > size:
            raise ProgramError(f"declares {end} bytes of {space.name}: chip {chip.name} has {size}")
    for n, instr in enumerate(code):
        _check_places(f"instruction {n}: {instr.op}", instr, routine, chip, spans)


def _check_places(what: str, instr: Instruction, routine: AssembledRoutine, chip: Chip, spans: Spans) -> None:
    """Whether an instruction stays inside of what is declared, and writes no operand.

    Addresses in registers only a run knows.
    """
    in_hbm = [p for p in routine.places if p.space is Space.HBM]
    for access in accesses(instr, routine.program, chip):
        if access.space in (Space.HOST, Space.LINK):
            raise ProgramError(f"{what}: {access.space.name}: a routine has HBM, VMEM, SMEM and accumulators")
        place: Place | None = None
        if access.space is Space.HBM:
            place = in_hbm[access.buffer]
        elif isinstance(access.space, Space) and access.space in spans and not access.dynamic:
            declared = spans[access.space]
            place = next((p for lo, hi, p in declared if lo <= access.lo and access.hi <= hi), None)
            if place is None:
                named = ", ".join(f"{p.name} ({lo} to {hi - 1})" for lo, hi, p in declared) or "nothing"
                raise ProgramError(
                    f"{what}: bytes {access.lo} to {access.hi - 1} of {access.space.name}: must be inside of what is"
                    f" declared there, {named}"
                )
        if access.write and place is not None and place.role is Role.PARAMETER:
            raise ProgramError(f"{what}: writes to {place.name}, an operand")
