"""Tails of blocks: the elementwise operations that end a group of blocks, as a group of their own.

Softmax and its gradient end in an elementwise expression of what the group reads and of values of rows (a maximum, a
sum).  If only products read the result, they can compute it in their tiles (`groups/producer_fusion.py`), and the
blocks only make the values of rows: the large array is neither stored nor loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.errors import CompileError
from systolith.compiler.groups.fusion import Limits
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.visiting import cone
from systolith.compiler.ops.dim_propagation import group_dims
from systolith.compiler.ops.dim_rules import NotBlockableError
from systolith.compiler.ops.expression_builder import analyze, group_roots
from systolith.compiler.ops.group import Group, Tiling, Unit, is_cheap
from systolith.compiler.ops.pieces import kernel_sizes
from systolith.compiler.passes.outline import Outline

ROW = 64
"""A value of rows has at most this part of the elements of the result."""


@dataclass(frozen=True)
class Tail:
    """A group of blocks without one of its results.

    Attributes:
        blocks: the group, which also makes the values of rows.
        values: what stands for each result of the former group; the tail's for the one.
        made: the other values of `blocks`, which have to follow it.
        tail: the group that computes the result.
    """

    blocks: Group
    values: tuple[Instruction, ...]
    made: tuple[Instruction, ...]
    tail: Group


def without_tail(group: Group, number: int, values: Sequence[Instruction]) -> Tail | None:
    """A group of blocks, and the expression that one of its results ends in, apart.

    Args:
        group: it.
        number: of the result.
        values: the value of each result outside.

    Returns:
        Both; None: the result is accumulated, or not made elementwise, in one kernel, from operands and values of rows.
    """
    body, tiling = group.body, group.tiling
    assert tiling is not None
    roots = group_roots(body)
    if number in tiling.accumulated:
        return None
    inside, rows = _expression(body, roots[number])
    try:
        dims = group_dims(group)
    except NotBlockableError:
        return None
    if inside is None or not rows or any(dims.get(row) is None for row in rows):
        return None
    kept = [n for n in range(len(roots)) if n != number]
    results = [roots[n] for n in kept] + [row for row in rows if row not in [roots[n] for n in kept]]
    along = [tiling.dims[n] for n in kept] + [d for row in results[len(kept) :] if (d := dims[row]) is not None]
    accumulated = tuple(k for k, n in enumerate(kept) if n in tiling.accumulated)
    blocks = _blocks(group, results, Tiling(tuple(along), accumulated))
    made = _values(blocks, [values[n].name for n in kept] + [row.name for row in results[len(kept) :]])
    tail = _tail(group, values[number], roots[number], inside, dict(zip(results, made, strict=True)))
    if not _fits_a_kernel(tail):
        return None
    stand = [made[kept.index(n)] if n != number else tail for n in range(len(roots))]
    return Tail(blocks, tuple(stand), tuple(v for v in made if v is not blocks), tail)


def _expression(body: Computation, root: Instruction) -> tuple[list[Instruction] | None, list[Instruction]]:
    """The operations that a result ends in, and the values of rows that they read; None: they are not elementwise."""
    inside: set[Instruction] = set()
    rows: set[Instruction] = set()
    todo = [root]
    while todo:
        i = todo.pop()
        if i in inside or i in rows or i.opcode == "parameter":
            continue
        if i.shape.rank and i.shape.size * ROW <= root.shape.size:
            rows.add(i)
        elif is_cheap(i) or i.opcode == "constant":
            inside.add(i)
            todo += i.operands
        else:
            return None, []
    return [i for i in body.instructions if i in inside], [i for i in body.instructions if i in rows]


def _blocks(group: Group, results: list[Instruction], tiling: Tiling) -> Group:
    """A group of blocks with other results."""
    copy = Outline()
    needed = {*results, *cone(results)}
    for p, operand in zip(group.body.parameters, group.operands, strict=True):
        if p in needed:
            copy.copies[p] = copy.parameter(operand, p)
    for i in group.body.instructions:
        if i in needed and i.opcode != "parameter":
            copy.take(i)
    body = copy.computation(f"{group.body.name}.rows", [copy.copies[r] for r in results], "tuple")
    return Group.of(f"{group.name}.rows", body, copy.values, group, None, tiling, group.why)


def _fits_a_kernel(tail: Group) -> bool:
    limits = Limits()
    try:
        micro, streams = kernel_sizes(analyze(group_roots(tail.body)))
    except CompileError:  # some data movement in it is no index map
        return False
    return micro <= limits.micro_ops and streams <= limits.streams


def _values(blocks: Group, names: list[str]) -> list[Instruction]:
    """The value of each result of a group."""
    if not blocks.shape.is_tuple:
        return [blocks]
    return [
        Instruction(name, "get-tuple-element", shape, [blocks], {"index": k}, line=blocks.line)
        for k, (name, shape) in enumerate(zip(names, blocks.shape.elements, strict=True))
    ]


def _tail(
    group: Group,
    value: Instruction,
    root: Instruction,
    inside: list[Instruction],
    rows: dict[Instruction, Instruction],
) -> Group:
    """The group of operations of another one, on that one's operands and on values of rows."""
    copy = Outline()
    outside = rows | dict(zip(group.body.parameters, group.operands, strict=True))
    for i in inside:
        for o in i.operands:
            if o not in copy.copies and o in outside:
                copy.copies[o] = copy.parameter(outside[o])
        copy.take(i)
    body = copy.computation(f"group.{value.name}.tail", [copy.copies[root]])
    return Group.of(value.name, body, copy.values, root, Unit.VPU, why="it ends a group of blocks")
