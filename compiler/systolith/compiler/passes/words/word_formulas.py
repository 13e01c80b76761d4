"""Arithmetic on arrays of u32, and on pairs of such (64 bits), as formulas: operators that make HLO instructions.

Shifts rely on HLO's: amounts are unsigned, and by 32 or more they give 0.  So `x << (32 - n)` is 0 where n is 0 and
where it is above 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.compiler.passes.words.pairs import Pair
from systolith.isa.dtypes import F32, S32, U32, DType

BITS = U32.bits
WORD = (1 << BITS) - 1
SIGN = 1 << (BITS - 1)


class Bits(Real):
    """An array of bits in a formula."""

    def __and__(self, other: Real | float) -> Self:
        return self.of("and", other)

    def __or__(self, other: Real | float) -> Self:
        return self.of("or", other)

    def __xor__(self, other: Real | float) -> Self:
        return self.of("xor", other)

    def __invert__(self) -> Self:
        return self.of("not")


class Flag(Bits):
    """An array of pred."""

    @property
    def bit(self) -> Word:
        """1 where it holds, else 0."""
        return Word(self.r, self.r.converted(self.i, U32))

    def choose(self, yes: Word, no: Word | int) -> Word:
        """One word where it holds, another one elsewhere."""
        return yes.where(self.i, no)


class Word(Bits):
    """An array of u32."""

    def __lshift__(self, amount: Word | int) -> Word:
        return self.of("shift-left", amount)

    def __rshift__(self, amount: Word | int) -> Word:
        return self.of("shift-right-logical", amount)

    def __rsub__(self, number: int) -> Word:
        return self.like(number) - self

    def flag(self, direction: str, other: Word | int) -> Flag:
        """A comparison, unsigned."""
        return Flag(self.r, self.test(direction, other))

    def least(self, other: Word | int) -> Word:
        """The minimum, unsigned."""
        return self.of("minimum", other)

    def most(self, other: Word | int) -> Word:
        """The maximum, unsigned."""
        return self.of("maximum", other)

    def times(self, other: Word) -> Wide:
        """The whole product."""
        return Wide(self * other, self.high_of(other))

    def high_of(self, other: Word | int) -> Word:
        """The high half of a product."""
        return self.of("mulhi", other)

    @property
    def as_float(self) -> Real:
        """As f32, rounded to the nearest even one."""
        return Real(self.r, self.r.converted(self.i, F32))

    @classmethod
    def of_float(cls, x: Real) -> Word:
        """Of f32, towards zero; of what is out of range the nearest."""
        return cls(x.r, x.r.converted(x.i, U32))

    @property
    def sign(self) -> Word:
        """All ones where the last bit is set, else 0."""
        return self.of("shift-right-arithmetic", BITS - 1)

    @property
    def zeros(self) -> Word:
        """Leading zeros."""
        return self.of("count-leading-zeros")

    def below(self, other: Word | int) -> Flag:
        """Whether it is less, both as signed numbers."""
        return Flag(self.r, self._signed().test("LT", self.like(other)._signed()))

    def _signed(self) -> Real:
        return Real(self.r, self.as_type(S32).i)

    def as_type(self, dtype: DType) -> Real:
        """The same bits as another type."""
        return Real(self.r, self.r.emit("bitcast-convert", self.i, shape=array(dtype, self.i.dims)))

    @classmethod
    def of_bits(cls, x: Real) -> Word:
        """The bits of 32-bit elements."""
        return cls(x.r, x.r.emit("bitcast-convert", x.i, shape=array(U32, x.i.dims)))


@dataclass(frozen=True)
class Wide:
    """64 bits as two words.

    Attributes:
        low, high: words.
    """

    low: Word
    high: Word

    @classmethod
    def of(cls, r: Rewriter, pair: Pair) -> Wide:
        """Of the parts of an array."""
        return cls(Word(r, pair[0]), Word(r, pair[1]))

    @property
    def pair(self) -> Pair:
        """As what stands for an array."""
        return self.low.i, self.high.i

    def like(self, number: int) -> Wide:
        """A number as an array of this shape."""
        return Wide(self.low.like(number & WORD), self.low.like(number >> BITS & WORD))

    def __add__(self, other: Wide) -> Wide:
        low = self.low + other.low
        return Wide(low, self.high + other.high + low.flag("LT", self.low).bit)

    def __sub__(self, other: Wide) -> Wide:
        return Wide(self.low - other.low, self.high - other.high - self.low.flag("LT", other.low).bit)

    def plus(self, word: Word) -> Wide:
        """With a word added."""
        low = self.low + word
        return Wide(low, self.high + low.flag("LT", word).bit)

    def __xor__(self, word: Word) -> Wide:
        return Wide(self.low ^ word, self.high ^ word)

    def times(self, word: Word) -> Wide:
        """The low 64 bits of a product with a word."""
        return Wide(self.low * word, self.low.high_of(word) + self.high * word)

    def scaled(self, other: Wide) -> Wide:
        """The high 64 bits of the whole product, less by up to 2."""
        made = self.high.times(other.high)
        return made.plus(self.high.high_of(other.low)).plus(self.low.high_of(other.high))

    def product(self, other: Wide) -> tuple[Wide, Word, Word]:
        """The whole product: its high 64 bits, and the other words."""
        (a, b), (c, d) = (self.low, self.high), (other.low, other.high)
        low, one, two, high = a.times(c), a.times(d), b.times(c), b.times(d)
        first = low.high + one.low
        second = first + two.low
        left = one.high + first.flag("LT", one.low).bit
        right = two.high + second.flag("LT", two.low).bit
        return high.plus(left).plus(right), second, low.low

    def where(self, flag: Flag, other: Wide) -> Wide:
        """This where a test holds, else the other."""
        return Wide(flag.choose(self.low, other.low), flag.choose(self.high, other.high))

    def less(self, other: Wide) -> Flag:
        """Whether it is less, unsigned."""
        return self.high.flag("LT", other.high) | (self.high.flag("EQ", other.high) & self.low.flag("LT", other.low))

    @property
    def is_zero(self) -> Flag:
        """Whether no bit is set."""
        return (self.low | self.high).flag("EQ", 0)

    @property
    def zeros(self) -> Word:
        """Leading zeros."""
        return self.high.flag("EQ", 0).choose(self.low.zeros + BITS, self.high.zeros)

    def __lshift__(self, amount: Word | int) -> Wide:
        """By less than 64."""
        if isinstance(amount, int):
            if amount >= BITS:
                return Wide(self.low.like(0), self.low << (amount - BITS))
            return Wide(self.low << amount, (self.high << amount) | (self.low >> (BITS - amount)))
        across = (self.low >> (BITS - amount)) | (self.low << (amount - BITS))
        return Wide(self.low << amount, (self.high << amount) | across)

    def __rshift__(self, amount: Word | int) -> Wide:
        """By less than 64."""
        if isinstance(amount, int):
            if amount >= BITS:
                return Wide(self.high >> (amount - BITS), self.low.like(0))
            return Wide((self.low >> amount) | (self.high << (BITS - amount)), self.high >> amount)
        across = (self.high << (BITS - amount)) | (self.high >> (amount - BITS))
        return Wide((self.low >> amount) | across, self.high >> amount)

    def jammed(self, amount: Word) -> Wide:
        """Shifted right by less than 64; the last bit is set if any bit is lost."""
        far, rest = amount.flag("GE", BITS), amount & (BITS - 1)
        low, high = far.choose(self.high, self.low), far.choose(self.low.like(0), self.high)
        back = BITS - rest
        lost = (low << back) | far.choose(self.low, 0)
        return Wide((low >> rest) | (high << back) | lost.flag("NE", 0).bit, high >> rest)
