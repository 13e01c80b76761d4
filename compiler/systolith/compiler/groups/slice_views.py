"""Slices at offsets that only the run knows, as views: their readers take them from the whole array, nothing is copied.

The body of a loop over layers takes each layer's weights from an array of all of them.  A slice that is copied to
memory of its own is read twice and written once where VMEM has no room for it, and is there as a whole before its
reader begins where it has.  A view has the strides of the whole array, and an offset in a register.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from systolith.compiler.explain import Decision
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.memory.aliasing import Uses
from systolith.compiler.memory.residency import Leaf, kept_by, running
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.passes.base import Outcome
from systolith.isa.chip import Chip

SMALL: Mapping[Unit | None, float] = {Unit.MXU: 1 / 64, None: 1 / 64, Unit.VPU: 1 / 16}
"""Part of VMEM up to which a slice is copied, by who reads it (None: blocks): a sort of 1 M f32 is 2.7 % slower with
1 / 64 for all, ResNet-50 of a batch of 8 0.6 % with 1 / 16.
"""

SHARED = 1 / 8
"""The same for a slice that several groups read, which would be in VMEM from the first of them to the last.  The six
layers of a training step of GPT-2 small, whose weights a product and the optimiser read, take 1.4 % fewer cycles than
with the 0.6 that one value may have: all groups in between have larger tiles.
"""


@dataclass(frozen=True)
class SliceViews:
    """Let groups read dynamic slices where they lie in the whole array.

    Small slices are copied, which makes their readers wait less; so are larger ones that several groups read.

    Attributes:
        chip: whose VMEM it is.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        decisions: list[Decision] = []
        for i in (i for computation in running(module.entry) for i in self.of(computation)):
            i.read_in_place()
            what = "is read where it lies in the whole array"
            decisions.append(Decision("memory", i.name, what, "", {"bytes": i.shape.bytes}))
        return Outcome(bool(decisions), tuple(decisions))

    def of(self, computation: Computation) -> Iterator[Group]:
        """The slices of a computation that are to be views."""
        slices = [i for i in computation.instructions if isinstance(i, Group) and i.root.opcode == "dynamic-slice"]
        if not slices:
            return
        uses, users = Uses(computation), computation.users()
        changed = _changes(computation, uses)
        for i in slices:
            if i.unit is not Unit.DMA or not _is_slice_of_operand(i):
                continue
            readers = _readers(i, users, computation.result)
            whole = uses.aliases.leaves[i.sliced]
            if not readers or len(whole) != 1:
                continue
            end = max(uses.position[reader] for reader in readers)
            if not uses.position[i] < changed[whole[0]] <= end and self._gains(i, readers):
                yield i

    def _gains(self, i: Instruction, readers: Mapping[Group, Instruction]) -> bool:
        parts = sum(_read(reader, value) for reader, value in readers.items())
        share = SHARED if parts > i.shape.size else min(SMALL[reader.unit] for reader in readers)
        return i.shape.bytes > self.chip.vmem.bytes * share


def _read(reader: Group, value: Instruction) -> int:
    """Elements of an operand that a group reads: all, or those of a slice."""
    given = reader.body.parameters[reader.operands.index(value)]
    users = reader.body.users()
    while len(users[given]) == 1 and users[given][0].opcode in ("bitcast", "reshape", "slice"):
        (given,) = users[given]
    return given.shape.size


def _is_slice_of_operand(group: Group) -> bool:
    return group.body.result is group.root and group.root.operands[0].opcode == "parameter"


def _readers(
    i: Instruction, users: Mapping[Instruction, Sequence[Instruction]], root: Instruction
) -> dict[Group, Instruction]:
    """The groups that read a value, by what name; none if anything else does, which wants it in memory of its own."""
    found: dict[Group, Instruction] = {}
    names = [i]
    while names:
        name = names.pop()
        if name is root:
            return {}
        for user in users[name]:
            if user.opcode == "bitcast" and user.shape.dtype is name.shape.dtype:
                names.append(user)
            elif isinstance(user, Group) and user.unit in SMALL:
                found[user] = name
            else:
                return {}
    return found


def _changes(computation: Computation, uses: Uses) -> Mapping[Leaf, int]:
    """Where each array is changed in place for the last time, by a group or a loop; -1: nowhere."""
    found: dict[Leaf, int] = defaultdict(lambda: -1)
    for position, i in enumerate(computation.instructions):
        if (base := uses.changed(i)) is not None:
            found[base] = position
        elif i.opcode == "while":
            given = uses.aliases.leaves[i.operands[0]]
            found |= {leaf: position for leaf, kept in zip(given, kept_by(i), strict=True) if not kept}
    return found
