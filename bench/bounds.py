"""What a module costs at least on a chip, from its canonical HLO alone.

The partition is fixed by rules here, whatever groups the compiler makes: each dot or convolution with the
elementwise, data movement and reduce operations that follow it; a softmax or a layer norm (from its first reduction to
the next dot) by itself; a softmax between two dots is one attention with both.  Operations that only depend on
arguments belong to the group that uses them first.  A group's bytes are its inputs and outputs once, in HLO types; of a
result that updates a donated argument (dynamic-update-slice) the update.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil, prod

from systolith.compiler.aliasing import read_aliases
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.passes.while_trip_count import trip_count
from systolith.isa.chip import Chip

HEAVY = ("dot", "convolution")
PARTS = ("slice", "dynamic-slice", "gather")
MADE = ("constant", "iota")


@dataclass(frozen=True)
class Product:
    """The matrix products of a dot or convolution: `batch` of M x K by K x N."""

    batch: int
    m: int
    k: int
    n: int

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.k * self.n

    def array_cycles(self, chip: Chip) -> float:
        """Cycles of the arrays: K and N in whole tiles, each of which streams M rows, or waits for the next one."""
        tiles = self.batch * ceil(self.k / chip.mxu.rows) * ceil(self.n / chip.mxu.cols)
        return tiles * max(self.m, chip.mxu.rows) / chip.mxu.count


@dataclass
class Group:
    """Instructions that stand together.

    Attributes:
        normalises: it has the reductions of a softmax or layer norm, and no product after them.
        products: of its dots and convolutions.
        instructions: all of them.
        bytes: of inputs and outputs.
        times: how often it runs.
    """

    normalises: bool = False
    products: list[Product] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    bytes: int = 0
    times: int = 1

    @property
    def is_softmax_of_product(self) -> bool:
        """Whether the next product makes it an attention."""
        return bool(self.products) and self.normalises and any(i.opcode == "exponential" for i in self.instructions)


@dataclass(frozen=True)
class Bound:
    """Cycles that a module takes at least.

    Attributes:
        roofline: sum over groups of the larger of FLOPs over peak and bytes over bandwidth.
        array: as `roofline`, with K and N rounded up to the array and weights latched.
        floor: the whole module as one group: the larger of FLOPs over peak, and arguments and results over bandwidth.
        flops: of dots and convolutions.
    """

    roofline: float
    array: float
    floor: float
    flops: int


def bound(module: Module, chip: Chip) -> Bound:
    """The bounds of a canonical module; bf16 peak, sustained HBM bandwidth."""
    peak = 2 * chip.mxu.count * chip.mxu.rows * chip.mxu.cols
    bandwidth = chip.hbm.p / chip.hbm.q
    updated = _updated(module)
    groups = partition(module.entry, updated=updated)
    compute = [g.times * sum(p.flops for p in g.products) / peak for g in groups]
    array = [g.times * sum(p.array_cycles(chip) for p in g.products) for g in groups]
    memory = [g.times * g.bytes / bandwidth for g in groups]
    ends = sum(p.shape.bytes for p in module.entry.parameters)
    ends += sum(_written(_source(r), updated) for r in _results(module.entry))
    return Bound(
        sum(map(max, compute, memory)),
        sum(map(max, array, memory)),
        max(sum(compute), ends / bandwidth),
        sum(g.times * p.flops for g in groups for p in g.products),
    )


def partition(computation: Computation, times: int = 1, updated: Collection[Instruction] = frozenset()) -> list[Group]:
    """The groups of a computation that runs so many times, and of the bodies of its loops.

    `updated`: results that update donated arguments.
    """
    found = _Partition(computation, times, updated)
    inner = [
        group
        for i in computation.instructions
        if i.opcode == "while"
        for group in partition(i.computation("body"), times * (trip_count(i) or 1))
    ]
    return inner + found.groups


class _Partition:
    """The groups of one computation, in order of their first instructions."""

    def __init__(self, computation: Computation, times: int, updated: Collection[Instruction]) -> None:
        self.times, self.updated = times, updated
        self.users = computation.users()
        self.groups: list[Group] = []
        self.group_of: dict[Instruction, Group] = {}
        waiting = [i for i in computation.instructions if i.opcode != "while" and not self._assign(i)]
        self._join_first_users(waiting)
        self._count_bytes(computation)

    def _assign(self, i: Instruction) -> bool:
        """Give an instruction to a group; not what depends on arguments only."""
        before = [self.group_of[o] for o in i.operands if o in self.group_of]
        latest = max(before, key=self.groups.index) if before else None
        if i.opcode in HEAVY:
            if latest is None or latest is not self.groups[-1] or not latest.is_softmax_of_product:
                latest = self._open()
            latest.products.append(product(i))
            latest.normalises = False
        elif self._normalises(i) and (latest is None or not latest.normalises):
            if latest is None or not (latest.products and _is_maximum(i)):
                latest = self._open()
            latest.normalises = True
        if latest is None:
            return False
        self._add(i, latest)
        return True

    def _open(self) -> Group:
        self.groups.append(Group(times=self.times))
        return self.groups[-1]

    def _add(self, i: Instruction, group: Group) -> None:
        self.group_of[i] = group
        group.instructions.append(i)

    def _normalises(self, i: Instruction) -> bool:
        """Whether a reduction's result is broadcast to the elements that it reduces."""
        if i.opcode != "reduce":
            return False
        seen, todo = {i}, [i]
        while todo:
            for user in self.users[todo.pop()]:
                if user in seen or user.opcode in HEAVY:
                    continue
                if user.dims == i.operands[0].dims and user.opcode in ELEMENTWISE and len(user.operands) > 1:
                    return True
                seen.add(user)
                todo.append(user)
        return False

    def _join_first_users(self, waiting: list[Instruction]) -> None:
        """What depends on arguments only goes where it is used first; if there is nothing else, it is one group."""
        for i in reversed(waiting):
            if i.opcode in (*MADE, "parameter"):
                continue
            users = [self.group_of[u] for u in self.users[i] if u in self.group_of]
            self._add(
                i, min(users, key=self.groups.index) if users else self.groups[0] if self.groups else self._open()
            )

    def _count_bytes(self, computation: Computation) -> None:
        read: dict[tuple[int, Instruction], int] = {}
        written = {_source(i) for i in _results(computation)}
        for i, group in self.group_of.items():
            for operand in map(_source, i.operands):
                if self.group_of.get(operand) is not group and operand.opcode not in MADE:
                    key = self.groups.index(group), operand
                    part = (
                        i.shape.bytes
                        if i.opcode in PARTS and operand is _source(i.operands[0])
                        else operand.shape.bytes
                    )
                    read[key] = min(read.get(key, 0) + part, operand.shape.bytes)
                    written.add(operand)
        for (number, _), size in read.items():
            self.groups[number].bytes += size
        for value in written:
            if value in self.group_of:
                self.group_of[value].bytes += _written(value, self.updated)


