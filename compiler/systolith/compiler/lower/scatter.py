"""Scatter: windows into an array at places that a list has, in the order of the list.

A computation that takes the update is a DMA through the list.  Any other is a kernel in serial mode: an iteration reads
a window of the array, combines it with its update and writes it, and the next one sees that.  An array in HBM is
combined in boxes in VMEM, each with all updates; those of other boxes are outside of the bounds of its streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from systolith.compiler.errors import LimitError, compile_error
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.lower.windows import copy_windows, list_in_vmem, part_bytes, parts, windows_array
from systolith.compiler.ops.expression import Graph, Load, Node
from systolith.compiler.ops.expression_builder import inline_scalar
from systolith.compiler.ops.reduction import scratch_leaf
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Arg, Array, Ref, TileOp
from systolith.compiler.tile.patterns import AxisCoord
from systolith.compiler.vpu.kernel_builder import KernelBuilder, build
from systolith.compiler.vpu.vectorise import Access, Nest, Work, choose, merge
from systolith.isa.instruction import Space
from systolith.isa.kernel import MAX_NEST, NSCALARS
from systolith.isa.pattern import MAX_COORDS, Coord, Pattern

RESIDENT = 2
"""Part of the budget that a box of an array in HBM takes while it is combined."""


def lower_scatter(ctx: TileBuilder, root: Instruction, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower a scatter of the form that `passes/scatters.py` gives.

    Args:
        ctx: where to.
        root: the scatter.
        operands: arrays `[B, D, R]`; indices s32[N]; updates `[B, N, w, R]`, or without w if that is 1.
        results: as the arrays.

    Raises:
        CompileError: arrays and updates of different types, or a computation that exceeds a kernel's limits.
    """
    count = len(results)
    bases, starts, updates = operands[:count], operands[count], list(map(windows_array, operands[count + 1 :]))
    if any(a.dtype is not u.dtype for a, u in zip(bases, updates, strict=True)):
        raise compile_error(root, "updates of another type than the array; convert them before")
    takes = _takes_updates(root)
    for base, result in zip(bases, results, strict=True):
        whole = takes or result.buf.space is Space.VMEM
        if whole and result.buf.memory is not base.buf.memory:
            ctx.move(base, result, "copy")
    if takes:
        for result, update in zip(results, updates, strict=True):
            _write(ctx, result, starts, update)
        return
    try:
        combine = _Combination(ctx, root, starts, updates)
    except LimitError as problem:
        raise compile_error(root, f"{problem}; use fewer arrays, or a simpler computation") from problem
    for box in _boxes(ctx, results):
        tiles = [_tile(ctx, base, result, box) for base, result in zip(bases, results, strict=True)]
        combine.box(tiles, box)
        for tile, result in zip(tiles, results, strict=True):
            ctx.stage_out(tile, result, box)


def _takes_updates(root: Instruction) -> bool:
    """Whether a scatter's computation gives the updates as they are."""
    made = root.computation().result
    given = made.operands if made.opcode == "tuple" else [made]
    count = len(root.operands) // 2
    return [p.number if p.opcode == "parameter" else -1 for p in given] == list(range(count, 2 * count))


def _write(ctx: TileBuilder, result: Array, starts: Array, updates: Array) -> None:
    """Write windows over an array."""
    size = updates.dtype.size
    for whole, boxes in parts(updates.dims, size, part_bytes(ctx, prod(updates.dims) * size), order=(0, 3)):
        indices = list_in_vmem(ctx, starts, whole.origin[1], whole.dims[1])
        for part in boxes:
            given = view(updates, part) if result.buf.space is Space.VMEM else ctx.stage_in(updates, part)
            copy_windows(ctx, result, given, part, updates.dims[2], indices, scatter=True)


