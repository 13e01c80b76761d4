"""Dots and convolutions in one form: axes, and the index map of each operand over them.

    out[o(b, m, n)] = sum over k of  lhs[l(b, m, k)] * rhs[r(b, n, k)]

Every index along a dimension of an operand is affine in the axes, possibly divided (dilation of the input), possibly
outside the array (padding: reads as zero).  There is no im2col: address generators evaluate the indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from types import MappingProxyType

import numpy as np

from systolith.compiler.hlo.attributes import ConvDims, WindowDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box

Ranges = Mapping[str, tuple[int, int]]
"""Axis name to (first value, size)."""


@dataclass(frozen=True)
class Index:
    """Index along one dimension of an operand: (offset + sum of coefs * axes) / div, where div divides it.

    Attributes:
        coefs: axis name to coefficient.
        size: of the dimension.
        offset: constant.
        div: the sum must be a multiple of it.
    """

    coefs: Mapping[str, int]
    size: int
    offset: int = 0
    div: int = 1

    def interval(self, ranges: Ranges) -> tuple[int, int]:
        """First and last index that the ranges reach, clipped to the array (never empty)."""
        lo = hi = self.offset
        for axis, coef in self.coefs.items():
            first, count = ranges[axis]
            near, far = coef * first, coef * (first + count - 1)
            lo, hi = (lo + near, hi + far) if coef > 0 else (lo + far, hi + near)
        if self.div > 1:
            lo, hi = -(-lo // self.div), hi // self.div
        last = self.size - 1
        first = min(max(lo, 0), last)
        return first, max(first, min(hi, last))

    def bounded(self, sizes: Mapping[str, int]) -> bool:
        """Whether some point of the axes is outside, or not a multiple of `div`."""
        if self.div > 1:
            return True
        low = self.offset + sum(min(0, c * (sizes[a] - 1)) for a, c in self.coefs.items())
        high = self.offset + sum(max(0, c * (sizes[a] - 1)) for a, c in self.coefs.items())
        return low < 0 or high >= self.size

    def inside(self, ranges: Ranges) -> int:
        """How many points of its axes' ranges are inside."""
        values = np.array([self.offset])
        for axis, coef in self.coefs.items():
            first, count = ranges[axis]
            values = np.add.outer(values, coef * np.arange(first, first + count)).ravel()
        good = (values % self.div == 0) & (values >= 0) & (values < self.size * self.div)
        return int(np.count_nonzero(good))


@dataclass(frozen=True)
class Contraction:
    """A dot or convolution.

    Attributes:
        sizes: axis name to size; every axis is in exactly one of the four lists.
        batch: axes of which each value is a product of its own.
        m, n, k: axes of rows, columns and the sum.
        lhs, rhs, out: an index for each dimension.
    """

    sizes: Mapping[str, int]
    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    lhs: tuple[Index, ...]
    rhs: tuple[Index, ...]
    out: tuple[Index, ...]

    def count(self, axes: Sequence[str]) -> int:
        """Product of the sizes of axes."""
        return prod(self.sizes[a] for a in axes)

    def swapped(self) -> Contraction:
        """The same with its operands, and with them rows and columns, in each other's place."""
        return replace(self, m=self.n, n=self.m, lhs=self.rhs, rhs=self.lhs)

    def box(self, operand: tuple[Index, ...], ranges: Ranges) -> Box:
        """The box of an operand that ranges of the axes reach (clipped to the array)."""
        ends = [index.interval(ranges) for index in operand]
        return Box(tuple([lo for lo, _ in ends]), tuple([hi - lo + 1 for lo, hi in ends]))

    def useful(self, ranges: Ranges) -> int:
        """Multiply-accumulates in the ranges whose operands are both elements, not padding."""
        total = 1
        for index in self._padded:
            total *= index.inside(ranges)
        bounded = {a for index in self._padded for a in index.coefs}
        return total * prod([count for a, (_, count) in ranges.items() if a not in bounded])

    @cached_property
    def _padded(self) -> list[Index]:
        """The streamed operand's indices that are outside at some point."""
        return [index for index in self.lhs if index.coefs and index.bounded(self.sizes)]


def _frozen(coefs: dict[str, int]) -> Mapping[str, int]:
    return MappingProxyType(coefs)


