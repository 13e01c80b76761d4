"""Convolutions whose kernel is dilated and whose sum runs over positions: the gradients of strided ones' weights.

Their input has what is not summed innermost, and the matrix units would take a row of the sum from positions that lie
apart.  Outputs whose places have the same remainder by the dilation read the same positions of the input: these alone
are a smaller image, a phase, over which the kernel is not dilated.  Where a phase has few rows, all of them become
channels of one image.  Each output stays the same sum in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from systolith.compiler.hlo.attributes import PadDim, SliceDim, Window, WindowDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter, rewrite

MOST = 64
"""Outputs along the dilated dimensions: each is a piece of the result."""

ROWS = 128
"""Rows of a product that take about as long to stream as its weights to load."""


@dataclass(frozen=True)
class SplitDilatedKernels:
    """Write a convolution with a dilated kernel, whose batch lies innermost, by phases of its input."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _split(r, i) if i.opcode == "convolution" else None)


@dataclass(frozen=True)
class _Axis:
    """A spatial dimension along which the kernel is dilated.

    Attributes:
        window: of the dimension.
        x, out: its number in the input and in the result.
        size: of the input.
        outputs: size of the result.
    """

    window: WindowDim
    x: int
    out: int
    size: int
    outputs: int

    @property
    def dilation(self) -> int:
        return self.window.window_dilation

    @property
    def start(self) -> tuple[int, int]:
        """The position that the first output reads first, as a multiple of the dilation and the rest."""
        return divmod(-self.window.low, self.dilation)


