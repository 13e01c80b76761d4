"""Which dimensions of a computation's values are one dimension: what index x of one value is computed from.

The batch of a network runs through nearly all of its values.  `classes` finds such dimensions; over a segment of
instructions that all keep one, the segment can run on a few of its indices at a time (`tiling/batch_loops.py`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.ops.dim_propagation import operand_dim
from systolith.compiler.ops.dim_rules import NotBlockableError
from systolith.compiler.ops.table import Family, family

Dim = tuple[Instruction, int]
"""A dimension of an instruction's result."""


@dataclass
class DimClass:
    """One dimension, as it runs through a computation.

    Attributes:
        size: indices.
        dims: the dimension of each value that has it.
        kept: instructions that can be computed at some of the indices from their operands at the same ones.
        reached: instructions that are computed from kept ones, directly or not.
    """

    size: int
    dims: dict[Instruction, int] = field(default_factory=dict)
    kept: set[Instruction] = field(default_factory=set)
    reached: set[Instruction] = field(default_factory=set)

    def __str__(self) -> str:
        i, d = next(iter(self.dims.items()))
        return f"dimension {d} of {i.name}"

    def lost(self, i: Instruction) -> bool:
        """Whether an instruction needs values of other indices, so that a segment has to end before it."""
        return i in self.reached and i not in self.kept


def classes(computation: Computation) -> list[DimClass]:
    """The dimensions of more than one index that are kept by some instruction, in no order of importance."""
    parent: dict[Dim, Dim] = {}

    def find(dim: Dim) -> Dim:
        root = dim
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[dim] != root:
            parent[dim], dim = root, parent[dim]
        return root

    for i in computation.instructions:
        for d in range(i.shape.rank if i.shape.is_array else 0):
            for o, e in _operand_dims(i, d):
                if e is not None:
                    parent[find((o, e))] = find((i, d))
    found: dict[Dim, DimClass] = {}
    twice: dict[Dim, set[Instruction]] = defaultdict(set)
    for i, d in list(parent):
        root = find((i, d))
        of = found.setdefault(root, DimClass(i.dims[d]))
        if i in of.dims:
            twice[root].add(i)
        of.dims[i] = d
    for root, of in found.items():
        for i in twice[root]:
            del of.dims[i]
        if of.size > 1:
            _keep(computation, of, twice[root])
    return [of for of in found.values() if of.kept and all(i.shape.size for i in of.dims)]


def _operand_dims(i: Instruction, d: int) -> list[tuple[Instruction, int | None]]:
    """The dimension of each operand that belongs to one of the result; empty if the result does not keep it."""
    if family(i) is Family.GIVEN:
        return []
    try:
        return [(o, operand_dim(i, k, d)) for k, o in enumerate(i.operands)]
    except NotBlockableError:
        return []


def _keep(computation: Computation, of: DimClass, twice: set[Instruction]) -> None:
    """Find what keeps a dimension, and what depends on that."""
    for i in computation.instructions:
        if any(o in of.reached for o in i.operands):
            of.reached.add(i)
        if i in of.dims and _is_kept(i, of, twice):
            of.kept.add(i)
            of.reached.add(i)


def _is_kept(i: Instruction, of: DimClass, twice: set[Instruction]) -> bool:
    """Whether an instruction has operands (an iota has none: it is read), and each gives what is needed."""
    pairs = _operand_dims(i, of.dims[i])
    return bool(pairs) and all(_fits(of, o, e, twice) for o, e in pairs)


def _fits(of: DimClass, o: Instruction, e: int | None, twice: set[Instruction]) -> bool:
    """Whether an operand gives what is needed: at the dimension, or whole without being computed from it."""
    if e is None:
        return o not in of.dims and o not in twice and o not in of.reached
    return of.dims.get(o) == e
