"""Kernels that accumulate: one register an accumulator, carried over the reduced loops of a box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from systolith.compiler.affine import Box
from systolith.compiler.emit import StreamSpec, Target, describe
from systolith.compiler.errors import CompileError
from systolith.compiler.expression import Carried, Const, Inside, Load, Node
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.kernel_builder import KernelBuilder, interval, latency
from systolith.compiler.reduction import Reduction
from systolith.compiler.tile.ir import Array
from systolith.compiler.vector import Access, Nest, Work, choose, merge
from systolith.isa.chip import Chip
from systolith.isa.dtypes import S32

TAILS = Inside(())
"""Where the elements of the last vectors exist."""


@dataclass(frozen=True)
class AccumulatingKernel:
    """An accumulating kernel with its loops."""

    builder: KernelBuilder
    nest: Nest
    work: Work
    streams: tuple[StreamSpec, ...]


@dataclass(frozen=True)
class Accumulation:
    """Makes the accumulating kernels of a reduction for a chip."""

    r: Reduction
    chip: Chip

    def kernel(
        self,
        box: Box,
        leaves: Mapping[Instruction, Array],
        starts: Sequence[Node],
        finish: Sequence[Node],
        outs: Sequence[Target] | None,
        lanes_reduced: bool,
    ) -> AccumulatingKernel | None:
        """The accumulating kernel of a box; None if its loops do not fit. `outs` None: partial results."""
        tails = False
        while True:
            k = self._try_kernel(box, leaves, starts, finish, outs, lanes_reduced, tails)
            if k is None or tails or not any(d in k.nest.reduced for d in k.nest.tails):
                return k
            tails = True

    def _try_kernel(
        self,
        box: Box,
        leaves: Mapping[Instruction, Array],
        starts: Sequence[Node],
        finish: Sequence[Node],
        outs: Sequence[Target] | None,
        lanes_reduced: bool,
        tails: bool,
    ) -> AccumulatingKernel | None:
        r, chip = self.r, self.chip
        g = r.graph
        b = KernelBuilder()
        inputs = g.specialise(r.inputs, box)
        if tails:
            inputs = [self._neutral(x, s) for x, s in zip(inputs, g.specialise(r.starts(), box), strict=True)]
        for n, value in enumerate(b.lower("prologue", g.specialise(starts, box))):
            b.carried[n] = b.register()
            b.emit("prologue", "mov", value, dst=b.carried[n])
        carried = [Carried(n) for n in range(len(inputs))]
        for n, value in enumerate(b.lower("body", r.combine(carried, inputs))):
            b.carry("body", n, value)
        for n, value in enumerate(b.lower("epilogue", g.specialise(finish, box))):
            b.emit("epilogue", "st", value, imm=b.stream(n))
        try:
            source = b.source()
        except CompileError:
            return None
        streams = []
        for what in b.streams:
            if isinstance(what, int) and outs is None:
                streams.append(_partial(r, box))
            elif isinstance(what, Inside) and what == TAILS:
                streams.append(StreamSpec(Access(S32, (0,) * len(box.dims), (), 0, False, True)))
            else:
                streams.append(describe(what, box, leaves, outs or ()))
        ops = [o.op for o in source.body]
        work = merge(
            Work(
                box.dims,
                tuple(s.access for s in streams),
                frozenset(r.reduced),
                interval(chip, ops),
                latency(chip, ops),
                lanes_reduced,
            )
        )
        nest = choose(chip, work)
        return None if nest is None else AccumulatingKernel(b, nest, work, tuple(streams))

    def _neutral(self, x: Node, start: Node) -> Node:
        """An input that is neutral in the last vector's lanes beyond a reduced dimension."""
        g = self.r.graph
        if isinstance(x, Load) and isinstance(start, Const) and not x.map.bounds and x.map.total:
            return g.node(replace(x, fill=start.image))
        return g.micro("select", g.node(TAILS), x, start)


def _partial(r: Reduction, box: Box) -> StreamSpec:
    """Partial results before the vector's loops are known: strides of kept dimensions in units of rows."""
    strides = [0] * len(box.dims)
    step = 1
    for d in reversed(r.kept):
        strides[d] = step
        step *= box.dims[d]
    step = 4
    for d in reversed(r.reduced):
        strides[d] = step
        step *= box.dims[d]
    return StreamSpec(Access(S32, tuple(strides), partial=True))
