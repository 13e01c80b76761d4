"""What is reduced: a box of an iteration space, and what becomes of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.ops.expression import Const, Load, Node
from systolith.compiler.ops.expression_builder import GroupPlan
from systolith.compiler.ops.reduction import Reduction, reached, scratch_leaf
from systolith.compiler.tile.ir import Array
from systolith.compiler.vpu.reduce_kernel import CombineOrder


@dataclass(frozen=True)
class Finish:
    """The epilogue of an accumulation.

    Attributes:
        before: leaves that hold what earlier chunks gave; empty for the first chunk.
        last: whether this is the last chunk, so that the group's results follow; else raw values are kept.
        continued: for each accumulator, whether it starts from what earlier chunks gave (the first from the initial
            value), so that chunks make no difference; else their results are combined.
    """

    before: tuple[Instruction, ...] = ()
    last: bool = True
    continued: tuple[bool, ...] = ()

    @property
    def goes_on(self) -> bool:
        """Whether accumulators start from what earlier chunks gave."""
        return bool(self.continued) and self.continued[0]

    @property
    def second(self) -> bool:
        """Whether partial results are reduced now, and not after the last chunk."""
        return self.last or not self.goes_on

    def part(self, n: int) -> Finish:
        """Of one accumulator."""
        return Finish(self.before[n : n + 1], self.last, self.continued[n : n + 1])

    def nodes(self, r: Reduction, values: Sequence[Node], index: IndexMap, started: bool) -> list[Node]:
        """Nodes of the targets; `started`: the initial values are in `values` already."""
        g = r.graph
        if self.before and not self.goes_on:
            values = r.combine([g.node(Load(leaf, index)) for leaf in self.before], values)
        if not self.last:
            return list(values)
        if r.flagged and not started:
            values = r.combine(r.inits, values)
        elif not started and None not in r.identities:
            more = r.combine(values, r.inits)
            neutral = [
                isinstance(n, Const) and n.image == image for n, image in zip(r.inits, r.identities, strict=True)
            ]
            values = [v if same else m for v, m, same in zip(values, more, neutral, strict=True)]
        return r.results(r.rounded(values), index)


@dataclass(frozen=True)
class Task:
    """A box that is to be reduced.

    Attributes:
        r: what is computed.
        whole: the box of the iteration space.
        kept: the same of the kept dimensions.
        finish: what becomes of what is accumulated.
        leaves: an array for each leaf.
        targets: arrays that cover `kept`, for the results or raw values.
        sides: arrays that cover `whole`, for the reduction's sides.
        stored: whether what is reduced has been computed to memory for this.
        alone: whether its elements are combined in the order that is best for the box, not for all of the space.
    """

    r: Reduction
    whole: Box
    kept: Box
    finish: Finish
    leaves: Mapping[Instruction, Array]
    targets: Sequence[Array]
    sides: Sequence[Array] = ()
    stored: bool = False
    alone: bool = False

    @property
    def several(self) -> bool:
        """Whether there is more than one reduction alone."""
        return len(self.r.operations) > 1 or bool(self.r.sides)

    def over(self, kept: Box) -> Task:
        """The part of it that a box of kept dimensions covers."""
        r = self.r
        reduced = Box(tuple(self.whole.origin[d] for d in r.reduced), tuple(self.whole.dims[d] for d in r.reduced))
        return replace(self, whole=joined(r, kept, reduced), kept=kept)

    def parts(self) -> list[Task]:
        """A task for each reduction, which reads what `sides` hold."""
        leaves = {**self.leaves, **dict(zip(self.r.sides, self.sides, strict=True))}
        found = []
        for n, r in enumerate(self.r.parts()):
            own = [k for k, root in enumerate(self.r.roots) if reached(root, {self.r.operations[n]})]
            finish = self.finish.part(n)
            targets = [self.targets[k] for k in own] if finish.last else [self.targets[n]]
            found.append(replace(self, r=r, finish=finish, leaves=leaves, targets=targets, sides=()))
        return found

    def partial(self, order: CombineOrder) -> Box:
        """Box of the partial results of an order of two steps."""
        r, whole = self.r, self.whole
        stays, place = staying(r, order)
        origin, dims = [whole.origin[d] for d in stays], [whole.dims[d] for d in stays]
        return Box((*origin[:place], 0, *origin[place:]), (*dims[:place], order.rows, *dims[place:]))

    def second(self, order: CombineOrder, arrays: Sequence[Array]) -> Task:
        """The second step of an order, on the partial results in `arrays`."""
        r, g = self.r, self.r.graph
        stays, place = staying(r, order)
        spaces = [*stays[:place], None, *stays[place:]]
        dims = tuple(order.rows if d is None else r.dims[d] for d in spaces)
        kept = tuple(k for k, d in enumerate(spaces) if d in r.kept)
        held = [scratch_leaf(f"partial{n}", a.dtype, dims) for n, a in enumerate(arrays)]
        index = IndexMap.identity(len(dims)).over(dims)
        inner = replace(
            r,
            dims=dims,
            kept=kept,
            reduced=tuple(k for k in range(len(dims)) if k not in kept),
            inputs=tuple(g.node(Load(leaf, index)) for leaf in held),
            inits=tuple(reranked(r, n, len(dims)) for n in r.inits),
            sides=(),
            side_nodes=(),
        )
        finish = Finish() if self.finish.goes_on else self.finish
        leaves = {**self.leaves, **dict(zip(held, arrays, strict=True))}
        return Task(inner, self.partial(order), self.kept, finish, leaves, self.targets)

    def side_plan(self) -> GroupPlan:
        """The plan of the sides alone."""
        return GroupPlan(self.r.dims, self.r.side_nodes, self.r.graph)


def staying(r: Reduction, order: CombineOrder) -> tuple[list[int], int]:
    """The dimensions that partial results have besides their rows, and how many of them are outside of the rows."""
    last = max(d for d in r.reduced if d not in order.left)
    stays = [d for d in range(len(r.dims)) if d in r.kept or d in order.left]
    return stays, sum(d < last for d in stays)


def joined(r: Reduction, kept: Box, reduced: Box) -> Box:
    """The box of the iteration space over boxes of the kept and of the reduced dimensions."""
    origin, dims = [0] * len(r.dims), [1] * len(r.dims)
    for box, places in ((kept, r.kept), (reduced, r.reduced)):
        for d, o, n in zip(places, box.origin, box.dims, strict=True):
            origin[d], dims[d] = o, n
    return Box(tuple(origin), tuple(dims))


def reranked(r: Reduction, node: Node, rank: int) -> Node:
    """An initial value's expression, which depends on no index, in a space of another rank."""
    return r.graph.project([node], (0,) * len(r.dims), (0,) * rank)[0]


def over_result(r: Reduction) -> Reduction:
    """The reduction with initial values over the result's space."""
    return replace(r, inits=tuple(reranked(r, n, len(r.kept)) for n in r.inits))
