"""Sums of a dot over its batch: one dot that contracts it, as XLA's algebraic simplifier has it.

`jnp.einsum("ni,nj->nij", x, y).sum(0)` makes a matrix for each n, where all that is wanted is one product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from systolith.compiler.hlo.ir import Attribute, Instruction, Module
from systolith.compiler.hlo.values.reduction import plain_operation
from systolith.compiler.passes.rewrite import Rewriter, rewrite


@dataclass(frozen=True)
class ContractSummedBatches:
    """Contract batch dimensions of a dot that a sum is over, where nothing else needs the dot."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _contracted(r, i) if _is_sum_of_dot(i) else None, ("reduce",))


def _is_sum_of_dot(i: Instruction) -> bool:
    if i.opcode != "reduce" or not i.shape.is_array or i.operands[0].opcode != "dot":
        return False
    dot, initial = i.operands
    zero = initial.opcode == "constant" and initial.literal is not None and not np.any(initial.literal)
    adds = plain_operation(i.computation()) == "add" and dot.shape.dtype.bits > 1
    fixed = dot.shape.is_fixed and all(o.shape.is_fixed for o in dot.operands) and "sparsity" not in dot.attributes
    batch = range(len(dot.ints("lhs_batch_dims", ())))
    return zero and adds and fixed and all(d in batch for d in i.ints("dimensions"))


def _contracted(r: Rewriter, i: Instruction) -> Instruction | None:
    """The dot; its result has its dimensions in the order that the sum leaves."""
    dot, summed = i.operands[0], i.ints("dimensions")
    if r.uses[dot] > 1:
        return None
    attributes: dict[str, Attribute] = {k: v for k, v in dot.attributes.items() if k != "sharding"}
    for side in ("lhs", "rhs"):
        batch = dot.ints(f"{side}_batch_dims")
        attributes[f"{side}_batch_dims"] = tuple(d for n, d in enumerate(batch) if n not in summed)
        terms = dot.ints(f"{side}_contracting_dims", ())
        attributes[f"{side}_contracting_dims"] = (*terms, *(batch[n] for n in summed))
    return r.emit("dot", *dot.operands, shape=i.shape, name=dot.name, **attributes)
