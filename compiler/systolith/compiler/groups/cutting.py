"""Cutting a group at some of its values: those are stored, each by a group of its own, which the rest reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.visiting import cone, through
from systolith.compiler.ops.expression_builder import group_roots, reads_in_place
from systolith.compiler.ops.table import ROOTS, Family, family
from systolith.compiler.passes.outline import Outline


@dataclass(frozen=True)
class Part:
    """A part of a group, as a group.

    Attributes:
        roots: the values that it computes.
        leaves: what its parameters stand for: parameters of the whole group, stored values, and reshapes of those.
        computation: of copies.
    """

    roots: tuple[Instruction, ...]
    leaves: tuple[Instruction, ...]
    computation: Computation


@dataclass(frozen=True)
class Parts:
    """A group in parts.

    Attributes:
        body: the group's computation.
        roots: its results.
        stored: the values that are stored, operands first, and the part that makes each.
        rest: what makes the results that are not stored, nor reshapes of what is; None: there are none.
    """

    body: Computation
    roots: tuple[Instruction, ...]
    stored: tuple[tuple[Instruction, Part], ...]
    rest: Part | None

    @classmethod
    def of(cls, body: Computation, cuts: Iterable[Instruction]) -> Parts:
        """A group cut at some values; of a reshape, at what it is of.

        A product or reduction that two parts would compute is stored too, and one whose value another part would not
        read at its own index.
        """
        roots = tuple(group_roots(body))
        stored = {base for i in cuts if family(base := through(i, "reshape")) is not Family.GIVEN}
        while more := _shared(body, roots, stored):
            stored |= more
        made = tuple((i, _part(body, (i,), stored - {i})) for i in body.instructions if i in stored)
        left = tuple(root for root in dict.fromkeys(roots) if not _is_leaf(root, stored))
        return cls(body, roots, made, _part(body, left, stored) if left else None)

    @property
    def cuts(self) -> list[Instruction]:
        """The stored values."""
        return [i for i, _ in self.stored]

    def computations(self) -> list[Computation]:
        """Those of all parts."""
        return [p.computation for _, p in self.stored] + ([self.rest.computation] if self.rest else [])

    @property
    def progress(self) -> bool:
        """Whether every part has fewer operations than the group."""
        whole = _operations(self.body)
        return all(_operations(c) < whole for c in self.computations())


def _operations(c: Computation) -> int:
    return sum(family(i) is not Family.GIVEN for i in c.instructions)


def _is_leaf(i: Instruction, stored: Collection[Instruction]) -> bool:
    """Whether a value is in memory, or a view of one that is."""
    base = through(i, "reshape")
    return base.opcode == "parameter" or base in stored


def _reached(body: Computation, roots: Iterable[Instruction], stored: Collection[Instruction]) -> set[Instruction]:
    """The instructions that a part computes, and its leaves."""
    return cone(roots, {i for i in body.instructions if _is_leaf(i, stored)})


def _shared(body: Computation, roots: Sequence[Instruction], stored: Collection[Instruction]) -> set[Instruction]:
    """Products and reductions that have to be stored besides."""
    left = [root for root in roots if not _is_leaf(root, stored)]
    within = [(i, _reached(body, [i], set(stored) - {i})) for i in stored]
    rest = _reached(body, left, stored)
    found = set()
    for root in (i for i in body.instructions if family(i) in ROOTS and i.shape.is_array and i not in stored):
        users = [i for i, reach in within if root in reach]
        if len(users) + (root in rest) > 1 or not all(reads_in_place(i, root, stored) for i in users):
            found.add(root)
    return found


def _part(body: Computation, roots: Sequence[Instruction], stored: Collection[Instruction]) -> Part:
    copy = Outline()
    inside = _reached(body, roots, stored)
    for i in body.instructions:
        if i in inside:
            (copy.parameter if _is_leaf(i, stored) else copy.take)(i)
    computation = copy.computation(body.name, [copy.copies[root] for root in roots])
    return Part(tuple(roots), tuple(copy.values), computation)
