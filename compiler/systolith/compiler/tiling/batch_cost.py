"""Cost model of batch loops: cycles of groups on part of a dimension at a time, estimated from sizes alone.

A group takes as long as the matrix units, the vector unit or the HBM, whichever is longest.  In smaller blocks more of
the values stay in VMEM, but what does not have the dimension (weights) is moved for every block, and the rows of a
block fill the arrays less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from systolith.compiler.cost.prices import UnitCycles, transfer_cycles
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.index.contraction import Contraction
from systolith.compiler.memory.residency import (
    CACHED_SHARE,
    VALUE_SHARE,
    VALUES_SHARE,
    Aliases,
    Leaf,
    leaf_bytes,
    leaf_liveness,
)
from systolith.compiler.mxu.matmul import contraction_cycles, contraction_of
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.ops.table import ROOTS, RUNNING, Family, family, is_elementwise
from systolith.compiler.tile.views import view_base
from systolith.compiler.tiling.dim_classes import DimClass
from systolith.isa.chip import Chip

KNOWN_SHARE = 0.95
"""Part of the room for values that those of the trial may take: a loop has some small ones of its own."""

STREAMED_SHARE = 4
"""An operand in HBM that takes less than this part of VMEM is kept while the other one streams past it."""


@dataclass(frozen=True, eq=False)
class Value:
    """A value that a group reads or makes; there is one object of each.

    Attributes:
        of: the instruction of the module that it is.
        bytes: whole.
        given: a parameter or a constant: it lies in HBM.
        result: of the module: it is stored in HBM.
        first, last: positions of the groups that make it (use it first, if it is given) and use it last.
    """

    of: Instruction
    bytes: int
    given: bool
    result: bool
    first: int
    last: int


@dataclass
class Step:
    """A group.

    Attributes:
        root: the instruction whose value it makes (the last one, if several).
        products: its dots and convolutions, and the contraction that each is.
        operands: what these read that is not computed in the group.
        has_root: it has products or reductions.
        vectors: that pass through the slowest slot of the vector unit, about.
        reads, makes: values.
    """

    root: Instruction
    products: list[tuple[Instruction, Contraction]] = field(default_factory=list)
    operands: list[Value] = field(default_factory=list)
    has_root: bool = False
    vectors: int = 0
    reads: list[Value] = field(default_factory=list)
    makes: list[Value] = field(default_factory=list)


class Trial:
    """The groups of a computation as they would be.

    Args:
        computation: the module's entry.
        grouped: the same, grouped.
        chip: the target.
    """

    def __init__(self, computation: Computation, grouped: Computation, chip: Chip) -> None:
        self.chip = chip
        self.named = {i.name: i for i in computation.instructions}
        self.aliases = Aliases(grouped)
        self.groups = [i for i in grouped.instructions if family(i) in RUNNING]
        self.values = self._values(grouped)
        self.steps = [self._step(i) for i in self.groups]

    def _values(self, grouped: Computation) -> dict[Leaf, Value]:
        names: dict[Leaf, str] = {}
        for i in grouped.instructions:
            leaves = self.aliases.leaves[i]
            if i.name in self.named and len(leaves) == 1:
                names.setdefault(leaves[0], i.name)
        lives = leaf_liveness(grouped, self.aliases, self.groups)
        results = set(self.aliases.leaves[grouped.result])
        return {
            leaf: Value(
                self.named[name],
                leaf_bytes(leaf),
                family(leaf[0]) is Family.GIVEN,
                leaf in results,
                lives.first[leaf],
                lives.last[leaf],
            )
            for leaf, name in names.items()
            if leaf in lives.first
        }

    def _step(self, group: Instruction) -> Step:
        made = (leaf for leaf in self.aliases.leaves[group] if leaf[0] is group)  # and not kept by a loop
        makes = [self.values[leaf] for leaf in made if leaf in self.values]
        read = dict.fromkeys(leaf for o in group.operands for leaf in self.aliases.leaves[o])
        reads = [self.values[leaf] for leaf in read if leaf in self.values]
        step = Step(makes[-1].of if makes else group, reads=reads, makes=makes)
        if isinstance(group, Group):
            inside = group.body.instructions
            products = [i for i in inside if family(i) is Family.CONTRACTION and group.unit is not Unit.VPU]
            step.products = [(self.named.get(i.name, i), contraction_of(i)) for i in products]
            bases = [view_base(o) for i in products for o in i.operands[:2]]
            leaves = [self.aliases.leaves[group.operands[p.number]][0] for p in bases if p.number is not None]
            step.operands = [self.values[leaf] for leaf in leaves if leaf in self.values]
            step.has_root = any(family(i) in ROOTS for i in inside)
            step.vectors = self._vectors(inside)
        return step

    def _vectors(self, inside: Sequence[Instruction]) -> int:
        """Vectors through the busiest slot of the vector unit: those of the largest stream, or of the arithmetic."""
        vpu = self.chip.vpu
        busy = [i for i in inside if is_elementwise(i) or family(i) is Family.REDUCTION]
        work = [max(o.shape.size for o in (i, *i.operands) if o.shape.is_array) for i in busy]
        return max([sum(work) // vpu.alu_slots, *work]) // (vpu.lanes * vpu.sublanes)


@dataclass(frozen=True)
class Split:
    """A dimension in blocks; one block: the module as it is.

    Attributes:
        of: the dimension.
        blocks: how many.
    """

    of: DimClass
    blocks: int


class Estimate:
    """Costs of one split.

    Args:
        trial: the groups.
        split: how they run.
    """

    def __init__(self, trial: Trial, split: Split) -> None:
        self.trial, self.split, self.chip = trial, split, trial.chip

    def part(self, value: Value) -> int:
        """Bytes of a value that a block has."""
        return -(-value.bytes // self.split.blocks) if value.of in self.split.of.dims else value.bytes

    @cached_property
    def spilled(self) -> set[Value]:
        """Values that lie in HBM because they do not fit: the largest first, wherever there are too many.

        Of what is given, those parts that a block copies to VMEM first.
        """
        values = dict.fromkeys(v for s in self.trial.steps for v in (*s.makes, *s.reads))
        candidates = sorted((v for v in values if not v.given or self._is_sliced(v)), key=self.part)
        vmem = self.chip.vmem.bytes
        found = {v for v in candidates if self.part(v) > vmem * VALUE_SHARE}
        alive: dict[int, list[Value]] = {}
        for v in candidates:
            for n in range(v.first, v.last + 1):
                alive.setdefault(n, []).append(v)
        for together in alive.values():
            total = sum(self.part(v) for v in together if v not in found)
            for v in reversed(together):
                if total <= vmem * VALUES_SHARE * KNOWN_SHARE:
                    break
                if v not in found:
                    found.add(v)
                    total -= self.part(v)
        return found

    def cycles(self, step: Step) -> int:
        """Of a group, over all blocks."""
        arrays = sum(self._arrays(i, c) for i, c in step.products) * self.split.blocks
        moved = transfer_cycles(sum(self._moved(v) for v in (*step.reads, *step.makes)) + self._again(step), self.chip)
        copied = transfer_cycles(sum(self._copied(v) for v in step.makes if v.result), self.chip)
        return UnitCycles(arrays, moved, vector=step.vectors).bound + (copied if self.split.blocks > 1 else 0)

    def ends(self) -> list[int]:
        """Before each group, and after the last, cycles in which a loop that starts or ends there copies values: those
        that are made before and used later.
        """
        change = [0] * (len(self.trial.steps) + 2)
        for v in self.trial.values.values():
            if not v.given:
                copied = self._copied(v)
                change[v.first + 1] += copied
                change[v.last + 1] -= copied
        return [transfer_cycles(copied, self.chip) for copied in accumulate(change[:-1])]

    def _copied(self, value: Value) -> int:
        """Bytes that are moved where a value is copied into a loop or out of it: parts of what lies whole in HBM."""
        if value.of not in self.split.of.dims:
            return 0
        return value.bytes * (3 if value in self.spilled else 1)

    def _is_sliced(self, value: Value) -> bool:
        return self.split.blocks > 1 and value.of in self.split.of.dims

    def _moved(self, value: Value) -> int:
        """Bytes of a value that a group moves."""
        spilled = value in self.spilled
        if value.of in self.split.of.dims:
            return value.bytes * (1 + 2 * spilled if value.given else spilled)
        in_hbm = value.given or spilled or (value.result and self.split.blocks == 1)
        small = value.given and value.bytes <= self.chip.vmem.bytes // CACHED_SHARE
        return value.bytes * in_hbm * (1 if small else self.split.blocks)

    def _again(self, step: Step) -> int:
        """Bytes that are moved once more: of two large operands in HBM one comes again for each part of the other."""
        in_hbm = [self.part(v) for v in step.operands if v.given or v in self.spilled]
        if len(in_hbm) != 2:
            return 0
        kept = self.chip.vmem.bytes // STREAMED_SHARE
        large, small = in_hbm
        return self.split.blocks * min((-(-small // kept) - 1) * large, (-(-large // kept) - 1) * small)

    def _arrays(self, i: Instruction, c: Contraction) -> int:
        """Cycles of the matrix units for one block of a product."""
        if i in self.split.of.dims:
            along = c.out.dims[self.split.of.dims[i]].depends
            c = replace(c, sizes=tuple(-(-n // self.split.blocks) if a in along else n for a, n in enumerate(c.sizes)))
        return contraction_cycles(c, self.chip)
