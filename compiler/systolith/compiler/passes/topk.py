"""The k first elements of a sort, without sorting the others.

Blocks of k elements are sorted; then, of each two blocks, the better k go on, until one block is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.comparators import has_order, ordered, unordered
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.sort_blocks import in_batches, power
from systolith.compiler.passes.sort_network import (
    Arrays,
    Columns,
    Network,
    cut,
    exchanged,
    extreme,
    lexicographic,
    padded,
)
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class DecomposeTopK:
    """Expand `topk`, and custom calls of `TopK`, to networks that leave out what is not among the k."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = False
        while rewrite(module, lambda r, i: _expanded(r, callees, i) if is_topk(i) else None):
            callees.place()
            changed = True
        return changed


def is_topk(i: Instruction) -> bool:
    """Whether it gives the largest or smallest elements along the last dimension, and their indices."""
    return i.opcode == "topk" or (i.opcode == "custom-call" and i.attributes.get("custom_call_target") == "TopK")


def _expanded(r: Rewriter, callees: Callees, i: Instruction) -> Instruction | None:
    (x,) = i.operands
    values, indices = i.shape.elements
    if x.shape.is_dynamic or not x.shape.rank or not (x.shape.dtype.is_integer or has_order(x.shape.dtype)):
        return None
    k = values.dims[-1]
    if not values.size:
        found = [r.full(0, s) for s in (values, indices)]
    elif parts := in_batches(r, callees, i, x.shape.rank - 1, lambda *_: None):
        found = parts
    else:
        found = _first(r, x, k, "GT" if i.opcode == "custom-call" or i.flag("largest", True) else "LT")
    return r.emit("tuple", *found, shape=i.shape)


def _first(r: Rewriter, x: Instruction, k: int, direction: str) -> list[Instruction]:
    columns = Columns(r, x.dims, x.shape.rank - 1)
    n, block = x.dims[-1], power(k)
    key = ordered(r, x) if x.shape.dtype.is_float else x
    key = padded(r, key, extreme(key.shape.dtype, direction), max(power(n), block) - n, columns.dim)
    key = columns.brought(key)
    place = r.emit("iota", shape=array(S32, key.dims), iota_dimension=0)
    key, place = (columns.returned(cut(r, y, k)) for y in Network(r, _Best(direction)).first([key, place], block))
    return [unordered(r, key, x.shape.dtype) if x.shape.dtype.is_float else key, place]


@dataclass(frozen=True)
class _Best:
    """Integers by value, and those that are equal by their places."""

    direction: str

    def exchange(self, r: Rewriter, a: Arrays, b: Arrays) -> tuple[Arrays, Arrays]:
        """Of each pair, the element that comes first, and the other."""
        earlier = r.emit("compare", b[1], a[1], direction="LT")
        return exchanged(r, lexicographic(r, self.direction, b[0], a[0], earlier), a, b)
