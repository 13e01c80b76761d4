"""Dots and convolutions in one form: axes, and the index map of each operand over them.

    out[o(b, m, n)] = sum over k of  lhs[l(b, m, k)] * rhs[r(b, n, k)]

The maps l, r and o are index maps of the axes, possibly divided (dilation of the input), possibly outside the array
(padding: reads as zero).  There is no im2col: address generators evaluate the indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from math import prod

from systolith.compiler.hlo.attributes import ConvDims
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Bound, Box, Expr, IndexMap, window_index


@dataclass(frozen=True)
class Contraction:
    """A dot or convolution over axes.

    Attributes:
        names, sizes: of the axes: first those of batch, then those of m, n and k.
        batch: axes of which each value is a product of its own.
        m, n, k: axes of rows, columns and the sum.
        lhs, rhs, out: from the axes to indices of the operands and of the result; `out` is total.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    batch: range
    m: range
    n: range
    k: range
    lhs: IndexMap
    rhs: IndexMap
    out: IndexMap

    def dims(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Sizes of axes."""
        return tuple([self.sizes[a] for a in axes])

    def count(self, axes: Sequence[int]) -> int:
        """Product of the sizes of axes."""
        return prod(self.dims(axes))

    @property
    def one_batch(self) -> Box:
        """The first of the batch axes' values."""
        return Box.whole((1,) * len(self.batch))

    def swapped(self) -> Contraction:
        """The same with its operands, and with them rows and columns, in each other's place."""
        return replace(self, lhs=self.rhs, rhs=self.lhs)._ordered((self.batch, self.n, self.m, self.k))

    def summed_in_order(self, k: Sequence[int]) -> Contraction:
        """The same with the axes of the sum in another order."""
        return self._ordered((self.batch, self.m, self.n, k))

    def with_rows(self, m: Sequence[int]) -> Contraction:
        """The same with the axes of rows in another order."""
        return self._ordered((self.batch, m, self.n, self.k))

    def _ordered(self, kinds: Sequence[Sequence[int]]) -> Contraction:
        order = [*chain(*kinds)]
        names, sizes = tuple(self.names[a] for a in order), self.dims(order)
        return Contraction(names, sizes, *_ranges(kinds), *(x.picked(order) for x in (self.lhs, self.rhs, self.out)))


def _ranges(kinds: Sequence[Sequence[object]]) -> tuple[range, range, range, range]:
    """The numbers of the axes of batch, m, n and k, which are numbered in this order."""
    batch, m, n, k = (range(a, b) for a, b in pairwise(accumulate(map(len, kinds), initial=0)))
    return batch, m, n, k


def dot_contraction(instruction: Instruction, lhs: Sequence[int], rhs: Sequence[int]) -> Contraction:
    """The contraction of a `dot` of operands of sizes `lhs` and `rhs`."""
    contract = [instruction.ints(f"{side}_contracting_dims", ()) for side in ("lhs", "rhs")]
    batch = [instruction.ints(f"{side}_batch_dims", ()) for side in ("lhs", "rhs")]
    sides = []
    for stem, dims, shared, summed in zip("mn", (lhs, rhs), batch, contract, strict=True):
        named = {d: f"b{i}" for i, d in enumerate(shared)} | {d: f"k{i}" for i, d in enumerate(summed)}
        sides.append({named.get(d, f"{stem}{d}"): size for d, size in enumerate(dims)})
    left, right = sides
    b, k = ([f"{stem}{i}" for i in range(len(pairs[0]))] for stem, pairs in (("b", batch), ("k", contract)))
    m, n = ([a for a in side if a.startswith(stem)] for stem, side in (("m", left), ("n", right)))
    kinds = (b, m, n, k)
    index = _indices(kinds)
    lhs_index, rhs_index, out = ([index[a] for a in axes] for axes in (left, right, [*b, *m, *n]))
    return _contraction(left | right, kinds, lhs_index, rhs_index, out)


def convolution_contraction(instruction: Instruction, lhs: Sequence[int], rhs: Sequence[int]) -> Contraction:
    """The contraction of a `convolution` of an input of sizes `lhs` with a kernel of sizes `rhs`.

    Feature groups and batch groups become a batch axis `g`.
    """
    d: ConvDims = instruction.conv_dims
    groups = instruction.integer("feature_group_count", 1)
    batch_groups = instruction.integer("batch_group_count", 1)
    g = groups * batch_groups
    spatial, out_dims = range(len(d.input_spatial)), instruction.dims
    per_out, per_in, per_batch = rhs[d.kernel_output] // g, lhs[d.input_feature] // groups, out_dims[d.output_batch]
    kinds = (["g"], ["m", *(f"m{i}" for i in spatial)], ["n"], [*(f"k{i}" for i in spatial), "ki"])
    sizes = {"g": g, "m": per_batch, "n": per_out, "ki": per_in}
    axis = _indices(kinds)
    place = {a: i for i, a in enumerate(axis)}
    group = axis["g"]
    features = axis["n"].plus(group.scaled(per_out))
    left = {d.input_batch: axis["m"].plus(group.scaled(per_batch if batch_groups > 1 else 0))}
    left[d.input_feature] = axis["ki"].plus(group.scaled(per_in if groups > 1 else 0))
    right = {d.kernel_input: axis["ki"], d.kernel_output: features}
    out = {d.output_batch: axis["m"], d.output_feature: features}
    padding: dict[int, list[Bound]] = {}
    for i, w in enumerate(instruction.window.dims):
        x, y, z = d.input_spatial[i], d.kernel_spatial[i], d.output_spatial[i]
        sizes[f"m{i}"], sizes[f"k{i}"] = out_dims[z], rhs[y]
        # Taps go through the input forwards: what a window reverses is the kernel.
        places, forwards = (place[f"m{i}"], place[f"k{i}"]), replace(w, reversal=False)
        left[x], padding[x] = window_index(forwards, len(axis), places, lhs[x], out_dims[z])
        right[y] = axis[f"k{i}"].scaled(-1, rhs[y] - 1) if w.reversal else axis[f"k{i}"]
        out[z] = axis[f"m{i}"]
    lhs_index, rhs_index, out_index = ([side[k] for k in sorted(side)] for side in (left, right, out))
    bounds = [b for x in sorted(padding) for b in padding[x]]
    return _contraction(sizes, kinds, lhs_index, rhs_index, out_index, bounds)


Kinds = tuple[Sequence[str], Sequence[str], Sequence[str], Sequence[str]]
"""Names of the axes of batch, m, n and k."""


def _indices(kinds: Kinds) -> dict[str, Expr]:
    """Axis name to the index along it."""
    names = [*chain(*kinds)]
    return dict(zip(names, IndexMap.identity(len(names)).dims, strict=True))


def _contraction(
    sizes: Mapping[str, int],
    kinds: Kinds,
    lhs: Sequence[Expr],
    rhs: Sequence[Expr],
    out: Sequence[Expr],
    bounds: Sequence[Bound] = (),
) -> Contraction:
    """A contraction of axes by name; `bounds` are of the left operand, by dimension."""
    names = tuple(chain(*kinds))
    rank = len(names)
    maps = IndexMap(rank, tuple(lhs), tuple(bounds)), IndexMap(rank, tuple(rhs)), IndexMap(rank, tuple(out))
    return Contraction(names, tuple(sizes[a] for a in names), *_ranges(kinds), *maps)
