"""The values of a random computation while it is written: choices among them, and a value of a wanted shape.

Floats hold small integers: magnitudes are tracked and clamped, so that nearly every result is exact whatever the order
of its sums, and what is wrong shows as wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeVar

import numpy as np

T = TypeVar("T")

FLOATS = ("f32", "bf16", "f16", "f8e4m3fn", "f8e5m2")
TYPES = ("f32", "f32", "f32", "bf16", "s32", "s32", "s8", "pred")
EXACT = {"f32": 2.0**20, "bf16": 128.0, "f16": 1024.0, "f8e4m3fn": 8.0, "f8e5m2": 4.0}
"""Up to here a float's integers are kept; beyond they are clamped."""

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 33)
LARGEST = 3000
"""Elements of a value."""


def kind(t: str) -> str:
    return "float" if t in FLOATS else "pred" if t == "pred" else "int"


@dataclass(frozen=True)
class Value:
    """A value of the module: its name, element type, dimensions and largest magnitude (of floats)."""

    name: str
    t: str
    dims: tuple[int, ...]
    most: float = 4.0

    @property
    def shape(self) -> str:
        return f"{self.t}[{','.join(map(str, self.dims))}]"


@dataclass
class Text:
    """The module so far: its finished computations and the names used; `empty`: whether dimensions of size 0 occur."""

    rng: np.random.Generator
    empty: bool = False
    computations: list[str] = field(default_factory=list)
    names: int = 0

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"


class Computation:
    """One computation being written: its lines, the values that they define, random choices."""

    types: Sequence[str] = TYPES

    def __init__(self, text: Text, depth: int = 0) -> None:
        self.text, self.depth, self.rng = text, depth, text.rng
        self.lines: list[str] = []
        self.values: list[Value] = []

    # Choices.

    def roll(self, low: int, high: int) -> int:
        """Low <= n <= high."""
        return int(self.rng.integers(low, high + 1))

    def one(self, items: Sequence[T]) -> T:
        return items[self.roll(0, len(items) - 1)]

    def pick(self, fits: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value, one of the latest more likely."""
        found = [v for v in self.values if fits(v)]
        if not found:
            return None
        return found[max(self.roll(0, len(found) - 1), self.roll(0, len(found) - 1))]

    def size(self, sizes: Sequence[int]) -> int:
        """One of these, or 0 where dimensions may be empty."""
        return self.one((0, *sizes) if self.text.empty else sizes)

    def length(self, n: int) -> int:
        """Of a part of a dimension of size n."""
        return self.roll(0 if self.text.empty else 1, n)

    def dims(self, rank: int | None = None) -> tuple[int, ...]:
        rank = self.one((0, 1, 2, 2, 3, 4)) if rank is None else rank
        sizes = [self.size(SIZES) for _ in range(rank)]
        while prod(sizes) > LARGEST:
            sizes[sizes.index(max(sizes))] = 2
        return tuple(sizes)

    # Values.

    def add(self, t: str, dims: Sequence[int], code: str, most: float = 4.0) -> Value:
        value = Value(self.text.fresh("v"), t, tuple(dims), most)
        self.lines.append(f"{value.name} = {value.shape} {code}")
        self.values.append(value)
        if t in EXACT and most > EXACT[t]:
            return self.clamped(value, 8)
        return value

    def clamped(self, value: Value, most: int) -> Value:
        most = int(min(most, EXACT.get(value.t, most)))
        low, high = self.scalar(value.t, -most), self.scalar(value.t, most)
        return self.add(value.t, value.dims, f"clamp({low.name}, {value.name}, {high.name})", most)

    def scalar(self, t: str, number: int) -> Value:
        number = abs(number) if t.startswith("u") else number
        shown = ("false", "true")[number != 0] if t == "pred" else str(number)
        return self.add(t, (), f"constant({shown})", max(4.0, abs(number)))

    def parameter(self, t: str, dims: Sequence[int], number: int) -> Value:
        return self.add(t, dims, f"parameter({number})")

    def like(self, t: str, dims: tuple[int, ...]) -> Value:
        """A value of this type and these dimensions: one that is there, or one made."""
        found = self.pick(lambda v: v.t == t and v.dims == dims)
        if found and self.roll(0, 3):
            return found
        source = self.pick(lambda v: v.t == t and v.dims == ())
        same = self.pick(lambda v: v.t == t and prod(v.dims) == prod(dims) and v.dims != dims)
        column = self.pick(lambda v: v.t == t and bool(dims) and v.dims == dims[-1:] and len(dims) > 1)
        other = self.pick(lambda v: v.dims == dims and v.t != t)
        if column:
            return self.add(t, dims, f"broadcast({column.name}), dimensions={{{len(dims) - 1}}}", column.most)
        if same and self.roll(0, 2):
            return self.add(t, dims, f"reshape({same.name})", same.most)
        if other and self.roll(0, 1):
            return self.converted(other, t)
        if dims and t != "pred" and max(dims) <= (8 if "4" in t[:2] else 100) and self.roll(0, 1):
            d = self.roll(0, len(dims) - 1)
            return self.add(t, dims, f"iota(), iota_dimension={d}", float(dims[d]))
        source = source or self.scalar(t, self.roll(0, 3))
        return self.add(t, dims, f"broadcast({source.name}), dimensions={{}}", source.most) if dims else source

    def converted(self, v: Value, t: str) -> Value:
        most = v.most if v.t in FLOATS else 1.0 if v.t == "pred" else 2.0**32
        return self.add(t, v.dims, f"convert({v.name})", most)
