"""Recomputation: elementwise values that wait for much later users in HBM are computed again there.

The forward pass of batch norm leaves differences from the mean, scaled values and masks to the backward pass, each as
large as the convolution's result that all of them come from.  That result lies in HBM anyway, and is read anyway: what
is elementwise in it, and in values of few bytes, is cheaper to compute again than to store and load.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from systolith.compiler.explain import Decision
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.ops.table import Family, family, info, is_elementwise
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.rewrite import Names
from systolith.isa.chip import Chip

LARGE = 16
"""A value of this part of VMEM, or more, waits in HBM."""

MOST = 12
"""Elementwise operations that are done again for a value."""


@dataclass(frozen=True)
class Recompute:
    """Compute large elementwise values again for users that come after further products.

    Barriers keep what blocks a normalisation from taking the copies, which are made of its statistics, as parts of it.

    Attributes:
        chip: whose VMEM it is.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        decisions: list[Decision] = []
        for computation in module.computations:
            if any(family(i) is Family.CONTRACTION for i in computation.instructions):
                decisions += _Values(computation, self.chip.vmem.bytes // LARGE).recomputed()
        return Outcome(bool(decisions), tuple(decisions))


class _Values:
    """The values of a computation.

    Args:
        computation: it is changed in place.
        least: bytes of a large value.

    Attributes:
        depth: products before each instruction on the longest way to it.
        origins: for each value the large one that it comes from, if any, and the operations on the way; itself and
            0 if it is not to be computed again.
        computed: whether each value comes from others than constants: what does is in each group that uses it.
    """

    def __init__(self, computation: Computation, least: int) -> None:
        self.computation, self.least = computation, least
        self.users = computation.users()
        self.depth: dict[Instruction, int] = {}
        self.origins: dict[Instruction, tuple[frozenset[Instruction], int]] = {}
        self.computed: dict[Instruction, bool] = {}
        for i in computation.instructions:
            above = max((self.depth[o] for o in i.operands), default=0)
            self.depth[i] = above + (family(i) is Family.CONTRACTION)
            self.origins[i] = self._origin(i)
            computed = any(self.computed[o] for o in i.operands) if self.is_again(i) else i.opcode != "constant"
            self.computed[i] = computed

    def recomputed(self) -> list[Decision]:
        """Compute values again wherever less is moved then."""
        wanted: dict[tuple[int, Instruction | None], list[Instruction]] = defaultdict(list)
        for value in filter(self._again, self.computation.instructions):
            source = next(iter(self.origins[value][0]), None)
            for depth in sorted({self.depth[u] for u in self._later(value)}):
                wanted[depth, source].append(value)
        decisions, copies = list[Decision](), _Copies(self.computation, self.is_again)
        for (depth, source), values in wanted.items():
            stored, read = sum(v.shape.bytes for v in values), 0
            if source is not None and all(self.depth[u] != depth for u in self.users[source]):
                read = source.shape.bytes
            if 2 * stored <= read:
                continue
            for value in values:
                copies.give(value, [u for u in self._later(value) if self.depth[u] == depth], depth)
            chosen = f"{', '.join(v.name for v in values)} from {source.name if source else 'few bytes'}"
            numbers = {"bytes not stored": stored, "bytes read more": read}
            decisions.append(Decision("recompute", "", chosen, "less is moved", numbers))
        copies.place()
        return decisions

    def is_again(self, i: Instruction) -> bool:
        """Whether a large value is computed again if what is made of it is."""
        return self.origins[i][1] > 0

    def _is_large(self, i: Instruction) -> bool:
        return i.shape.is_array and i.shape.bytes >= self.least

    def _is_stored(self, i: Instruction) -> bool:
        """Whether it is in memory in any case: not only elementwise operations and reductions read it."""
        return i is self.computation.result or not all(map(_in_kernel, self.users[i]))

    def _is_in_memory(self, i: Instruction) -> bool:
        """Whether it is a parameter, or a product that is read for a reduction, too."""
        reduced = any(family(u) is Family.REDUCTION for u in self.users[i])
        return i.opcode == "parameter" or (reduced and family(i) is Family.CONTRACTION)

    def _later(self, value: Instruction) -> list[Instruction]:
        """The users of a value that come after further products.

        Not those that use sums of windows: their kernels have a stream for each element of a window already.
        """
        return [
            u for u in self.users[value] if self.depth[u] > self.depth[value] and not any(map(_is_window, u.operands))
        ]

    def _origin(self, value: Instruction) -> tuple[frozenset[Instruction], int]:
        if not self._is_large(value):
            return frozenset(), 0
        if not _folds(value) or self._is_stored(value):
            return frozenset([value]), 0
        found, count = frozenset[Instruction](), 1
        for o in dict.fromkeys(value.operands):
            sources, operations = self.origins[o]
            found |= sources
            count += operations
        return (found, count) if len(found) < 2 else (frozenset([value]), 0)

    def _again(self, value: Instruction) -> bool:
        """Whether a value can be computed again, from at most one large value, which is in memory.

        A product that only elementwise operations read would be fused with them.
        """
        sources, operations = self.origins[value]
        if not 0 < operations <= MOST or not self.computed[value]:
            return False
        return all(s.dims == value.dims and self._is_in_memory(s) for s in sources)


def _folds(i: Instruction) -> bool:
    """Whether it is elementwise and of few cycles, spreads a value, or leaves out dimensions of one."""
    if i.opcode == "reshape":
        return [n for n in i.dims if n > 1] == [n for n in i.operands[0].dims if n > 1]
    return (is_elementwise(i) and not info(i).expensive) or i.opcode == "broadcast"


def _in_kernel(i: Instruction) -> bool:
    return _folds(i) or is_elementwise(i) or family(i) is Family.REDUCTION


def _is_window(i: Instruction) -> bool:
    return i.opcode == "reduce-window"


class _Copies:
    """Copies of values, each for the users of one depth.

    Args:
        computation: they are placed in it.
        again: whether an operand is copied, too.
    """

    def __init__(self, computation: Computation, again: Callable[[Instruction], bool]) -> None:
        self.computation, self.again = computation, again
        self._names = Names(i.name for i in computation.instructions)
        self._at = {i: n for n, i in enumerate(computation.instructions)}
        self._made: dict[tuple[Instruction, int], Instruction] = {}
        self._first: dict[Instruction, int] = {}
        self._taken: list[tuple[Instruction, Instruction, Instruction]] = []

    def give(self, value: Instruction, users: Sequence[Instruction], depth: int) -> None:
        """Let users take a copy, once all are placed."""
        made = self._copy(value, depth, min(self._at[u] for u in users))
        self._taken += [(user, value, made) for user in users]

    def _copy(self, value: Instruction, depth: int, before: int) -> Instruction:
        """A copy that stands before the instruction of a number; of a constant, itself."""
        if value.opcode == "constant":
            return value
        operands = [self._copy(o, depth, before) for o in value.operands] if self.again(value) else [value]
        made = self._made.get((value, depth))
        if made is None:
            made = self._made[value, depth] = self._new(value, operands)
        self._first[made] = min(before, self._first.get(made, before))
        return made

    def _new(self, value: Instruction, operands: list[Instruction]) -> Instruction:
        """A value computed again; one that is not, behind a barrier."""
        name = self._names.fresh(f"{value.name}.again")
        if self.again(value):
            return replace(value, name=name, operands=operands, attributes=dict(value.attributes))
        return Instruction(name, "opt-barrier", value.shape, operands)

    def place(self) -> None:
        """Put the copies where they are needed first, operands before what takes them."""
        for user, value, made in self._taken:
            user.operands = [made if o is value else o for o in user.operands]
        before: dict[int, list[Instruction]] = defaultdict(list)
        for made, at in self._first.items():
            before[at].append(made)
        instructions = self.computation.instructions
        self.computation.instructions = [i for n, user in enumerate(instructions) for i in (*before[n], user)]
