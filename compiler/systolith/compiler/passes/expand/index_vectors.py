"""Windows that index vectors pick, as windows that one offset picks: what expanding `gather` and `scatter` shares.

The dimensions that are indexed become one, in which an index vector is an offset.  Windows of the last of them stay
windows; each place of a window of another one is an offset of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import PRED, S32

_GRANULE = 8
"""Elements of 32 bits that HBM moves at least."""


class WindowAxis(NamedTuple):
    """A dimension on the way: the operand's (`batch` false), or one of the indices outside their vectors."""

    batch: bool
    dim: int


@dataclass(frozen=True)
class Windows:
    """Windows of an operand, one for each index vector.

    Attributes:
        operand: sizes of the operand's dimensions.
        sizes: of a window.
        starts: for each dimension that is indexed the number of the component; -1: it starts at 0.
        batching: for each batching dimension of the operand that of the indices, their vector not counted.
        indices: the index vectors.
        vector_dim: the dimension of the vectors; beyond the last one: each element is one.
    """

    operand: tuple[int, ...]
    sizes: tuple[int, ...]
    starts: dict[int, int]
    batching: dict[int, int]
    indices: Instruction
    vector_dim: int

    @cached_property
    def count(self) -> tuple[int, ...]:
        """Sizes of the indices outside their vectors."""
        return tuple(n for d, n in enumerate(self.indices.dims) if d != self.vector_dim)

    @cached_property
    def indexed(self) -> tuple[int, ...]:
        """Dimensions that become one, in order."""
        return tuple(sorted(self.starts.keys() | self.batching.keys()))

    @property
    def before(self) -> tuple[int, ...]:
        """Dimensions outside of those that become one: the operand's order is this, then `indexed`, then `after`."""
        first, last = self.indexed[0], self.indexed[-1]
        return tuple(range(first)) if last - first + 1 == len(self.indexed) else ()

    @property
    def after(self) -> tuple[int, ...]:
        """Dimensions inside of those that become one."""
        return tuple(d for d in range(len(self.operand)) if d not in self.indexed and d not in self.before)

    @property
    def places(self) -> tuple[int, ...]:
        """Indexed dimensions of which every place of a window has an offset of its own."""
        return tuple(d for d in self.indexed[:-1] if self.sizes[d] > 1)

    @property
    def width(self) -> int:
        """Neighbours along the one dimension in a window."""
        return self.sizes[self.indexed[-1]]

    @property
    def order(self) -> tuple[int, ...]:
        """The operand's dimensions as they lie when the indexed ones become one."""
        return (*self.before, *self.indexed, *self.after)

    @property
    def flat(self) -> tuple[int, int, int]:
        """Sizes of the operand with the indexed dimensions as one."""
        parts = (self.before, self.indexed, self.after)
        outer, middle, inner = (prod(self.operand[d] for d in dims) for dims in parts)
        return outer, middle, inner

    @property
    def axes(self) -> list[WindowAxis]:
        """The dimensions of all windows, of the operand's those of size over 1, in the order of the expanded form."""
        own = [
            [WindowAxis(False, d) for d in dims if self.sizes[d] > 1]
            for dims in (self.before, self.indexed, self.after)
        ]
        return [*own[0], *(WindowAxis(True, k) for k in range(len(self.count))), *own[1], *own[2]]

    def size(self, axis: WindowAxis) -> int:
        """Of a dimension of all windows."""
        return self.count[axis.dim] if axis.batch else self.sizes[axis.dim]

    def flat_windows(self) -> tuple[int, ...]:
        """Sizes of all windows in the expanded form."""
        outer, _, inner = self.flat
        count = prod(self.count) * prod(self.sizes[d] for d in self.places)
        return (outer, count, self.width, inner) if self.width > 1 else (outer, count, inner)

    def joined(self) -> Windows:
        """These windows, where dimensions between indexed ones need not move: their places get offsets of their own.

        That is so if windows, with a granule of HBM for each offset, have fewer bytes than moving the operand there and
        back.
        """
        if not self.indexed:
            return self
        between = [d for d in range(self.indexed[0], self.indexed[-1]) if d not in self.indexed]
        all_indexed = replace(self, starts=self.starts | dict.fromkeys(between, -1))
        _, count, *window = all_indexed.flat_windows()
        cheaper = count * max(prod(window), _GRANULE) < 4 * prod(self.operand)
        return all_indexed if between and cheaper else self

    def components(self, r: Rewriter) -> dict[int, Instruction]:
        """For each indexed dimension where windows start in it: of the indices' type, or `s32` if that is given."""
        found: dict[int, Instruction] = {}
        n = prod(self.count)
        for d in self.indexed:
            if d in self.batching:
                iota = r.emit("iota", shape=array(S32, self.count), iota_dimension=self.batching[d])
                found[d] = r.reshaped(iota, (n,))
            elif not self.given(d):
                found[d] = r.full(0, array(S32, (n,)))
            elif self.vector_dim == len(self.indices.dims):
                found[d] = r.reshaped(self.indices, (n,))
            else:
                spans = [(0, m) for m in self.indices.dims]
                spans[self.vector_dim] = (self.starts[d], self.starts[d] + 1)
                found[d] = r.reshaped(r.sliced(self.indices, spans), (n,))
        return found

    def placed(self, kept: Sequence[int], dropped: Collection[int]) -> list[WindowAxis]:
        """The dimensions of an array of all windows.

        Args:
            kept: the places of the windows' dimensions in it; the others are those of the indices.
            dropped: dimensions of the operand that windows do not have there.
        """
        window = iter(d for d in range(len(self.sizes)) if d not in dropped and d not in self.batching)
        batch = iter(range(len(self.count)))
        rank = len(kept) + len(self.count)
        return [WindowAxis(False, next(window)) if p in kept else WindowAxis(True, next(batch)) for p in range(rank)]

    def given(self, d: int) -> bool:
        """Whether index vectors have a component for a dimension."""
        return self.starts.get(d, -1) >= 0

    def limit(self, d: int) -> int:
        """The last place at which a window may start in a dimension."""
        return self.operand[d] - self.sizes[d]

    def offsets(self, r: Rewriter, starts: dict[int, Instruction], valid: Instruction | None = None) -> Instruction:
        """Offsets of windows in the one dimension, s32[N].

        Args:
            r: makes instructions.
            starts: where windows start in each indexed dimension; s32, inside where `valid` is.
            valid: which windows are inside; of the others the offset is -1.
        """
        steps = {d: prod(self.operand[e] for e in self.indexed if e > d) for d in self.indexed}
        total: Instruction | None = None
        for d, start in starts.items():
            scaled = start if steps[d] == 1 else r.emit("multiply", start, r.full(steps[d], start.shape))
            total = scaled if total is None else r.emit("add", total, scaled)
        assert total is not None
        places = np.zeros((1,), np.int32)
        for d in self.places:
            places = np.add.outer(places, np.arange(self.sizes[d], dtype=np.int32) * steps[d]).ravel()
        n, m = total.dims[0], len(places)
        if m > 1:
            both = array(S32, (n, m))
            spread = r.emit("broadcast", r.constant(places, S32), shape=both, dimensions=(1,))
            total = r.emit("add", r.emit("broadcast", total, shape=both, dimensions=(0,)), spread)
            if valid is not None:
                valid = r.emit("broadcast", valid, shape=array(PRED, both.dims), dimensions=(0,))
        if valid is not None:
            total = r.emit("select", valid, total, r.full(-1, total.shape))
        return r.reshaped(total, (n * m,))
