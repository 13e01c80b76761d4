"""Computations on scalars, as operations on whole arrays: what `map` means."""

from __future__ import annotations

from collections.abc import Sequence

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.ops.table import is_elementwise
from systolith.compiler.passes.rewrite import Rewriter


def applied(r: Rewriter, computation: Computation, *arguments: Instruction) -> Instruction:
    """A computation on scalars, on the elements of arrays: its operations on arrays if all are elementwise, else a
    `map`.
    """
    dims = arguments[0].dims
    if not is_simple(computation):
        shape = array(computation.result.shape.dtype, dims)
        return r.emit("map", *arguments, shape=shape, dimensions=tuple(range(len(dims))), to_apply=computation)
    made = dict(zip(computation.parameters, arguments, strict=True))
    for i in computation.instructions:
        if i not in made:
            made[i] = on_array(r, i, [made[o] for o in i.operands], dims)
    return made[computation.result]


def is_simple(computation: Computation) -> bool:
    """Whether it has elementwise operations and constants only."""
    return all(i.opcode in ("parameter", "constant") or is_elementwise(i) for i in computation.instructions)


def on_array(r: Rewriter, i: Instruction, operands: Sequence[Instruction], dims: tuple[int, ...]) -> Instruction:
    """An operation on scalars, on arrays of some dimensions."""
    shape = array(i.shape.dtype, dims)
    return r.spread(r.literal(i.literal, i.shape), shape) if i.opcode == "constant" else r.like(i, operands, shape)


def called(r: Rewriter, computation: Computation, arguments: Sequence[Instruction]) -> list[Instruction]:
    """The results of a computation of scalars, its instructions copied."""
    of = dict(zip(computation.parameters, arguments, strict=True))
    for i in computation.instructions:
        if i not in of:
            of[i] = r.like(i, [of[o] for o in i.operands], i.shape)
    root = of[computation.result]
    return list(root.operands) if root.opcode == "tuple" else [root]
