"""The canonical form: which passes, in which order."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Module
from systolith.compiler.passes.base import Pass, run_passes
from systolith.compiler.passes.dynamic.dynamic_padder import PadDynamicSizes
from systolith.compiler.passes.expand.asynchronous import RunInOrder
from systolith.compiler.passes.expand.batch_norm import ExpandBatchNorm
from systolith.compiler.passes.expand.channels_last import MoveChannelsLast
from systolith.compiler.passes.expand.depthwise_gradients import SumDepthwiseGradients
from systolith.compiler.passes.expand.dilated_kernels import SplitDilatedKernels
from systolith.compiler.passes.expand.ffts import ExpandFfts
from systolith.compiler.passes.expand.gathers import SimplifyGathers
from systolith.compiler.passes.expand.host_calls import ExpandHostCalls
from systolith.compiler.passes.expand.integer_products import ExpandIntegerProducts
from systolith.compiler.passes.expand.interior_padding import InterleavePadding
from systolith.compiler.passes.expand.long_computations import LoopLongComputations
from systolith.compiler.passes.expand.one_device import RunOnOneDevice
from systolith.compiler.passes.expand.partial_reduce import ExpandPartialReduce
from systolith.compiler.passes.expand.ragged_dots import RewriteRaggedDots
from systolith.compiler.passes.expand.random_bits import ExpandRandomBits
from systolith.compiler.passes.expand.rng import ExpandRng
from systolith.compiler.passes.expand.scaled_dots import RewriteScaledDots
from systolith.compiler.passes.expand.scan_expander import ExpandScans
from systolith.compiler.passes.expand.scans import SplitScans
from systolith.compiler.passes.expand.scatter_sums import MergeScatterSums
from systolith.compiler.passes.expand.scatters import SimplifyScatters
from systolith.compiler.passes.expand.select_and_scatter import ExpandSelectAndScatter
from systolith.compiler.passes.expand.small_dots import ReduceSmallDots
from systolith.compiler.passes.expand.small_scatters import ReduceSmallScatters
from systolith.compiler.passes.expand.sort_expander import ExpandSorts
from systolith.compiler.passes.expand.stochastic_convert import DecomposeStochasticConvert
from systolith.compiler.passes.expand.topk import DecomposeTopK
from systolith.compiler.passes.expand.turned_windows import TurnStridedWindows
from systolith.compiler.passes.expand.window_padding import NeutraliseWindowPadding
from systolith.compiler.passes.installed import InstalledExpanders, InstalledPasses
from systolith.compiler.passes.linalg.cholesky import ExpandCholesky
from systolith.compiler.passes.linalg.lapack import ExpandLapack
from systolith.compiler.passes.linalg.triangular_solve import ExpandTriangularSolve
from systolith.compiler.passes.simplify.algebraic import Simplify
from systolith.compiler.passes.simplify.argmax import CommuteArgmax
from systolith.compiler.passes.simplify.common import MergeCommon
from systolith.compiler.passes.simplify.conditionals import SimplifyConditionals
from systolith.compiler.passes.simplify.constants import FoldConstants
from systolith.compiler.passes.simplify.control import RemoveControlDependencies
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.flatten import FlattenCallGraph
from systolith.compiler.passes.simplify.gather_mover import MoveGathers
from systolith.compiler.passes.simplify.inline import Inline
from systolith.compiler.passes.simplify.layouts import NormaliseLayouts
from systolith.compiler.passes.simplify.padded_slices import WidenPaddedSlices
from systolith.compiler.passes.simplify.sharding_remover import RemoveShardings
from systolith.compiler.passes.simplify.sorts import SimplifySorts
from systolith.compiler.passes.simplify.summed_dots import ContractSummedBatches
from systolith.compiler.passes.simplify.tuples import ExpandBarriers, SimplifyTuples, SplitTupleConstants
from systolith.compiler.passes.simplify.while_counters import FoldCounters
from systolith.compiler.passes.simplify.while_loops import SimplifyWhileLoops
from systolith.compiler.passes.simplify.while_trip_count import AnnotateTripCounts
from systolith.compiler.passes.simplify.while_unroller import UnrollShortLoops
from systolith.compiler.passes.simplify.zero_sized import EliminateZeroSized
from systolith.compiler.passes.words.bitcast_dtypes import ExpandBitcastDtypes
from systolith.compiler.passes.words.complex_numbers import SplitComplexNumbers
from systolith.compiler.passes.words.narrow_types import NormaliseNarrowTypes
from systolith.compiler.passes.words.wide_sums import SplitWideSums
from systolith.compiler.passes.words.wide_types import SplitWideTypes

ROUND: tuple[Pass, ...] = (
    EliminateZeroSized(),
    SimplifyTuples(),
    FoldConstants(),
    Simplify(),
    SimplifySorts(),
    SimplifyConditionals(),
    SimplifyWhileLoops(),
    FoldCounters(),
    UnrollShortLoops(),
    Inline(),
    MergeCommon(),
    DeadCode(),
)
"""Repeated: each gives the others something to do.  A branch that is always taken, and a loop of one iteration, become
calls, which are inlined."""

LEGAL: tuple[Pass, ...] = (
    RemoveShardings(),
    SplitTupleConstants(),
    NormaliseLayouts(),
    RemoveControlDependencies(),
    RunOnOneDevice(),
    RunInOrder(),
    ExpandScans(),
    ExpandRng(across_runs=True),
    Inline(),
    PadDynamicSizes(),
    DeadCode(),
    InstalledExpanders(),
    ExpandHostCalls(),
    ExpandBatchNorm(),
    ExpandLapack(),
    ExpandCholesky(),
    ExpandTriangularSolve(),
    ExpandRandomBits(),
    DecomposeStochasticConvert(),
    RewriteRaggedDots(),
    RewriteScaledDots(),
    ExpandBitcastDtypes(),
    ExpandFfts(),
    ExpandIntegerProducts(),
    ContractSummedBatches(),
    ReduceSmallDots(),
    MoveChannelsLast(),
    SumDepthwiseGradients(),
    SplitDilatedKernels(),
    ExpandSelectAndScatter(),
    CommuteArgmax(),
    SimplifySorts(),
    ExpandSorts(),
    ExpandPartialReduce(),
    DecomposeTopK(),
    NeutraliseWindowPadding(),
    TurnStridedWindows(),
    InterleavePadding(),
    SplitScans(),
    SplitWideSums(),
    SimplifyTuples(),
    MoveGathers(),
    SimplifyGathers(),
    MergeScatterSums(),
    SimplifyScatters(),
    ReduceSmallScatters(),
    LoopLongComputations(),
    ExpandBarriers(),
    NormaliseNarrowTypes(),
    Inline(),
)
"""Passes that make HLO legal for later stages: calls inlined, layouts row-major, expanded operations gone."""

PAIRS: tuple[Pass, ...] = (SplitComplexNumbers(), DeadCode(), SplitWideTypes())
"""Pairs of parts for types that the chip lacks; a computation that became another one would be an obstacle."""

CANONICAL: tuple[Pass, ...] = (
    *LEGAL,
    InstalledPasses(LEGAL),
    FlattenCallGraph(),
    *ROUND,
    WidenPaddedSlices(),
    AnnotateTripCounts(),
    *PAIRS,
    *ROUND,
    *ROUND,
    AnnotateTripCounts(),
)
"""Calls inlined, layouts row-major, constants folded (values without elements are), data movement simplified,
complex numbers, 64-bit integers and f64 in pairs, nothing twice, nothing unused.  Trip counts are stated before
counters become pairs, of which they cannot be proved."""

STAGE = "canonicalize"
"""Both of them, in errors."""


def canonicalise(module: Module) -> Module:
    """Bring a module, in place, into canonical form.

    Raises:
        CompileError: a pass broke the module (a bug in the pass).
    """
    return run_passes(module, CANONICAL, stage=STAGE)


def legalise(module: Module) -> Module:
    """Bring a module, in place, into the form that later stages rely on, and leave the rest of it as it is.

    One in canonical form does not change.

    Raises:
        CompileError: a pass broke the module (a bug in the pass).
    """
    return run_passes(module, (*LEGAL, EliminateZeroSized(), *PAIRS), stage=STAGE)
