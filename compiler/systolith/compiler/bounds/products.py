"""Matrix products of dots and convolutions, and their least cycles of the matrix units.

A product is `batch` times M x K by K x N.  Either operand may be stationary; K and the stationary operand's other
dimension come in whole tiles, and each tile is loaded in at least one cycle a row while the tile before it streams.
Terms that a convolution's padding and holes make zero are no work, so rows near an edge have a shorter K.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from systolith.compiler.hlo.attributes import WindowDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.mxu.gemm import INTEGER_OPERANDS
from systolith.compiler.mxu.precision import passes_of
from systolith.isa.chip import Chip

PRODUCTS = ("dot", "convolution")


@dataclass(frozen=True)
class Tiles:
    """Weight tiles of one or several products.

    Attributes:
        streams: (cycles that rows stream through a tile, number of such tiles).
        loads: (cycles to load a tile, number of such tiles).
    """

    streams: tuple[tuple[float, float], ...] = ()
    loads: tuple[tuple[float, float], ...] = ()

    def times(self, n: int) -> Tiles:
        """The tiles of n executions."""
        streams, loads = (tuple((c, n * tiles) for c, tiles in rows) for rows in (self.streams, self.loads))
        return Tiles(streams, loads)

    @property
    def cycles(self) -> float:
        """Cycles of one matrix unit, in the best order of the tiles.

        A tile loads while another streams, so each pair takes the longer of the two; pairing long with long is best:
        the integral over t of the larger number of streams, or of loads, that last longer than t.
        """
        lengths = sorted({c for c, _ in self.streams + self.loads})
        total, last = 0.0, 0.0
        for length in lengths:
            total += (length - last) * max(_longer(self.streams, last), _longer(self.loads, last))
            last = length
        return total


def _longer(rows: Iterable[tuple[float, float]], t: float) -> float:
    return sum(tiles for c, tiles in rows if c > t)


def together(parts: Iterable[Tiles]) -> Tiles:
    """The tiles of several products."""
    streams: defaultdict[float, float] = defaultdict(float)
    loads: defaultdict[float, float] = defaultdict(float)
    for p in parts:
        for rows, found in ((p.streams, streams), (p.loads, loads)):
            for c, tiles in rows:
                found[c] += tiles
    return Tiles(tuple(streams.items()), tuple(loads.items()))


@dataclass(frozen=True)
class Product:
    """The products of a dot or convolution.

    Attributes:
        batch: independent products: batch dimensions, groups.
        n: columns of the right operand.
        rows: (K, how many rows of the left operand have that many terms that count).
        k: terms of a row that has all.
        passes: of bf16, for the requested precision.
    """

    batch: int
    n: int
    rows: tuple[tuple[int, int], ...]
    k: int
    passes: int = 1

    @property
    def m(self) -> int:
        """Rows of the left operand."""
        return sum(count for _, count in self.rows)

    @property
    def macs(self) -> int:
        """Multiply-accumulates that count, of one pass."""
        return self.batch * self.n * sum(k * count for k, count in self.rows)

    def longer(self, n: int) -> Product:
        """One product of the rows of n, which share the right operand."""
        return replace(self, rows=tuple((k, n * count) for k, count in self.rows))

    def wider(self, n: int) -> Product:
        """One product of the columns of n, which share the left operand."""
        return replace(self, n=n * self.n)

    def deeper(self, n: int) -> Product:
        """The sum of n products, as one."""
        return replace(self, k=n * self.k, rows=tuple((n * k, count) for k, count in self.rows))

    def tiles(self, chip: Chip) -> Tiles:
        """With the operand stationary that makes this product take fewer cycles."""
        found = min(self._right_stationary(chip), self._left_stationary(chip), key=lambda t: t.cycles)
        return found.times(self.passes)

    def _k_tiles(self, k: int, width: int, chip: Chip) -> float:
        """Tiles along K; products no wider than half the array may share a tile along its diagonal."""
        shared = self.batch > 1 and 2 * width <= chip.mxu.cols
        return k / chip.mxu.rows if shared else ceil(k / chip.mxu.rows)

    def _right_stationary(self, chip: Chip) -> Tiles:
        across = self.batch * ceil(self.n / chip.mxu.cols)
        tiles = across * self._k_tiles(self.k, self.n, chip)
        streamed = across * sum(count * self._k_tiles(k, self.n, chip) for k, count in self.rows)
        return _tiles(tiles, streamed, self.k, chip)

    def _left_stationary(self, chip: Chip) -> Tiles:
        rows = sum(count * self._k_tiles(k, self.m, chip) for k, count in self.rows)
        deep = self._k_tiles(self.k, self.m, chip)
        if len(self.rows) == 1:
            tiles = self.batch * deep * ceil(self.m / chip.mxu.cols)
        else:
            tiles = self.batch * max(deep, ceil(rows / chip.mxu.cols))
        return _tiles(tiles, tiles * self.n, self.k, chip)


def _tiles(tiles: float, streamed: float, k: int, chip: Chip) -> Tiles:
    """Tiles through which so many rows stream in all; the last one along K may have fewer rows to load."""
    if not tiles or not k:
        return Tiles()
    whole, rest = divmod(k, chip.mxu.rows)
    along = whole + (rest > 0)
    loads = [(float(chip.mxu.rows), tiles * whole / along), (float(rest), tiles * (rest > 0) / along)]
    return Tiles(((streamed / tiles, tiles),), tuple(row for row in loads if row[1]))


def product_of(i: Instruction, precision: str | None = None) -> Product:
    """The matrix products of a dot or convolution; `precision`: in place of what it asks for."""
    lhs, rhs = (o.shape.dtype for o in i.operands)
    passes = 1 if {lhs.name, rhs.name} <= set(INTEGER_OPERANDS) else len(passes_of(i, precision, lhs, rhs))
    return _dot(i, passes) if i.opcode == "dot" else _convolution(i, passes)


def _dot(i: Instruction, passes: int) -> Product:
    lhs, rhs = (o.dims for o in i.operands)
    batches, contracting = i.ints("lhs_batch_dims", ()), i.ints("lhs_contracting_dims", ())
    right = i.ints("rhs_batch_dims", ()) + i.ints("rhs_contracting_dims", ())
    batch, k = prod(lhs[d] for d in batches), prod(lhs[d] for d in contracting)
    n = prod(size for d, size in enumerate(rhs) if d not in right)
    return Product(batch, n, ((k, i.shape.size // max(batch * n, 1)),), k, passes)


def _convolution(i: Instruction, passes: int) -> Product:
    (lhs, rhs), dims = (o.dims for o in i.operands), i.conv_dims
    groups, batches = i.integer("feature_group_count", 1), i.integer("batch_group_count", 1)
    channels, images = rhs[dims.kernel_input], lhs[dims.input_batch] // batches
    rows = Counter({channels: images})
    for d, w in enumerate(i.window.dims):
        taps = _taps(w, lhs[dims.input_spatial[d]], i.dims[dims.output_spatial[d]])
        found: Counter[int] = Counter()
        for k, count in rows.items():
            for t, positions in taps.items():
                found[k * t] += count * positions
        rows = found
    k = channels * prod(rhs[d] for d in dims.kernel_spatial)
    n = rhs[dims.kernel_output] // (groups * batches)
    return Product(groups * batches, n, tuple(sorted(rows.items())), k, passes)


def read_share(i: Instruction) -> float:
    """The part of a convolution's input that its window touches."""
    touched, dims = 1.0, i.conv_dims
    for d, w in enumerate(i.window.dims):
        size = i.operands[0].dims[dims.input_spatial[d]]
        at, inside = _touched(w, size, i.dims[dims.output_spatial[d]])
        touched *= len(np.unique(at[inside])) / size
    return touched


def _touched(w: WindowDim, size: int, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each tap [positions, taps] of a window lies along one dimension, and whether an element is there."""
    at = np.arange(positions)[:, None] * w.stride + np.arange(w.size) * w.window_dilation - w.low
    return at, (at >= 0) & (at <= (size - 1) * w.base_dilation) & (at % w.base_dilation == 0)


def _taps(w: WindowDim, size: int, positions: int) -> Counter[int]:
    """How many positions of the result have how many taps on elements of the input, along one dimension."""
    _, inside = _touched(w, size, positions)
    values, counts = np.unique(inside.sum(1), return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))
