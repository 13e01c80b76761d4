"""Backward passes of products in blocks of rows: what several products and sums read comes from HBM once.

The gradient of a product's operand is a product of the same rows as the gradient that it comes from; the gradient of
the weights sums over these rows, and so do gradients of a bias or of a normalisation's scale and offset.  One after
another, each of them reads the rows from HBM.  Here the product, what is elementwise around it, and the products and
reductions that sum along its rows are a region (`tiling/blocking.py`): a block of rows is loaded once, its product is
made, and its part of each sum is added to those of the blocks before, in VMEM.

That is worth it where HBM is what they wait for.  The estimate has the transfers and the cycles of the matrix units,
which load their weights once more for each block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.groups.recomputation import MOST
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.visiting import cone
from systolith.compiler.memory.residency import running
from systolith.compiler.mxu.matmul import contraction_cycles, contraction_of
from systolith.compiler.mxu.precision import passes_of
from systolith.compiler.ops.dim_propagation import operand_dim
from systolith.compiler.ops.dim_rules import NotBlockableError, summed_dims
from systolith.compiler.ops.group import Group, is_cheap
from systolith.compiler.ops.table import ROOTS, family, info, is_elementwise
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.tiling.accumulation import read_along
from systolith.compiler.tiling.block_sizes import FEWEST_OF_PRODUCTS, sizes
from systolith.compiler.tiling.blocking import Region, Regions
from systolith.isa.chip import Chip

KEPT_SHARE = 0.4
"""Part of VMEM that weights and sums may take, which stay there while blocks run."""

AT_ONCE = 2
"""Blocks that are to have room in the rest of it."""

WORTH = 0.95
"""The region has to take less than this part of the cycles of its operations one after another.

