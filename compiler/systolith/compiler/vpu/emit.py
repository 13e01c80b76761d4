"""VPU instructions for a box of a group's iteration space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType

from systolith.compiler.cost.prices import kernel_length
from systolith.compiler.errors import LimitError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.ops.expression import Coordinate, Inside, Load, Node, topological
from systolith.compiler.ops.expression_builder import GroupPlan
from systolith.compiler.ops.pieces import split_pieces
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Arg, Array, Ref, TileOp
from systolith.compiler.tile.patterns import AxisCoord, address, axis_coords
from systolith.compiler.vpu.expand import Expanded, copying, expanded
from systolith.compiler.vpu.hoist import hoisting
from systolith.compiler.vpu.kernel_builder import KernelBuilder, build
from systolith.compiler.vpu.vectorise import Access, Nest, Work, choose, merge
from systolith.isa.chip import Chip
from systolith.isa.dependence import slot_interval
from systolith.isa.dtypes import S32
from systolith.isa.kernel import NSCALARS, Kernel
from systolith.isa.program import Origin
from systolith.isa.timing import vpu_cost

NO_COPIES: Mapping[int, Work] = MappingProxyType({})

What = Load | tuple[Coordinate, ...] | Inside | int
"""The meaning of a kernel's stream: a load, coordinates, bounds to test, or the store of a root."""


def emit(
    ctx: TileBuilder,
    plan: GroupPlan,
    box: Box,
    leaves: Mapping[Instruction, Array],
    outs: Sequence[Array],
    origin: Origin,
) -> None:
    """Append the operations that compute a box of the group's outputs.

    Args:
        ctx: where operations go.
        plan: the group.
        box: of the iteration space.
        leaves: an array for each leaf, covering at least its footprint over the box; VMEM or accumulators.
        outs: an array for each root, covering at least the box; VMEM.
        origin: for the debug map.

    Raises:
        LimitError: more streams, constants or registers than an instruction or kernel has.
    """
    if not box.elements:
        return
    for code, part, targets in _codes(ctx.chip, plan, box, leaves, outs):
        described = [describe(what, part, leaves, targets) for what in code.streams_at(part.origin)]
        streams = [_begun(s, access) for s, access in zip(described, code.work.accesses, strict=True)]
        run(ctx, code.kernel, code.nest, code.work, streams, origin, code.copies)


def vector_cycles(
    chip: Chip, plan: GroupPlan, box: Box, leaves: Mapping[Instruction, Array], outs: Sequence[Array]
) -> int:
    """Cycles of the vector unit for what `emit` appends; arguments and errors as there."""
    return sum(_cycles(chip, code) for code, _, _ in _codes(chip, plan, box, leaves, outs))


def _cycles(chip: Chip, code: Code) -> int:
    return run_cycles(chip, code.kernel, code.nest, code.work, code.copies)


def run_cycles(chip: Chip, kernel: Kernel, nest: Nest, work: Work, copies: Mapping[int, Work]) -> int:
    """Cycles of what `run` appends."""
    patterns = [nest.pattern(a) for a in work.accesses]
    cost = vpu_cost(kernel, [p.count for p in nest.outer], nest.inner, False, patterns, chip)
    return cost.occupancy + copying(chip, copies)


Emitted = tuple["Code", Box, "Sequence[Target]"]
"""Code, a box that it computes (one of several that are computed alike), and where all of them go."""


def _codes(
    chip: Chip, plan: GroupPlan, box: Box, leaves: Mapping[Instruction, Array], outs: Sequence[Array]
) -> Iterator[Emitted]:
    """The instructions for a box: one for each piece of a concatenation, or for all pieces of one size."""
    alike: dict[tuple[int, ...], list[Box]] = {}
    for part in split_pieces(plan, box):
        alike.setdefault(part.dims, []).append(part)
    for parts in alike.values():
        apart = [made for part in parts for made in _apart(chip, plan, part, leaves, outs)]
        one = _together(chip, plan, parts, leaves, outs)
        if one is not None and _cycles(chip, one[0]) <= sum(_cycles(chip, code) for code, _, _ in apart):
            yield one
        else:
            yield from apart


