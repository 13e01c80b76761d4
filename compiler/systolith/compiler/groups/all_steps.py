"""Values of a loop's body for all iterations at once: arrays with a new first dimension."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from systolith.compiler.hlo.attributes import SliceDim
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.passes.rewrite import Rewriter

Attributes = dict[str, Attribute]


def is_stackable(i: Instruction) -> bool:
    """Whether there is an operation that computes an instruction for all iterations at once."""
    if i.opcode == "reduce":
        return all(o.opcode == "constant" for o in i.operands[len(i.operands) // 2 :])
    if i.opcode == "get-tuple-element":
        return i.operands[0].opcode == "reduce" and is_stackable(i.operands[0])
    return i.opcode in ELEMENTWISE or i.opcode in _RULES or i.opcode in ("constant", "dot")


@dataclass
class AllSteps:
    """Makes values for all iterations.

    Attributes:
        r: makes the instructions, outside the loop.
        count: iterations.
        known: values for all iterations that are there.
        alike: values that are the same in all of them, once.
    """

    r: Rewriter
    count: int
    known: dict[Instruction, Instruction] = field(default_factory=dict)
    alike: dict[Instruction, Instruction] = field(default_factory=dict)

    def of(self, i: Instruction) -> Instruction:
        """A value for all iterations; what it is computed from and is not known is stackable."""
        todo = [i]
        while todo:
            top = todo[-1]
            missing = [o for o in top.operands if o not in self.known and o not in self.alike]
            if top in self.known or top in self.alike or not missing:
                self._make(todo.pop())
            else:
                todo += missing
        return self._stacked(i)

    def _make(self, i: Instruction) -> None:
        if i in self.known or i in self.alike:
            return
        if i.opcode == "constant":
            self.alike[i] = self.r.literal(i.literal, i.shape)
        elif self.alike.keys() >= {*i.operands}:
            self.alike[i] = self.r.like(i, [self.alike[o] for o in i.operands], i.shape)
        else:
            self.known[i] = self._made(i)

    def _stacked(self, i: Instruction) -> Instruction:
        if i not in self.known:
            x = self.alike[i]
            along = tuple(range(1, 1 + x.shape.rank))
            self.known[i] = self.r.emit("broadcast", x, shape=self.shape(x.shape), dimensions=along)
        return self.known[i]

    def shape(self, of: Shape) -> Shape:
        """The shape of all values of a shape."""
        if of.is_tuple:
            return tuple_of([self.shape(s) for s in of.elements])
        return array(of.dtype, (self.count, *of.dims))

    def _made(self, i: Instruction) -> Instruction:
        r, shape = self.r, self.shape(i.shape)
        if i.opcode == "dot":
            return self._dot(i)
        if i.opcode == "reduce":
            half = len(i.operands) // 2
            operands = [*map(self._stacked, i.operands[:half]), *(self.alike[o] for o in i.operands[half:])]
            made = r.like(i, operands, shape)
            made.attributes["dimensions"] = _beyond(i.ints("dimensions"))
            return made
        operands = [*map(self._stacked, i.operands)]
        if i.opcode in ELEMENTWISE:
            # `select` and `clamp` take scalars.
            full = [
                r.emit("broadcast", x, shape=array(x.shape.dtype, shape.dims), dimensions=(0,))
                if x.shape.rank == 1 < shape.rank
                else x
                for x in operands
            ]
            return r.like(i, full, shape)
        made = r.like(i, operands, shape)
        made.attributes |= _RULES[i.opcode](i, self.count)
        return made

    def _dot(self, i: Instruction) -> Instruction:
        """Iterations are a batch; of an operand that all of them share they are further rows or columns."""
        r, (x, y) = self.r, i.operands
        if not i.ints("lhs_batch_dims", ()):
            if y in self.alike:
                made = r.like(i, [self._stacked(x), self.alike[y]], self.shape(i.shape))
                made.attributes["lhs_contracting_dims"] = _beyond(i.ints("lhs_contracting_dims", ()))
                return made
            if x in self.alike:
                rows = x.shape.rank - len(i.ints("lhs_contracting_dims", ()))
                shape = array(i.shape.dtype, (*i.dims[:rows], self.count, *i.dims[rows:]))
                made = r.like(i, [self.alike[x], self._stacked(y)], shape)
                made.attributes["rhs_contracting_dims"] = _beyond(i.ints("rhs_contracting_dims", ()))
                return r.transposed(made, (rows, *range(rows), *range(rows + 1, made.shape.rank)))
        made = r.like(i, [self._stacked(x), self._stacked(y)], self.shape(i.shape))
        for side in ("lhs", "rhs"):
            batch, contracting = f"{side}_batch_dims", f"{side}_contracting_dims"
            made.attributes[batch] = (0, *_beyond(i.ints(batch, ())))
            made.attributes[contracting] = _beyond(i.ints(contracting, ()))
        return made

    def total(self, i: Instruction, add: Computation) -> Instruction:
        """The sum of a value over all iterations; of a product without a batch, one product; `add`: adds scalars."""
        r = self.r
        if i.opcode in ("transpose", "reshape"):
            return r.like(i, [self.total(i.operands[0], add)], i.shape)
        if i.opcode != "dot" or i.ints("lhs_batch_dims", ()):
            zero = r.constant(0, i.shape.dtype)
            return r.emit("reduce", self.of(i), zero, shape=i.shape, dimensions=(0,), to_apply=add)
        made = r.like(i, [*map(self.of, i.operands)], i.shape)
        for side in ("lhs", "rhs"):
            name = f"{side}_contracting_dims"
            made.attributes[name] = (0, *_beyond(i.ints(name, ())))
        return made


def _beyond(dims: Sequence[int]) -> tuple[int, ...]:
    """Dimensions of one iteration, where that of iterations stands before them."""
    return tuple(d + 1 for d in dims)


_RULES: Mapping[str, Callable[[Instruction, int], Attributes]] = {
    "reshape": lambda i, n: {},
    "get-tuple-element": lambda i, n: {},
    "broadcast": lambda i, n: {"dimensions": (0, *_beyond(i.ints("dimensions", ())))},
    "transpose": lambda i, n: {"dimensions": (0, *_beyond(i.ints("dimensions")))},
    "reverse": lambda i, n: {"dimensions": _beyond(i.ints("dimensions"))},
    "concatenate": lambda i, n: {"dimensions": _beyond(i.ints("dimensions"))},
    "iota": lambda i, n: {"iota_dimension": i.integer("iota_dimension") + 1},
    "slice": lambda i, n: {"slice": (SliceDim(0, n), *i.slices)},
}
"""What changes in an operation's attributes."""
