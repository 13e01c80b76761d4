"""Kernels in serial mode that go through a list: an iteration reads a window, combines it, and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from systolith.compiler.errors import LimitError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import IndexMap
from systolith.compiler.ops.expression import Graph, Load, Node
from systolith.compiler.ops.expression_builder import inline_scalar
from systolith.compiler.ops.reduction import scratch_leaf
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Ref
from systolith.compiler.tile.patterns import AxisCoord
from systolith.compiler.vpu.emit import vector_run
from systolith.compiler.vpu.kernel_builder import KernelBuilder, build
from systolith.compiler.vpu.vectorise import Access, Nest, Work, choose, merge
from systolith.isa.kernel import MAX_NEST
from systolith.isa.pattern import MAX_COORDS, Coord, Pattern


class Combination:
    """The kernel that combines windows with updates, by the computation of a scatter.

    Raises:
        LimitError: it has too many streams or registers.
    """

    def __init__(self, ctx: TileBuilder, root: Instruction, updates: Sequence[Array]) -> None:
        self.ctx = ctx
        graph, builder, count = Graph(), KernelBuilder(), len(updates)
        given: list[Node] = []
        for k in range(2 * count):
            node = graph.node(Load(scratch_leaf(f"value{k}", updates[k % count].dtype, ()), IndexMap(0, ())))
            builder.held[id(node)] = builder.emit("body", "ld", imm=builder.stream(k))
            given.append(node)
        made = builder.lower("body", inline_scalar(graph, root.computation(), given))
        for k, register in enumerate(made):
            builder.emit("body", "st", register, imm=k)
        self.kernel = build(ctx.chip, builder.source())
        self.latency = self.kernel.body.length

    def run(self, tiles: Sequence[Array], updates: Sequence[Array], indices: Array, depth: int) -> None:
        """Append the kernel: an iteration of its outermost loop for each index.

        Args:
            tiles: of each array `[B, d, R]` of its D, in VMEM.
            updates: `[B, N, w, R]`, in VMEM.
            indices: along D, a list in VMEM; windows outside are left out, and rows of others that are not in a tile.
            depth: D.
        """
        outer, count, width, inner = updates[0].dims
        first, rows = tiles[0].origin[1], tiles[0].dims[1]
        inside = Coord((1,), 0, 0, depth - width + 1)
        block = AxisCoord((0, 1, 0), -first, 0, rows, 1)
        through: list[WindowStream] = []
        for t in tiles:
            if rows == depth:
                through.append(WindowStream(t, Access(t.dtype, t.strides), t.strides[1], inside))
                continue
            by_rows = Access(t.dtype, (t.strides[0], 0, t.strides[2]), (block._replace(stride=t.strides[1]),))
            through.append(WindowStream(t, by_rows, 0, inside if width > 1 else None))
        in_order = [WindowStream(u, Access(u.dtype, (u.strides[0], *u.strides[2:])), u.strides[1]) for u in updates]
        streams = [*through, *in_order]
        dims = (outer, width, inner)
        work = merge(Work(dims, tuple(s.access for s in streams), interval=self.latency, latency=self.latency))
        nest = choose(self.ctx.chip, work)
        if nest is None or len(nest.outer) == MAX_NEST:
            raise self.ctx.error("windows of more dimensions than a kernel has loops; reshape them before")
        refs = [
            s.ref(nest, access, count, indices if n < len(tiles) else None)
            for n, (s, access) in enumerate(zip(streams, work.accesses, strict=True))
        ]
        counts = (count, *(p.count for p in nest.outer))
        self.ctx.append(vector_run(self.kernel, counts, nest.inner, refs, self.ctx.origin("scatter"), serial=True))


@dataclass(frozen=True)
class WindowStream:
    """A stream of the kernel: that of a window, and what an index does.

    Attributes:
        array: where.
        access: of a window.
        step: bytes from an index to the next.
        inside: bounds of the index.
    """

    array: Array
    access: Access
    step: int
    inside: Coord | None = None

    def ref(self, nest: Nest, access: Access, count: int, indices: Array | None) -> Ref:
        """The stream with the loop over `count` indices around it, through a list if one is given."""
        window = nest.pattern(access)
        own = len(access.coords)  # these are in terms of the index, too; masks of vectors are not
        coords = [replace(c, coefs=(int(k < own), *c.coefs)) for k, c in enumerate(window.coords)]
        if self.inside is not None:
            coords.append(replace(self.inside, coefs=(1, *(0 for _ in window.counts))))
        if len(coords) > MAX_COORDS:
            raise LimitError("a window is cut in more ways than an address generator has bounds")
        pattern = Pattern(
            window.dtype,
            (count, *window.counts),
            (self.step, *window.strides),
            tuple(coords),
            window.fill,
            -1 if indices is None else 0,
        )
        listed = indices.buf if indices is not None else None
        return Ref(self.array.buf, pattern, self.array.offset, self.array.dynamic, index=listed)
