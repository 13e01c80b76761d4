"""Partial results in the lanes of vectors, reduced to one element a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from systolith.compiler.errors import LimitError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.ops.expression import Carried, Load
from systolith.compiler.ops.reduction import Reduction, row_type, scratch_leaf
from systolith.compiler.tile.arrays import dense
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Arg, Array, Ref, TileOp
from systolith.compiler.vpu.emit import Target
from systolith.compiler.vpu.reduce_kernel import AccumulatingKernel, Accumulation, AccumulationJob
from systolith.compiler.vpu.reduce_task import reranked
from systolith.compiler.vpu.shuffles import shuffle, shuffle_cycles
from systolith.isa.dtypes import DType
from systolith.isa.pattern import Pattern

FOLD = 8
"""So many partial results of a row are combined in one step; of fewer there are more steps, each behind the last."""


def scratch(ctx: TileBuilder, name: str, dtype: DType, box: Box) -> Array:
    """Dense elements of 32 bits in VMEM for a box."""
    return Array(ctx.vmem(name, 4 * box.elements), dtype, box.dims, dense(box.dims, 4), box.origin)


@dataclass(frozen=True)
class PartialRows:
    """The last step of a reduction whose reduced dimensions lie in lanes.

    Attributes:
        ctx: takes operations.
        r: what is computed.
        leaves: an array for each leaf, of which initial values are read.
        kept: the box of the kept dimensions, an element of which each row is.
    """

    ctx: TileBuilder
    r: Reduction
    leaves: Mapping[Instruction, Array]
    kept: Box

    def combined(self, partial: Sequence[Array], height: int, width: int) -> list[Array]:
        """Partial results [rows, height, width] reduced to one element a row, as arrays over the kept dimensions."""
        r, kept = self.r, self.kept
        out = [scratch(self.ctx, f"{r.operation.name}.row{n}", a.dtype, kept) for n, a in enumerate(partial)]
        n = kept.elements
        if not r.plain:
            self._by_kernel(partial, height * width, out)
            return out
        for source, target, function, identity in zip(partial, out, r.plain, r.identities, strict=True):
            assert identity is not None
            if height > 1:
                middle = scratch(self.ctx, f"{r.operation.name}.column", source.dtype, Box.whole((n, height)))
                self._xlu(source, middle, (n * height, width), function, identity)
                self._xlu(middle, target, (n, height), function, identity)
            else:
                self._xlu(source, target, (n, width), function, identity)
        return out

    def _xlu(self, source: Array, target: Array, counts: tuple[int, int], function: str, identity: int) -> None:
        """Reduce dense rows."""
        rows, width = counts
        src = Ref(source.buf, Pattern(row_type(function, source.dtype), counts, (4 * width, 4), fill=identity))
        dst = Ref(target.buf, Pattern(target.dtype, (rows,), (4,)))
        args: dict[str, Arg] = {"src": src, "dst": dst, "function": function}
        self.ctx.append(TileOp("xlu.reduce", args, self.ctx.origin("across lanes")))

    def _by_kernel(self, partial: Sequence[Array], n: int, out: Sequence[Array]) -> None:
        """The same for a general computation: a kernel with kept lanes over the n partial results of a row."""
        rows = self.kept.elements
        while rows < self.ctx.chip.vpu.lanes and n > 2 * FOLD and n % FOLD == 0:
            n //= FOLD
            partial = self._folded(partial, n)
        flat = [replace(a, dims=(rows, n), strides=(4 * n, 4), origin=(0, 0)) for a in partial]
        targets = [replace(a, dims=(rows,), strides=(4,), origin=(0,)) for a in out]
        # Lanes hold rows: the cross-lane unit brings neighbouring rows together where reading them apart takes longer.
        k = self._combining(flat, targets)
        turned = [replace(a, strides=(4, 4 * rows)) for a in flat]
        by_columns = self._combining(turned, targets)
        copying = sum(shuffle_cycles(self.ctx.chip, *pair) for pair in zip(flat, turned, strict=True))
        if by_columns.nest.cycles + copying < k.nest.cycles:
            copies = [replace(a, buf=self.ctx.vmem(f"{a.buf.name}.t", a.buf.bytes)) for a in turned]
            for source, copy in zip(flat, copies, strict=True):
                shuffle(self.ctx, source, copy, self.ctx.origin("across lanes"))
            k = self._combining(copies, targets)
        k.run(self.ctx, "across lanes")

    def _folded(self, partial: Sequence[Array], n: int) -> list[Array]:
        """Rows of partial results combined to rows of n, in lanes of a row: few rows fill few lanes."""
        rows, strides = self.kept.elements, (4 * FOLD * n, 4 * n, 4)
        pieces = [replace(a, dims=(rows, FOLD, n), strides=strides, origin=(0, 0, 0)) for a in partial]
        folded = [scratch(self.ctx, f"{a.buf.name}.fold", a.dtype, Box.whole((rows, n))) for a in partial]
        self._combining(pieces, folded).run(self.ctx, "across lanes")
        return folded

    def _combining(self, arrays: Sequence[Array], results: Sequence[Array]) -> AccumulatingKernel:
        """A kernel that combines partial results along their second dimension."""
        r, dims = self.r, arrays[0].dims
        leaves = [scratch_leaf(f"part{n}", a.dtype, dims) for n, a in enumerate(arrays)]
        index = IndexMap.identity(len(dims))
        inputs = tuple(r.graph.node(Load(leaf, index)) for leaf in leaves)
        kept = tuple(d for d in range(len(dims)) if d != 1)
        inits = tuple(reranked(r, n, len(dims)) for n in r.inits)
        inner = replace(r, dims=dims, kept=kept, reduced=(1,), inputs=inputs, inits=inits)
        targets = [Target(a, inner.embedding()) for a in results]
        scalars = {**self.leaves, **dict(zip(leaves, arrays, strict=True))}
        nodes = [Carried(n) for n in range(len(inputs))]
        job = AccumulationJob(Box.whole(dims), scalars, inner.starts(), nodes, targets, False)
        kernel = Accumulation(inner, self.ctx.chip).kernel(job)
        if kernel is None:
            raise LimitError("a reduction across lanes needs more streams than an instruction has", r.operation)
        return kernel
