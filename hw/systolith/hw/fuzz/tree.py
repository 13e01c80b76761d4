"""Programs before they are laid out: steps, scalar code, loops and alternatives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from systolith.isa.access import Access
from systolith.isa.instruction import Instruction, Operand
from systolith.isa.opcodes import MAX_WAITS, OPCODES, queue_of


class Label(NamedTuple):
    """A place in scalar code; branches name it by its number."""

    number: int


Code = list[Instruction | Label]


@dataclass(eq=False)
class Step:
    """An instruction that order concerns: of a unit, `sync`, `lds`, `sts`.

    Attributes:
        arms: it; in an alternative, the instruction of either arm, on the same queue.
        touches: its accesses, whatever its registers hold.
        group: number of the alternative that it is part of; 0: none.
        waits, signals, fence: as in `Instruction`.
    """

    arms: tuple[Instruction, ...]
    touches: tuple[Access, ...] = ()
    group: int = 0
    waits: list[int] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    fence: bool = False

    @property
    def queue(self) -> str:
        return queue_of(self.arms[0])

    @property
    def alone(self) -> bool:
        """It does not retire in order."""
        return OPCODES[self.arms[0].op].retires_alone

    @property
    def can_wait(self) -> bool:
        """It may take one more token."""
        return len(self.waits) < MAX_WAITS and self.arms[0].op not in ("lds", "sts")

    @property
    def can_signal(self) -> bool:
        """It may give one more token."""
        return len(self.signals) < MAX_WAITS and self.arms[0].op not in ("lds", "sts")


@dataclass(eq=False)
class Blob:
    """Scalar code that nothing has to wait for; in an alternative, for each arm."""

    arms: tuple[Code, ...]
    group: int = 0


@dataclass(eq=False)
class Loop:
    """A hardware loop, or one that ends with a branch.

    Attributes:
        count: operand of the `loop` instruction; None: it is closed by `closing`.
        trips: how often it runs.
        before: scalar code in front: counters and registers that the loop changes.
        after: scalar code at the end of the body.
        closing: the branch back to `start`.
        start: label of the body.
    """

    count: Operand | None
    trips: int
    start: Label
    body: list[Node] = field(default_factory=list)
    before: Code = field(default_factory=list)
    after: Code = field(default_factory=list)
    closing: Instruction | None = None


Node = Step | Blob | Loop


def carrier(queue: str, group: int = 0) -> Step:
    """An instruction that only waits and signals."""
    return Step((Instruction("sync") if queue == "seq" else Instruction("nop", {"queue": queue}),), (), group)
