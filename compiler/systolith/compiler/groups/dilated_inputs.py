"""Convolutions of dilated inputs (the gradients of strided ones, transposed convolutions), by phases of their results.

Results whose places have the same remainder by the dilation meet the same taps of the kernel, the others meet the holes
between input elements.  So each such phase is a convolution of the input itself with every second tap, say, and the
whole result has one of each phase in turn.  A phase without taps is zero.  Every element stays the same sum in the same
order, without the terms of holes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from systolith.compiler.cost.prices import product_cycles, transfer_cycles
from systolith.compiler.hlo.attributes import PadDim, SliceDim, Window, WindowDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.chip import Chip

MOST = 16
"""Phases: each is a convolution, and a piece of the result."""

KEPT = 4
"""Phases of this part of VMEM together are expected to stay there."""

LEAST_GAIN = 0.1
"""Part of the cycles that phases have to gain, for what the estimate does not see."""


@dataclass(frozen=True)
class SplitDilatedInputs:
    """Compute convolutions of dilated inputs by phases, where that is faster than to multiply by holes.

    Attributes:
        chip: that the cycles are of.
    """

    chip: Chip

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _split(r, i, self.chip) if i.opcode == "convolution" else None)


@dataclass(frozen=True)
class _Phase:
    """Results along a dimension that meet the same taps.

    Attributes:
        first: the first of them.
        taps: which of the kernel's elements; none: the phase is zero.
        window: over the input itself.
        count: how many results there are.
    """

    first: int
    taps: SliceDim | None
    window: WindowDim
    count: int


def _split(r: Rewriter, i: Instruction, chip: Chip) -> Instruction | None:
    windows = i.window.dims
    if any(w.stride > 1 or w.window_dilation > 1 for w in windows if w.base_dilation > 1):
        return None
    if any(s.is_dynamic or not s.size for s in (i.shape, *(o.shape for o in i.operands))):
        return None
    labels = i.conv_dims
    sizes = [
        (i.operands[0].dims[x], i.dims[o]) for x, o in zip(labels.input_spatial, labels.output_spatial, strict=True)
    ]
    phases = [_phases(w, *size) for w, size in zip(windows, sizes, strict=True)]
    count = prod(map(len, phases))
    made = [p for p in product(*phases) if all(one.taps for one in p)]
    if count == 1 or count > MOST or not made or not _pays(i, len(made), count, chip):
        return None
    if len(made) == 1:
        return _spread(r, i, _convolved(r, i, made[0]), made[0])
    return _interleaved(r, i, phases)


def _phases(w: WindowDim, size: int, results: int) -> list[_Phase]:
    """The phases of a dimension; one, as it is, where the input is not dilated."""
    d = w.base_dilation
    if d == 1:
        return [_Phase(0, SliceDim(0, w.size), w, results)]
    found = []
    for first in range(min(d, results)):
        tap = (w.low - first) % d  # from which on every d-th one meets elements
        taps, count = len(range(tap, w.size, d)), len(range(first, results, d))
        low = (w.low - first - tap) // d
        start = w.size - 1 - tap - d * (taps - 1) if w.reversal else tap
        cut = SliceDim(start, start + d * (taps - 1) + 1, d) if taps else None
        window = replace(w, size=taps, low=low, high=count - 1 + taps - size - low, base_dilation=1)
        found.append(_Phase(first, cut, window, count))
    return found


def _pays(i: Instruction, made: int, count: int, chip: Chip) -> bool:
    """Whether so many phases of all are faster: fewer products, but results that have no room in VMEM move twice more.

    While the matrix units work the operands and the result are moved.
    """
    x, kernel = i.operands
    features = kernel.dims[i.conv_dims.kernel_output]
    rows, k = i.shape.size // features, kernel.shape.size // features
    whole = product_cycles(rows, features, k, chip)
    parts = made * product_cycles(-(-rows // count), features, -(-k // made), chip)
    beside = transfer_cycles(x.shape.bytes + kernel.shape.bytes + i.shape.bytes, chip)
    part = i.shape.bytes * made // count
    again = 0 if part <= chip.vmem.bytes // KEPT else transfer_cycles(2 * part, chip)
    before, after = (max(cycles // chip.mxu.count, beside) for cycles in (whole, parts))
    return after + again < before * (1 - LEAST_GAIN)


def _convolved(r: Rewriter, i: Instruction, phases: Sequence[_Phase]) -> Instruction:
    """One phase of each dimension."""
    labels, (x, kernel) = i.conv_dims, i.operands
    cuts = [SliceDim(0, n) for n in kernel.dims]
    sizes = list(i.dims)
    for y, o, phase in zip(labels.kernel_spatial, labels.output_spatial, phases, strict=True):
        assert phase.taps is not None
        cuts[y], sizes[o] = phase.taps, phase.count
    whole = all(c == SliceDim(0, n) for c, n in zip(cuts, kernel.dims, strict=True))
    part = kernel if whole else r.emit("slice", kernel, slice=tuple(cuts))
    made = r.like(i, [x, part], array(i.shape.dtype, sizes))
    made.attributes["window"] = Window(tuple(p.window for p in phases))
    return made


def _spread(r: Rewriter, i: Instruction, made: Instruction, phases: Sequence[_Phase]) -> Instruction:
    """The only phase with taps, between zeros."""
    padding = [PadDim(0, 0)] * i.shape.rank
    for w, o, phase in zip(i.window.dims, i.conv_dims.output_spatial, phases, strict=True):
        end = phase.first + (phase.count - 1) * w.base_dilation + 1
        padding[o] = PadDim(phase.first, i.dims[o] - end, w.base_dilation - 1)
    return r.emit("pad", made, r.constant(0, i.shape.dtype), padding=tuple(padding))


def _interleaved(r: Rewriter, i: Instruction, phases: Sequence[Sequence[_Phase]]) -> Instruction:
    """One result of each phase in turn, along every dimension."""
    most = {o: (p[0].count, len(p)) for o, p in zip(i.conv_dims.output_spatial, phases, strict=True)}
    apart = [most.get(d, (n, 1)) for d, n in enumerate(i.dims)]  # the first phase has most results
    whole = _beside(r, i, phases, (), apart)
    whole = r.reshaped(whole, [n * count for n, count in apart])
    return r.sliced(whole, [(0, n) for n in i.dims])


def _beside(
    r: Rewriter,
    i: Instruction,
    phases: Sequence[Sequence[_Phase]],
    chosen: tuple[_Phase, ...],
    apart: Sequence[tuple[int, int]],
) -> Instruction:
    """The results of phases chosen of the first dimensions, with a dimension of phases after each of results."""
    number = len(chosen)
    if number == len(phases):
        made = _convolved(r, i, chosen) if all(p.taps for p in chosen) else _zero(r, i, chosen)
        return r.reshaped(_filled(r, made, [n for n, _ in apart]), [m for n, _ in apart for m in (n, 1)])
    place = i.conv_dims.output_spatial[number]
    parts = [_beside(r, i, phases, (*chosen, p), apart) for p in phases[number]]
    return parts[0] if len(parts) == 1 else r.emit("concatenate", *parts, dimensions=(2 * place + 1,))


def _zero(r: Rewriter, i: Instruction, phases: Sequence[_Phase]) -> Instruction:
    """A phase without taps."""
    sizes = list(i.dims)
    for o, p in zip(i.conv_dims.output_spatial, phases, strict=True):
        sizes[o] = p.count
    return r.full(0, array(i.shape.dtype, sizes))


def _filled(r: Rewriter, part: Instruction, dims: Sequence[int]) -> Instruction:
    """A phase with as many results as the first has."""
    if part.dims == tuple(dims):
        return part
    padding = tuple(PadDim(0, n - m) for n, m in zip(dims, part.dims, strict=True))
    return r.emit("pad", part, r.constant(0, part.shape.dtype), padding=padding)
