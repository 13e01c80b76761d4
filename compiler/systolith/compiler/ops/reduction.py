"""Reductions: inputs over an iteration space of kept and reduced dimensions.

For `reduce` the space is the operand's; for `reduce-window` it is the result's dimensions and, after them, the
window's; for a convolution on the vector unit also the channels of a group.  Several `reduce`s of one space are one
reduction with an accumulator each; values of the whole space (what is reduced, if it is needed in memory too) are
stored on the way.  A `scan` is one over its steps, whose inputs are what a step makes of the values carried.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.hlo.visiting import cone
from systolith.compiler.index.affine import Expr, IndexMap
from systolith.compiler.ops.expression import Const, Graph, Load, Node, topological
from systolith.compiler.ops.expression_builder import (
    expressions,
    inline_scalar,
)
from systolith.isa.dtypes import F32, S32, U32, DType, Kind

T = TypeVar("T")


@dataclass(frozen=True)
class Reduction:
    """A reduction over an iteration space.

    Attributes:
        operations: the `reduce` or `reduce-window`; or several reduces by one operation each, over the same dimensions.
        roots: the group's results that are made of reduced values, each of those of one of `operations`.
        dims: sizes of the iteration space.
        kept, reduced: its dimensions, in order; `kept` are the result's.
        graph: where nodes are made.
        inputs: for each operand, its element at a point of the space.
        inits: for each operand, the initial value.
        plain: micro-operations, for each operand, of reductions by one associative operation; none for a general
            computation.
        identities: per operand, what changes nothing; None: not known, the initial value serves, which may be taken any
            number of times as it combines with itself to itself.
        flagged: whether a last accumulator, without a result, is 1 once there is a value in the others.  A general
            computation has it where its initial value has to be taken once, and what an accumulation starts from is
            its absence.
        halves: which of the result's dimensions is two kept ones here, and how many indices the second has (`split`).
        ordered: whether the computation is applied from the initial value on to one element after the other.
        stepwise: whether `inputs` are what a step makes of the values `Carried`, one for each.
        sides: the other results, elements of the space.
        side_nodes: for each of those, its element at a point of the space.
    """

    operations: tuple[Instruction, ...]
    roots: tuple[Instruction, ...]
    dims: tuple[int, ...]
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    graph: Graph
    inputs: tuple[Node, ...]
    inits: tuple[Node, ...]
    plain: tuple[str, ...]
    identities: tuple[int | None, ...]
    sides: tuple[Instruction, ...] = ()
    side_nodes: tuple[Node, ...] = ()
    flagged: bool = False
    ordered: bool = False
    stepwise: bool = False
    halves: tuple[int, int] | None = None

    @property
    def operation(self) -> Instruction:
        """The first of `operations`, for names."""
        return self.operations[0]

    @property
    def shapes(self) -> list[Shape]:
        """Shapes of what is accumulated over the kept dimensions: the reduction's results, and the flag."""
        types = [s.dtype for operation in self.operations for s in operation.shape.leaves()]
        dims = tuple(self.dims[d] for d in self.kept)
        return [array(t, dims) for t in (*types, *([S32] if self.flagged else []))]

    def reduced_and_sides(self, roots: Sequence[Instruction], of: Sequence[T]) -> tuple[list[T], list[T]]:
        """What belongs to the group's results that are reduced, and to its sides.

        `of`: for each of `roots`, or for each element of one that is a tuple.
        """
        aside = {n for n, root in enumerate(roots) if root in self.sides}
        return [x for n, x in enumerate(of) if n not in aside], [x for n, x in enumerate(of) if n in aside]

    def parts(self) -> list[Reduction]:
        """A reduction for each of `operations`, which load what `sides` hold."""
        index = IndexMap.identity(len(self.dims)).over(self.dims)
        held = {
            id(node): self.graph.node(Load(side, index)) for node, side in zip(self.side_nodes, self.sides, strict=True)
        }
        return [
            replace(
                self,
                operations=(operation,),
                roots=tuple(root for root in self.roots if reached(root, {operation})),
                inputs=tuple(self.graph.substitute(self.inputs[n : n + 1], held)),
                inits=self.inits[n : n + 1],
                plain=self.plain[n : n + 1],
                identities=self.identities[n : n + 1],
                sides=(),
                side_nodes=(),
            )
            for n, operation in enumerate(self.operations)
        ]

    def combine(self, a: Sequence[Node], b: Sequence[Node]) -> list[Node]:
        """The computation on two sets of values."""
        if self.stepwise:
            return list(b)
        if self.plain:
            return [self.graph.micro(*each) for each in zip(self.plain, a, b, strict=True)]
        if not self.flagged:
            return inline_scalar(self.graph, self.operation.computation(), [*a, *b])
        (*left, has_left), (*right, has_right) = a, b
        both = inline_scalar(self.graph, self.operation.computation(), [*left, *right])
        values = [
            self._select(has_left, self._select(has_right, c, x), y) for c, x, y in zip(both, left, right, strict=True)
        ]
        return [*values, self.graph.micro("or", has_left, has_right)]

    def _select(self, flag: Node, yes: Node, no: Node) -> Node:
        if isinstance(flag, Const):
            return yes if flag.image else no
        return self.graph.micro("select", flag, yes, no)

    def starts(self) -> list[Node]:
        """Values to start an accumulation from: the identity, or the initial value where there is none."""
        pairs = zip(self.identities, self.inits, strict=True)
        return [self.graph.const(image) if image is not None else init for image, init in pairs]

    def rounded(self, values: Sequence[Node]) -> list[Node]:
        """Accumulated values as elements of the results."""
        out = []
        for value, shape in zip(values, self.shapes, strict=True):
            t = shape.dtype
            narrow = bool(self.plain) and t.bits < 32 and t.kind is not Kind.PRED
            prefix = "round" if t.is_float else "wrap"
            out.append(self.graph.micro(f"{prefix}.{t}", value) if narrow else value)
        return out

    def results(self, values: Sequence[Node], index: IndexMap) -> list[Node]:
        """The group's results where `index` picks result elements and `values` are the reduction's there."""
        values = values[:-1] if self.flagged else values
        if self.roots == self.operations:
            return list(values)
        if self.halves is not None:
            p, inner = self.halves
            joined = index.dims[p].scaled(inner).plus(index.dims[p + 1])
            index = replace(index, dims=(*index.dims[:p], joined, *index.dims[p + 2 :]))
        nodes = expressions(self.graph, self.roots, index, self.operations)
        made = dict(zip(self.operations, values, strict=True))
        return self.graph.substitute(nodes, {id(n): made[n.leaf] for n in _loads(nodes) if n.leaf in made})

    def split(self, d: int, inner: int) -> Reduction:
        """The same where the kept dimension `d` is two, the second of `inner` indices."""

        def places(of: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(k + (k > d) for k in of)

        return replace(
            self,
            dims=(*self.dims[:d], self.dims[d] // inner, inner, *self.dims[d + 1 :]),
            kept=tuple(sorted((*places(self.kept), d + 1))),
            reduced=places(self.reduced),
            inputs=tuple(self.graph.split(self.inputs, d, inner)),
            inits=tuple(self.graph.split(self.inits, d, inner)),
            halves=(self.kept.index(d), inner),
        )

    def embedding(self) -> IndexMap:
        """From the iteration space to the result's elements."""
        rank = len(self.dims)
        units = tuple(Expr(tuple(int(k == d) for k in range(rank))) for d in self.kept)
        return IndexMap(rank, units, extents=self.dims)


def reached(root: Instruction, sources: Collection[Instruction]) -> bool:
    """Whether an instruction is one of `sources`, or computed from one."""
    return not cone([root], sources).isdisjoint(sources)


def _loads(nodes: Sequence[Node]) -> list[Load]:
    return [n for n in topological(nodes) if isinstance(n, Load)]


def register_type(t: DType) -> DType:
    """The 32-bit element type that holds an accumulated value."""
    return F32 if t.is_float else U32 if t.kind is Kind.UNSIGNED else S32


def row_type(function: str, t: DType) -> DType:
    """As what the cross-lane unit reads accumulated values of type t: a function's own where signs do not matter."""
    return S32 if function.endswith(".s32") else t


def scratch_leaf(name: str, dtype: DType, dims: Sequence[int]) -> Instruction:
    """A leaf for values that a lowering keeps in VMEM between its steps."""
    return Instruction(name, "parameter", array(dtype, tuple(dims)), number=0)
