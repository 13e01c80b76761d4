"""Boxes in which concatenations have one piece: each is computed by a kernel of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from systolith.compiler.index.affine import Box
from systolith.compiler.ops.expression import Micro, Pieces, live_pieces
from systolith.compiler.ops.expression_builder import GroupPlan, streams_of


def split_pieces(plan: GroupPlan, box: Box) -> Iterator[Box]:
    """The parts of a box in which concatenations have one piece, where they lie along one dimension of the box."""
    nodes = [n for n in plan.all_nodes if isinstance(n, Pieces)]
    parts = [box]
    while parts:
        part = parts.pop()
        cut = next((cut for n in nodes if (cut := _cut(n, part))), None)
        if cut is None:
            yield part
        else:
            d, at = cut
            first = part.origin[d]
            parts += [part.narrowed(d, at, first + part.dims[d]), part.narrowed(d, first, at)]


def _cut(node: Pieces, box: Box) -> tuple[int, int] | None:
    """A dimension of a box and the index there at which half of the pieces that it touches end; None: there is none."""
    live = live_pieces(node, box)
    used = [d for d, c in enumerate(node.expr.coefs) if c and box.dims[d] > 1]
    if len(live) < 2 or len(used) != 1 or abs(node.expr.coefs[used[0]]) != 1:
        return None
    (d,) = used
    rest = node.expr.const + sum(c * box.origin[k] for k, c in enumerate(node.expr.coefs) if k != d)
    end = node.ends[live[len(live) // 2 - 1]]
    return d, end - rest if node.expr.coefs[d] == 1 else rest - end + 1


def kernel_sizes(plan: GroupPlan) -> tuple[int, int]:
    """Most micro-operations, and most streams, that any kernel of a plan has."""
    plans = [plan]
    if any(isinstance(n, Pieces) for n in plan.all_nodes):
        whole = Box.whole(plan.dims)
        plans = [_specialised(plan, box) for box in split_pieces(plan, whole)]
    return max(sum(isinstance(n, Micro) for n in p.all_nodes) for p in plans), max(map(streams_of, plans))


def _specialised(plan: GroupPlan, box: Box) -> GroupPlan:
    return replace(plan, nodes=tuple(plan.graph.specialise(plan.nodes, box)), code={})
