"""Operands of a product that are computed, a tile at a time, from values in memory: the whole value never exists.

Where a product stages a tile of an operand in memory, the vector unit makes that tile of a computed one.  Elements
outside the operand (a convolution's padding) are never computed: the matrix unit's address generator fills them in.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box
from systolith.compiler.mxu.gemm_plan import INPUTS_SHARE, Source
from systolith.compiler.ops.expression_builder import GroupPlan, analyze
from systolith.compiler.tile.arrays import dense, dense_like
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.tile.views import as_view, view_base
from systolith.compiler.vpu.elementwise import TileLoop, tile_loop
from systolith.compiler.vpu.emit import vector_cycles
from systolith.compiler.vpu.transposes import turns
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space


@dataclass(frozen=True, eq=False)
class Computed:
    """An operand, and what computes it.

    Attributes:
        plan: over the operand's indices.
        arrays: where the values lie that it is computed from.
        like: where the operand would lie if it were stored; its buffer is never used.
        loops: of boxes so far, for others like them.
    """

    plan: GroupPlan
    arrays: Mapping[Instruction, Array]
    like: Array
    loops: dict[Hashable, TileLoop] = field(default_factory=dict, repr=False)

    def strides(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Bytes between the elements of a dense tile, in the order in which the value would lie in memory."""
        return dense_like(dims, self.like.strides, self.like.dtype.size)

    def tile(self, ctx: TileBuilder, box: Box) -> Array:
        """A box of the operand in VMEM, computed.

        Raises:
            CompileError: as for `elementwise.tile_loop`.
        """
        tile = ctx.tile(f"{self.like.buf.name}.made", self.like, box)
        self._loop(ctx, tile, box).run(ctx, [tile], box)
        return tile

    def _loop(self, ctx: TileBuilder, tile: Array, box: Box) -> TileLoop:
        """How a tile is computed: like others of its size that read as much, if it does not matter where it lies."""

        def made() -> TileLoop:
            parts = prod(self.like.dims) // max(1, box.elements)
            return tile_loop(ctx, self.plan, self.arrays, [tile], box, ctx.budget // INPUTS_SHARE, parts)

        if not self.plan.is_uniform(box):
            return made()
        reads = tuple(self.plan.footprint(leaf, box).dims for leaf in self.plan.leaves)
        key = (box.dims, tile.strides, reads, ctx.budget, ctx.tiled, ctx.region is None)
        if key not in self.loops:
            self.loops[key] = made()
        return self.loops[key]

    def source(self, chip: Chip) -> Source:
        """The cost of computing all of it once.

        Raises:
            CompileError: the vector unit cannot.
        """
        whole = Box.whole(self.like.dims)
        given = [leaf for leaf in self.plan.leaves if self.arrays[leaf].buf.space == Space.HBM]
        read = sum(self.plan.footprint(leaf, whole).elements * self.arrays[leaf].dtype.size for leaf in given)
        target = replace(self.like, strides=self.strides(whole.dims))
        one = Box(whole.origin, (1,) * len(whole.dims))
        turned = turns(chip, self.plan, whole, self.arrays, [target])
        vector, each = (vector_cycles(chip, self.plan, box, self.arrays, [target]) for box in (whole, one))
        return Source(read, turned.cycles if turned.any else vector, each)


def computed(side: Instruction, arrays: Mapping[Instruction, Array]) -> Computed:
    """The operand `side` of a product, computed from parameters of its group that lie in `arrays`.

    Raises:
        NotFoldableError: some data movement in it is no index map.
        CompileError: an operation that the vector unit does not have.
    """
    base, dtype = view_base(side), side.shape.dtype
    size = prod(base.dims) * dtype.size
    whole = Array(
        Buf(side.name, Space.HBM, size), dtype, base.dims, dense(base.dims, dtype.size), (0,) * len(base.dims)
    )
    like = as_view(whole, side) or replace(whole, dims=side.dims, strides=dense(side.dims, dtype.size))
    return Computed(analyze([side]), arrays, replace(like, origin=(0,) * len(side.dims), offset=0))
