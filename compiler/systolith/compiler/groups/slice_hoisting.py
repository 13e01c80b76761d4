"""Slices of a product become products of slices (XLA: slice-hoister).

Attention takes q, k and v from one product, often: it cuts its result in three.  Products, blocks and transfers read
their operands from memory, each as an array, so that the parts would be copied.  A product with a part of the weights,
which is a view of them, stores that part where it is read; columns that no slice takes are not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from systolith.compiler.cost.prices import full_vectors, product_cycles, transfer_cycles
from systolith.compiler.explain import Decision
from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.mxu.precision import passes_of
from systolith.compiler.ops.dim_rules import broadcast_dim, dot_dim
from systolith.compiler.ops.table import Family, family, info, is_elementwise
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.rewrite import Rewriter
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.isa.chip import Chip


@dataclass(frozen=True)
class HoistSlices:
    """Multiply by slices of an operand where the product would be sliced, and parts of it copied.

    Attributes:
        chip: the copies' cycles are compared with those of tiles that slices leave part empty.
        precision: of products, if not their own.
    """

    chip: Chip
    precision: str | None = None

    def run(self, module: Module) -> Outcome:
        decisions: list[Decision] = []
        for computation in module.computations:
            decisions += self._in_computation(computation)
        if decisions:
            DeadCode().run(module)
        return Outcome(bool(decisions), tuple(decisions))

    def _in_computation(self, computation: Computation) -> list[Decision]:
        found = [cut for cut in _cuts(computation) if self._cycles_saved(cut) > 0]
        cut_of = {s: cut for cut in found for s in cut.slices}
        if found:
            Rewriter(computation).sweep(lambda r, i: cut_of[i].part(r, i) if i in cut_of else None)
        return [self._decision(cut) for cut in found]

    def _decision(self, cut: _Cut) -> Decision:
        widths = ", ".join(f"{width:,}" for width in cut.widths)
        chosen = f"{len(cut.slices)} products of {widths} of {cut.width:,} columns"
        return Decision("slices", cut.product.name, chosen, "fewer copies", {"cycles saved": self._cycles_saved(cut)})

    def _cycles_saved(self, cut: _Cut) -> int:
        """Cycles of the copies, less those of what the products load and multiply more."""
        copied, elements = sum(s.shape.bytes for s in cut.copied), sum(s.shape.size for s in cut.copied)
        if copied < self.chip.vmem.bytes // LARGE:  # values that stay in VMEM
            return full_vectors(elements, self.chip) - self._more_compute(cut)
        more = (len(cut.slices) - 1) * cut.other.shape.bytes
        return transfer_cycles(max(2 * copied - more, 0), self.chip) - self._more_compute(cut)

    def _more_compute(self, cut: _Cut) -> int:
        """Cycles of tiles of slices, less those of the tiles of the whole."""
        lhs, rhs = (o.shape.dtype for o in cut.product.operands)
        passes = len(passes_of(cut.product, self.precision, lhs, rhs)) if lhs.is_float and rhs.is_float else 1
        batch, m, k = cut.sizes
        once = sum(product_cycles(m, w, k, self.chip) for w in cut.widths) - product_cycles(m, cut.width, k, self.chip)
        return passes * batch * once // self.chip.mxu.count


@dataclass(frozen=True)
class _Cut:
    """A product whose result, or what is elementwise in it, is sliced.

    Attributes:
        product: a dot.
        epilogue: elementwise operations, from the product to what is sliced.
        d: the dimension of the result that is cut.
        slices: disjoint ones, in the order of their indices.
        copied: those of them that are read from memory.
    """

    product: Instruction
    epilogue: Sequence[Instruction]
    d: int
    slices: Sequence[Instruction]
    copied: Sequence[Instruction] = field(default=())

    @property
    def width(self) -> int:
        """Indices of the dimension."""
        return self.product.dims[self.d]

    @property
    def widths(self) -> list[int]:
        """Indices of each slice."""
        return [s.dims[self.d] for s in self.slices]

    @property
    def side(self) -> int:
        """The number of the operand that has the dimension."""
        return 0 if dot_dim(self.product, 0, self.d) is not None else 1

    @property
    def other(self) -> Instruction:
        """The operand that each of the products takes whole."""
        return self.product.operands[1 - self.side]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Products of a batch, their indices beside the dimension, and those of the sum."""
        batch = prod(self.product.dims[: len(self.product.ints("lhs_batch_dims", ()))])
        contracted = self.product.ints("lhs_contracting_dims", ())
        k = prod(self.product.operands[0].dims[e] for e in contracted)
        return batch, self.product.shape.size // (batch * self.width), k

    def part(self, r: Rewriter, i: Instruction) -> Instruction:
        """What stands for a slice."""
        ends = (i.slices[self.d].start, i.slices[self.d].limit)
        d = dot_dim(self.product, self.side, self.d)
        assert d is not None
        operands = list(self.product.operands)
        operands[self.side] = r.narrowed(operands[self.side], d, *ends)
        values = {self.product: r.like(self.product, operands, _like(self.product, i.dims))}
        for e in self.epilogue:
            taken = [values[o] if o in values else self._spread(r, o, i.dims, ends) for o in e.operands]
            values[e] = r.like(e, taken, _like(e, i.dims))
        return values[self.epilogue[-1] if self.epilogue else self.product]

    def _spread(self, r: Rewriter, o: Instruction, dims: tuple[int, ...], ends: tuple[int, int]) -> Instruction:
        """As much of a broadcast."""
        (x,) = o.operands
        d = broadcast_dim(o, 0, self.d)
        x = x if d is None else r.narrowed(x, d, *ends)
        return r.emit("broadcast", x, shape=_like(o, dims), dimensions=o.ints("dimensions", ()))


