"""Entries of the pattern table: walked by additions alone, they visit the elements of a pattern's definition."""

from itertools import product

import numpy as np
import pytest

from systolith.hw.patterns import NOT_INDIRECT, PATTERN_BITS, pattern_entry
from systolith.isa.dtypes import DTYPES
from systolith.isa.pattern import MAX_COORDS, MAX_LOOPS, UNBOUNDED, Coord, Pattern

Point = tuple[list[int], list[int], int]  # quotients, remainders, address


class Entry:
    """An entry taken apart, from the last field of `walk_pkg::pattern_t` to the first."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.strides, self.divs, self.his, self.los = (self.words(MAX_COORDS) for _ in range(4))
        self.first = self.point()
        self.steps = [self.point() for _ in range(MAX_LOOPS)]
        self.counts = self.words(MAX_LOOPS)
        self.fill = self.take(32)
        self.biases = [self.take(2) for _ in range(MAX_COORDS)]
        self.indirect, self.loops, self.dtype = self.take(4), self.take(4), self.take(5)

    def take(self, width: int) -> int:
        value = self.bits & (1 << width) - 1
        self.bits >>= width
        return value

    def words(self, count: int) -> list[int]:
        """Signed ones."""
        return [(self.take(32) ^ 1 << 31) - (1 << 31) for _ in range(count)]

    def point(self) -> Point:
        address = self.words(1)[0]
        remainders = self.words(MAX_COORDS)
        return self.words(MAX_COORDS), remainders, address

    def add(self, a: Point, b: Point) -> Point:
        quotients, remainders, address = [], [], a[2] + b[2]
        for j in range(MAX_COORDS):
            carry = a[1][j] + b[1][j] >= self.divs[j]
            quotients.append(a[0][j] + b[0][j] + carry)
            remainders.append(a[1][j] + b[1][j] - carry * self.divs[j])
            address += carry * self.strides[j]
        return quotients, remainders, address

    def element(self, indices: tuple[int, ...]) -> tuple[bool, int]:
        """(inside, address) at loop indices, innermost last, all additions."""
        at = self.first
        for k, index in enumerate(reversed(indices)):
            for _ in range(index):
                at = self.add(at, self.steps[MAX_LOOPS - 1 - k])
        each = zip(at[0], at[1], self.los, self.his, strict=True)
        return all(r == 0 and lo <= q < hi for q, r, lo, hi in each), at[2]


def defined(p: Pattern, indices: tuple[int, ...]) -> tuple[bool, int]:
    """(inside, address) by the definition."""
    inside, address = True, sum(s * i for s, i in zip(p.strides, indices, strict=True))
    for c in p.coords:
        value = c.offset + sum(k * i for k, i in zip(c.coefs, indices, strict=True))
        inside &= value % c.div == 0 and c.lo <= value // c.div < c.hi
        address += value // c.div * c.stride
    return inside, address


def a_pattern(seed: int) -> Pattern:
    random = np.random.default_rng(seed)

    def pick(low: int, high: int, size: int) -> tuple[int, ...]:
        return tuple(random.integers(low, high, size).tolist())

    counts = pick(1, 4, int(random.integers(1, 5)))
    coords = []
    for _ in range(random.integers(0, MAX_COORDS + 1)):
        fields = [pick(*limits, 1)[0] for limits in ((-9, 9), (-3, 2), (0, 9), (1, 5), (-8, 9), (-1, 2))]
        coords.append(Coord(pick(-7, 8, len(counts)), *fields))
    return Pattern(DTYPES["bf16"], counts, pick(-64, 65, len(counts)), tuple(coords), 0xFFC00000)


@pytest.mark.parametrize("seed", range(40))
def test_walking_gives_what_the_definition_says(seed: int) -> None:
    pattern = a_pattern(seed)
    entry = Entry(pattern_entry(pattern))
    for indices in product(*map(range, pattern.counts)):
        inside, address = defined(pattern, indices)
        found = entry.element(indices)
        assert found[0] == inside
        assert found[1] == address


def test_fields() -> None:
    coord = Coord((1, 2), 3, -4, 5, 6, 7, 1)
    pattern = Pattern(DTYPES["f32"], (11, 12), (0, 4), (coord,), 0xFF800000, indirect=0)
    bits = pattern_entry(pattern)
    entry = Entry(bits)
    assert bits < 1 << PATTERN_BITS
    assert (entry.dtype, entry.loops, entry.indirect) == (DTYPES["f32"].code, 2, MAX_LOOPS - 2)
    assert (entry.fill, entry.biases) == (0xFF800000, [2, 0, 0, 0])
    assert entry.counts == [1] * (MAX_LOOPS - 2) + [11, 12]
    assert (entry.los[0], entry.his[0], entry.divs[0], entry.strides[0]) == (-4, 5, 6, 7)
    assert list(zip(entry.los, entry.his, strict=True))[1:] == [UNBOUNDED] * 3
    assert entry.bits == 0
    assert Entry(pattern_entry(Pattern(DTYPES["s8"], (1,), (1,)))).indirect == NOT_INDIRECT
