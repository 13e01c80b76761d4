"""Values of a loop's body for all iterations at once: arrays with a new first dimension."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from systolith.compiler.hlo.attributes import SliceDim
from systolith.compiler.hlo.ir import Attribute, Instruction
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import F32

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
        callees: has the computations placed that these call.
        count: iterations.
        known: values for all iterations that are there.
        alike: values that are the same in all of them, once.
    """

    r: Rewriter
    callees: Callees
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
        """Iterations are a batch; of an operand that all of them share they are further rows or columns.

        Products of a vector are sums: each would load a matrix for one row.
        """
        r, (x, y) = self.r, i.operands
        if x not in self.alike and y not in self.alike and i.shape.dtype is F32 and (found := self._summed(i)):
            return found
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

    def _summed(self, i: Instruction) -> Instruction | None:
        """Products of matrices by vectors, each of its own, as sums; None: neither operand is vectors."""
        sides = [_Side.of(i, k) for k in range(2)]
        if all(side.free for side in sides):
            return None
        vector, matrix = sides if not sides[0].free else reversed(sides)
        small, large = (
            self.r.transposed(self._stacked(i.operands[s.number]), (0, *_beyond(s.order))) for s in (vector, matrix)
        )
        small, large = (self.r.converted(x, F32) for x in (small, large))
        first = 1 + len(vector.batch)
        wide = self.r.emit("broadcast", small, shape=large.shape, dimensions=tuple(range(small.shape.rank)))
        summed = tuple(range(first, small.shape.rank))
        return self.callees.reduced(self.r, "add", self.r.emit("multiply", wide, large), 0, summed)

    def total(self, i: Instruction) -> Instruction:
        """The sum of a value over all iterations; of a product without a batch, one product."""
        r = self.r
        if i.opcode in ("transpose", "reshape"):
            return r.like(i, [self.total(i.operands[0])], i.shape)
        if i.opcode != "dot" or i.ints("lhs_batch_dims", ()):
            return self.callees.reduced(r, "add", self.of(i), 0, (0,))
        made = r.like(i, [*map(self.of, i.operands)], i.shape)
        for side in ("lhs", "rhs"):
            name = f"{side}_contracting_dims"
            made.attributes[name] = (0, *_beyond(i.ints(name, ())))
        return made


@dataclass(frozen=True)
class _Side:
    """The dimensions of an operand of a dot.

    Attributes:
        number: of the operand.
        batch, summed, free: its dimensions; batch and summed ones in the order of those of the other operand.
    """

    number: int
    batch: tuple[int, ...]
    summed: tuple[int, ...]
    free: tuple[int, ...]

    @classmethod
    def of(cls, i: Instruction, number: int) -> _Side:
        """An operand's."""
        side = ("lhs", "rhs")[number]
        batch, summed = i.ints(f"{side}_batch_dims", ()), i.ints(f"{side}_contracting_dims", ())
        free = tuple(d for d in range(i.operands[number].shape.rank) if d not in (*batch, *summed))
        return cls(number, batch, summed, free)

    @property
    def order(self) -> tuple[int, ...]:
        return (*self.batch, *self.summed, *self.free)


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