def _split(r: Rewriter, i: Instruction) -> Instruction | None:
    axes = _axes(i)
    if not axes or prod(a.outputs for a in axes) > MOST:
        return None
    labels = i.conv_dims
    rows = i.dims[labels.output_batch] * prod(-(-a.outputs // a.dilation) for a in axes)
    grouped = i.integer("feature_group_count", 1) * i.integer("batch_group_count", 1) > 1
    return _apart(r, i, axes) if rows >= ROWS or grouped else _as_channels(r, i, axes)


def _axes(i: Instruction) -> list[_Axis]:
    """The dimensions to split; none: a row of the sum does not lie apart, or a size is not known."""
    labels, x = i.conv_dims, i.operands[0]
    if labels.input_batch != x.shape.rank - 1 or not i.shape.size or not x.shape.size:
        return []
    if any(s.is_dynamic for s in (i.shape, *(o.shape for o in i.operands))):
        return []
    places = zip(i.window.dims, labels.input_spatial, labels.output_spatial, strict=True)
    axes = [_Axis(w, x_, o, x.dims[x_], i.dims[o]) for w, x_, o in places if w.window_dilation > 1 and w.size > 1]
    simple = all(a.window.stride == a.window.base_dilation == 1 and a.size >= a.dilation for a in axes)
    return axes if simple else []


def _convolved(r: Rewriter, i: Instruction, x: Instruction, windows: dict[int, WindowDim], batch: int) -> Instruction:
    """The convolution of another input, with windows in the place of some, by the number of their dimension of `x`."""
    labels = i.conv_dims
    dims = tuple(windows.get(d, w) for d, w in zip(labels.input_spatial, i.window.dims, strict=True))
    sizes = list(i.dims)
    sizes[labels.output_batch] = batch
    for d, o in zip(labels.input_spatial, labels.output_spatial, strict=True):
        if d in windows:
            sizes[o] = windows[d].positions(x.dims[d])
    made = r.like(i, [x, *i.operands[1:]], array(i.shape.dtype, sizes))
    made.attributes["window"] = Window(dims)
    return made


# Each phase as an image of its own.


@dataclass(frozen=True)
class _Phase:
    """Outputs that read the same positions.

    Attributes:
        cut: these positions.
        window: over them.
    """

    cut: SliceDim
    window: WindowDim


def _phases(a: _Axis) -> list[_Phase]:
    """The phases of a dimension, that of the first output first."""
    found = []
    for output in range(min(a.dilation, a.outputs)):
        before, first = divmod(output - a.window.low, a.dilation)
        outputs = len(range(output, a.outputs, a.dilation))
        size = len(range(first, a.size, a.dilation))
        high = outputs - 1 + a.window.size - size + before
        window = replace(a.window, low=-before, high=high, window_dilation=1)
        found.append(_Phase(SliceDim(first, a.size, a.dilation), window))
    return found


def _apart(r: Rewriter, i: Instruction, axes: Sequence[_Axis]) -> Instruction:
    x = i.operands[0]
    batch = i.dims[i.conv_dims.output_batch]

    def made(number: int, chosen: tuple[_Phase, ...]) -> Instruction:
        if number < len(axes):
            parts = [made(number + 1, (*chosen, phase)) for phase in _phases(axes[number])]
            return _interleaved(r, parts, axes[number])
        cuts = {a.x: phase for a, phase in zip(axes, chosen, strict=True)}
        part = r.emit(
            "slice", x, slice=tuple(cuts[d].cut if d in cuts else SliceDim(0, n) for d, n in enumerate(x.dims))
        )
        return _convolved(r, i, part, {d: phase.window for d, phase in cuts.items()}, batch)

    return made(0, ())


def _interleaved(r: Rewriter, parts: Sequence[Instruction], a: _Axis) -> Instruction:
    """One of each part in turn, along the dimension of the result."""
    if len(parts) == 1:
        return parts[0]
    pieces = []
    for output in range(a.outputs):
        part, at = parts[output % a.dilation], output // a.dilation
        pieces.append(r.sliced(part, [(at, at + 1) if d == a.out else (0, n) for d, n in enumerate(part.dims)]))
    return r.emit("concatenate", *pieces, dimensions=(a.out,))


# Phases as channels.


def _as_channels(r: Rewriter, i: Instruction, axes: Sequence[_Axis]) -> Instruction:
    """One convolution of an image with a channel for each phase; outputs that there are not are cut off."""
    labels, x, by_x = i.conv_dims, i.operands[0], {a.x: a for a in axes}
    outputs = {a.x: -(-(a.outputs + a.start[1]) // a.dilation) for a in axes}
    padding, places, phases, sizes = list[PadDim](), list[int](), list[int](), list[int]()
    for d, n in enumerate(x.dims):
        places.append(len(sizes))
        if a := by_x.get(d):
            low, count = -a.dilation * a.start[0], a.window.size + outputs[d] - 1
            padding.append(PadDim(low, a.dilation * count - n - low))
            phases.append(len(sizes) + 1)
            sizes += [count, a.dilation]
        else:
            padding.append(PadDim(0, 0))
            sizes.append(n)
    image = r.emit("pad", x, r.constant(0, x.shape.dtype), padding=tuple(padding))
    image = r.transposed(r.reshaped(image, sizes), (*places[:-1], *phases, places[-1]))
    folds, channels = [a.dilation for a in axes], x.dims[-1]
    image = r.reshaped(image, (*image.dims[: len(x.dims) - 1], prod(folds) * channels))
    plain = {a.x: replace(a.window, low=0, high=0, window_dilation=1) for a in axes}
    made = _convolved(r, i, image, plain, prod(folds) * channels)
    return _unfolded(r, made, axes, folds, labels.output_batch)


def _unfolded(r: Rewriter, made: Instruction, axes: Sequence[_Axis], folds: Sequence[int], batch: int) -> Instruction:
    """The result whose channels hold phases, with outputs in their order."""
    by_out = {a.out: number for number, a in enumerate(axes)}
    sizes: list[int] = []
    places = []
    for d, n in enumerate(made.dims):
        if d == batch:
            first = len(sizes)
            sizes += folds
            n //= prod(folds)
        places.append(len(sizes))
        sizes.append(n)
    order = [p for d, place in enumerate(places) for p in ([place, first + by_out[d]] if d in by_out else [place])]
    dims = [n * folds[by_out[d]] if d in by_out else sizes[places[d]] for d, n in enumerate(made.dims)]
    whole = r.reshaped(r.transposed(r.reshaped(made, sizes), order), dims)
    ends = [(0, n) for n in dims]
    for a in axes:
        ends[a.out] = (a.start[1], a.start[1] + a.outputs)
    return r.sliced(whole, ends)
