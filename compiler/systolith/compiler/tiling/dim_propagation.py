"""Which dimension of an operand belongs to a dimension of an operation's result, and operations on fewer indices.

A computation that is *blocked* runs over a few indices of one dimension at a time.  `operand_dim` says, an operation at
a time, whether an operand is needed whole, or only at the same indices of one of its own dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from systolith.compiler.hlo.attributes import PadDim, SliceDim, WindowDim
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.index.affine import reshape_factors
from systolith.compiler.ops.elementwise import is_elementwise
from systolith.compiler.passes.own_attributes import stated

BLOCKED = "blocked"
"""Stated of a `fusion` that runs in blocks (`passes/own_attributes.py`): the blocked dimension of each result."""


def blocked_along(group: Instruction) -> tuple[int, ...]:
    """The blocked dimension of each result of a group; empty if it does not run in blocks."""
    return tuple(int(d) for d in stated(group, BLOCKED).split(",") if d)


class NotBlockableError(Exception):
    """An element of the result needs other indices of the dimension than its own."""


def operand_dim(i: Instruction, k: int, d: int) -> int | None:
    """The dimension of operand `k` that is read at index x alone for index x of dimension `d` of the result.

    None: the operand is read whole, whatever the index.

    Raises:
        NotBlockableError: there is no such dimension.
    """
    rule = _RULES.get(i.opcode)
    if rule is not None:
        return rule(i, k, d)
    if is_elementwise(i):
        return d if i.operands[k].shape.rank else None
    raise NotBlockableError(f"{i.opcode} has no dimension to block")


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


def _broadcast(i: Instruction, k: int, d: int) -> int | None:
    dims = i.ints("dimensions", ())
    return dims.index(d) if d in dims else None


def _reshape(i: Instruction, k: int, d: int) -> int | None:
    (operand,) = i.operands
    for xs, ys in reshape_factors(operand.dims, i.dims):
        if d in ys:
            same = [x for x in xs if operand.dims[x] == i.dims[d]]
            if prod(operand.dims[x] for x in xs) == i.dims[d] and same:
                return same[0]
    raise NotBlockableError("the reshape splits or merges the dimension")


def _reduce(i: Instruction, k: int, d: int) -> int | None:
    if 2 * k >= len(i.operands):
        return None  # an initial value
    reduced = i.ints("dimensions", ())
    return [e for e in range(i.operands[k].shape.rank) if e not in reduced][d]


def _dot(i: Instruction, k: int, d: int) -> int | None:
    side = ("lhs", "rhs")[k]
    batch, contracting = i.ints(f"{side}_batch_dims", ()), i.ints(f"{side}_contracting_dims", ())
    if d < len(batch):
        return batch[d]
    free = [[e for e in range(o.shape.rank) if e not in taken] for o, taken in zip(i.operands, _taken(i), strict=True)]
    assert set(batch) | set(contracting) == set(_taken(i)[k])
    place = d - len(batch)
    if k == 0:
        return free[0][place] if place < len(free[0]) else None
    return free[1][place - len(free[0])] if place >= len(free[0]) else None


def _taken(i: Instruction) -> list[tuple[int, ...]]:
    return [i.ints(f"{s}_batch_dims", ()) + i.ints(f"{s}_contracting_dims", ()) for s in ("lhs", "rhs")]


def _convolution(i: Instruction, k: int, d: int) -> int | None:
    if d == i.conv_dims.output_batch and i.integer("batch_group_count", 1) == 1:
        return i.conv_dims.input_batch if k == 0 else None
    raise NotBlockableError("the convolution needs other indices of the dimension")


def _reduce_window(i: Instruction, k: int, d: int) -> int | None:
    if 2 * k >= len(i.operands):
        return None  # an initial value
    if i.window.dims[d] != WindowDim(1):
        raise NotBlockableError("the window is along the dimension")
    return d


def _slice(i: Instruction, k: int, d: int) -> int | None:
    if i.slices[d] != SliceDim(0, i.operands[0].dims[d]):
        raise NotBlockableError("the slice cuts the dimension")
    return d


def _pad(i: Instruction, k: int, d: int) -> int | None:
    padding: tuple[PadDim, ...] = i.attributes["padding"]  # type: ignore[assignment]
    if padding[d] != PadDim(0, 0):
        raise NotBlockableError("the dimension is padded")
    return d if k == 0 else None


def _untouched(i: Instruction, k: int, d: int) -> int | None:
    if d in i.ints("dimensions"):
        raise NotBlockableError(f"{i.opcode} works along the dimension")
    return d


def _iota(i: Instruction, k: int, d: int) -> int | None:
    if d == i.integer("iota_dimension"):
        raise NotBlockableError("the iota counts along the dimension")
    return None


_RULES: Mapping[str, Callable[[Instruction, int, int], int | None]] = {
    "broadcast": _broadcast,
    "transpose": lambda i, k, d: i.ints("dimensions")[d],
    "reshape": _reshape,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "dot": _dot,
    "convolution": _convolution,
    "slice": _slice,
    "pad": _pad,
    "reverse": _untouched,
    "concatenate": _untouched,
    "iota": _iota,
}


def blocked_dims(computation: Computation, results: Sequence[tuple[Instruction, int]]) -> dict[Instruction, int | None]:
    """For each instruction, the dimension that is blocked when those of the results are; None: it is needed whole.

    Raises:
        NotBlockableError: some operation needs other indices, or an operand's users ask for different dimensions.
    """
    found: dict[Instruction, int | None] = {}

    def ask(i: Instruction, d: int | None) -> None:
        if found.setdefault(i, d) != d:
            raise NotBlockableError(f"{i.name} is blocked along different dimensions")

    for i, d in results:
        ask(i, d)
    for i in reversed(computation.instructions):
        if i not in found:
            continue
        blocked = found[i]
        for k, operand in enumerate(i.operands):
            ask(operand, None if blocked is None else operand_dim(i, k, blocked))
        if i.opcode == "iota" and blocked is not None:
            operand_dim(i, 0, blocked)
    return found


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
        operands = [made[o] for o in i.operands]
        made[i] = replace(i, shape=shape, operands=operands, attributes=attributes)
        if i.opcode == "tuple":
            made[i].shape = replace(i.shape, elements=tuple(o.shape for o in operands))
    return Computation(computation.name, list(made.values()), made[computation.result])


def _resized_slice(i: Instruction, d: int, size: int) -> Attribute:
    return (*i.slices[:d], SliceDim(0, size), *i.slices[d + 1 :])
