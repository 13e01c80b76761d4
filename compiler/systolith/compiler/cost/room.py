"""Room in memory, as a number that notes what is asked of it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any


class Room:
    """A number of bytes, and for which others every comparison so far would have come out alike.

    Anything but a comparison depends on the number itself: then there are no others.

    Attributes:
        least, most: of those numbers; None: there is no most.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.least: int = 0
        self.most: int | None = None

    def serves(self, other: int) -> bool:
        """Whether all would have come out alike with another number."""
        return self.least <= other and (self.most is None or other <= self.most)

    def __ge__(self, limit: Any) -> bool:
        if type(limit) is not int:
            return bool(self._itself() >= limit)
        if self._size >= limit:
            self.least = max(self.least, limit)
            return True
        self.most = limit - 1 if self.most is None else min(self.most, limit - 1)
        return False

    def __gt__(self, limit: Any) -> bool:
        return self >= limit + 1 if type(limit) is int else bool(self._itself() > limit)

    def __lt__(self, limit: Any) -> bool:
        return not self >= limit

    def __le__(self, limit: Any) -> bool:
        return not self > limit

    def __bool__(self) -> bool:
        return self >= 1

    def __eq__(self, other: object) -> bool:
        return self._itself() == other

    def __hash__(self) -> int:
        return hash(self._itself())

    def __index__(self) -> int:
        return self._itself()

    def __float__(self) -> float:
        return float(self._itself())

    def __format__(self, how: str) -> str:
        return format(self._itself(), how)

    def __str__(self) -> str:
        return str(self._itself())

    def _itself(self) -> int:
        """The number, on which all depends from now on."""
        self.least = self.most = self._size
        return self._size


def _arithmetic(name: str, function: Callable[[Any, Any], Any]) -> None:
    setattr(Room, f"__{name}__", lambda self, other: function(self._itself(), other))
    setattr(Room, f"__r{name}__", lambda self, other: function(other, self._itself()))


for _name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "divmod"):
    _arithmetic(_name, divmod if _name == "divmod" else getattr(operator, _name))
