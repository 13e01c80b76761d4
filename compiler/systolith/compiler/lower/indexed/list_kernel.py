"""Elementwise kernels over lists and tiles in VMEM, made node by node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, Expr, IndexMap
from systolith.compiler.ops.expression import Coordinate, Graph, Load, Node
from systolith.compiler.ops.expression_builder import GroupPlan
from systolith.compiler.ops.reduction import scratch_leaf
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.compiler.vpu.emit import emit
from systolith.isa.dtypes import S32


class ListKernel:
    """A kernel in the making.

    Args:
        ctx: where it is appended.
        dims: of its iteration space.
    """

    def __init__(self, ctx: TileBuilder, dims: tuple[int, ...]) -> None:
        self.graph = Graph()
        self._ctx, self._dims = ctx, dims
        self._arrays: dict[Instruction, Array] = {}

    def load(self, array: Array, index: IndexMap | None = None) -> Node:
        """The element of an array at a point of the space, or at its index there."""
        leaf = scratch_leaf(array.buf.name, array.dtype, array.dims)
        self._arrays[leaf] = replace(array, origin=(0,) * len(array.dims))
        return self.graph.node(Load(leaf, (index or IndexMap.identity(len(self._dims))).over(self._dims)))

    def inside(self, at: Node, limit: int) -> Node:
        """Whether 0 <= at < limit."""
        g = self.graph
        return g.micro("and", g.micro("ge.s32", at, g.const(0)), g.micro("lt.s32", at, g.const(limit)))

    def emit(self, nodes: Sequence[Node], targets: Sequence[Array], what: str) -> None:
        """Append it, with a node for each target."""
        plan, box = GroupPlan(self._dims, tuple(nodes), self.graph), Box.whole(self._dims)
        emit(self._ctx, plan, box, self._arrays, targets, self._ctx.origin(what))

    def list_of(self, name: str, node: Node, what: str) -> Array:
        """A new list of what a node gives."""
        made = self._ctx.array(name, S32, self._dims)
        self.emit([node], [made], what)
        return made


def filled(ctx: TileBuilder, name: str, count: int, value: int) -> Array:
    """A list of one number in every place."""
    kernel = ListKernel(ctx, (count,))
    return kernel.list_of(name, kernel.graph.const(value), "fill")


def number_list(ctx: TileBuilder, count: int) -> Array:
    """A list of 0, 1, 2, ..."""
    kernel = ListKernel(ctx, (count,))
    return kernel.list_of("numbers", kernel.graph.node(Coordinate(Expr((1,)))), "number")
