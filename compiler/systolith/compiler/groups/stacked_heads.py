"""Operands and results of batched products that lie in one array: as a stack, so that blocks run along the batch.

Attention has its heads as a batch dimension, and merges it with the dimension of each head.  Where several such arrays
are slices of one, as queries, keys and values are, or are concatenated, as their gradients are, a head has a part in
each of them: what is computed for some heads at a time cannot read or write these as they are.  A stack, [3, heads,
size], it can; in memory both are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from systolith.compiler.hlo.attributes import SliceDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.ops.table import is_elementwise
from systolith.compiler.passes.rewrite import Rewriter
from systolith.compiler.passes.simplify.dead_code import DeadCode

_REPEATED = ("broadcast", "constant", "iota")
"""What an elementwise operation may take besides the product."""


@dataclass(frozen=True)
class StackHeads:
    """Let slices and concatenations along batch dimensions of products, merged with others, be those of stacks."""

    def run(self, module: Module) -> bool:
        changed = [Rewriter(c).sweep(_Stacks(c.users()).rewritten) for c in module.computations]
        return any(changed) and (DeadCode().run(module) or True)


@dataclass
class _Stacks:
    """The stacks of one computation.

    Attributes:
        users: of each instruction.
        made: stacks, by what they are and their dimensions.
        merged: by reshapes of stacks to what was concatenated: the dimension along which that was.
    """

    users: Mapping[Instruction, Sequence[Instruction]]
    made: dict[tuple[Instruction, Sequence[int]], Instruction] = field(default_factory=dict)
    merged: dict[Instruction, int] = field(default_factory=dict)

    def rewritten(self, r: Rewriter, i: Instruction) -> Instruction | None:
        """What an instruction is replaced by."""
        rule = {"reshape": self._sliced, "concatenate": self._joined, "reduce": self._reduced}.get(i.opcode)
        return rule(r, i) if rule is not None and i.shape.is_array else None

    def _sliced(self, r: Rewriter, i: Instruction) -> Instruction | None:
        """A slice whose dimension is split: a slice of the stack."""
        (part,) = i.operands
        if part.opcode != "slice" or (d := _merged(i.dims, part.dims)) is None or not self._is_batch_of_user(i, d):
            return None
        (whole,) = part.operands
        size, cut = part.dims[d], part.slices[d]
        ends = [SliceDim(0, n) for n in whole.dims]
        ends[d] = SliceDim(cut.start, cut.start + size)
        if not size or tuple(ends) != part.slices or cut.start % size or whole.dims[d] % size:
            return None
        dims = (*whole.dims[:d], whole.dims[d] // size, *i.dims[d : d + 2], *whole.dims[d + 1 :])
        if (whole, dims) not in self.made:
            self.made[whole, dims] = r.reshaped(whole, dims)
        first = cut.start // size
        return r.reshaped(r.narrowed(self.made[whole, dims], d, first, first + 1), i.dims)

    def _joined(self, r: Rewriter, i: Instruction) -> Instruction | None:
        """A concatenation along merged dimensions: that of the parts, stacked."""
        (d,) = i.ints("dimensions")
        parts = [o.operands[0] for o in i.operands if o.opcode == "reshape"]
        if len(parts) < max(len(i.operands), 2) or len({part.dims for part in parts}) > 1:
            return None
        if any(_merged(part.dims, o.dims) != d for part, o in zip(parts, i.operands, strict=True)):
            return None
        if not all(_is_batch_of_maker(part, d) for part in parts):
            return None
        dims = parts[0].dims
        stack = [r.reshaped(part, (*dims[:d], 1, *dims[d:])) for part in parts]
        merged = r.reshaped(r.emit("concatenate", *stack, dimensions=(d,), name=i.name), i.dims)
        self.merged[merged] = d
        return merged

    def _reduced(self, r: Rewriter, i: Instruction) -> Instruction | None:
        """A reduction of what was concatenated, over other dimensions: that of the stack."""
        d, over = self.merged.get(i.operands[0]), i.ints("dimensions")
        if d is None or d in over:
            return None
        (stack,) = i.operands[0].operands
        over = tuple(e if e < d else e + 2 for e in over)
        kept = array(i.shape.dtype, [n for e, n in enumerate(stack.dims) if e not in over])
        made = r.like(i, [stack, i.operands[1]], kept)
        made.attributes["dimensions"] = over
        return r.reshaped(made, i.dims)

    def _is_batch_of_user(self, i: Instruction, d: int) -> bool:
        """Whether a dimension of a value is a batch dimension of a product of it, element by element."""
        todo = [(i, d)]
        seen = {*todo}
        while todo:
            i, d = todo.pop()
            for user in self.users[i]:
                if user.opcode == "dot":
                    sides = [side for side, o in zip(("lhs", "rhs"), user.operands, strict=True) if o is i]
                    if any(d in user.ints(f"{side}_batch_dims", ()) for side in sides):
                        return True
                    continue
                if user.opcode == "transpose":
                    following = user, user.ints("dimensions").index(d)
                elif user.shape.is_array and user.dims == i.dims and is_elementwise(user):
                    following = user, d
                else:
                    continue
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        return False


def _merged(dims: Sequence[int], into: Sequence[int]) -> int | None:
    """The dimension that two neighbours become in a reshape which leaves the others; None: there is none."""
    if len(dims) != len(into) + 1:
        return None
    alike = ((*dims[:d], dims[d] * dims[d + 1], *dims[d + 2 :]) == tuple(into) for d in range(len(into)))
    return next((d for d, same in enumerate(alike) if same and 1 not in dims[d : d + 2]), None)


def _is_batch_of_maker(i: Instruction, d: int) -> bool:
    """Whether a value is made of a product, element by element, and the dimension is a batch dimension of that."""
    while i.opcode != "dot":
        if i.opcode == "transpose":
            d = i.ints("dimensions")[d]
        elif not is_elementwise(i):
            return False
        computed = [o for o in i.operands if o.opcode not in _REPEATED]
        if len(computed) != 1:
            return False
        (i,) = computed
    return d < len(i.ints("lhs_batch_dims", ()))
