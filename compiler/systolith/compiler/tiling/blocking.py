"""Blocking: softmax, layer norm, attention as one group each, computed some rows at a time.

A reduction whose result meets the elements that it reduces again (a normalisation) would have them all written to
memory and read back where they do not fit in VMEM.  Here such a reduction, what leads to it and what follows from it
become one group with a `Tiling`: the dimension of each result along which the group is computed in blocks whose
intermediate values stay in VMEM.  `lower/block_choice.py` chooses their size, `lower/blocks.py` lowers it.

The region grows from the reduction along one of its kept dimensions: through elementwise operations, data movement and
reductions that keep the dimension, and through dots of which it is a batch dimension (so that a block needs no more of
the other operand).  Reductions of that very dimension are accumulated from block to block (`accumulation.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.trampoline import Steps, trampoline
from systolith.compiler.memory.residency import running
from systolith.compiler.ops.dim_propagation import operand_dim, result_dim
from systolith.compiler.ops.dim_rules import NotBlockableError, summed_dims
from systolith.compiler.ops.group import Group, Tiling, is_cheap
from systolith.compiler.ops.table import Family, family, info, is_elementwise
from systolith.compiler.passes.outline import Outline
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.tiling.accumulation import Accumulations, made_of, own_copies, read_along, start, sum_cone
from systolith.compiler.tiling.repeated_results import again, copy_for_users, drop_unused, replace_operands
from systolith.compiler.tiling.short_rows import lay_rows_across
from systolith.isa.chip import Chip

RESIDENT_SHARE = 0.5
"""A region is blocked if what it reads, writes and keeps takes more than this part of VMEM; else it fits as it is, and
is blocked for the sake of what it loads and stores: blocks overlap that with their computation.
"""

NESTED_SHARE = 0.25
"""The same for a region within a block: the rest is for the operands of other blocks, and for tiles."""

Region = dict[Instruction, int]
"""Instructions and the dimension of each that is blocked."""


@dataclass(frozen=True)
class BlockNormalisations:
    """Put normalisations that exceed VMEM, or stream through it, with what is around them, into groups of blocks.

    Attributes:
        chip: the target.
    """

    chip: Chip

    def run(self, module: Module) -> bool:
        taken = Names(c.name for c in module.computations)
        changed = False
        for computation in running(module.entry):
            for made in Regions(computation, self.chip, entry=computation is module.entry).outline(taken):
                module.computations.insert(module.computations.index(computation), made)
                changed = True
        return changed


def outline(computation: Computation, chip: Chip) -> None:
    """Outline the regions of one block's computation, in place: here a region may run along the rows of a product.

    In a block every operand that such a product needs whole is read again for each block within it; outside this would
    be the weights of all products that follow a normalisation.
    """
    Regions(computation, chip, rows=True).outline(Names([computation.name]))


class Regions:
    """Regions of one computation around its normalisations.

    Args:
        computation: it.
        chip: the target.
        rows: whether a region may run along the rows of a product.
        entry: whether parameters and results lie in HBM, so that regions that load and store much are blocked.
    """

    why = "a reduction meets its operand again"
    products = False
    """Whether a region accumulates products, too."""

    def __init__(self, computation: Computation, chip: Chip, rows: bool = False, entry: bool = False) -> None:
        self.computation, self.chip, self.rows, self.entry = computation, chip, rows, entry
        self.again: dict[Instruction, Instruction] = {}
        self.large = chip.vmem.bytes // LARGE
        self.look_up()

    def look_up(self) -> None:
        """See who uses what, and where it stands."""
        self.users = self.computation.users()
        self.place = {i: n for n, i in enumerate(self.computation.instructions)}
        self.accumulations = Accumulations(self.users, self.place, self.products)

    def outline(self, taken: Names) -> list[Computation]:
        """Replace each region by a group; gives their computations."""
        made = []
        done: set[Instruction] = set()
        for i in list(self.computation.instructions):
            if i in done or i not in self.place or not self.is_seed(i):
                continue
            region = self.best(i, done)
            if region:
                self._take_sums(region, done)
                self.prepare(self.reduced(region, done))
                reduced = self.reduced(region, done)
                if copy_for_users(self.computation, region, region.keys() | reduced.keys(), self.large):
                    self.look_up()
                done |= region.keys() | reduced.keys()
                made.append(self._replace(region, reduced, taken.fresh(f"group.{i.name}")))
                self.look_up()
        drop_unused(self.computation, {i for i in self.computation.instructions if isinstance(i, Group)})
        return made

    def prepare(self, reduced: Region) -> None:
        """Change the reductions that a region is to accumulate, in place, where another form of them is better."""

    def is_seed(self, i: Instruction) -> bool:
        """Whether to look for a region around it: a reduction's result is broadcast to elements that it reduces."""
        if i.opcode != "reduce" or not i.shape.is_array or not i.shape.rank:
            return False
        seen, todo = {i}, [i]
        while todo:
            for user in self.users[todo.pop()]:
                if user in seen or not is_cheap(user):
                    continue
                if user.dims == i.operands[0].dims and is_elementwise(user) and len(user.operands) > 1:
                    return True
                seen.add(user)
                todo.append(user)
        return False

    def best(self, seed: Instruction, done: set[Instruction]) -> Region:
        """The largest region over a dimension of the seed that is worth blocking; empty if there is none.

        A product along whose rows it runs loads all of its weights for each block, one along whose batch it runs a
        part of them: regions with more products of these come first.
        """

        def rank(region: Region) -> tuple[int, int]:
            return sum(i.opcode == "dot" and d < batch_dims(i) for i, d in region.items()), len(region)

        grown = [self.grow(seed, d, done) for d in range(seed.shape.rank) if seed.dims[d] > 1]
        return max(filter(self._is_worth, grown), key=rank, default={})

    def _is_worth(self, region: Region) -> bool:
        if self._bytes(region) > self.chip.vmem.bytes * (NESTED_SHARE if self.rows else RESIDENT_SHARE):
            return True
        return self.entry and transfer_cycles(self._streamed(region), self.chip) >= self.chip.hbm.latency

    def _streamed(self, region: Region) -> int:
        """Bytes that it takes from HBM and brings there: parts of parameters, constants and results."""
        inputs = {o for i in region for o in i.operands if family(o) is Family.GIVEN}
        result = self.computation.result
        results = {result, *(result.operands if result.opcode == "tuple" else ())}
        return sum(i.shape.bytes for i in (*inputs, *(results & region.keys())))

    def grow(self, seed: Instruction, d: int, done: set[Instruction]) -> Region:
        """The region around a seed along one of its dimensions; empty: it would be left out."""
        region: Region = {seed: d}
        before = 0
        while len(region) != before:
            before = len(region)
            self._grow_up(region, done)
            self._grow_down(region, done)
            self._grow_beside(region, done)
        self._trim(region)
        return region if seed in region else {}

    def reduced(self, region: Region, done: set[Instruction]) -> dict[Instruction, int]:
        """The reductions along the blocks that the region may accumulate; see `Accumulations.of`."""
        found = {i: d for i, d in self.accumulations.of(region).items() if i not in done}
        inside = region | found
        return {i: d for i, d in found.items() if i.opcode == "reduce" or not self._depends(i, inside)}

    def _take_sums(self, region: Region, done: set[Instruction]) -> None:
        """Take in what leads to further reductions along the blocks: copies of what others use, too."""
        for i in [i for i in self.computation.instructions if i.opcode == "reduce" and i.shape.is_array]:
            if i in region or i in done or not (cone := sum_cone(i, region | read_along(region))):
                continue
            grown = dict(region)
            for c in cone:
                there = grown | read_along(grown)
                for o in c.operands:
                    if o in there:
                        self._take_users(o, there[o], [c], grown, done)
            if grown.keys() >= set(cone) and i in self.reduced(grown, done):
                own = own_copies(self.computation, cone, i)
                region |= {own.get(c, c): grown[c] for c in cone}
                self.look_up()

    def _grow_up(self, region: Region, done: set[Instruction]) -> None:
        """Take in operands that nothing else uses."""
        inside = region.keys() | self.reduced(region, done).keys()
        for i in sorted(region, key=self.place.__getitem__, reverse=True):
            for o in i.operands:
                if o in region or o in done or o is self.computation.result or not self.may_join(o):
                    continue
                if any(u not in region and u not in inside for u in self.users[o]):
                    continue
                users = [u for u in self.users[o] if u in region]
                dims = {operand_dim(u, j, region[u]) for u in users for j, p in enumerate(u.operands) if p is o}
                if len(dims) == 1 and (dim := dims.pop()) is not None and self._computes(o, dim):
                    region[o] = dim

    def _grow_down(self, region: Region, done: set[Instruction]) -> None:
        """Take in users whose other operands do not depend on the region from outside."""
        for i in list(region):
            self._take_users(i, region[i], self.users[i], region, done)

    def _grow_beside(self, region: Region, done: set[Instruction]) -> None:
        """Take in other users of what the region reads along its blocks: products, and within a block all."""
        for o, d in read_along(region).items():
            for user in self.users[o]:
                if (self.rows or user.opcode == "dot") and user not in region and not self._leads_to(user, region):
                    self._take_users(o, d, [user], region, done)

    def _take_users(
        self, i: Instruction, d: int, users: Iterable[Instruction], region: Region, done: set[Instruction]
    ) -> None:
        """Take in users of a value in blocks along a dimension."""
        for user in users:
            if user in region or user in done or not self.may_join(user) or self._depends(user, region):
                continue
            try:
                dim = result_dim(user, i, d)
                agree = all(
                    o not in region or operand_dim(user, k, dim) == region[o] for k, o in enumerate(user.operands)
                ) and all(
                    operand_dim(u, k, region[u]) == dim
                    for u in self.users[user]
                    if u in region
                    for k, o in enumerate(u.operands)
                    if o is user
                )
            except NotBlockableError:
                continue
            if agree and self._computes(user, dim):
                region[user] = dim

    def may_join(self, i: Instruction) -> bool:
        """Whether a region may take in such an operation."""
        return i.shape.is_array and (is_cheap(i) or i.opcode in ("reduce", "dot"))

    def _computes(self, i: Instruction, d: int) -> bool:
        """Whether an operation works on its blocked dimension as a region may: a dot on a batch dimension, or a row."""
        if i.opcode == "constant" or (i.opcode == "dot" and d >= self._dims_of_dot(i)):
            return False
        try:
            for k in range(max(len(i.operands), 1)):
                operand_dim(i, k, d)
        except NotBlockableError:
            return False
        return True

    def _dims_of_dot(self, dot: Instruction) -> int:
        """How many dimensions of a dot's result, the first ones, a region may run along."""
        contracted = len(dot.ints("lhs_contracting_dims", ()))
        return dot.operands[0].shape.rank - contracted if self.rows else batch_dims(dot)

    def _depends(self, user: Instruction, region: Region) -> bool:
        """Whether an operand outside the region is computed from what is inside."""
        first = min(self.place[i] for i in region)
        seen: set[Instruction] = set()
        todo = [o for o in user.operands if o not in region]
        while todo:
            i = todo.pop()
            if i in seen or self.place[i] < first:
                continue
            seen.add(i)
            if any(o in region for o in i.operands):
                return True
            todo += i.operands
        return False

    def _leads_to(self, value: Instruction, region: Region) -> bool:
        """Whether an operand of the region is computed outside from a value, which could not be inside then."""
        read = [p for i in region for o in i.operands if o not in region and o is not value for p in o.operands]
        return value in made_of(read, self.place, self.place[value])

    def _trim(self, region: Region) -> None:
        """Leave out data movement at the end, and what a reduction can compute from a result: what follows can do it
        as it reads.
        """
        while True:
            ends = [i for i in region if not any(u in region for u in self.users[i])]
            left = {i for i in ends if i.opcode in ("reshape", "broadcast")}
            left.update(*(self._recomputed(i, region) for i in ends))
            if not left:
                return
            for i in left:
                del region[i]

    def _recomputed(self, end: Instruction, region: Region) -> set[Instruction]:
        """What leads to a value that one reduction of several operands, which no region takes in, reads, from results
        of the region and nothing else; empty if it is not cheap.
        """
        if [u.opcode for u in self.users[end]] != ["reduce"] or self.users[end][0].shape.is_array:
            return set()
        found: set[Instruction] = set()
        from_result = False
        needed = {end}
        for i in sorted(region, key=self.place.__getitem__, reverse=True):
            if i not in needed:
                continue
            if i is not end and any(u not in region for u in self.users[i]):
                from_result = True
            elif is_cheap(i) and not info(i).expensive and (i is end or found.issuperset(self.users[i])):
                found.add(i)
                needed.update(i.operands)
            else:
                return set()
        return found if from_result else set()

    def _bytes(self, region: Region) -> int:
        """Bytes that the region reads and writes, and the largest that it keeps between its operations."""
        inputs = {o for i in region for o in i.operands if o not in region}
        outputs = self.outputs(region)
        kept = [i.shape.bytes for i in region if len(self.users[i]) > 1 and i not in outputs]
        return sum(i.shape.bytes for i in (*inputs, *outputs)) + max(kept, default=0)

    def outputs(self, region: Iterable[Instruction]) -> list[Instruction]:
        """Those of its values that anything outside reads, in order."""
        inside = set(region)
        return [
            i
            for i in self.computation.instructions
            if i in inside and (i is self.computation.result or any(u not in inside for u in self.users[i]))
        ]

    def _replace(self, region: Region, reduced: Region, name: str) -> Computation:
        """Outline a region, in place, and the reductions along its blocks that it accumulates."""
        dims = region | reduced
        outputs = self.outputs(dims)
        copy = RegionOutline(region, self.again)
        starts = {i: start(self.computation, i) for i in reduced}
        for i in [i for i in self.computation.instructions if i in dims]:
            if i in reduced:
                copy.accumulate(i, reduced[i], starts[i][-1])
            else:
                copy.take(i)
        body = copy.computation(name, [copy.copies[o] for o in outputs], "tuple")
        last, operands = outputs[-1], copy.values
        accumulated = tuple(n for n, o in enumerate(outputs) if o in reduced)
        why = self.why
        if turned := lay_rows_across(body, self.chip):
            why += ", in short rows, which are transposed"
        along = tuple(turned[dims[o]] if turned and o in reduced else dims[o] for o in outputs)
        tiling = Tiling(along, accumulated)
        made = [s for some in starts.values() for s in some]
        self._insert(Group.of(last.name, body, operands, last, None, tiling, why), dims, outputs, made)
        return body

    def _insert(self, group: Group, region: Region, outputs: list[Instruction], starts: Sequence[Instruction]) -> None:
        """Put the group, after what it starts from, where its operands are there and its users are not yet."""
        value: dict[Instruction, Instruction] = {outputs[0]: group}
        made: list[Instruction] = [*starts, group]
        if len(outputs) > 1:
            group.name = self.computation.fresh_name(f"{outputs[-1].name}.blocks")
            for k, o in enumerate(outputs):
                value[o] = Instruction(o.name, "get-tuple-element", o.shape, [group], {"index": k}, line=o.line)
                made.append(value[o])
            copies = {value[o]: again(o, region, value, self.large) for o in outputs}
            self.again |= {i: i for made_again in copies.values() for i in made_again[:-1]}
            self.again |= {part: made_again[-1] for part, made_again in copies.items() if made_again}
        replace_operands(self.again.values(), value)
        after = _downstream(self.computation, region, group.operands)
        first: list[Instruction] = []
        rest: list[Instruction] = []
        for i in self.computation.instructions:
            if i not in region:
                i.operands = [value.get(o, o) for o in i.operands]
                (rest if i in after else first).append(i)
        self.computation.instructions = [*first, *made, *rest]
        if self.computation.root in value:
            self.computation.root = value[self.computation.root]


