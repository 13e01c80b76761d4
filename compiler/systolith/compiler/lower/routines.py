"""Custom calls that run routines (`isa/routines.py`): their arrays where the text has them, and the routine itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.values.host_calls import signature
from systolith.compiler.tile.arrays import dense
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import ROUTINE, Arg, Array, Buf, Ref, TileOp
from systolith.isa import routines
from systolith.isa.asm_routine import Place, assemble_routine
from systolith.isa.dtypes import U8, U32, DType
from systolith.isa.errors import AsmError, ProgramError
from systolith.isa.instruction import Space
from systolith.isa.pattern import Pattern
from systolith.isa.program import Role


def is_routine(i: Instruction) -> bool:
    """Whether a routine is registered for an instruction's target."""
    return i.opcode == "custom-call" and routines.is_known(i.word("custom_call_target"))


def lower_routine(ctx: TileBuilder, i: Instruction, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Bring operands to where the routine has them, run it, and take its results from there.

    Raises:
        CompileError: the routine breaks a rule; names the target and the instruction.
        RoutineError: it cannot be had.
    """
    call = signature(i)
    routine = routines.find(call.target)
    try:
        made = assemble_routine(routine.text, ctx.chip, call)
    except (AsmError, ProgramError) as problem:
        raise compile_error(i, f"routine of custom-call target {call.target!r}: {problem}") from problem
    given = {Role.PARAMETER: operands, Role.RESULT: results}
    places: dict[Role | None, list[tuple[str, Ref]]] = {Role.PARAMETER: [], Role.RESULT: [], None: []}
    after: list[tuple[Array, Array]] = []
    for place in made.places:
        if place.role is None:
            buf = ctx.vmem(place.name, place.bytes) if place.space is Space.VMEM else ctx.smem(place.name, place.bytes)
            places[None].append((place.name, _whole(buf, 0, place.bytes)))
            continue
        array = given[place.role][place.number]
        own = array if _fits(array, place) else _elsewhere(ctx, array, place)
        if own is not array and place.role is Role.PARAMETER:
            ctx.move(array, own, "operand of a routine")
        elif own is not array:
            after.append((own, array))
        places[place.role].append((place.name, _whole(own.buf, own.offset, place.bytes)))
    in_order = [places[role] for role in (Role.PARAMETER, Role.RESULT, None)]
    operand_refs, result_refs, scratch = (tuple(ref for _, ref in found) for found in in_order)
    args: dict[str, Arg] = {
        "call": call.to_bytes().decode(),
        "text": routine.text,
        "names": tuple(name for found in in_order for name, _ in found),
        "operands": operand_refs,
        "results": result_refs,
        "scratch": scratch,
        "registers": tuple(ctx.vreg() for _ in made.registers),
    }
    ctx.append(TileOp(ROUTINE, args, ctx.origin("routine")))
    for own, array in after:
        ctx.move(own, array, "result of a routine")


def _fits(array: Array, place: Place) -> bool:
    """Whether an array lies as a routine has it: dense, in the right memory, at a fixed address."""
    lies = array.buf.space is place.space and array.dynamic is None and array.strides == _rows(array)
    return lies and (place.space is Space.VMEM or array.offset == 0)


def _elsewhere(ctx: TileBuilder, array: Array, place: Place) -> Array:
    """A new dense array in the memory of a place."""
    if place.space is Space.VMEM:
        made = ctx.array(place.name, array.dtype, array.dims)
    else:
        made = ctx.table(place.name, Role.TEMP, array.dtype, array.dims)
    return replace(made, origin=array.origin)


def _rows(array: Array) -> tuple[int, ...]:
    return dense(array.dims, array.dtype.size)


def _whole(buf: Buf, offset: int, size: int) -> Ref:
    """All bytes of a place, as a stream of its memory."""
    element: DType = U32 if size % U32.size == 0 else U8
    return Ref(buf, Pattern(element, (size // element.size,), (element.size,)), offset)


def arrays_of(ctx: TileBuilder, i: Instruction, arrays: dict[Instruction, Array]) -> Iterator[Array]:
    """Where the operands of a call lie; constants in HBM."""
    for operand in i.operands:
        if operand not in arrays and operand.opcode != "constant":
            raise compile_error(i, f"its operand {operand.name!r} ({operand.opcode}) is computed inside its group")
        yield arrays[operand] if operand in arrays else ctx.constant(operand)
