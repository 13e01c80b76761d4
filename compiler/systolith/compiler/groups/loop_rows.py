"""Rows that the iterations of a loop write, each its own: what `jax.lax.scan` gives of every step.

Each row is written where it is made (`memory/update_places.py`), so its update has to come before what follows.  An
array all of whose rows are written starts without contents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from systolith.compiler.explain import Decision
from systolith.compiler.groups.loop_state import loops_of, plain
from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.trip_count import trip_count
from systolith.compiler.memory.residency import allocation, is_allocation
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.passes.simplify.while_trip_count import element, initial, scalar, step_of
from systolith.isa.chip import Chip
from systolith.isa.dtypes import S32

NAMES = ("add", "constant", "get-tuple-element", "reshape", "subtract")
"""Operations that come early, too, where only updates use what they give: rows by another shape, and indices."""


@dataclass(frozen=True)
class LoopRows:
    """Let updates of a loop's arrays come early, and arrays that a loop writes whole start without contents.

    Attributes:
        chip: updates of a part of its VMEM and more come early.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        decisions: list[Decision] = []
        names = Names(i.name for i in module.instructions())
        for computation, loop in loops_of(module):
            moved = _updates_early(loop.computation("body"), self.chip.vmem.bytes // LARGE)
            written = _start_empty(computation, loop, names.fresh, self.chip.vmem.bytes)
            if moved or written:
                numbers = {"updates moved": moved, "arrays without contents": written}
                decisions.append(Decision("memory", loop.name, "rows are written where they are made", "", numbers))
        return Outcome(bool(decisions), tuple(decisions))


def _updates_early(body: Computation, least: int) -> int:
    """Let updates of arrays that nothing else reads follow what they are made of; how many come before another
    instruction.

    `least`: bytes of an update; smaller ones wait in VMEM, and an LSTM of 64 x 256 whose rows are stored before its
    state is made takes 10 % longer.
    """
    users = body.users()
    early: set[Instruction] = set()
    for i in reversed(body.instructions):
        updates = bool(i.operands) and _row_base(i, body, users[i.operands[0]]) is not None
        updates = updates and i.operands[1].shape.bytes >= least
        if updates or (i.opcode in NAMES and users[i] and early.issuperset(users[i])):
            early.add(i)
    waits = {i: {*i.operands} for i in body.instructions if i in early}
    waiting: dict[Instruction, list[Instruction]] = defaultdict(list)
    for i, needed in waits.items():
        for operand in needed:
            waiting[operand].append(i)
    out: list[Instruction] = []
    for i in (i for i in body.instructions if i not in early or not i.operands):
        ready = [i]
        while ready:
            done = ready.pop()
            out.append(done)
            for update in waiting[done]:
                waits[update].discard(done)
                if not waits[update]:
                    ready.append(update)
    moved = sum(
        1 for before, after in zip(body.instructions, out, strict=True) if before is not after and after in early
    )
    body.root, body.instructions = body.result, out
    return moved


def _row_base(i: Instruction, body: Computation, users: list[Instruction]) -> int | None:
    """The number of the element of the state of which an instruction is an update, which alone reads it."""
    if i.opcode != "dynamic-update-slice" or users != [i] or i.operands.count(i.operands[0]) != 1:
        return None
    number = element(i.operands[0], body)
    return number if sum(element(other, body) == number for other in body.instructions) == 1 else None


def row_updates(loop: Instruction) -> Iterator[tuple[int, Instruction]]:
    """The updates by which a loop writes every row of an array along its first dimension, by the state's element."""
    body, count = loop.computation("body"), trip_count(loop)
    if body.result.opcode != "tuple" or count is None:
        return
    users = body.users()
    for number, made in enumerate(body.result.operands):
        updates = made.opcode == "dynamic-update-slice" and _row_base(made, body, users[made.operands[0]]) == number
        if updates and _writes_all(loop, made, count):
            yield number, made


def row_update(
    whole: Instruction, row: Instruction, index: Instruction, zero: Instruction, names: Names
) -> tuple[Instruction, Instruction]:
    """A row with the dimension that rows are along, and the update of an array with it."""
    wide = Instruction(names.fresh("row"), "reshape", array(row.shape.dtype, (1, *row.dims)), [row])
    starts = [index, *(zero for _ in row.dims)]
    return wide, Instruction(names.fresh("rows.next"), "dynamic-update-slice", whole.shape, [whole, wide, *starts])


def row_of(update: Instruction) -> Instruction:
    """What the row of an update is, without the dimension that rows are along."""
    row = update.operands[1]
    while row.opcode == "reshape":
        row = row.operands[0]
    return row


def _start_empty(computation: Computation, loop: Instruction, fresh: Callable[[str], str], least: int) -> int:
    """Let arrays start without contents of which a loop writes every row; how many do.

    `least`: bytes of an array; smaller ones may stay in VMEM, where a loop's last result is stored once.
    """
    (state,), condition = loop.operands, loop.computation("condition")
    if not plain(computation, loop):
        return 0
    tested = {element(i, condition) for i in condition.instructions}
    found = 0
    for number, _ in row_updates(loop):
        given = state.operands[number]
        if number in tested or is_allocation(given) or given.shape.bytes < least:
            continue
        space = allocation(fresh(f"{loop.name}.space"), given.shape, given.line)
        computation.instructions.insert(computation.instructions.index(state), space)
        state.operands[number] = space
        found += 1
    return found


def _writes_all(loop: Instruction, update: Instruction, count: int) -> bool:
    """Whether the iterations of a loop write each row of an array."""
    whole, part = update.dims, update.operands[1].dims
    cut = [d for d, (size, width) in enumerate(zip(whole, part, strict=True)) if size != width]
    if cut != [0] or part[0] != 1 or whole[0] != count or len(update.operands) != 2 + len(whole):
        return False
    index = affine(update.operands[2], loop.computation("body"))
    if index is None:
        return False
    number, factor, added = index
    start, step = initial(loop, number), step_of(loop.computation("body"), number)
    if start is None or step is None or abs(factor * step) != 1:
        return False
    ends = [factor * (start + step * n) + added for n in (0, count - 1)]
    return sorted(ends) == [0, count - 1]


def affine(i: Instruction, body: Computation) -> tuple[int, int, int] | None:
    """(number of an element of the state, factor, what is added) of an s32 that is computed of that."""
    number = element(i, body)
    if i.shape.dtype is not S32 or i.dims:
        return None
    if number is not None:
        return number, 1, 0
    if i.opcode not in ("add", "subtract"):
        return None
    a, b = i.operands
    sign = 1 if i.opcode == "add" else -1
    if (known := scalar(b)) is not None:
        of = affine(a, body)
        return of and (of[0], of[1], of[2] + sign * known)
    if (known := scalar(a)) is not None:
        of = affine(b, body)
        return of and (of[0], sign * of[1], known + sign * of[2])
    return None
