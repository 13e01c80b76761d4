"""Reductions along the dimension in which a region runs in blocks: every block goes on from what the last one gave.

The gradients of a normalisation's scale and offset are such sums, over rows that a block has in VMEM in any case; the
gradient of a product's weights is another, of products.  In the region a reduction becomes the block's own, combined
with a parameter; the first block's is the initial value, or zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from systolith.compiler.groups.cones import cone
from systolith.compiler.groups.recomputation import MOST
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.values.reduction import plain_operation
from systolith.compiler.ops.dim_propagation import operand_dim
from systolith.compiler.ops.dim_rules import summed_dims
from systolith.compiler.ops.reduction_builder import repeatable
from systolith.compiler.ops.table import info, is_elementwise


@dataclass(frozen=True)
class Accumulations:
    """Which reductions a region may take in.

    Attributes:
        users: of each instruction of the computation.
        place: of each instruction in it.
        products: whether products are taken in, too, that sum along the blocks.
    """

    users: Mapping[Instruction, list[Instruction]]
    place: Mapping[Instruction, int]
    products: bool = False

    def of(self, region: Mapping[Instruction, int]) -> dict[Instruction, int]:
        """The reductions, outside of the region, of its values and operands, and the dimension of its first operand
        that each reduces.
        """
        values = dict(region) | read_along(region)
        found: dict[Instruction, int] = {}
        for value in values:
            for user in self.users[value]:
                if user in region or (user.opcode != "reduce" and not self.products):
                    continue
                d = _summed(user, values)
                if d is not None and _accumulates(user):
                    found[user] = d
        outside = [o for i in region for o in i.operands if o not in region] if found else []
        needed = made_of(outside, self.place, min(map(self.place.__getitem__, found), default=0))
        return {r: found[r] for r in sorted(found.keys() - needed, key=self.place.__getitem__)}


def made_of(values: Iterable[Instruction], place: Mapping[Instruction, int], first: int) -> set[Instruction]:
    """What values are computed from, themselves included, as far back as the instruction of a number."""
    found: set[Instruction] = set()
    todo = list(values)
    while todo:
        i = todo.pop()
        if i not in found and place[i] >= first:
            found.add(i)
            todo += i.operands
    return found


def read_along(region: Mapping[Instruction, int]) -> dict[Instruction, int]:
    """Values that a region reads along its blocks, and their dimensions; none that it reads along two."""
    found: dict[Instruction, int | None] = {}
    for i, d in region.items():
        for k, o in enumerate(i.operands):
            if o in region or o.opcode in ("constant", "iota", "broadcast"):
                continue
            along = operand_dim(i, k, d)
            if found.setdefault(o, along) != along:
                found[o] = None
    return {o: d for o, d in found.items() if d is not None}


def sum_cone(reduction: Instruction, there: Collection[Instruction]) -> list[Instruction]:
    """The cheap operations, at most `MOST`, that make what a reduction reads of values that are there, in order.

    Empty: it reads other values, or such a value itself.
    """
    value = reduction.operands[0]

    def given(i: Instruction) -> bool:
        return i in there or i.opcode in ("broadcast", "constant")

    def is_cheap(i: Instruction) -> bool:
        return i.opcode == "reshape" or (is_elementwise(i) and not info(i).expensive)

    made = None if given(value) else cone(value, given, is_cheap, MOST)
    return [i for i in made or () if not given(i)]


def own_copies(
    computation: Computation, made: Sequence[Instruction], reduction: Instruction
) -> dict[Instruction, Instruction]:
    """Copies, for a reduction, of the operations that make what it reads; none if nothing else uses these."""
    users, copies = computation.users(), dict[Instruction, Instruction]()
    if {u for i in made for u in users[i]} <= {reduction, *made}:
        return copies
    for i in made:
        copies[i] = i.copy([copies.get(o, o) for o in i.operands], dict(i.attributes))
        copies[i].name = computation.fresh_name(f"{i.name}.again")
    reduction.operands = [copies.get(o, o) for o in reduction.operands]
    computation.instructions = [j for i in computation.instructions for j in (i, *([copies[i]] if i in copies else []))]
    return copies


def _summed(i: Instruction, values: Mapping[Instruction, int]) -> int | None:
    """The dimension of its first operand that it sums, where that of each of its operands is the one of `values`."""
    for d in range(i.operands[0].shape.rank if i.operands and i.operands[0].shape.is_array else 0):
        along = summed_dims(i, d)
        if along and all(values.get(o, e) == e for o, e in along) and any(o in values for o, _ in along):
            return d
    return None


def _accumulates(i: Instruction) -> bool:
    """Whether parts of it can be combined: 32-bit sums of products, and what reduces by one operation, over and over
    from its initial value if need be.
    """
    if not i.shape.is_array or i.shape.dtype.bits != 32:
        return False
    if i.opcode != "reduce":
        return True
    return plain_operation(i.computation()) is not None and repeatable(i, i.operands[1:])


def start(within: Computation, i: Instruction) -> list[Instruction]:
    """Instructions that make what the first block of a reduction goes on from, which are not in the computation yet."""
    made = []
    if i.opcode == "reduce":
        initial = i.operands[1]
    else:
        zero = np.zeros((), i.shape.dtype.stored)
        initial = Instruction(within.fresh_name(f"{i.name}.zero"), "constant", array(i.shape.dtype), literal=zero)
        made.append(initial)
    name = within.fresh_name(f"{i.name}.start")
    return [*made, Instruction(name, "broadcast", i.shape, [initial], {"dimensions": ()}, line=i.line)]
