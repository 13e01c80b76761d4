"""Random choices: numpy's generator, drawn in blocks because single draws are slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
_BLOCK = 1024
_SPAN = 1 << 32


class Draw:
    """A stream of choices; the same seed gives the same ones."""

    def __init__(self, *seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self._words: list[int] = []

    def word(self) -> int:
        """32 random bits."""
        if not self._words:
            self._words = self.generator.integers(0, _SPAN, _BLOCK, np.uint32).tolist()
        return self._words.pop()

    def below(self, n: int) -> int:
        """0 to n - 1."""
        return self.word() * n >> 32

    def between(self, lo: int, hi: int) -> int:
        """From lo to hi, both included."""
        return lo + self.below(hi - lo + 1)

    def chance(self, p: float) -> bool:
        return self.word() < p * _SPAN

    def pick(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def weighted(self, values: Sequence[T], weights: Sequence[int]) -> T:
        """One of the values, as often as its weight says."""
        at = self.below(sum(weights))
        for value, weight in zip(values, weights, strict=True):
            at -= weight
            if at < 0:
                return value
        raise AssertionError("unreachable: the weights add up")

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """The values in any order."""
        out = list(values)
        for i in range(len(out) - 1, 0, -1):
            j = self.below(i + 1)
            out[i], out[j] = out[j], out[i]
        return out

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """`count` of the values (or all), in their order."""
        chosen = sorted(self.shuffled(range(len(values)))[:count])
        return [values[i] for i in chosen]

    def split(self, total: int, parts: int) -> list[int]:
        """Counts of at least 1 whose product is at most `total`."""
        counts = []
        for left in range(parts, 0, -1):
            most = total if left == 1 else max(1, round(total ** (1 / left)) + self.below(3))
            counts.append(self.between(1, min(total, most)))
            total //= counts[-1]
        return self.shuffled(counts)

    def image(self) -> int:
        """A 32-bit image: a number of some kind."""
        kind = self.below(10)
        if kind == 0:
            return self.pick(SPECIAL)
        if kind == 1:
            return self.word()
        if kind == 2:
            return self.between(-9, 40) & (_SPAN - 1)
        return int(np.float32((self.below(4001) - 2000) / self.pick((1, 16, 100, 1000))).view(np.uint32))

    def data(self, size: int) -> NDArray[np.uint8]:
        """Bytes to compute with: small f32, small bf16, small integers, any bits, zeros; a kind for each 64 of them."""
        blocks = -(-size // 64)
        kinds = self.generator.integers(0, len(_KINDS), blocks)
        made = [_KINDS[k](self.generator) for k in kinds]
        return np.concatenate(made)[:size]


# Zeros, subnormals, ones, halves, infinities, NaNs with payloads, ends of ranges.
SPECIAL = (
    0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F000000, 0x4B000001, 0x7F7FFFFF,
    0x7F800000, 0xFF800000, 0x7FC00000, 0x7FA00001, 0xFFC12345, 0x7FFFFFFF, 0xFFFFFFFF, 0x4F000000, 0x4F800000,
)  # fmt: skip


def _floats(g: np.random.Generator) -> NDArray[np.uint8]:
    return g.standard_normal(16, np.float32).view(np.uint8)


def _halves(g: np.random.Generator) -> NDArray[np.uint8]:
    return (g.standard_normal(32, np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def _integers(g: np.random.Generator) -> NDArray[np.uint8]:
    return g.integers(-40, 40, 16, np.int32).view(np.uint8)


def _bytes(g: np.random.Generator) -> NDArray[np.uint8]:
    return g.integers(0, 256, 64, np.uint8)


def _specials(g: np.random.Generator) -> NDArray[np.uint8]:
    return np.array(SPECIAL, np.uint32)[g.integers(0, len(SPECIAL), 16)].view(np.uint8)


_KINDS = (*[_floats] * 4, _halves, _halves, _integers, _integers, _bytes, _specials)
