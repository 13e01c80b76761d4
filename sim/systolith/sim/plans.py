"""Access plans: the elements of a pattern, prepared once and then used at any base address.

A plan is a list of boxes (strided blocks of memory and where they go in the array of all elements) where the elements
inside can be had as boxes: each coordinate then depends on one loop, after the others it depends on are enumerated.
Otherwise it is a list of positions and addresses, one an element inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from systolith.isa.numerics.formats import raw_type
from systolith.isa.pattern import Coord, Pattern

Array = npt.NDArray[Any]
_MAX_BOXES = 1024
_MIN_BOX = 16  # elements of a box on average, below which single elements are as good

Selector = slice | Array


@dataclass(frozen=True)
class Box:
    """Elements at `offset + sum_k strides[k] * i_k`.

    Attributes:
        where: for each loop, which positions of the array of all elements.
        shape: positions along each loop.
        offset: bytes from the base.
        strides: bytes.
        gather: along the loop `axis`, which of `shape` to take (an index list's values); None: all.
        axis: the indirect loop, with `gather`.
    """

    where: tuple[Selector, ...]
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]
    gather: Array | None = None
    axis: int = -1

    @property
    def span(self) -> tuple[int, int]:
        """Least and greatest offset of an element."""
        moves = [s * (n - 1) for s, n in zip(self.strides, self.shape, strict=True)]
        return self.offset + sum(m for m in moves if m < 0), self.offset + sum(m for m in moves if m > 0)

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(
            len(self.gather) if k == self.axis and self.gather is not None else n for k, n in enumerate(self.shape)
        )

    def is_injective(self, size: int) -> bool:
        """Whether it is plain that no two elements of `size` bytes share one (the order of writing does not matter)."""
        if self.gather is not None and len(np.unique(self.gather)) < len(self.gather):
            return False
        return injective(self.strides, self.shape, size)


def injective(strides: Sequence[int], counts: Sequence[int], size: int) -> bool:
    """Whether it is plain that no two elements of a nest of loops share a byte."""
    reach = 0
    for stride, n in sorted((abs(s), n) for s, n in zip(strides, counts, strict=True) if n > 1):
        if stride < reach + size:
            return False
        reach += stride * (n - 1)
    return True


@dataclass(frozen=True)
class Plan:
    """The elements that a pattern visits with given biases (and index list).

    Attributes:
        shape: the pattern's counts.
        raw: numpy's unsigned integer of an element's size.
        full: one box holds every element.
        boxes: blocks of elements inside.
        positions: flat positions of elements inside, where there are no boxes; else None.
        offsets: their byte offsets.
        low, high: least and greatest byte offset of an element inside; low > high: none is.
        apart: it is plain from the pattern as a whole that no two elements share a byte.
    """

    shape: tuple[int, ...]
    raw: np.dtype[Any]
    full: bool
    boxes: tuple[Box, ...]
    positions: Array | None = None
    offsets: Array | None = None
    low: int = 0
    high: int = -1
    apart: bool = False

    @cached_property
    def scatters(self) -> bool:
        """Whether box by box may write two elements to one address, so that the order matters."""
        size = self.raw.itemsize
        return not self.apart and not (
            _separate([b.span for b in self.boxes], size) and all(b.is_injective(size) for b in self.boxes)
        )

    @cached_property
    def mask(self) -> Array:
        """Which elements are inside."""
        inside = np.zeros(self.shape, np.bool_)
        if self.positions is not None:
            inside.reshape(-1)[self.positions] = True
        for box in self.boxes:
            inside[box.where] = True
        return inside


@dataclass(frozen=True)
class _Bound:
    """A coordinate in simplest form: lo <= (const + sum coefs_k i_k) / div < hi, only loops that move it."""

    const: int
    coefs: dict[int, int]
    lo: int
    hi: int
    div: int
    stride: int


@dataclass
class _Nest:
    """A pattern taken apart: index values of each loop, plain strides, and the coordinates that exclude elements."""

    pattern: Pattern
    values: tuple[range | Array, ...]
    strides: list[int]
    base: int = 0
    bounds: list[_Bound] = field(default_factory=list)
    empty: bool = False


def make_plan(pattern: Pattern, bias: tuple[int, int], index: Array | None = None, boxes: bool = True) -> Plan:
    """Prepare a pattern.

    Args:
        pattern: address generator's program.
        bias: values of the stream's bias operands.
        index: the index list's values, for an indirect pattern.
        boxes: allow boxes; without, every element has its address, in loop order.
    """
    nest, raw = _take_apart(pattern, bias, index), raw_type(pattern.dtype)
    if nest.empty:
        return Plan(pattern.counts, raw, False, ())
    loops = _to_enumerate(nest) if boxes else None
    if loops is None:
        return _single(nest)
    found = tuple(b for b in _boxes(nest, loops) if b is not None)
    if not found:
        return Plan(pattern.counts, raw, False, ())
    full = len(found) == 1 and found[0].elements == pattern.elements
    spans = [b.span for b in found]
    low, high = min(s[0] for s in spans), max(s[1] for s in spans)
    return Plan(pattern.counts, raw, full, found, None, None, low, high, _apart(nest))


def _apart(nest: _Nest) -> bool:
    """Whether all elements, those outside included, lie apart: their addresses are affine, and plainly differ."""
    strides = list(nest.strides)
    for b in nest.bounds:
        if b.stride and b.div != 1:
            return False
        for k, coef in b.coefs.items():
            strides[k] += coef * b.stride
    listed = not all(isinstance(v, range) for v in nest.values)
    return not listed and injective(strides, nest.pattern.counts, nest.pattern.dtype.size)


def _separate(spans: Sequence[tuple[int, int]], size: int) -> bool:
    """Whether boxes lie apart in memory."""
    order = sorted(spans)
    return all(b[0] >= a[1] + size for a, b in pairwise(order))


def _take_apart(pattern: Pattern, bias: tuple[int, int], index: Array | None) -> _Nest:
    values: list[range | Array] = [range(n) for n in pattern.counts]
    if pattern.indirect >= 0 and index is not None:
        values[pattern.indirect] = index.astype(np.int64)
    nest = _Nest(pattern, tuple(values), list(pattern.strides))
    for c in pattern.coords:
        _add_coord(nest, c, bias)
    return nest


def _extent(values: range | Array) -> tuple[int, int]:
    return (values[0], values[-1]) if isinstance(values, range) else (int(values.min()), int(values.max()))


def _add_coord(nest: _Nest, c: Coord, bias: tuple[int, int]) -> None:
    """Fold a coordinate that excludes nothing into the strides; else keep it as a bound."""
    const = c.offset + (bias[c.bias] if c.bias >= 0 else 0)
    coefs: dict[int, int] = {}
    low = high = const
    for k, coef in enumerate(c.coefs):
        first, last = _extent(nest.values[k])
        if first == last:
            const += coef * first
            low, high = low + coef * first, high + coef * first
        elif coef:
            coefs[k] = coef
            ends = (coef * first, coef * last)
            low, high = low + min(ends), high + max(ends)
    lo, hi, div, stride = c.lo, c.hi, c.div, c.stride
    if div > 1 and all(v % div == 0 for v in (const, *coefs.values())):
        coefs = {k: v // div for k, v in coefs.items()}
        const, low, high, div = const // div, low // div, high // div, 1
    if (not coefs and (const % div or not lo <= const // div < hi)) or high < lo * div or low >= hi * div:
        nest.empty = True
    elif div == 1 and lo <= low and high < hi:
        nest.base += const * stride
        for k, v in coefs.items():
            nest.strides[k] += v * stride
    else:
        nest.bounds.append(_Bound(const, coefs, lo, hi, div, stride))


class Affine(NamedTuple):
    """A pattern whose addresses are affine in the loops' positions.

    Attributes:
        offset, strides: bytes from the base.
        bounds: (constant, coefficients, lo, hi): elements inside have lo <= constant + sum coefficients_k i_k < hi.
    """

    offset: int
    strides: tuple[int, ...]
    bounds: tuple[tuple[int, tuple[int, ...], int, int], ...]


def affine(pattern: Pattern, bias: tuple[int, int]) -> Affine | None:
    """A pattern without its coordinates, if that can be done."""
    if pattern.indirect >= 0:
        return None
    nest = _take_apart(pattern, bias, None)
    loops = range(len(pattern.counts))
    if nest.empty:
        return Affine(0, pattern.strides, ((0, (0,) * len(loops), 0, 0),))
    if any(b.div > 1 for b in nest.bounds):
        return None
    strides = [s + sum(b.stride * b.coefs.get(k, 0) for b in nest.bounds) for k, s in enumerate(nest.strides)]
    bounds = [(b.const, tuple(b.coefs.get(k, 0) for k in loops), b.lo, b.hi) for b in nest.bounds]
    return Affine(nest.base + sum(b.const * b.stride for b in nest.bounds), tuple(strides), tuple(bounds))


def _to_enumerate(nest: _Nest) -> list[int] | None:
    """Loops to enumerate so that each bound is left with one loop; None if that makes too many boxes."""
    chosen: set[int] = set()
    for b in sorted(nest.bounds, key=lambda b: len(b.coefs)):
        free = sorted((k for k in b.coefs if k not in chosen), key=lambda k: nest.pattern.counts[k])
        chosen.update(free[:-1])
    count = prod(nest.pattern.counts[k] for k in chosen)
    if count > _MAX_BOXES or (count > 1 and nest.pattern.elements < _MIN_BOX * count):
        return None
    return sorted(chosen)


def _boxes(nest: _Nest, loops: list[int]) -> Iterator[Box | None]:
    if not loops:
        yield _box(nest, {})
        return
    for positions in product(*(range(nest.pattern.counts[k]) for k in loops)):
        yield _box(nest, dict(zip(loops, positions, strict=True)))


def _box(nest: _Nest, fixed: dict[int, int]) -> Box | None:
    """The elements inside with some loops' positions fixed; None if there are none."""
    n = len(nest.values)
    starts, steps, stops = [0] * n, [1] * n, list(nest.pattern.counts)
    for k, position in fixed.items():
        starts[k], stops[k] = position, position + 1
    masks: dict[int, Array] = {}
    affine = []
    for b in nest.bounds:
        const = b.const + sum(v * int(nest.values[k][fixed[k]]) for k, v in b.coefs.items() if k in fixed)
        loop = next((k for k in b.coefs if k not in fixed), -1)
        affine.append((const, loop, b.coefs.get(loop, 0)))
        if loop < 0:
            if const % b.div or not b.lo <= const // b.div < b.hi:
                return None
        elif isinstance(nest.values[loop], range):
            span = _solve(const, b.coefs[loop], b, range(starts[loop], stops[loop], steps[loop]))
            if not span:
                return None
            starts[loop], stops[loop], steps[loop] = span.start, span.stop, span.step
        else:
            c = const + b.coefs[loop] * np.asarray(nest.values[loop])
            good = (c % b.div == 0) & (c // b.div >= b.lo) & (c // b.div < b.hi)
            masks[loop] = masks.get(loop, np.bool_(True)) & good
    return _finish_box(nest, [range(*t) for t in zip(starts, stops, steps, strict=True)], masks, affine)


def _finish_box(
    nest: _Nest, spans: list[range], masks: dict[int, Array], affine: list[tuple[int, int, int]]
) -> Box | None:
    """Put a box together from the positions of each loop and the coordinates (const, loop left, coefficient)."""
    indirect = nest.pattern.indirect
    where: list[Selector] = [slice(s.start, s.stop, s.step) for s in spans]
    shape = [len(s) for s in spans]
    firsts, moves = [s.start for s in spans], [s.step for s in spans]
    gather = None
    listed = nest.values[indirect] if indirect >= 0 else range(0)
    if not isinstance(listed, range):
        positions = np.arange(spans[indirect].start, spans[indirect].stop)
        if indirect in masks:
            positions = np.flatnonzero(masks[indirect])
        if not len(positions):
            return None
        taken = listed[positions]
        least = int(taken.min())
        where[indirect], gather = positions, taken - least
        firsts[indirect], shape[indirect] = least, int(taken.max()) - least + 1
    offset = nest.base + sum(s * f for s, f in zip(nest.strides, firsts, strict=True))
    strides = [s * m for s, m in zip(nest.strides, moves, strict=True)]
    for b, (const, loop, coef) in zip(nest.bounds, affine, strict=True):
        c = const + (coef * firsts[loop] if loop >= 0 else 0)
        step = coef * moves[loop] if loop >= 0 else 0
        if c % b.div or step % b.div:  # only an index list makes it so
            raise _NeedsElementsError
        offset += c // b.div * b.stride
        if loop >= 0:
            strides[loop] += step // b.div * b.stride
    return Box(tuple(where), tuple(shape), offset, tuple(strides), gather, indirect if gather is not None else -1)


class _NeedsElementsError(Exception):
    """A pattern that boxes cannot describe (an index list through a divided coordinate)."""


def _solve(const: int, coef: int, b: _Bound, span: range) -> range:
    """Positions i of `span` with b.lo <= (const + coef i) / div < b.hi, divisible."""
    least, most = b.lo * b.div - const, b.hi * b.div - b.div - const  # coef i between, both inclusive
    if coef < 0:
        least, most, coef_size = -most, -least, -coef
    else:
        coef_size = coef
    first, last = -(-least // coef_size), most // coef_size
    start, step = span.start, span.step
    if b.div > 1:
        g = gcd(coef_size, b.div)
        if const % g:
            return range(0)
        period = b.div // g
        residue = (-const // g * pow(coef // g, -1, period)) % period if period > 1 else 0
        if step == 1:
            start, step = start + (residue - start) % period, period
        else:
            keep = [i for i in span if (const + coef * i) % b.div == 0]
            start, step = (keep[0], keep[1] - keep[0] if len(keep) > 1 else 1) if keep else (span.stop, 1)
    if first > start:
        start += -(-(first - start) // step) * step
    return range(start, min(span.stop, last + 1), step)


def _single(nest: _Nest) -> Plan:
    """One address an element."""
    counts = nest.pattern.counts
    n = len(counts)
    axes = [np.asarray(v, np.int64).reshape([-1 if k == j else 1 for j in range(n)]) for k, v in enumerate(nest.values)]
    address: Array = np.full((1,) * n, nest.base, np.int64)
    for k, stride in enumerate(nest.strides):
        if stride:
            address = address + stride * axes[k]
    inside: Array = np.ones((1,) * n, np.bool_)
    for b in nest.bounds:
        c: Array = np.full((1,) * n, b.const, np.int64)
        for k, coef in b.coefs.items():
            c = c + coef * axes[k]
        quotient = c // b.div
        inside = inside & (quotient >= b.lo) & (quotient < b.hi) & (c % b.div == 0)
        address = address + quotient * b.stride
    positions = np.flatnonzero(np.broadcast_to(inside, counts))
    offsets = np.broadcast_to(address, counts).reshape(-1)[positions]
    raw = raw_type(nest.pattern.dtype)
    if not len(positions):
        return Plan(counts, raw, False, ())
    return Plan(counts, raw, False, (), positions, offsets, int(offsets.min()), int(offsets.max()))


def plan_of(pattern: Pattern, bias: tuple[int, int], index: Array | None = None, boxes: bool = True) -> Plan:
    """`make_plan`, by elements where boxes do not do."""
    try:
        return make_plan(pattern, bias, index, boxes)
    except _NeedsElementsError:
        return make_plan(pattern, bias, index, False)
