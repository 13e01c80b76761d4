"""Infeed and outfeed: DMA between host queues and the places of values; calls of functions of the host, likewise.

Each config has a queue (`hlo/feed_configs.py`), and all go in program order.  An array goes as the line of its
elements, row-major; one without elements does not go.  Where it lies in HBM it goes through tiles in VMEM.  What a call
sends and takes goes through the last queue; tokens keep its results behind its operands, as transfers of one number.
"""

from __future__ import annotations

from collections.abc import Iterator

from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.feed_configs import config_of
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.trampoline import Steps
from systolith.compiler.hlo.values.host_calls import marked
from systolith.compiler.index.affine import Box
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.lower.values import Value, flatten, shaped
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.ir import Array
from systolith.compiler.tile.views import recast
from systolith.isa.instruction import Space
from systolith.isa.program import Role


def lower_infeed(lowering: Lowering, i: Instruction, operands: list[Value]) -> Steps[Value]:
    """Lower an `infeed`: its arrays, depth first, are taken from the queue."""
    number, role = _queue_number(lowering, i), Role.INFEED if marked(i) is None else Role.RETURN
    places = lowering.results(i)
    for place, shape in zip(places, i.shape.arrays, strict=True):
        if place.buf.space is Space.NONE or not shape.size:
            continue
        queue = lowering.ctx.feed(i, role, shape, number, config_of(i))
        line = recast(place, queue.dims, queue.dtype)
        for box in _pieces(lowering, line):
            tile = lowering.ctx.out_tile(line, box)
            lowering.ctx.copy(view(queue, box), tile, "infeed")
            lowering.ctx.stage_out(tile, line, box, "store infeed")
    yield from ()
    return shaped(iter(places), i.shape)


def lower_outfeed(lowering: Lowering, i: Instruction, operands: list[Value]) -> Steps[Value]:
    """Lower an `outfeed`: the arrays of its operand, depth first, are put into the queue."""
    number, call = _queue_number(lowering, i), marked(i)
    role, data = (Role.OUTFEED, b"") if call is None else (Role.CALL, call.to_bytes())
    for array, shape in zip(flatten(operands[0]), i.operands[0].shape.arrays, strict=True):
        if not shape.size:
            continue
        queue = lowering.ctx.feed(i, role, shape, number, config_of(i), data)
        line = recast(lowering.cached(array), queue.dims, queue.dtype)
        for box in _pieces(lowering, line):
            lowering.ctx.copy(lowering.ctx.stage_in(line, box, "load outfeed"), view(queue, box), "outfeed")
    yield from ()
    return ()


def _queue_number(lowering: Lowering, i: Instruction) -> int:
    chip, configs = lowering.ctx.chip, lowering.configs[i.opcode]
    if not chip.host.queues:
        raise compile_error(i, f"chip {chip.name!r} has no host queues (host.queues); take another chip")
    if marked(i) is not None:
        return chip.host.queues - 1
    if len(configs) > chip.host.queues:
        what = (
            f"the module has {len(configs)} configs of {i.opcode}s, chip {chip.name!r} a queue for {chip.host.queues}"
        )
        raise compile_error(i, f"{what}: set host.queues={len(configs)}, or let {i.opcode}s share configs")
    return configs.index(config_of(i))


def _pieces(lowering: Lowering, line: Array) -> Iterator[Box]:
    """Boxes of a line of elements, in order: of what a queue holds at most, and a tile can take where one is needed."""
    most = lowering.ctx.chip.host.room
    most = most if line.buf.space is Space.VMEM else min(most, lowering.ctx.budget // 2)
    size = max(most // line.dtype.size, 1)
    return Box.whole(line.dims).tiles([size])
