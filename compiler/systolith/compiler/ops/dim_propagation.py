"""Which dimension of an operand belongs to a dimension of an operation's result, and operations on fewer indices.

A computation that is *blocked* runs over a few indices of one dimension at a time.  `operand_dim` says, an operation at
a time, whether an operand is needed whole, or only at the same indices of one of its own dimensions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from systolith.compiler.hlo.attributes import SliceDim, Window, WindowDim
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.ops.dim_rules import NotBlockableError
from systolith.compiler.ops.expression_builder import group_roots
from systolith.compiler.ops.group import Group, accumulation
from systolith.compiler.ops.table import info


def operand_dim(i: Instruction, k: int, d: int) -> int | None:
    """The dimension of operand `k` that is read at index x alone for index x of dimension `d` of the result.

    None: the operand is read whole, whatever the index.

    Raises:
        NotBlockableError: there is no such dimension.
    """
    rule = info(i).dim
    if rule is None:
        raise NotBlockableError(f"{i.opcode} has no dimension to block")
    return rule(i, k, d)


def result_dim(user: Instruction, operand: Instruction, d: int) -> int:
    """The dimension of a user's result that belongs to dimension `d` of one of its operands.

    Raises:
        NotBlockableError: there is none, or the operand is used twice with different ones.
    """
    uses = [k for k, o in enumerate(user.operands) if o is operand]
    for e in range(user.shape.rank):
        if user.dims[e] == operand.dims[d]:
            try:
                if all(operand_dim(user, k, e) == d for k in uses):
                    return e
            except NotBlockableError:
                continue
    raise NotBlockableError(f"{user.opcode} needs the whole dimension")


def blocked_dims(
    computation: Computation, results: Sequence[tuple[Instruction, int]], accumulated: Collection[Instruction] = ()
) -> dict[Instruction, int | None]:
    """For each instruction, the dimension that is blocked when those of the results are; None: it is needed whole.

    Args:
        computation: whose instructions.
        results: its results, and the dimension of each; of accumulated ones, of what they reduce.
        accumulated: the results that are whole in every block (`ops/group.py`, `Tiling`).

    Raises:
        NotBlockableError: some operation needs other indices, or an operand's users ask for different dimensions.
    """
    found: dict[Instruction, int | None] = {}

    def ask(i: Instruction, d: int | None) -> None:
        if found.setdefault(i, d) != d:
            raise NotBlockableError(f"{i.name} is blocked along different dimensions")

    for i, d in results:
        ask(i, None if i in accumulated else d)
        if i in accumulated:
            for o, e in accumulation(i, d):
                ask(o, e)
    whole = {i.operands[1] for i in accumulated}
    for i in reversed(computation.instructions):
        if i not in found:
            continue
        if i in whole:
            if i.opcode == "reduce":
                found[i.operands[1]] = None  # its initial value
            continue
        blocked = found[i]
        for k, operand in enumerate(i.operands):
            ask(operand, None if blocked is None else operand_dim(i, k, blocked))
        if i.opcode == "iota" and blocked is not None:
            operand_dim(i, 0, blocked)
    return found


def group_dims(group: Group) -> dict[Instruction, int | None]:
    """The blocked dimension of each instruction of a group of blocks; None: it is needed whole.

    Raises:
        NotBlockableError: it cannot run in blocks along the dimensions of its tiling.
    """
    assert group.tiling is not None
    roots = group_roots(group.body)
    accumulated = [roots[n] for n in group.tiling.accumulated]
    return blocked_dims(group.body, list(zip(roots, group.tiling.dims, strict=True)), accumulated)


def resized(computation: Computation, dims: Mapping[Instruction, int | None], size: int) -> Computation:
    """The computation over `size` indices of the blocked dimension."""
    made: dict[Instruction, Instruction] = {}
    for i in computation.instructions:
        blocked = dims.get(i)
        shape, attributes = i.shape, dict(i.attributes)
        if blocked is not None:
            shape = array(shape.dtype, (*shape.dims[:blocked], size, *shape.dims[blocked + 1 :]))
            if i.opcode == "slice":
                attributes["slice"] = _resized_slice(i, blocked, size)
        elif i.opcode == "convolution" and dims.get(i.operands[0]) in i.conv_dims.input_spatial:
            attributes["window"] = _resized_window(i, dims[i.operands[0]], size)
        operands = [made[o] for o in i.operands]
        made[i] = replace(i, shape=shape, operands=operands, attributes=attributes)
        if i.opcode == "tuple":
            made[i].shape = replace(i.shape, elements=tuple(o.shape for o in operands))
    return Computation(computation.name, list(made.values()), made[computation.result])


def _resized_window(i: Instruction, d: int | None, size: int) -> Attribute:
    """The window of a convolution that sums dimension `d` of its first operand."""
    n = i.conv_dims.input_spatial.index(d)
    return Window((*i.window.dims[:n], WindowDim(size), *i.window.dims[n + 1 :]))


def _resized_slice(i: Instruction, d: int, size: int) -> Attribute:
    return (*i.slices[:d], SliceDim(0, size), *i.slices[d + 1 :])
