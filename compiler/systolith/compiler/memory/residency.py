"""Placement: which values lie in VMEM, which in HBM, and how much VMEM is left for each group's tiles.

An intermediate value lies whole in VMEM from the group that makes it to its last use, unless what is alive with it does
not fit: then the largest value is spilled to HBM.  (What is used least for how long it lives would move fewer bytes,
but was measured slower: ResNet-50 by 1 to 2 %, BERT-base by up to 20 %.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.trampoline import Steps, trampoline
from systolith.compiler.memory.liveness import Liveness, liveness
from systolith.compiler.memory.shares import Shares
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.ops.table import RUNNING, Family, family

TILE_SHARES = (0.4, 0.25, 0.15, 0.08, 0.04)
"""Parts of the free VMEM that one group's tiles may take: the first with which everything fits (the rest is for what
runs ahead)."""

TILES = Shares(TILE_SHARES, TILE_SHARES[0])
"""Every group has the largest."""

Leaf = tuple[Instruction, int]
"""A value that is no tuple: who makes it, and its number among the maker's results (depth first)."""

VALUES_SHARES = (0.75, 0.5)
"""Parts of VMEM that whole values may take together: the first, but where blocks of groups gain more by the room that
another leaves than it costs to move values to HBM and back.
"""

VALUES_SHARE = VALUES_SHARES[0]
"""The usual one."""

VALUE_SHARE = 0.6
"""Part of VMEM that one value may take: a larger one would leave too little for the tiles of groups beside it."""

LONG = 8
"""Products; a value that is not used during so many waits long."""

WAITING_SHARE = 0.25
"""Part of VMEM that values may take together while they wait long: what runs meanwhile needs the room for its tiles."""

ROOM_BITS = 4
"""Leading bits that count of the VMEM which values leave to a group in blocks, to the nearest: those that are alike but
for a little room are lowered alike, once.  With the same for all groups, 5 bits made a training step of ResNet-50 take
8 % longer to compile than 4, all bits 20 %.
"""

CACHED_SHARE = 64
"""Parameters and constants of up to this part of VMEM are loaded whole, once."""

ALLOCATE = "AllocateBuffer"
"""XLA's target of a custom-call that gives memory without contents."""


STACK = "Stack"
"""Target of a custom-call that gives arrays as one with a new first dimension; nothing is copied."""

UNSTACK = "Unstack"
"""Target of a custom-call that gives its second operand, which is the array `opaque` of the stack that is its first, as
it is now.
"""


def is_stack(i: Instruction) -> bool:
    """Whether an instruction gives arrays as one; see `STACK`."""
    return i.opcode == "custom-call" and i.word("custom_call_target") == STACK


def is_unstack(i: Instruction) -> bool:
    """Whether an instruction gives an array of a stack; see `UNSTACK`."""
    return i.opcode == "custom-call" and i.word("custom_call_target") == UNSTACK


def names_memory(i: Instruction) -> bool:
    """Whether an instruction only names memory: nothing runs."""
    return is_allocation(i) or is_stack(i) or is_unstack(i)


def allocation(name: str, shape: Shape, line: int = 0) -> Instruction:
    """Memory without contents, every element of which is written before it is read."""
    return Instruction(name, "custom-call", shape, [], {"custom_call_target": ALLOCATE}, line=line)


def is_allocation(i: Instruction) -> bool:
    """Whether an instruction is memory without contents (`allocation`)."""
    return i.opcode == "custom-call" and i.word("custom_call_target") == ALLOCATE


@dataclass
class Placement:
    """Result.

    Attributes:
        spilled: leaves that lie in HBM.
        budget: bytes of VMEM for the tiles of each group.
        live: bytes of whole values alive at each group, at one in blocks about (`ROOM_BITS`).
        shares: parts of the free VMEM that each group's tiles may take.
    """

    spilled: set[Leaf] = field(default_factory=set)
    budget: dict[Instruction, int] = field(default_factory=dict)
    live: dict[Instruction, int] = field(default_factory=dict)
    shares: Shares = TILES


def leaf_bytes(leaf: Leaf) -> int:
    """Bytes of a leaf."""
    return leaf[0].shape.arrays[leaf[1]].bytes


def leaves_of(*makers: Instruction) -> list[Leaf]:
    """The leaves of instructions, as though each made them all."""
    return [(i, k) for i in makers for k in range(len(i.shape.arrays))]


def running(entry: Computation) -> list[Computation]:
    """The entry, and the computations that its loops and conditionals run, each once."""
    found, todo = {entry: None}, [entry]
    while todo:
        for i in todo.pop().instructions:
            if family(i) is Family.CONTROL:
                todo += [c for c in i.called if c not in found]
                found |= dict.fromkeys(i.called)
    return list(found)