def _apart(
    chip: Chip, plan: GroupPlan, box: Box, leaves: Mapping[Instruction, Array], outs: Sequence[Array]
) -> Iterator[Emitted]:
    """A box in as many parts as its bounds take."""
    targets = _targets(box, outs)
    code = _code(chip, plan, box, leaves, targets)
    if code is not None:
        yield code, box, targets
        return
    for half in halves(box):
        yield from _apart(chip, plan, half, leaves, outs)


def _together(
    chip: Chip, plan: GroupPlan, parts: Sequence[Box], leaves: Mapping[Instruction, Array], outs: Sequence[Array]
) -> Emitted | None:
    """Pieces of one size that read the same elements (the smaller and the larger of two) in one kernel.

    None: there are no such, or no kernel can have them.
    """
    if len(parts) == 1:
        return None
    roots = [plan.graph.specialise(plan.nodes, part) for part in parts]
    loads = [[n for n in topological(nodes) if isinstance(n, Load)] for nodes in roots]
    if sum(map(len, loads)) == len({id(n) for nodes in loads for n in nodes}):
        return None
    targets = [target for part in parts for target in _targets(part, outs)]
    try:
        code = _vectorised(chip, [n for nodes in roots for n in nodes], parts[0], leaves, targets)
    except LimitError:
        return None
    return None if code is None else (code, parts[0], targets)


def kernel_cycles(
    chip: Chip, plan: GroupPlan, box: Box, leaves: Mapping[Instruction, Array], outs: Sequence[Array]
) -> int | None:
    """Estimate of what one instruction for a box takes; arguments as for `emit`. None: it needs several."""
    code = _code(chip, plan, box, leaves, _targets(box, outs))
    return None if code is None else code.nest.cycles


def _targets(box: Box, outs: Sequence[Array]) -> list[Target]:
    return [Target(array, IndexMap.identity(len(box.dims)).shifted(box.origin)) for array in outs]


@dataclass(frozen=True)
class Code:
    """The code of one box.

    Attributes:
        kernel, nest, work: kernel, loops, and merged accesses of its streams.
        streams: what each stream is.
        origin: of the box.
        copies: of operands, by stream (see `vpu/expand.py`).
    """

    kernel: Kernel
    nest: Nest
    work: Work
    streams: tuple[What, ...]
    origin: tuple[int, ...]
    copies: Mapping[int, Work] = field(default_factory=dict)

    def streams_at(self, origin: tuple[int, ...]) -> Iterator[What]:
        """The streams of another box that this code computes."""
        by = tuple(a - b for a, b in zip(origin, self.origin, strict=True))
        for what in self.streams:
            if isinstance(what, Load) and any(by):
                yield replace(what, map=what.map.shifted(by))
            elif isinstance(what, tuple) and any(by):
                yield tuple(Coordinate(c.expr.shifted(by)) for c in what)
            else:
                yield what


def _code(
    chip: Chip, plan: GroupPlan, box: Box, leaves: Mapping[Instruction, Array], targets: Sequence[Target]
) -> Code | None:
    """The code of a box, made once for all that are computed alike; None: it has too many bounds for one kernel."""

    def made() -> Code | None:
        return _vectorised(chip, plan.graph.specialise(plan.nodes, box), box, leaves, targets)

    if not plan.is_uniform(box):
        return made()
    arrays = (*(leaves[leaf] for leaf in plan.leaves), *(t.array for t in targets))
    key = (box.dims, *((a.dtype.name, a.strides) for a in arrays))
    known = plan.code.get(key)
    if known is None:
        known = plan.code[key] = made()
    return known if isinstance(known, Code) else None


