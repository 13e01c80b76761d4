"""Groups as they were lowered, for what looks at them afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.schedule.operation_times import Stage
from systolith.compiler.tile.ir import Array, TileOp


@dataclass
class LoweredGroup:
    """A group as it was lowered, for checks.

    Attributes:
        group: the `fusion` instruction.
        ops: its operations.
        inputs, outputs: where its operands and results lie, by the names of their values; of what lies in a view, the
            view's.
    """

    group: Instruction
    ops: list[TileOp]
    inputs: tuple[tuple[str, Array], ...]
    outputs: tuple[tuple[str, Array], ...]


class Nest(NamedTuple):
    """The blocks of a group in a block of another group.

    Attributes:
        place: how many items were in the block before.
        blocks: their stages.
        most: so many may be in the making.
    """

    place: int
    blocks: Sequence[Sequence[Stage]]
    most: int
