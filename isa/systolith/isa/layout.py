"""Bit layouts of words: declared as named places, checked when declared, packed and unpacked from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from systolith.isa.errors import EncodingError


class Bits(NamedTuple):
    """Bits hi to lo of a word; words are counted from the header (or from the stream's first word)."""

    name: str
    word: int
    hi: int
    lo: int

    @property
    def width(self) -> int:
        return self.hi - self.lo + 1

    @property
    def most(self) -> int:
        """The largest value that fits."""
        return (1 << self.width) - 1


def check_layout(what: str, parts: Iterable[Bits], first: int) -> int:
    """Words that `parts` take, those before `first` included.

    Raises:
        ValueError: two overlap, one is not inside a word, a word has nothing, or bits are left free between two.
    """
    used: dict[int, int] = {}
    for p in parts:
        if not 0 <= p.lo <= p.hi <= 31 or p.word < first:
            raise ValueError(f"{what}: field {p.name}: word {p.word} bits {p.hi}:{p.lo} do not fit")
        mask = p.most << p.lo
        if used.get(p.word, 0) & mask:
            raise ValueError(f"{what}: field {p.name}: overlaps in word {p.word}")
        used[p.word] = used.get(p.word, 0) | mask
    for word, mask in used.items():
        if mask & (mask + 1):
            raise ValueError(f"{what}: word {word}: used bits {mask:#x} leave a gap")
    if sorted(used) != list(range(first, first + len(used))):
        raise ValueError(f"{what}: words {sorted(used)}: a word has no field")
    return first + len(used)


def masks_of(parts: Iterable[Bits], words: int) -> tuple[int, ...]:
    """Of each word, the bits that have a meaning."""
    masks = [0] * words
    for b in parts:
        masks[b.word] |= b.most << b.lo
    return tuple(masks)


def check_reserved(words: Sequence[int], masks: Sequence[int], what: str) -> None:
    """Refuse words with bits set that have no meaning."""
    for i, (word, mask) in enumerate(zip(words, masks, strict=True)):
        if word & ~mask:
            raise EncodingError(f"{what}: word {i} = {word:#010x}: reserved bits {word & ~mask:#x} are not 0")


class Layout:
    """A group of words of fixed size and the named places in it; iterating gives the `Bits`."""

    def __init__(self, what: str, *parts: Bits) -> None:
        self.bits = parts
        self.words = check_layout(what, parts, 0)
        self.masks = masks_of(parts, self.words)
        self._places = tuple((b.name, b.word, b.lo, b.most) for b in parts)

    def __iter__(self) -> Iterator[Bits]:
        return iter(self.bits)

    def pack(self, values: Mapping[str, object], what: str) -> list[int]:
        """The words that hold `values`.

        Raises:
            EncodingError: one is no integer, or does not fit its place.
        """
        words = [0] * self.words
        for name, word, lo, most in self._places:
            value = values[name]
            if not isinstance(value, int) or not 0 <= value <= most:
                raise EncodingError(f"{what}.{name} = {value!r}: must be an integer from 0 to {most}")
            words[word] |= value << lo
        return words

    def unpack(self, words: Sequence[int], what: str) -> dict[str, int]:
        """The values in words; `what` names them in errors.

        Raises:
            EncodingError: a reserved bit is not 0.
        """
        for word, mask in zip(words, self.masks, strict=True):
            if word & ~mask:
                check_reserved(words, self.masks, what)
        return {name: words[word] >> lo & most for name, word, lo, most in self._places}