def _vectorised(
    chip: Chip, roots: Sequence[Node], box: Box, leaves: Mapping[Instruction, Array], targets: Sequence[Target]
) -> Code | None:
    builder = _builder(roots, ())
    work = _work(chip, builder, box, leaves, targets)
    nest = choose(chip, work)
    if nest is None:
        return None
    better = hoisting(chip, roots, nest, work, builder.streams)
    least = better.nest if better else nest
    loads = [n for n, what in enumerate(builder.streams) if isinstance(what, Load)]
    wider = expanded(chip, work, loads, least)
    if wider is not None:
        return _on_copies(chip, roots, builder, wider, box)
    if better is not None:
        builder, nest = _builder(roots, better.nodes), better.nest
        work = _work(chip, builder, box, leaves, targets)
    return Code(build(chip, builder.source()), nest, work, tuple(builder.streams), box.origin)


def _on_copies(chip: Chip, roots: Sequence[Node], builder: KernelBuilder, wider: Expanded, box: Box) -> Code:
    """The code of a box on expanded operands."""
    nest, work, copies = wider.nest, wider.work, wider.copies
    better = hoisting(chip, roots, nest, work, builder.streams)
    if better is not None:
        before, builder, nest = builder.streams, _builder(roots, better.nodes), better.nest
        numbers = [before.index(what) for what in builder.streams]
        work = replace(work, accesses=tuple(work.accesses[n] for n in numbers))
        copies = {k: copies[n] for k, n in enumerate(numbers) if n in copies}
        nest = replace(nest, cycles=nest.cycles + copying(chip, copies))
    return Code(build(chip, builder.source()), nest, work, tuple(builder.streams), box.origin, copies)


def _builder(roots: Sequence[Node], held: Sequence[Node]) -> KernelBuilder:
    """The kernel that stores the roots; `held` is computed in its prologue."""
    builder = KernelBuilder()
    builder.hold(held)
    for k, register in enumerate(builder.lower("body", roots)):
        builder.emit("body", "st", register, imm=builder.stream(k))
    return builder


def _work(
    chip: Chip, builder: KernelBuilder, box: Box, leaves: Mapping[Instruction, Array], targets: Sequence[Target]
) -> Work:
    """The accesses of a box, its dimensions merged, as the problem that `choose` solves."""
    ops = [o.op for o in builder.source().body]
    accesses = tuple(describe(what, box, leaves, targets).access for what in builder.streams)
    return merge(Work(box.dims, accesses, interval=slot_interval(ops, chip), latency=kernel_length(ops, chip)))