class Aliases:
    """Which leaves an instruction of a computation stands for, through tuples, views and loops that keep a value."""

    def __init__(self, computation: Computation) -> None:
        self.leaves: dict[Instruction, tuple[Leaf, ...]] = {}
        for i in computation.instructions:
            self.leaves[i] = self._of(i)

    def _of(self, i: Instruction) -> tuple[Leaf, ...]:
        if i.opcode == "tuple":
            return tuple(leaf for o in i.operands for leaf in self.leaves[o])
        if i.opcode == "bitcast":
            return self.leaves[i.operands[0]]
        if isinstance(i, Group) and i.unit is Unit.VIEW:
            return self.leaves[i.sliced]
        if is_unstack(i):
            return self.leaves[i.operands[1]]
        if i.opcode == "get-tuple-element":
            (operand,), index = i.operands, i.integer("index")
            start = sum(len(s.arrays) for s in operand.shape.elements[:index])
            return self.leaves[operand][start : start + len(i.shape.arrays)]
        if i.opcode == "while":
            given = self.leaves[i.operands[0]]
            return tuple(
                before if kept else (i, k) for k, (before, kept) in enumerate(zip(given, kept_by(i), strict=True))
            )
        return tuple(leaves_of(i))


def kept_by(loop: Instruction) -> list[bool]:
    """For each leaf of a while's state, whether its body leaves it as it is."""
    return [trampoline(_keeps(*leaf)) for leaf in leaves_of(loop)]


def _keeps(loop: Instruction, k: int) -> Steps[bool]:
    body = loop.computation("body")
    (parameter,) = body.parameters
    i, at = body.result, k
    while i is not parameter:
        if i.opcode == "tuple":
            i, at = _part(i, at)
        elif i.opcode == "get-tuple-element":
            at += sum(len(s.arrays) for s in i.operands[0].shape.elements[: i.integer("index")])
            i = i.operands[0]
        elif i.opcode == "bitcast" or (i.opcode == "while" and (yield _keeps(i, at))):
            i = i.operands[0]
        else:
            return False
    return at == k


def _part(made: Instruction, leaf: int) -> tuple[Instruction, int]:
    """The operand of a `tuple` that has a leaf, and which of its leaves that is."""
    if all(o.shape.is_array for o in made.operands):
        return made.operands[leaf], 0
    for operand in made.operands:
        count = len(operand.shape.arrays)
        if leaf < count:
            return operand, leaf
        leaf -= count
    raise IndexError(leaf)


def result_leaves(computation: Computation) -> list[Leaf]:
    """The leaves that the root holds, in order."""
    return list(Aliases(computation).leaves[computation.result])


def leaves_read(computation: Computation) -> set[Leaf]:
    """The leaves that an operation of a computation reads."""
    leaves = Aliases(computation).leaves
    return {leaf for i in computation.instructions if family(i) in RUNNING for o in i.operands for leaf in leaves[o]}


def nested(i: Instruction) -> list[Computation]:
    """Computations that control flow runs in: of while and conditional."""
    if i.opcode == "while":
        return [i.computation("condition"), i.computation("body")]
    if i.opcode == "conditional":
        return i.called
    return []


def leaf_liveness(
    computation: Computation, aliases: Aliases, steps: Sequence[Instruction] | None = None
) -> Liveness[Leaf]:
    """Liveness of leaves over a computation's instructions, or some of them; what the root holds is needed after."""

    def leaves(i: Instruction) -> tuple[Iterator[Leaf], Iterator[Leaf]]:
        read = () if family(i) is Family.NAME else i.operands
        return (leaf for leaf in aliases.leaves[i] if leaf[0] is i), (leaf for o in read for leaf in aliases.leaves[o])

    over = computation.instructions if steps is None else steps
    return liveness(map(leaves, over), after=aliases.leaves[computation.result])


ROWS_SHARE = 1 / 16
"""Part of VMEM that an array may take of which each iteration of a loop of several products leaves a row: blocks of
attention gain more by the room than a transfer of each row takes.
"""

LAYER = 4
"""Products of an iteration of such a loop; one of an LSTM has fewer, and waits for what it stores."""


class _Waits:
    """How long values of a computation wait for their next use.

    Attributes:
        products: how many products come before each instruction.
        uses: the places at which each leaf is made or used, in order; that of a result is no use.
    """

    def __init__(self, computation: Computation, aliases: Aliases) -> None:
        counts = (_has_product(i) for i in computation.instructions)
        self.products = [0, *accumulate(counts)]
        self.uses: dict[Leaf, list[int]] = defaultdict(list)
        for n, i in enumerate(computation.instructions):
            read = i.operands if family(i) in RUNNING else ()
            made = (leaf for leaf in aliases.leaves[i] if leaf[0] is i)
            for leaf in (*made, *(leaf for o in read for leaf in aliases.leaves[o])):
                self.uses[leaf].append(n)

    def long(self, leaf: Leaf, position: int) -> bool:
        """Whether many products come between the uses of a value around a place, at which it is not used."""
        uses = self.uses[leaf]
        after = bisect_left(uses, position)
        if after == 0 or after == len(uses) or uses[after] == position:
            return False
        return self.products[uses[after]] - self.products[uses[after - 1] + 1] >= LONG


