"""Dots in one form: [batch..., rows, k] by [batch..., k, columns]."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from systolith.compiler.hlo.ir import Attribute, Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter


@dataclass(frozen=True)
class _Side:
    """One operand: its batch, free and contracted dimensions."""

    operand: Instruction
    batch: tuple[int, ...]
    contracted: tuple[int, ...]

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(d for d in range(self.operand.shape.rank) if d not in (*self.batch, *self.contracted))

    def size(self, dims: tuple[int, ...]) -> int:
        return prod(self.operand.dims[d] for d in dims)

    def arranged(self, r: Rewriter, last: bool) -> Instruction:
        """Transposed to batch, free, contracted dimensions (contracted before free unless `last`), the two merged."""
        parts = (self.free, self.contracted) if last else (self.contracted, self.free)
        order = (*self.batch, *parts[0], *parts[1])
        x = self.operand
        if order != tuple(range(len(order))):
            x = r.emit("transpose", x, dimensions=order)
        merged = (*(self.operand.dims[d] for d in self.batch), *(self.size(p) for p in parts))
        return x if x.dims == merged else r.emit("reshape", x, shape=array(x.shape.dtype, merged))


def canonical_dot(r: Rewriter, i: Instruction) -> Instruction | None:
    """The dot in that form, between the movements that lead to it and back; None: it is no dot, or has it."""
    if i.opcode != "dot" or "sparsity" in i.attributes or any(o.shape.is_dynamic for o in i.operands):
        return None
    lhs, rhs = (
        _Side(o, i.ints(f"{side}_batch_dims", ()), i.ints(f"{side}_contracting_dims", ()))
        for side, o in zip(("lhs", "rhs"), i.operands, strict=True)
    )
    n = len(lhs.batch)
    if all(s.batch == tuple(range(n)) and len(s.contracted) == 1 and len(s.free) <= 1 for s in (lhs, rhs)):
        return None
    batch = tuple(range(n))
    attributes: dict[str, Attribute] = {k: v for k, v in i.attributes.items() if not k.endswith(("_dims", "sharding"))}
    if batch:
        attributes |= {"lhs_batch_dims": batch, "rhs_batch_dims": batch}
    attributes |= {"lhs_contracting_dims": (n + 1,), "rhs_contracting_dims": (n,)}
    dims = (*(lhs.operand.dims[d] for d in lhs.batch), lhs.size(lhs.free), rhs.size(rhs.free))
    shape = array(i.shape.dtype, dims)
    operands = (lhs.arranged(r, last=True), rhs.arranged(r, last=False))
    product = r.emit("dot", *operands, shape=shape, name=i.name, **attributes)
    return product if dims == i.dims else r.emit("reshape", product, shape=i.shape)