def halves(box: Box) -> tuple[Box, Box]:
    """Two halves of a box along its first dimension of size over 1.

    Raises:
        LimitError: it is one point.
    """
    for d, (o, n) in enumerate(zip(box.origin, box.dims, strict=True)):
        if n > 1:
            return box.narrowed(d, o, o + n // 2), box.narrowed(d, o + n // 2, o + n)
    raise LimitError("an expression reads elements under more bounds than an address generator has")


@dataclass(frozen=True)
class Target:
    """An output: its array, and from (box-relative) iteration indices to its elements."""

    array: Array
    map: IndexMap


@dataclass(frozen=True)
class StreamSpec:
    """A stream before loops are chosen: its access, and where it starts; without an array, how much further on its only
    coordinate does.
    """

    access: Access
    array: Array | None = None
    offset: int = 0


def describe(
    what: What,
    box: Box,
    leaves: Mapping[Instruction, Array],
    targets: Sequence[Target],
) -> StreamSpec:
    """The access of a kernel's stream, in indices relative to the box."""
    rank = len(box.dims)
    if isinstance(what, int):
        return addressed(targets[what].array, targets[what].map, 0, box)
    if isinstance(what, Load):
        return addressed(leaves[what.leaf], what.map, what.fill, box)
    if isinstance(what, Inside):
        coords = axis_coords(what.bounds, dict.fromkeys(what.quotients, 0))
    else:
        coords = tuple(AxisCoord(c.expr.coefs, c.expr.const) for c in what)
    return StreamSpec(Access(S32, (0,) * rank, coords, 0, False, False))


def _begun(stream: StreamSpec, access: Access) -> StreamSpec:
    """A stream of a box, whose only coordinate may begin elsewhere than that of the box that the code was made for."""
    if stream.array is not None or len(access.coords) != 1:
        return stream
    return replace(stream, offset=stream.access.coords[0].offset - access.coords[0].offset)


def addressed(array: Array, index: IndexMap, fill: int, box: Box) -> StreamSpec:
    """The access of an array's elements through an index map relative to a box.

    Raises:
        ValueError: the array does not cover what the map reads there (a staged tile is too small).
    """
    _check_covered(array, index, Box.whole(box.dims))
    offset, strides, coords = address(array, index)
    return StreamSpec(Access(array.dtype, strides, coords, fill), array, offset)


def _check_covered(array: Array, index: IndexMap, local: Box) -> None:
    reach = [e.interval(local) for e in index.dims]
    ends = [base + n for base, n in zip(array.origin, array.dims, strict=True)]
    if all(lo >= base and hi < end for (lo, hi), base, end in zip(reach, array.origin, ends, strict=True)):
        return
    read = index.footprint(local, ends)
    inside = all(o >= base for o, base in zip(read.origin, array.origin, strict=True))
    fits = all(lo >= 0 and hi < end for (lo, hi), end in zip(reach, ends, strict=True))
    if read.elements and not (inside and (index.bounds or fits)):
        raise ValueError(f"{array.buf.name} covers {array.origin} {array.dims}, of which {reach} is used")


def run(
    ctx: TileBuilder,
    kernel: Kernel,
    nest: Nest,
    work: Work,
    streams: Sequence[StreamSpec],
    origin: Origin,
    copies: Mapping[int, Work] = NO_COPIES,
) -> None:
    """Append a `vpu.run`, after the copies of operands that it reads; `work` holds the merged accesses of `streams`."""
    streams = [_copied(ctx, s, copies[n], origin) if n in copies else s for n, s in enumerate(streams)]
    refs = tuple(
        Ref(s.array.buf, nest.pattern(access), s.offset, s.array.dynamic)
        if s.array
        else nest.coordinates(access, s.offset)
        for s, access in zip(streams, work.accesses, strict=True)
    )
    ctx.append(vector_run(kernel, [p.count for p in nest.outer], nest.inner, refs, origin))


def vector_run(
    kernel: Kernel, counts: Sequence[int], inner: int, streams: Sequence[Ref], origin: Origin, serial: bool = False
) -> TileOp:
    """A `vpu.run`: a kernel in `counts` loops, outermost first, of which the last `inner` are reduced."""
    args: dict[str, Arg] = {
        "kernel": kernel,
        "counts": tuple(counts),
        "inner": inner,
        "serial": int(serial),
        "scalars": (0,) * NSCALARS,
        "streams": tuple(streams),
    }
    return TileOp("vpu.run", args, origin)


def _copied(ctx: TileBuilder, source: StreamSpec, copy: Work, origin: Origin) -> StreamSpec:
    """Append what copies an operand."""
    assert source.array is not None
    dtype, dims = copy.accesses[1].dtype, copy.dims
    buf = ctx.vmem(f"{source.array.buf.name}.expanded", dtype.size * prod(dims))
    target = Array(buf, dtype, dims, copy.accesses[1].strides, (0,) * len(dims))
    builder = KernelBuilder()
    builder.emit("body", "st", builder.emit("body", "ld", imm=builder.stream(0)), imm=builder.stream(1))
    work = merge(copy)
    nest = choose(ctx.chip, work)
    if nest is None:
        raise LimitError(f"a copy of {source.array.buf.name!r} has too many loops")
    run(ctx, build(ctx.chip, builder.source()), nest, work, [source, StreamSpec(work.accesses[1], target)], origin)
    return StreamSpec(copy.accesses[1], target)