def _is_maximum(i: Instruction) -> bool:
    """Whether a reduction takes the maximum, as a softmax begins."""
    return i.computation().result.opcode == "maximum"


def _source(i: Instruction) -> Instruction:
    """The instruction that makes what an instruction names."""
    while i.opcode in ("bitcast", "reshape"):
        i = i.operands[0]
    return i


def _updated(module: Module) -> set[Instruction]:
    """Results that are a donated argument with a part of it replaced."""
    results = [_source(r) for r in _results(module.entry)]
    donated = (results[a.result] for a in read_aliases(module))
    return {r for r in donated if r.opcode == "dynamic-update-slice"}


def _written(value: Instruction, updated: Collection[Instruction]) -> int:
    """Bytes of a value that have to be stored."""
    return value.operands[1].shape.bytes if value in updated else value.shape.bytes


def _results(computation: Computation) -> list[Instruction]:
    result = computation.result
    return result.operands if result.opcode == "tuple" else [result]


def product(i: Instruction) -> Product:
    """The matrix products of a dot or convolution."""
    lhs, rhs = (o.dims for o in i.operands)
    if i.opcode == "dot":
        batches, contracting = i.ints("lhs_batch_dims", ()), i.ints("lhs_contracting_dims", ())
        right = i.ints("rhs_batch_dims", ()) + i.ints("rhs_contracting_dims", ())
        batch, k = prod(lhs[d] for d in batches), prod(lhs[d] for d in contracting)
        n = prod(size for d, size in enumerate(rhs) if d not in right)
        return Product(batch, prod(i.dims) // max(batch * n, 1), k, n)
    dims, groups = i.conv_dims, i.integer("feature_group_count", 1) * i.integer("batch_group_count", 1)
    n = rhs[dims.kernel_output] // groups
    k = rhs[dims.kernel_input] * prod(rhs[d] for d in dims.kernel_spatial)
    return Product(groups, i.shape.size // max(groups * n, 1), k, n)
