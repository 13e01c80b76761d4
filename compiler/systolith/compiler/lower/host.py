"""Infeed and outfeed: DMA between host queues and the places of values.

All infeeds take from queue 0 and all outfeeds put into queue 0, in program order, as XLA has one of each a device.  An
array goes as the line of its elements, row-major; one without elements does not go.  Where it lies in HBM it goes
through tiles in VMEM.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.trampoline import Steps
from systolith.compiler.index.affine import Box
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.lower.values import Value, flatten, shaped
from systolith.compiler.memory.residency import leaf_shapes
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.ir import Array
from systolith.compiler.tile.views import recast
from systolith.isa.instruction import Space
from systolith.isa.program import Role

QUEUE = 0
"""The host queue of every infeed, and that of every outfeed."""


def lower_infeed(lowering: Lowering, i: Instruction, operands: list[Value]) -> Steps[Value]:
    """Lower an `infeed`: its arrays, depth first, are taken from the queue."""
    _check_queue(lowering, i)
    places = lowering.results(i)
    for place, shape in zip(places, leaf_shapes(i.shape), strict=True):
        if place.buf.space is Space.NONE or not shape.size:
            continue
        queue = lowering.ctx.feed(i.name, Role.INFEED, shape.dtype, shape.dims, QUEUE)
        line = recast(place, queue.dims, queue.dtype)
        for box in _pieces(lowering, line, line.dtype.size * prod(line.dims)):
            tile = lowering.ctx.out_tile(line, box)
            lowering.ctx.copy(view(queue, box), tile, "infeed")
            lowering.ctx.stage_out(tile, line, box, "store infeed")
    yield from ()
    return shaped(iter(places), i.shape)


def lower_outfeed(lowering: Lowering, i: Instruction, operands: list[Value]) -> Steps[Value]:
    """Lower an `outfeed`: the arrays of its operand, depth first, are put into the queue."""
    _check_queue(lowering, i)
    for array, shape in zip(flatten(operands[0]), leaf_shapes(i.operands[0].shape), strict=True):
        if not shape.size:
            continue
        queue = lowering.ctx.feed(i.name, Role.OUTFEED, shape.dtype, shape.dims, QUEUE)
        line = recast(lowering.cached(array), queue.dims, queue.dtype)
        for box in _pieces(lowering, line, lowering.ctx.chip.host.room):
            lowering.ctx.copy(lowering.ctx.stage_in(line, box, "load outfeed"), view(queue, box), "outfeed")
    yield from ()
    return ()


def _check_queue(lowering: Lowering, i: Instruction) -> None:
    chip = lowering.ctx.chip
    if chip.host.queues <= QUEUE:
        raise compile_error(i, f"chip {chip.name!r} has no host queues (host.queues); take another chip")


def _pieces(lowering: Lowering, line: Array, most: int) -> Iterator[Box]:
    """Boxes of a line of elements, in order: of at most so many bytes, and as a tile can take, where one is needed."""
    (count,) = line.dims
    most = most if line.buf.space is Space.VMEM else min(most, lowering.ctx.budget // 2)
    size = max(most // line.dtype.size, 1)
    for start in range(0, count, size):
        yield Box((start,), (min(size, count - start),))
