"""Rows that are cut off, normalised and padded again: what the gradient of a loss without the last token has.

What a slice leaves out and a pad puts back lies between the blocks that all rows could be divided into.  So the rows
that are left out are computed, too, and the pad becomes a choice of its value in their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import numpy as np

from systolith.compiler.hlo.attributes import PadDim, SliceDim
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.ops.dim_rules import NotBlockableError
from systolith.compiler.ops.table import info, is_elementwise
from systolith.compiler.passes.rewrite import Rewriter, interchangeable
from systolith.isa.dtypes import PRED

MORE = 16
"""There are at least so many times as many rows as are left out, and as many bytes as of what has to be padded."""

ROWS = 1 << 16
"""At most so many rows: which of them are left out is said by a constant of as many bytes."""

MOST = 96
"""Operations between the slices and the pad."""

THROUGH = frozenset(("broadcast", "reshape", "transpose", "slice", "iota", "reduce"))
"""Operations that are done on more rows as well, beside elementwise ones."""


class Rows(NamedTuple):
    """The dimension of a pad along which there are rows before (`low`) and after the `kept` ones of its operand."""

    dim: int
    low: int
    kept: int
    total: int


@dataclass
class Region:
    """Operations to be done on all rows.

    Attributes:
        pad: the last one.
        rows: along which dimension of it.
        dims: of each operation before it the dimension of these rows.
        cuts: slices of all rows among them.
        narrow: results of other operations that have too few rows, each with the dimension of these.
    """

    pad: Instruction
    rows: Rows
    dims: dict[Instruction, int] = field(default_factory=dict)
    cuts: set[Instruction] = field(default_factory=set)
    narrow: dict[Instruction, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WidenPaddedSlices:
    """Compute on all rows where a slice leaves a few out, rows are reduced, and a pad puts the few back."""

    def run(self, module: Module) -> bool:
        changes = [_widen(computation) for computation in module.computations]
        return any(changes)


def _widen(computation: Computation) -> bool:
    changed = False
    while region := next(_regions(computation), None):
        changed |= Rewriter(computation).sweep(_Wide(region).rule)
        if region.pad in computation.instructions:
            break
    return changed


def _regions(computation: Computation) -> Iterator[Region]:
    pads = [i for i in computation.instructions if i.opcode == "pad"]
    if pads:
        r = Rewriter(computation)
        if not r.has_dynamic_sizes:
            found = (_region(pad) for pad in pads)
            yield from (region for region in found if region and not r.pinned & {region.pad, *region.dims})


def _rows(pad: Instruction) -> Rows | None:
    """Along which dimension a pad puts a few rows around its operand; None: it does something else."""
    padding = cast("tuple[PadDim, ...]", pad.attributes["padding"])
    (x, _), moved = pad.operands, [d for d, p in enumerate(padding) if p != PadDim(0, 0)]
    if len(moved) != 1:
        return None
    (d,) = moved
    p, count, total = padding[d], x.dims[d], pad.dims[d]
    few = p.low >= 0 <= p.high and not p.interior and (total - count) * MORE <= count and total <= ROWS
    return Rows(d, p.low, count, total) if few else None


def _region(pad: Instruction) -> Region | None:
    """What a pad's operand is made of, up to slices; None: that is not worth widening, or has layouts of its own."""
    rows = _rows(pad)
    if rows is None:
        return None
    region, todo = Region(pad, rows), [(pad.operands[0], rows.dim)]
    while todo:
        i, d = todo.pop()
        known = region.dims.get(i, region.narrow.get(i, d))
        if known != d or len(region.dims) > MOST or not interchangeable(i.shape, array(i.shape.dtype, i.dims)):
            return None
        if i in region.dims or i in region.narrow:
            continue
        operands = _operands(i, d)
        if _is_cut(i, d, rows):
            region.dims[i] = d
            region.cuts.add(i)
        elif operands is None:
            region.narrow[i] = d
        else:
            region.dims[i] = d
            todo += [(o, e) for o, e in zip(i.operands, operands, strict=True) if e is not None]
    size = pad.operands[0].shape.bytes
    reduced = any(i.opcode == "reduce" for i in region.dims)
    large = any(2 * cut.shape.bytes >= size for cut in region.cuts)
    small = sum(i.shape.bytes for i in region.narrow) * MORE <= size
    return region if reduced and large and small else None


def _is_cut(i: Instruction, d: int, rows: Rows) -> bool:
    """Whether it is a slice of those of all rows that the pad leaves alone."""
    if i.opcode != "slice" or i.operands[0].dims[d] != rows.total:
        return False
    return i.slices[d] == SliceDim(rows.low, rows.low + rows.kept)


def _operands(i: Instruction, d: int) -> list[int | None] | None:
    """The dimension of rows of each operand, None for one without; None: not an operation for more rows."""
    rule = info(i).dim
    if i.shape.is_tuple or rule is None or not (is_elementwise(i) or i.opcode in THROUGH):
        return None
    try:
        rule(i, 0, d)  # an iota has no operand to ask about
        return [rule(i, k, d) for k in range(len(i.operands))]
    except NotBlockableError:
        return None


class _Wide:
    """Makes the operations of a region anew, on all rows.

    What else uses a small result has its part of the new one; large ones are made again for that, or they would be
    written twice.
    """

    def __init__(self, region: Region) -> None:
        self._region, self._rows = region, region.rows
        self._wide: dict[Instruction, Instruction] = {}

    def rule(self, r: Rewriter, i: Instruction) -> Instruction | None:
        """The replacement of an instruction."""
        if i is self._region.pad:
            return self._chosen(r, i)
        d = self._region.dims.get(i)
        if d is None or i.shape.bytes * MORE > self._region.pad.shape.bytes:
            return None
        made, first = self._all(r, i, d), self._rows.low
        part = r.narrowed(made, d, first, first + self._rows.kept)
        self._wide[part] = made
        return part

    def _made(self, r: Rewriter, i: Instruction, d: int) -> Instruction:
        dims = tuple(self._rows.total if e == d else n for e, n in enumerate(i.dims))
        if i.opcode == "slice":
            (x,) = i.operands
            source = x if i in self._region.cuts else self._all(r, x, d)
            cuts = (SliceDim(0, self._rows.total) if e == d else s for e, s in enumerate(i.slices))
            return r.emit("slice", source, slice=tuple(cuts))
        places = _operands(i, d)
        assert places is not None
        operands = [o if e is None else self._all(r, o, e) for o, e in zip(i.operands, places, strict=True)]
        return r.like(i, operands, array(i.shape.dtype, dims))

    def _all(self, r: Rewriter, x: Instruction, d: int) -> Instruction:
        """An operand with all rows."""
        if x not in self._wide and x in self._region.dims:
            self._wide[x] = self._made(r, x, d)
        elif x not in self._wide:
            below, above = self._rows.low, self._rows.total - self._rows.low - self._rows.kept
            padding = tuple(PadDim(below, above) if e == d else PadDim(0, 0) for e in range(x.shape.rank))
            self._wide[x] = r.emit("pad", x, r.constant(0, x.shape.dtype), padding=padding)
        return self._wide[x]

    def _chosen(self, r: Rewriter, pad: Instruction) -> Instruction:
        kept = np.zeros(self._rows.total, bool)
        kept[self._rows.low : self._rows.low + self._rows.kept] = True
        row = r.literal(kept, array(PRED, kept.shape))
        mask = r.emit("broadcast", row, shape=array(PRED, pad.dims), dimensions=(self._rows.dim,))
        x, value = pad.operands
        return r.emit("select", mask, self._all(r, x, self._rows.dim), r.spread(value, pad.shape))