def batch_dims(dot: Instruction) -> int:
    """How many dimensions of a dot's result, the first ones, are its batch."""
    return len(dot.ints("lhs_batch_dims", ()))


class RegionOutline(Outline):
    """A region's instructions as a computation of their own.

    A value from outside is a parameter for each dimension that is blocked; what is needed whole, too, is two.

    Args:
        region: it.
        again: values from outside that are computed here again, and how.
    """

    def __init__(self, region: Region, again: Mapping[Instruction, Instruction] = MappingProxyType({})) -> None:
        super().__init__()
        self.region, self.again = region, again
        self._repeated: dict[tuple[Instruction, int | None], Instruction] = {}

    def take(self, i: Instruction) -> Instruction:
        """The next instruction of the region, operands first."""
        operands = [trampoline(self._operand(o, i, k, self.region[i])) for k, o in enumerate(i.operands)]
        self.copies[i] = self.add(i, operands)
        return self.copies[i]

    def accumulate(self, i: Instruction, d: int, start: Instruction) -> None:
        """A reduction along dimension `d` of its first operand, on what the blocks before gave; at first that is
        `start`.
        """
        operands = [trampoline(self._value(o, e)) for o, e in summed_dims(i, d)]
        combines = "add"
        if i.opcode == "reduce":
            operands.append(trampoline(self._operand(i.operands[1], i, 1, None)))
            combines = i.computation().result.opcode
        part = self.add(i, operands)
        part.name = f"{i.name}.part"
        combined = Instruction(i.name, combines, i.shape, line=i.line)
        self.copies[i] = self.add(combined, [self.parameter(start), part])

    def _operand(self, o: Instruction, user: Instruction, k: int, d: int | None) -> Steps[Instruction]:
        """Operand `k` of an instruction that is blocked along dimension `d`."""
        return self._value(o, None if d is None else operand_dim(user, k, d))

    def _value(self, o: Instruction, d: int | None) -> Steps[Instruction]:
        """What stands for a value along one of its dimensions; None: for all of it."""
        if o in self.copies:
            return self.copies[o]
        made_again = None if d is None else self.again.get(o)
        if made_again or _is_repeated(o, d):
            if (o, d) not in self._repeated:
                operands: list[Instruction] = []
                source = made_again or o
                for n, p in enumerate(source.operands):
                    operands.append((yield self._operand(p, source, n, d)))
                self._repeated[o, d] = self.add(source, operands)
            return self._repeated[o, d]
        return self.parameter(o, d)


def _is_repeated(o: Instruction, d: int | None) -> bool:
    """Whether a region makes a value for itself: a scalar, or what is the same for all indices of its dimension."""
    if o.opcode == "iota":
        return d is None or d != o.integer("iota_dimension")
    return o.opcode == "broadcast" or (o.opcode == "constant" and not o.shape.rank)


def _downstream(
    computation: Computation, region: Iterable[Instruction], operands: Iterable[Instruction]
) -> set[Instruction]:
    """Everything that is computed from the region, or was after its first instruction without being needed by it.

    `operands`: of its group, which may be others than the region's: what it computes again is made of them.
    """
    inside = set(region)
    found: set[Instruction] = set()
    started = False
    needed = set(operands)
    for i in reversed(computation.instructions):
        if i in inside or i in needed:
            needed.update(i.operands)
    for i in computation.instructions:
        started |= i in inside
        if started and i not in inside and i not in needed:
            found.add(i)
    return found
