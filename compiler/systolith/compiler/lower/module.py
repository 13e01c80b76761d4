"""Lowering of a module: what lowers each sort of instruction, and the entry with its parameters and results."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from systolith.compiler.emit.assemble import assemble
from systolith.compiler.hlo.feed_configs import feed_configs
from systolith.compiler.hlo.ir import Module
from systolith.compiler.lower.block_bodies import BlockBodies
from systolith.compiler.lower.blocks import cached_operands, lower_blocks
from systolith.compiler.lower.control import lower_conditional, lower_while
from systolith.compiler.lower.dma_ops import lower_custom, slice_view
from systolith.compiler.lower.group_copies import GroupCopies
from systolith.compiler.lower.host import lower_infeed, lower_outfeed
from systolith.compiler.lower.lowering import Lowering, LoweringRules
from systolith.compiler.memory.aliasing import plan_donation
from systolith.compiler.memory.residency import (
    CACHED_SHARE,
    VALUES_SHARE,
    Leaf,
    place,
    result_leaves,
    running,
)
from systolith.compiler.memory.shares import Shares
from systolith.compiler.memory.update_places import rows_in_hbm
from systolith.compiler.mxu.matmul import lower_output
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.options import Options, Plan
from systolith.compiler.passes.dynamic.entry_sizes import EntrySizes
from systolith.compiler.schedule.fitting import schedule
from systolith.compiler.schedule.group_loops import USUAL_LOOPS, Choice
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.tile.views import recast
from systolith.compiler.vpu.elementwise import lower_loop
from systolith.compiler.vpu.reduce import lower_reduce
from systolith.isa.dtypes import dtype
from systolith.isa.instruction import Space
from systolith.isa.program import Program, Role


def lower_module(
    module: Module,
    bodies: BlockBodies,
    options: Options,
    spilled: set[Leaf],
    shares: Shares,
    values: float = VALUES_SHARE,
    copies: GroupCopies | None = None,
    loops: Shares = USUAL_LOOPS,
    ways: dict[Hashable, Choice] | None = None,
) -> tuple[Lowering, dict[Buf, Leaf]]:
    """Lower a grouped module.

    Args:
        module: grouped HLO.
        bodies: of blocks, for a chip.
        options: what the user chose.
        spilled: values that lie in HBM in any case.
        shares: parts of the free VMEM that each group's tiles may take.
        values: part of VMEM that whole values may take together.
        copies: of groups; None: each is lowered by itself.
        loops: parts of the free VMEM that the buffers of loops may take.
        ways: how groups have their loops, so far, on this chip; gets those of this lowering. None: nothing is known.

    Returns:
        The builder that lowered it, and which value a buffer of a whole value holds.
    """
    entry, chip = module.entry, bodies.chip
    donation = plan_donation(module, chip.vmem.bytes // CACHED_SHARE)
    rows = {leaf for c in running(entry) for leaf in rows_in_hbm(c, chip.vmem.bytes)}
    placement = place(module, chip.vmem.bytes, shares, spilled | rows, donation.fixed, values)
    ctx = TileBuilder(chip, options)
    ways = {} if ways is None else ways
    configs = feed_configs(module)
    lowering = Lowering(RULES, ctx, placement, bodies, copies=copies, loops=loops, configs=configs, ways=ways)
    results = []
    shapes, sizes = entry.result.shape.arrays, EntrySizes.of(module)
    for number, (leaf, shape) in enumerate(zip(result_leaves(entry), shapes, strict=True)):
        dims = sizes.of_result(number, shape.rank)
        array = ctx.table(f"result{number}", Role.RESULT, shape.dtype, shape.dims, number, sizes=dims)
        made = leaf[0].shape.arrays[leaf[1]]
        results.append((leaf, recast(array, made.dims, made.dtype)))
    ctx.explain += donation.decisions
    lowering.entry(entry, results, donation, sizes)
    return lowering, lowering.owners


def alone(
    lowering: Lowering, group: Group, operands: Sequence[Array], results: Sequence[Array], picked: str
) -> tuple[Program | None, Sequence[Plan]]:
    """A program of one group, its arrays where they lie in the module (None: no place for its tiles), and its plans."""
    apart = lowering.apart(group, picked)
    sub = apart.ctx
    moved: dict[Buf, Buf] = {}

    def same(array: Array) -> Array:
        if array.buf not in moved:
            moved[array.buf] = _like(sub, array.buf)
        return replace(array, buf=moved[array.buf])

    inputs, outputs = [same(a) for a in operands], [same(a) for a in results]
    if group.tiling:
        lower_blocks(apart, group, inputs, outputs)
    else:
        lower_output(sub, group, inputs, outputs)
    apart.roll(0, group, inputs, outputs)
    fitted = schedule(sub, lowering.free)
    if fitted.plan.failed is not None:
        return None, sub.plans
    program = assemble(group.name, fitted.block, sub.buffers, fitted.plan, sub.chip).program
    return program, sub.plans


def _like(sub: TileBuilder, buf: Buf) -> Buf:
    """A buffer of the same size in the same memory."""
    if buf.space == Space.HBM:
        return sub.hbm(buf.name, Role.TEMP, dtype("u8"), (buf.bytes,))
    made = sub.vmem(buf.name, buf.bytes)
    sub.whole.add(made)
    return made


def _lower_vector(ctx: TileBuilder, group: Group, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower a group on the vector unit; arguments as for `lower_loop`."""
    (lower_reduce if group.reduces else lower_loop)(ctx, group, operands, results)


RULES = LoweringRules(
    groups={Unit.MXU: lower_output, Unit.VPU: _lower_vector, Unit.DMA: lower_custom},
    control={
        "while": lower_while,
        "conditional": lower_conditional,
        "infeed": lower_infeed,
        "outfeed": lower_outfeed,
    },
    view=slice_view,
    operands=cached_operands,
    blocks=lower_blocks,
    alone=alone,
)