def _boxes(ctx: TileBuilder, results: Sequence[Array]) -> list[Box]:
    """Boxes of arrays that are combined in VMEM: all, if they lie there; windows are cut while they fill a vector."""
    dims = results[0].dims
    if all(a.buf.space is Space.VMEM for a in results):
        return [Box.whole(dims)]
    limit = ctx.budget // RESIDENT // sum(a.dtype.size for a in results)
    vector = ctx.chip.vpu.sublanes * ctx.chip.vpu.lanes
    steps = list(dims)
    for d, least in ((0, vector), (2, vector), (1, 1), (0, 1), (2, 1)):
        others = prod(steps) // steps[d]
        window = prod(steps[k] for k in (0, 2) if k != d)
        steps[d] = min(steps[d], max(limit // others, -(-least // window), 1))
    origins = product(*(range(0, n, step) for n, step in zip(dims, steps, strict=True)))
    return [Box(o, tuple(min(s, n - f) for s, n, f in zip(steps, dims, o, strict=True))) for o in origins]


def _tile(ctx: TileBuilder, base: Array, result: Array, box: Box) -> Array:
    """The box of a result in VMEM, with what the operand has there."""
    if result.buf.space is Space.VMEM:
        return view(result, box)
    tile = ctx.tile(f"{result.buf.name}.in", result, box)
    ctx.copy(replace(view(base, box), origin=tile.origin), tile, "load")
    return tile


class _Combination:
    """What combines windows with updates: the kernel, and where these are.

    Raises:
        LimitError: the kernel has too many streams or registers.
    """

    def __init__(self, ctx: TileBuilder, root: Instruction, starts: Array, updates: Sequence[Array]) -> None:
        self.ctx, self.starts, self.updates = ctx, starts, updates
        self.depth = root.operands[0].dims[1]
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

    def box(self, tiles: Sequence[Array], box: Box) -> None:
        """Combine a box of the arrays, which lies in VMEM, with all updates."""
        ctx, (_, count, width, _) = self.ctx, self.updates[0].dims
        dims = (box.dims[0], count, width, box.dims[2])
        size = sum(u.dtype.size for u in self.updates)
        for whole, boxes in parts(dims, size, part_bytes(ctx, prod(dims) * size), order=(0, 3)):
            indices = list_in_vmem(ctx, self.starts, whole.origin[1], whole.dims[1])
            for part in boxes:
                outer, _, _, inner = part.origin
                there = Box((box.origin[0] + outer, *part.origin[1:3], box.origin[2] + inner), part.dims)
                given = [ctx.stage_in(u, there) for u in self.updates]
                at = Box((there.origin[0], box.origin[1], there.origin[3]), (part.dims[0], box.dims[1], part.dims[3]))
                self._run([view(t, at) for t in tiles], given, indices)

    def _run(self, tiles: Sequence[Array], updates: Sequence[Array], indices: Array) -> None:
        """Append the kernel: an iteration of its outermost loop for each index."""
        outer, count, width, inner = updates[0].dims
        first, rows = tiles[0].origin[1], tiles[0].dims[1]
        inside = Coord((1,), 0, 0, self.depth - width + 1)
        block = AxisCoord((0, 1, 0), -first, 0, rows, 1)
        through: list[Stream] = []
        for t in tiles:
            if rows == self.depth:
                through.append(Stream(t, Access(t.dtype, t.strides), t.strides[1], inside))
                continue
            by_rows = Access(t.dtype, (t.strides[0], 0, t.strides[2]), (block._replace(stride=t.strides[1]),))
            through.append(Stream(t, by_rows, 0, inside if width > 1 else None))
        in_order = [Stream(u, Access(u.dtype, (u.strides[0], *u.strides[2:])), u.strides[1]) for u in updates]
        streams = [*through, *in_order]
        dims = (outer, width, inner)
        work = merge(Work(dims, tuple(s.access for s in streams), interval=self.latency, latency=self.latency))
        nest = choose(self.ctx.chip, work)
        if nest is None or len(nest.outer) == MAX_NEST:
            raise self.ctx.error("windows of more dimensions than a kernel has loops; reshape them before")
        refs = tuple(
            s.ref(nest, access, count, indices if n < len(tiles) else None)
            for n, (s, access) in enumerate(zip(streams, work.accesses, strict=True))
        )
        args: dict[str, Arg] = {
            "kernel": self.kernel,
            "counts": (count, *(p.count for p in nest.outer)),
            "inner": nest.inner,
            "serial": 1,
            "scalars": (0,) * NSCALARS,
            "streams": refs,
        }
        self.ctx.append(TileOp("vpu.run", args, self.ctx.origin("scatter")))


@dataclass(frozen=True)
class Stream:
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