def _like(i: Instruction, dims: tuple[int, ...]) -> Shape:
    return array(i.shape.dtype, dims)


def _cuts(computation: Computation) -> list[_Cut]:
    users = computation.users()
    products = [i for i in computation.instructions if i.opcode == "dot" and i.shape.size]
    found = (_cut_of(i, computation, users) for i in products if "sparsity" not in i.attributes)
    return [cut for cut in found if cut is not None]


Users = dict[Instruction, list[Instruction]]


def _cut_of(product: Instruction, computation: Computation, users: Users) -> _Cut | None:
    """How a product is sliced; None: not along one free dimension, or nothing reads a slice from memory."""
    epilogue: list[Instruction] = []
    value, result = product, computation.result
    while value is not result and (user := _epilogue(value, users[value])) is not None:
        epilogue.append(user)
        value = user
    slices = list(dict.fromkeys(users[value]))
    if value is result or not slices or any(s.opcode != "slice" or s.shape.is_dynamic for s in slices):
        return None
    cut_dims = {d for s in slices for d, n in enumerate(s.dims) if n != value.dims[d]}
    if len(cut_dims) != 1 or any(cut.stride != 1 for s in slices for cut in s.slices):
        return None
    (d,) = cut_dims
    slices.sort(key=lambda s: s.slices[d].start)
    apart = all(a.slices[d].limit <= b.slices[d].start for a, b in pairwise(slices))
    free = [dot_dim(product, k, d) is not None for k in (0, 1)]
    copied = [s for s in slices if _is_copied(s, users, result)]
    return _Cut(product, epilogue, d, slices, copied) if apart and sum(free) == 1 and copied else None


def _epilogue(value: Instruction, users: Sequence[Instruction]) -> Instruction | None:
    """The elementwise operation that alone uses a value, with broadcasts."""
    if len(set(users)) != 1 or not is_elementwise(users[0]) or users[0].dims != value.dims:
        return None
    return users[0] if all(o is value or o.opcode == "broadcast" for o in users[0].operands) else None


def _is_copied(value: Instruction, users: Users, result: Instruction) -> bool:
    """Whether something reads a slice from memory, perhaps through a view of it.

    A transpose that several read is stored by a kernel, which reads the slice.
    """
    if value is result:
        return True
    readers = users[value]
    if any(not info(r).in_kernel and family(r) is not Family.REDUCTION for r in readers):
        return len(readers) == 1 or value.opcode != "transpose"
    return any(info(r).view and _is_copied(r, users, result) for r in readers)