def _has_product(i: Instruction) -> bool:
    """Whether a group multiplies matrices."""
    return isinstance(i, Group) and i.unit is Unit.MXU


def _waits_by_rows(leaf: Leaf) -> bool:
    """Whether a leaf is the state of a loop of several products that updates it in places, and reads it nowhere."""
    loop, k = leaf
    if loop.opcode != "while":
        return False
    body = loop.computation("body")
    (parameter,), root = body.parameters, body.result
    shapes = [len(s.arrays) for s in loop.shape.elements]
    if sum(map(_has_product, body.instructions)) < LAYER or root.opcode != "tuple" or shapes != [1] * len(shapes):
        return False
    made = root.operands[k]
    if not isinstance(made, Group) or made.root.opcode != "dynamic-update-slice" or made.unit is not Unit.DMA:
        return False
    number = made.root.operands[0].number
    if number is None:
        return False
    base = made.operands[number]
    named = base.opcode == "get-tuple-element" and base.operands[0] is parameter and base.integer("index") == k
    readers = [u for i in body.users()[parameter] if i.integer("index") == k for u in body.users()[i]] if named else []
    return readers == [made]


def place(
    module: Module,
    vmem: int,
    shares: Shares,
    spilled: Collection[Leaf],
    fixed: Collection[Leaf],
    values: float = VALUES_SHARE,
) -> Placement:
    """Decide.

    Args:
        module: grouped HLO.
        vmem: bytes.
        shares: parts of the free VMEM that each group's tiles may take.
        spilled: leaves that lie in HBM in any case.
        fixed: leaves of the entry that lie in result buffers.
        values: part of VMEM that whole values may take together.
    """
    placement = Placement(set(spilled) | set(fixed), shares=shares)
    place_computation(placement, module.entry, vmem, int(vmem * values), 0)
    for i in placement.live:
        if isinstance(i, Group) and i.tiling is not None:
            free = vmem - placement.live[i]
            step = 1 << max(0, free.bit_length() - ROOM_BITS)
            room = (free + step // 2) // step * step
            placement.live[i], placement.budget[i] = vmem - room, int(room * shares.of(i))
    return placement


def place_computation(placement: Placement, computation: Computation, vmem: int, limit: int, outer: int) -> None:
    """Decide for one computation and those in it.

    Args:
        placement: added to.
        computation: grouped.
        vmem: bytes.
        limit: bytes that values may take, those around it included.
        outer: bytes of values that are alive around it.
    """
    before = len(placement.spilled)
    _place_once(placement, computation, vmem, limit, outer)
    # What a later operation has no room for does not take any before it. Tiles of products are better for it; those of
    # chains on the vector unit are not (an f64 add takes 0.286 cycles an element then, not 0.269).
    products = any(map(_has_product, computation.instructions))
    while products and len(placement.spilled) != before:
        before = len(placement.spilled)
        _place_once(placement, computation, vmem, limit, outer)


def _place_once(placement: Placement, computation: Computation, vmem: int, limit: int, outer: int) -> None:
    aliases = Aliases(computation)
    last = leaf_liveness(computation, aliases).last
    start = {i: n for n, i in enumerate(computation.instructions)}
    made: dict[Instruction, list[Leaf]] = defaultdict(list)
    for leaf in last:
        if family(leaf[0]) is not Family.GIVEN and not names_memory(leaf[0]):
            made[leaf[0]].append(leaf)
            if leaf_bytes(leaf) > vmem * (ROWS_SHARE if _waits_by_rows(leaf) else VALUE_SHARE):
                placement.spilled.add(leaf)
    waits = _Waits(computation, aliases)
    alive: dict[Leaf, int] = {}
    for position, i in enumerate(computation.instructions):
        alive |= {leaf: leaf_bytes(leaf) for leaf in made[i] if leaf not in placement.spilled}
        if family(i) not in RUNNING:
            continue
        alive = {leaf: size for leaf, size in alive.items() if last[leaf] >= position}
        waiting = {leaf: size for leaf, size in alive.items() if waits.long(leaf, position)}
        while sum(waiting.values()) > vmem * WAITING_SHARE:
            leaf = max(waiting, key=lambda leaf: (waiting[leaf], start[leaf[0]], leaf[1]))
            placement.spilled.add(leaf)
            del waiting[leaf], alive[leaf]
        total = outer + sum(alive.values())
        while alive and total > limit:
            # Of equal ones that which was made last.
            leaf = max(alive, key=lambda leaf: (alive[leaf], start[leaf[0]], leaf[1]))
            placement.spilled.add(leaf)
            total -= alive.pop(leaf)
        placement.live[i] = total
        placement.budget[i] = int((vmem - total) * placement.shares.of(i))
        for inner in nested(i):
            place_computation(placement, inner, vmem, limit, total)
