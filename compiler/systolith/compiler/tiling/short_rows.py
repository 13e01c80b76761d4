"""Normalisations of short rows, with the rows across the lanes: a block is transposed, computed, and transposed back.

A row of 8 elements fills 8 of 128 lanes, since what belongs to a row is the same for all of them.  The cross-lane unit
transposes a block at a row of lanes a cycle, about as fast as HBM moves it; then a vector holds elements of as many
rows as there are lanes, and sums run from vector to vector.  softmax of f32[262144,8] takes a quarter of the cycles so.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.ops.table import is_elementwise
from systolith.compiler.passes.rewrite import Names
from systolith.isa.chip import Chip

SHORT = 0.8
"""Rows of up to this part of the lanes are short: a softmax of rows of 100 gains, of 120 it does not (`tpu_v3`)."""


def lay_rows_across(body: Computation, chip: Chip) -> tuple[int, ...]:
    """Transpose, in place, what a region computes, if it reduces short rows.

    Returns:
        For each dimension of rows which one it is now; empty: they are as they were.
    """
    reduced = {i.operands[0].dims for i in body.instructions if i.opcode == "reduce" and i.shape.is_array}
    if len(reduced) != 1:
        return ()
    (dims,) = reduced
    short = len(dims) > 1 and 1 < dims[-1] <= chip.vpu.lanes * SHORT and prod(dims[:-1]) >= chip.vpu.lanes
    if not short or not all(_may_turn(i, dims) for i in body.instructions if i is not body.result or i.shape.is_array):
        return ()
    if not any(i.opcode == "reduce" and len(dims) - 1 in i.ints("dimensions") for i in body.instructions):
        return ()
    _Turned(body, dims).rewrite()
    return (*range(1, len(dims)), 0)


def _may_turn(i: Instruction, dims: tuple[int, ...]) -> bool:
    """Whether an operation on whole rows is one on transposed rows, with its other dimensions in the same order."""
    last = len(dims) - 1
    if not i.shape.is_array:
        return False
    if i.opcode == "reduce":
        return i.ints("dimensions") in ((last,), tuple(range(last)))
    if i.opcode == "broadcast":
        of = i.ints("dimensions")
        return i.operands[0].dims != dims and (i.dims != dims or last not in of or len(of) == 1)
    if i.opcode in ("parameter", "iota", "constant"):
        return i.opcode != "constant" or i.dims != dims
    return is_elementwise(i) and all(o.dims in (i.dims, ()) for o in i.operands)


class _Turned:
    """A computation in the making whose values of whole rows lie the other way.

    Args:
        body: it.
        dims: of whole rows.
    """

    def __init__(self, body: Computation, dims: tuple[int, ...]) -> None:
        self.body, self.dims = body, dims
        self.names = Names(i.name for i in body.instructions)
        self.made: list[Instruction] = []
        self.value: dict[Instruction, Instruction] = {}

    def rewrite(self) -> None:
        """Replace the body's instructions."""
        root = self.body.result
        for i in self.body.instructions:
            if i.shape.is_array:
                self.value[i] = self._made(i)
        results = [self._back(o) for o in (root.operands if root.shape.is_tuple else [root])]
        self.body.root = results[0]
        if root.shape.is_tuple:
            self.body.root = Instruction(root.name, "tuple", root.shape, results)
            self.made.append(self.body.root)
        self.body.instructions = self.made

    def _made(self, i: Instruction) -> Instruction:
        """What stands for a value: if it is of whole rows, transposed."""
        whole = i.dims == self.dims
        if i.opcode == "parameter":
            self.made.append(i)
            return self._transpose(i, (len(self.dims) - 1, *range(len(self.dims) - 1))) if whole else i
        made = i.copy([self.value[o] for o in i.operands], dict(i.attributes))
        if whole:
            made.shape = array(i.shape.dtype, (self.dims[-1], *self.dims[:-1]))
        if i.opcode == "iota" and whole:
            (made.attributes["iota_dimension"],) = self._moved([i.integer("iota_dimension")])
        if whole if i.opcode == "broadcast" else i.opcode == "reduce" and i.operands[0].dims == self.dims:
            made.attributes["dimensions"] = self._moved(i.ints("dimensions"))
        self.made.append(made)
        return made

    def _moved(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Numbers of dimensions, once the last one is the first."""
        return tuple(sorted((d + 1) % len(self.dims) for d in dims))

    def _back(self, result: Instruction) -> Instruction:
        """A result as it is to lie."""
        made = self.value[result]
        return self._transpose(made, (*range(1, len(self.dims)), 0)) if result.dims == self.dims else made

    def _transpose(self, i: Instruction, order: tuple[int, ...]) -> Instruction:
        shape = array(i.shape.dtype, tuple(i.dims[d] for d in order))
        name = self.names.fresh(f"{i.name}.across")
        self.made.append(Instruction(name, "transpose", shape, [i], {"dimensions": order}, line=i.line))
        return self.made[-1]