def dot_contraction(instruction: Instruction, lhs: Sequence[int], rhs: Sequence[int]) -> Contraction:
    """The contraction of a `dot` of operands of sizes `lhs` and `rhs`."""
    contract = (instruction.ints("lhs_contracting_dims", ()), instruction.ints("rhs_contracting_dims", ()))
    batch = (instruction.ints("lhs_batch_dims", ()), instruction.ints("rhs_batch_dims", ()))
    sizes: dict[str, int] = {}
    names: tuple[dict[int, str], dict[int, str]] = ({}, {})
    for stem, pairs in (("b", batch), ("k", contract)):
        for i, (left, right) in enumerate(zip(*pairs, strict=True)):
            names[0][left] = names[1][right] = f"{stem}{i}"
            sizes[f"{stem}{i}"] = lhs[left]
    for side, (stem, dims) in enumerate((("m", lhs), ("n", rhs))):
        for d, size in enumerate(dims):
            if d not in names[side]:
                names[side][d] = f"{stem}{d}"
                sizes[f"{stem}{d}"] = size
    by_role = {stem: tuple(a for a in sizes if a.startswith(stem)) for stem in "bmnk"}
    order = (*by_role["b"], *by_role["m"], *by_role["n"])
    return Contraction(
        sizes,
        by_role["b"],
        by_role["m"],
        by_role["n"],
        by_role["k"],
        tuple(Index(_frozen({names[0][d]: 1}), size) for d, size in enumerate(lhs)),
        tuple(Index(_frozen({names[1][d]: 1}), size) for d, size in enumerate(rhs)),
        tuple(Index(_frozen({a: 1}), sizes[a]) for a in order),
    )


def convolution_contraction(instruction: Instruction, lhs: Sequence[int], rhs: Sequence[int]) -> Contraction:
    """The contraction of a `convolution` of an input of sizes `lhs` with a kernel of sizes `rhs`.

    Feature groups and batch groups become a batch axis `g`.
    """
    d: ConvDims = instruction.conv_dims
    groups = instruction.integer("feature_group_count", 1)
    batch_groups = instruction.integer("batch_group_count", 1)
    g = groups * batch_groups
    out_dims = instruction.dims
    per_out, per_in, per_batch = rhs[d.kernel_output] // g, lhs[d.input_feature] // groups, out_dims[d.output_batch]
    sizes = {"g": g, "m": per_batch, "n": per_out, "ki": per_in}
    left: dict[int, Index] = {}
    right: dict[int, Index] = {}
    out: dict[int, Index] = {}
    left[d.input_batch] = Index(_frozen({"m": 1, "g": per_batch} if batch_groups > 1 else {"m": 1}), lhs[d.input_batch])
    left[d.input_feature] = Index(_frozen({"ki": 1, "g": per_in} if groups > 1 else {"ki": 1}), lhs[d.input_feature])
    right[d.kernel_input] = Index(_frozen({"ki": 1}), rhs[d.kernel_input])
    right[d.kernel_output] = Index(_frozen({"n": 1, "g": per_out}), rhs[d.kernel_output])
    out[d.output_batch] = Index(_frozen({"m": 1}), per_batch)
    out[d.output_feature] = Index(_frozen({"n": 1, "g": per_out}), out_dims[d.output_feature])
    for i, (w, x, y, z) in enumerate(
        zip(instruction.window.dims, d.input_spatial, d.kernel_spatial, d.output_spatial, strict=True)
    ):
        sizes[f"m{i}"], sizes[f"k{i}"] = out_dims[z], rhs[y]
        left[x] = _window_index(w, f"m{i}", f"k{i}", lhs[x])
        right[y] = Index(_frozen({f"k{i}": -1 if w.reversal else 1}), rhs[y], rhs[y] - 1 if w.reversal else 0)
        out[z] = Index(_frozen({f"m{i}": 1}), out_dims[z])
    spatial = range(len(d.input_spatial))
    ordered = (tuple(v for _, v in sorted(side.items())) for side in (left, right, out))
    return Contraction(
        sizes,
        ("g",),
        ("m", *(f"m{i}" for i in spatial)),
        ("n",),
        (*(f"k{i}" for i in spatial), "ki"),
        *ordered,
    )


def _window_index(w: WindowDim, position: str, tap: str, size: int) -> Index:
    return Index(_frozen({position: w.stride, tap: w.window_dilation}), size, -w.low, w.base_dilation)
