"""Every pass under the name that XLA gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches

from systolith.compiler import plugins
from systolith.compiler.errors import CompileError
from systolith.compiler.passes.base import Pass
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
from systolith.compiler.passes.installed import Installed
from systolith.compiler.passes.linalg.cholesky import ExpandCholesky
from systolith.compiler.passes.linalg.lapack import ExpandLapack
from systolith.compiler.passes.linalg.triangular_solve import ExpandTriangularSolve
from systolith.compiler.passes.simplify.algebraic import Simplify
from systolith.compiler.passes.simplify.argmax import CommuteArgmax
from systolith.compiler.passes.simplify.common import MergeCommon
from systolith.compiler.passes.simplify.conditionals import SimplifyConditionals
from systolith.compiler.passes.simplify.constants import EVERYTHING, FoldConstants
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
from systolith.compiler.passes.simplify.tuples import ExpandBarriers, SimplifyTuples
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
from systolith.compiler.plugins import installed

PASSES: dict[str, Callable[[], Pass]] = {
    "algsimp": Simplify,
    "argmax-commuter": CommuteArgmax,
    "batchnorm_expander": ExpandBatchNorm,
    "bitcast_dtypes_expander": ExpandBitcastDtypes,
    "call-inliner": lambda: Inline(("call",)),
    "channels-last": MoveChannelsLast,
    "cholesky_expander": ExpandCholesky,
    "complex-rewriter": SplitComplexNumbers,
    "constant_folding": lambda: FoldConstants(opcodes=EVERYTHING),
    "control-dep-remover": RemoveControlDependencies,
    "convert-async-to-sync": RunInOrder,
    "cse": MergeCommon,
    "dce": DeadCode,
    "depthwise-gradient-expander": SumDepthwiseGradients,
    "dilated-kernel-splitter": SplitDilatedKernels,
    "dot-batch-contractor": ContractSummedBatches,
    "dot-strength-reducer": ReduceSmallDots,
    "dynamic_padder": PadDynamicSizes,
    "fft-expander": ExpandFfts,
    "flatten-call-graph": FlattenCallGraph,
    "float-normalization": NormaliseNarrowTypes,
    "fusion-inliner": lambda: Inline(("fusion",)),
    "gather-mover": MoveGathers,
    "gather_simplifier": SimplifyGathers,
    "host-call-expander": ExpandHostCalls,
    "integer-product-expander": ExpandIntegerProducts,
    "interior-padding-interleaver": InterleavePadding,
    "lapack-expander": ExpandLapack,
    "layout_normalization": NormaliseLayouts,
    "long-computation-expander": LoopLongComputations,
    "optimization-barrier-expander": ExpandBarriers,
    "padded-slice-widener": WidenPaddedSlices,
    "ragged-dot-rewriter": RewriteRaggedDots,
    "partial-reduce-expander": ExpandPartialReduce,
    "reduce-window-rewriter": SplitScans,
    "rng-bit-generator-expander": ExpandRandomBits,
    "rng-expander": ExpandRng,
    "scaled-dot-rewriter": RewriteScaledDots,
    "scan-expander": ExpandScans,
    "scatter-sum-merger": MergeScatterSums,
    "scatter-strength-reducer": ReduceSmallScatters,
    "scatter_simplifier": SimplifyScatters,
    "select_and_scatter_expander": ExpandSelectAndScatter,
    "sharding-remover": RemoveShardings,
    "simplify-conditional": SimplifyConditionals,
    "simplify-sorts": SimplifySorts,
    "simplify-while-loops": SimplifyWhileLoops,
    "single-device": RunOnOneDevice,
    "sort-expander": ExpandSorts,
    "stochastic-convert-decomposer": DecomposeStochasticConvert,
    "strided-window-transposer": TurnStridedWindows,
    "topk-decomposer": DecomposeTopK,
    "tree_reduction_rewriter": SplitWideSums,
    "triangular_solve_expander": ExpandTriangularSolve,
    "tuple-simplifier": SimplifyTuples,
    "while-loop-trip-count-annotator": AnnotateTripCounts,
    "while-counter-folder": FoldCounters,
    "while-loop-unroller": UnrollShortLoops,
    "window-padding-neutralizer": NeutraliseWindowPadding,
    "x64-rewriter": SplitWideTypes,
    "zero_sized_hlo_elimination": EliminateZeroSized,
}
"""Name to what makes the pass; `-` and `_` are alike."""


def find_pass(name: str) -> Pass:
    """The pass of a name.

    Raises:
        CompileError: there is none; says which is nearest.
    """
    found = spelled(name, names())
    return PASSES[found]() if found in PASSES else Installed(installed(plugins.PASSES)[found])


def names() -> list[str]:
    """Of all passes: those of systolith, then those of installed packages.

    Raises:
        PluginError: one of these has the name of one of systolith's.
    """
    others = installed(plugins.PASSES)
    for name, plugin in others.items():
        if name in PASSES:
            raise plugin.error("systolith has a pass of this name")
    return [*PASSES, *others]


def spelled(name: str, table: Iterable[str]) -> str:
    """A name as a table of passes has it: `-` and `_` are alike.

    Raises:
        CompileError: it is none of these; says which is nearest.
    """
    plain = {known.replace("_", "-"): known for known in table}
    wanted = name.strip().replace("_", "-")
    if wanted in plain:
        return plain[wanted]
    near = get_close_matches(wanted, plain, n=1, cutoff=0.5)
    hint = f"did you mean {plain[near[0]]!r}?" if near else "`systolith opt --list` lists them"
    raise CompileError(f"no pass is called {name.strip()!r}; {hint}")


def summary(name: str) -> str:
    """A pass in one line: the first sentence of its class's documentation."""
    made = type(PASSES[name]()) if name in PASSES else installed(plugins.PASSES)[name].made
    return first_sentence(made.__doc__)


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring, without its end."""
    return " ".join((text or "").split()).split(". ")[0].rstrip(".")