Of f32[25088,64] by f32[64,256], the gradient of the weights and a sum it is expected to take 0.9, and takes 0.94.
"""

_SPREAD = ("broadcast", "constant", "iota")
"""What a region makes for itself."""


@dataclass(frozen=True)
class BlockProducts:
    """Put products, with the sums along their rows, into groups of blocks, where that takes fewer cycles.

    Attributes:
        chip: the target.
        precision: of products, instead of their own.
    """

    chip: Chip
    precision: str | None = None

    def run(self, module: Module) -> Outcome:
        taken = Names(c.name for c in module.computations)
        decisions = list[Decision]()
        for computation in running(module.entry):
            regions = ProductRegions(computation, self.chip, self.precision)
            for made in regions.outline(taken):
                module.computations.insert(module.computations.index(computation), made)
            decisions += regions.decisions
        return Outcome(bool(decisions), tuple(decisions))


class ProductRegions(Regions):
    """Regions of one computation around products.

    Args:
        computation: it.
        chip: the target.
        precision: of products, instead of their own.
    """

    why = "sums along the rows of a product"
    products = True

    def __init__(self, computation: Computation, chip: Chip, precision: str | None) -> None:
        super().__init__(computation, chip)
        self.precision = precision
        self.decisions: list[Decision] = []
        self.again |= {i: i for i in self._near_values()}

    def _near_values(self) -> Iterator[Instruction]:
        """What is elementwise in one large value: regions read that value, and compute these again."""
        steps: dict[Instruction, int] = {}
        for i in self.computation.instructions:
            if not is_elementwise(i) or info(i).expensive or i.shape.bytes < self.large:
                continue
            read = _not_spread(i)
            stored = len(read) == 1 and (family(read[0]) not in ROOTS or len(self.users[read[0]]) > 1)
            if stored and steps.get(read[0], 0) < MOST:
                steps[i] = steps.get(read[0], 0) + 1
                yield i

    def base(self, value: Instruction) -> Instruction:
        """The value in memory that a region reads for one that it computes again."""
        while value in self.again:
            (value,) = _not_spread(self.again[value])
        return value

    def grow(self, seed: Instruction, d: int, done: set[Instruction]) -> Region:
        """As in general; left out is what others can compute from one value: of the region, or that it reads."""
        grown = super().grow(seed, d, done)
        region = {i: e for i, e in grown.items() if not self._is_made_again(i, grown)}
        while region:
            inside = region.keys() | self.reduced(region, done).keys()
            ends = [i for i in region if i is not seed and inside.isdisjoint(self.users[i])]
            made = self._made_of(seed, region)
            left = [i for i in ends if i not in made or self._is_left(i, region, inside)]
            if not left:
                break
            for i in left:
                del region[i]
        return region

    def _made_of(self, seed: Instruction, region: Region) -> set[Instruction]:
        """What is computed from a seed in its region, itself included."""
        found, todo = {seed}, [seed]
        while todo:
            more = [u for u in self.users[todo.pop()] if u in region and u not in found]
            found.update(more)
            todo += more
        return found

    def _is_made_again(self, i: Instruction, grown: Region) -> bool:
        """Whether each region makes it for itself, of what lies outside."""
        if i.opcode in _SPREAD:
            return grown.keys().isdisjoint(i.operands)
        return i in self.again and self.base(i) not in grown

    def _is_left(self, end: Instruction, region: Region, inside: Collection[Instruction]) -> bool:
        """Whether an end is to be computed outside: of a value that is not larger, or is stored as well."""
        read = _not_spread(end)
        if len(read) != 1 or read[0] not in region:
            return False
        stored = any(u not in inside for u in self.users[read[0]])
        return stored or read[0].shape.bytes <= end.shape.bytes

    def is_seed(self, i: Instruction) -> bool:
        """Whether it is a product of many rows, that are large."""
        return _is_product(i) and i.operands[0].shape.bytes >= self.large

    def may_join(self, i: Instruction) -> bool:
        """Elementwise operations and data movement: there is one product that keeps the rows, the seed."""
        return is_cheap(i)

    def best(self, seed: Instruction, done: set[Instruction]) -> Region:
        """The region along rows of the product that takes the fewest cycles; empty: none is worth it."""
        found = []
        for d in _rows(seed):
            region = self.grow(seed, d, done)
            reduced = self.reduced(region, done) if region else {}
            if reduced:
                found.append(_Estimate(self, seed, region, reduced))
        best = min(found, key=lambda e: (e.together, -e.extent), default=None)
        if best is None or best.together >= WORTH * best.apart:
            return {}
        rejected = Alternative("one after another", "more cycles", {"cycles": best.apart})
        sums = ", ".join(i.name for i in best.reduced)
        chosen = f"in blocks along dimension {best.region[seed]}, with {sums}"
        numbers = {"cycles": round(best.together)}
        self.decisions.append(Decision("region", seed.name, chosen, "reads what they share once", numbers, (rejected,)))
        return best.region

    def prepare(self, reduced: Region) -> None:
        """Have sums of products in wide rows, which each block would transpose otherwise."""
        computation = self.computation
        computation.root = computation.result
        for product in filter(_is_product, reduced):
            turned = _turned(product)
            if turned is None or product.dims[-1] >= min(self.chip.vpu.lanes, turned.dims[-1]):
                continue
            turned.name = computation.fresh_name(f"{product.name}.turned")
            back = Instruction(f"{product.name}.back", "transpose", product.shape, [turned], line=product.line)
            back.name, back.attributes["dimensions"] = computation.fresh_name(back.name), _order(product)
            computation.replace(product, back)
            at = computation.instructions.index(product)
            computation.instructions[at : at + 1] = [turned, back]
        self.look_up()


class _Estimate:
    """Cycles of a region in blocks, and of its operations one after another.

    Attributes:
        results: of the region, but for sums.
        along: the dimension of each value that is read a block at a time.
        products: those that sum along the rows.
        extent: rows along the dimension that is in blocks.

    Args:
        regions: of the computation.
        seed: the product that keeps the rows.
        region, reduced: what keeps them, and what sums along them, with the dimension of each (of its first operand).
    """

    def __init__(self, regions: ProductRegions, seed: Instruction, region: Region, reduced: Region) -> None:
        self.chip, self.precision, self.large = regions.chip, regions.precision, regions.large
        self.users, self.base = regions.users, regions.base
        self.seed, self.region, self.reduced = seed, region, reduced
        self.results = [i for i in regions.outputs(region.keys() | reduced.keys()) if i in region]
        self.along = region | read_along(region)
        for i, d in reduced.items():
            self.along |= summed_dims(i, d)
        self.products = {i: d for i, d in reduced.items() if _is_product(i)}
        self.extent = seed.dims[region[seed]]

    @cached_property
    def together(self) -> float:
        """In blocks, as large as there is room for; infinity: there is none."""
        vmem, extent = self.chip.vmem.bytes, self.extent
        whole = {o for i in self.region for o in i.operands if o not in self.along and o.opcode not in _SPREAD}
        kept = sum(i.shape.bytes for i in whole | self.reduced.keys())
        if kept > vmem * KEPT_SHARE:
            return inf
        given = {self.base(o) for o in self.along if o not in self.region}
        multiplied = {o for p in (self.seed, *self.products) for o in p.operands[:2] if o in self.region}
        block = sum(i.shape.bytes for i in {*given, *multiplied, *self.results, self.seed})
        size = next((n for n in sizes(extent, FEWEST_OF_PRODUCTS) if block * AT_ONCE * n <= (vmem - kept) * extent), 0)
        if not size:
            return inf
        work = sum(self._multiplied(p, d, size) for p, d in self._dims()) * -(-extent // size)
        return max(transfer_cycles(self._moved((*given, *self.results, *self._ends(given))), self.chip), work)

    def _ends(self, given: Iterable[Instruction]) -> list[Instruction]:
        """Results of blocks that only the region's products read, which would compute them in their tiles otherwise
        (`groups/block_tails.py`), so that they are not stored.
        """
        inside = self.region.keys() | self.reduced.keys()
        made = {o: o.operands[0] if o.opcode == "get-tuple-element" else o for o in given}
        return [o for o, by in made.items() if isinstance(by, Group) and inside.issuperset(self.users[o])]

    @cached_property
    def apart(self) -> int:
        """One after another: the seed with what is around it, each product, and all reductions at once, but for those
        that the seed's tiles are added to as they come (`mxu/epilogue.py`).
        """
        dims = dict(self._dims())
        sums = [i for i in self.reduced if i not in self.products and not self._sums_tiles(i)]
        groups = [([self.seed], self.results, self.results), *(([p], p.operands[:2], ()) for p in self.products)]
        if sums:
            groups.append(([], [i.operands[0] for i in sums], ()))
        total = 0
        for products, starts, made in groups:
            moved = self._moved((*self._read(starts, stored=() if made else self.results), *made))
            work = sum(self._multiplied(p, dims[p]) for p in products)
            total += max(transfer_cycles(moved, self.chip), work)
        return total

    def _sums_tiles(self, reduction: Instruction) -> bool:
        """Whether a reduction sums all rows of what is made of the seed, and keeps its columns."""
        value, c = reduction.operands[0], contraction_of(self.seed)
        over = reduction.ints("dimensions")
        rows = [d for d, n in enumerate(self.seed.dims) if n > 1 and c.out.dims[d].depends.isdisjoint(c.n)]
        if value.dims != self.seed.dims or rows != [d for d in sorted(over) if value.dims[d] > 1]:
            return False
        return value in self.region and self.seed in cone([value], {self.seed})

    def _dims(self) -> list[tuple[Instruction, int]]:
        """The products, and the dimension of each that is in blocks."""
        return [(self.seed, self.region[self.seed]), *self.products.items()]

    def _read(self, starts: Iterable[Instruction], stored: Collection[Instruction]) -> set[Instruction]:
        """The values in memory that others are computed from."""
        found: set[Instruction] = set()
        seen: set[Instruction] = set()
        todo = list(starts)
        while todo:
            i = todo.pop()
            if i in seen:
                continue
            seen.add(i)
            if i not in self.region or i in stored or (stored and i is self.seed):
                found.add(self.base(i))
            else:
                todo += i.operands
        return found

    def _moved(self, values: Iterable[Instruction]) -> int:
        """Bytes of those that are too large to wait in VMEM."""
        return sum(i.shape.bytes for i in values if i.shape.bytes >= self.large)

    def _multiplied(self, product: Instruction, d: int, size: int | None = None) -> int:
        """Cycles of the matrix units for a product, or for so many of its rows: along the dimension that is summed, of
        the first operand, or kept, of the result.
        """
        c = contraction_of(product)
        if size is not None:
            axes = (c.out if product is self.seed else c.lhs).dims[d].depends
            c = replace(c, sizes=tuple(size if a in axes and n == self.extent else n for a, n in enumerate(c.sizes)))
        passes = passes_of(product, self.precision, *(o.shape.dtype for o in product.operands[:2]))
        return contraction_cycles(c, self.chip) * len(passes)


def _not_spread(i: Instruction) -> list[Instruction]:
    """The operands of an elementwise operation, or of data movement, that are not spread for it."""
    return [o for o in dict.fromkeys(i.operands) if o.dims and o.opcode not in _SPREAD]


def _is_product(i: Instruction) -> bool:
    """Whether the matrix units compute it: a dot, or a convolution of one group."""
    groups = [i.integer(f"{kind}_group_count", 1) for kind in ("feature", "batch")]
    return i.opcode in ("dot", "convolution") and i.shape.is_array and groups == [1, 1]


def _rows(product: Instruction) -> Iterator[int]:
    """Dimensions of its result that belong to one of its first operand, index by index."""
    for d, size in enumerate(product.dims):
        try:
            if size > 1 and operand_dim(product, 0, d) is not None:
                operand_dim(product, 1, d)
                yield d
        except NotBlockableError:
            continue


def _turned(product: Instruction) -> Instruction | None:
    """A product with rows and columns in each other's place, if it has one dimension of each; None: it has others."""
    attributes, operands = dict(product.attributes), list(product.operands)
    if product.opcode == "convolution":
        dims = product.conv_dims
        attributes["dim_labels"] = replace(dims, output_batch=dims.output_feature, output_feature=dims.output_batch)
    elif product.shape.rank == 2 and not product.ints("lhs_batch_dims", ()):
        operands.reverse()
        sides = [product.ints(f"{side}_contracting_dims") for side in ("rhs", "lhs")]
        attributes["lhs_contracting_dims"], attributes["rhs_contracting_dims"] = sides
        if "operand_precision" in attributes:
            attributes["operand_precision"] = product.words("operand_precision")[::-1]
    else:
        return None
    shape = array(product.shape.dtype, [product.dims[d] for d in _order(product)])
    return Instruction(product.name, product.opcode, shape, operands, attributes, line=product.line)


def _order(product: Instruction) -> tuple[int, ...]:
    """The dimensions of a product's result, its rows and columns in each other's place."""
    dims = product.conv_dims if product.opcode == "convolution" else None
    rows, columns = (dims.output_batch, dims.output_feature) if dims else (0, 1)
    return tuple({rows: columns, columns: rows}.get(d, d) for d in range(product.shape.rank))
