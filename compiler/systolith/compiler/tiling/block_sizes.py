"""Sizes that the blocks of a group can have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FEWEST = 8
"""Blocks to have at least, so that transfers of one overlap the computation of another."""

FEWEST_OF_PRODUCTS = 4
"""Blocks of products to have at least: the longer their rows stream, the better they hide the loads of weights."""

SIZES = 3
"""Sizes of blocks to estimate, the largest that fit."""


WHOLE = ", not in blocks themselves"
"""How the names of forms end of blocks that could be in blocks."""


@dataclass(frozen=True)
class Form:
    """What blocks are like.

    Attributes:
        size: indices of a block.
        apart: whether each product of a block has a matrix unit of its own: else each has all of them.
        whole: whether a block of one index is made at once where it could be in blocks of another dimension.
    """

    size: int
    apart: bool = False
    whole: bool = False

    def __str__(self) -> str:
        apart = ", a matrix unit for each product" if self.apart else ""
        return f"blocks of {self.size}{apart}{WHOLE if self.whole else ''}"


@dataclass(frozen=True)
class Blocking:
    """A way to have blocks.

    Attributes:
        form: of a block.
        blocks: their number.
        bytes: of VMEM that those in the making take.
        at_once: blocks in the making at a time.
        cycles: estimated.
    """

    form: Form
    blocks: int
    bytes: int
    at_once: int
    cycles: int

    @property
    def signature(self) -> str:
        """A text unique among the ways."""
        return str(self.form)

    @property
    def numbers(self) -> dict[str, int]:
        """For `explain`."""
        return {"cycles": self.cycles, "blocks": self.blocks, "at a time": self.at_once, "bytes": self.bytes}


def sizes(whole: int, fewest: int = FEWEST) -> Iterator[int]:
    """Sizes of the blocks of so many indices, the largest first, each half of the one before; at least `fewest`."""
    pieces = min(fewest, whole)
    last = 0
    while True:
        size = -(-whole // pieces)
        if size != last:
            yield size
        if size == 1:
            return
        last, pieces = size, pieces * 2
