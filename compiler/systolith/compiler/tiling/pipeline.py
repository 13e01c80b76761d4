"""Grouping: which passes, in which order."""

from __future__ import annotations

from collections.abc import Callable

from systolith.compiler.groups.bf16_propagation import PropagateBf16, RoundResiduals
from systolith.compiler.groups.bf16_rows import Bf16Rows
from systolith.compiler.groups.counters import CountLast
from systolith.compiler.groups.dilated_inputs import SplitDilatedInputs
from systolith.compiler.groups.factor_sums import FactorSums
from systolith.compiler.groups.fusion import Fuse, Limits
from systolith.compiler.groups.layer_loops import LoopOverLayers
from systolith.compiler.groups.loop_invariants import SinkInvariants
from systolith.compiler.groups.loop_products import LoopProducts
from systolith.compiler.groups.loop_residuals import RecomputeRows
from systolith.compiler.groups.loop_rows import LoopRows
from systolith.compiler.groups.loop_scans import ScanLoops
from systolith.compiler.groups.loop_unroll import UnrollCarried
from systolith.compiler.groups.loop_updates import UpdateInLoops
from systolith.compiler.groups.multi_output import FuseOutputs
from systolith.compiler.groups.producer_fusion import FusePrologues
from systolith.compiler.groups.recomputation import LARGE, Recompute
from systolith.compiler.groups.slice_hoisting import HoistSlices
from systolith.compiler.groups.slice_views import SliceViews
from systolith.compiler.groups.softmax_products import SoftmaxProducts
from systolith.compiler.groups.stacked_heads import StackHeads
from systolith.compiler.groups.unit_assignment import UnitAssignment
from systolith.compiler.groups.vector_products import SumVectorProducts
from systolith.compiler.options import Options
from systolith.compiler.passes.base import Pass
from systolith.compiler.passes.simplify.tuples import ExpandBarriers
from systolith.compiler.passes.simplify.unique_names import UniqueNames
from systolith.compiler.tiling.batch_loops import BatchLoops
from systolith.compiler.tiling.blocking import BlockNormalisations
from systolith.compiler.tiling.product_blocking import BlockProducts
from systolith.isa.chip import Chip


def _units(chip: Chip, options: Options) -> UnitAssignment:
    """Where products are computed; the vector unit has one precision."""
    return UnitAssignment(chip if options.precision in (None, "highest") else None)


GROUPING: dict[str, Callable[[Chip, Options], Pass]] = {
    "loop-scans": lambda chip, options: ScanLoops(chip),
    "loop-products": lambda chip, options: LoopProducts(chip, options.precision),
    "bf16-residuals": lambda chip, options: RoundResiduals(chip, options.precision),
    "layer-loops": lambda chip, options: LoopOverLayers(chip),
    "invariant-sinking": lambda chip, options: SinkInvariants(chip),
    "row-recomputation": lambda chip, options: RecomputeRows(chip),
    "bf16-rows": lambda chip, options: Bf16Rows(chip, options.precision),
    "row-updates": lambda chip, options: UpdateInLoops(chip),
    "loop-rows": lambda chip, options: LoopRows(chip),
    "batch-loops": lambda chip, options: BatchLoops(chip, _units(chip, options), options),
    "bf16-propagation": lambda chip, options: PropagateBf16(chip, options.precision),
    "vector-products": lambda chip, options: SumVectorProducts(chip, options.precision),
    "dilated-inputs": lambda chip, options: SplitDilatedInputs(chip),
    "factor-sums": lambda chip, options: FactorSums(chip),
    "slice-hoister": lambda chip, options: HoistSlices(chip, options.precision),
    "unique-names": lambda chip, options: UniqueNames(),
    "recomputation": lambda chip, options: Recompute(chip),
    "softmax-products": lambda chip, options: SoftmaxProducts(),
    "head-stacking": lambda chip, options: StackHeads(),
    "blocking": lambda chip, options: BlockNormalisations(chip),
    "barriers": lambda chip, options: ExpandBarriers(),
    "product-blocking": lambda chip, options: BlockProducts(chip, options.precision),
    "fusion": lambda chip, options: Fuse(Limits(large=chip.vmem.bytes / LARGE), _units(chip, options)),
    "producer-fusion": FusePrologues,
    "multi-output-fusion": FuseOutputs,
    "slice-views": lambda chip, options: SliceViews(chip),
    "loop-unroll": lambda chip, options: UnrollCarried(chip),
    "counters-last": lambda chip, options: CountLast(),
}
"""From canonical to grouped HLO: what makes each pass, by its name."""
