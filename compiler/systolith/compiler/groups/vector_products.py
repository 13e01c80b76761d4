"""Products of a matrix by a vector, or of many by one vector each, as sums on the vector unit.

The matrix units load a tile of weights in as many cycles as it has rows, and a vector streams one row through it: most
cycles are loads.  Where the vector unit multiplies and adds in fewer, as in a recurrent layer of one sequence, the
product is a `reduce` of what it multiplies (`passes/expand/element_products.py`).  Of small matrices that is so on any
chip (`passes/expand/small_dots.py`); these depend on it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.errors import LimitError
from systolith.compiler.groups.loop_state import kept, loops_of, plain
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.index.affine import Box
from systolith.compiler.mxu.precision import passes_of
from systolith.compiler.ops.reduction_builder import reduction_of
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.element_products import BATCH, TERMS, DotDims, summed_products
from systolith.compiler.passes.rewrite import Names, Rewriter, rewrite
from systolith.compiler.passes.simplify.while_trip_count import element, keeps
from systolith.compiler.vpu.reduce_task import Finish, Task
from systolith.compiler.vpu.reduce_ways import Ways, anywhere
from systolith.isa.chip import Chip
from systolith.isa.dtypes import BF16, F16, F32
from systolith.isa.timing import array_latency

FASTER = 0.75
"""The vector unit computes a product that takes at most this part of the matrix units' cycles there."""

RESIDENT = 4
"""A matrix of up to this part of VMEM is there when it is multiplied, unless it is a parameter."""

_VIEWS = ("bitcast", "convert", "copy", "reshape", "transpose")


@dataclass(frozen=True)
class SumVectorProducts:
    """Write products of vectors as sums of products where the vector unit makes these faster.

    Attributes:
        chip: it.
        precision: of products; None: as they say.
    """

    chip: Chip
    precision: str | None

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        rule = _Rule(self.chip, self.precision, module.entry, callees)
        names = Names(i.name for i in module.instructions())
        turned = [_turn_matrices(rule, outer, loop, names) for outer, loop in loops_of(module)]
        changed = rewrite(module, rule, ("dot",))
        callees.place()
        return changed or any(turned)


@dataclass
class _Rule:
    """What dots are rewritten to.

    Attributes:
        chip, precision: as of the pass.
        entry: of the module.
        callees: has its computations placed.
    """

    chip: Chip
    precision: str | None
    entry: Computation
    callees: Callees
    _sums: dict[Hashable, int | float] = field(default_factory=dict)

    def __call__(self, r: Rewriter, i: Instruction) -> Instruction | None:
        if not _is_of_vectors(i) or self.cycles(i, r.computation) == inf:
            return None
        return r.converted(summed_products(self.callees, r, i, F32, DotDims(i).matrix), i.shape.dtype)

    def cycles(self, i: Instruction, within: Computation) -> int | float:
        """Cycles of the sum; infinite where it is not worth it."""
        dims = DotDims(i)
        moved = self._moved(i.operands[dims.matrix], within)
        most = FASTER * max(moved, self._product(dims))
        total = inf if moved > most else self._sum(dims)
        return total if total <= most else inf

    def _product(self, dims: DotDims) -> int:
        """Cycles of the matrix units for a product of each batch, whichever operand is stationary.

        The first two tiles of weights do not wait for the vector: one is loaded while the other is in use.
        """
        mxu, (x, y) = self.chip.mxu, dims.dot.operands
        k, batch = dims.size(TERMS), dims.size(BATCH)
        n = dims.dot.shape.size // batch
        each = min(-(-n // mxu.cols) * k, -(-k // mxu.rows) * max(n, mxu.rows)) * batch // mxu.count
        passes = len(passes_of(dims.dot, self.precision, x.shape.dtype, y.shape.dtype))
        return max(0, passes * each - 2 * mxu.rows) + array_latency(self.chip)

    def _sum(self, dims: DotDims) -> int | float:
        """Cycles of the vector unit, the operands in VMEM and the vector's dimensions in the matrix's order.

        Sums that are alike are looked at once.
        """
        x, y = dims.dot.operands[1 - dims.matrix], dims.dot.operands[dims.matrix]
        labels = dims.labels(dims.matrix)
        key = (x.shape.dtype, y.shape.dtype, y.dims, tuple(kind for kind, _ in labels))
        if key not in self._sums:
            own = [(d, kind) for d, (kind, _) in enumerate(labels) if kind in (BATCH, TERMS)]
            vector = Instruction("x", "parameter", array(x.shape.dtype, [y.dims[d] for d, _ in own]), number=0)
            whole = Instruction("y", "parameter", array(y.shape.dtype, y.dims), number=1)
            attributes: dict[str, Attribute] = {}
            for name, wanted in (("batch", BATCH), ("contracting", TERMS)):
                attributes[f"lhs_{name}_dims"] = tuple(n for n, (_, kind) in enumerate(own) if kind == wanted)
                attributes[f"rhs_{name}_dims"] = tuple(d for d, kind in own if kind == wanted)
            alone = Rewriter(Computation("sum", [vector, whole]))
            dot = Instruction("dot", "dot", dims.dot.shape, [vector, whole], attributes)
            summed_products(self.callees, alone, dot, F32, 1)
            total = next(i for i in alone.made if i.opcode == "reduce")
            self._sums[key] = _cycles(Computation("sum", [vector, whole, *alone.made], total), self.chip)
        return self._sums[key]

    def _moved(self, matrix: Instruction, within: Computation) -> int:
        """Cycles in which HBM gives the matrix, where it is not in VMEM."""
        source = matrix
        while source.opcode in _VIEWS:
            source = source.operands[0]
        given = source.opcode == "dynamic-slice" or (
            within is self.entry and source.opcode in ("constant", "parameter")
        )
        if given or matrix.shape.bytes > self.chip.vmem.bytes // RESIDENT:
            return transfer_cycles(matrix.shape.bytes, self.chip)
        return 0


def _is_of_vectors(i: Instruction) -> bool:
    """Whether it is a product of a vector of floats that the vector unit has, and asks for no algorithm."""
    if i.opcode != "dot":
        return False
    if any(s.dtype not in (F32, BF16, F16) or s.is_dynamic for s in (i.shape, *(o.shape for o in i.operands))):
        return False
    if "sparsity" in i.attributes or i.word("algorithm", "dot_unset") != "dot_unset":
        return False
    dims = DotDims(i)
    vector = i.operands[1 - dims.matrix].shape.size
    return bool(i.shape.size) and 0 < vector == dims.size(BATCH) * dims.size(TERMS)


def _cycles(computation: Computation, chip: Chip) -> int | float:
    """Cycles of a sum whose operands are in VMEM."""
    leaves = {p: anywhere(p.shape) for p in computation.parameters}
    try:
        r = reduction_of(computation)
        kept = Box.whole([r.dims[d] for d in r.kept])
        targets = [anywhere(i.shape) for i in r.roots]
        return Ways(chip).cycles(Task(r, Box.whole(r.dims), kept, Finish(), leaves, targets))
    except LimitError:
        return inf


def _turn_matrices(rule: _Rule, outer: Computation, loop: Instruction, names: Names) -> bool:
    """Transpose, before a loop, matrices that all its iterations multiply by a vector, where sums are faster so.

    Contracted dimensions come first then: lanes hold results.  Gives whether there is one.
    """
    if not plain(outer, loop):
        return False
    body, made = loop.computation("body"), dict[tuple[int, tuple[int, ...]], Instruction]()
    dots = [i for i in body.instructions if _is_of_vectors(i)]
    for i in dots:
        dims = DotDims(i)
        matrix = dims.matrix
        number, terms = element(i.operands[matrix], body), dims.sides[matrix][TERMS]
        order = (*terms, *(d for d in range(i.operands[matrix].shape.rank) if d not in terms))
        if number is None or not keeps(loop, number) or dims.sizes[BATCH] or order == tuple(sorted(order)):
            continue
        whole = loop.operands[0].operands[number]
        turned = Instruction(names.fresh(f"{whole.name}.turned"), "transpose", _turned(whole, order), [whole])
        turned.attributes["dimensions"] = order
        other = _with_operand(i, matrix, turned)
        if rule.cycles(other, body) >= rule.cycles(i, body):
            continue
        if (number, order) not in made:
            outer.instructions.insert(outer.instructions.index(loop.operands[0]), turned)
            at = kept(outer, loop, turned, names)
            part = next(p for p in body.instructions if element(p, body) == at)
            body.instructions.remove(part)
            body.instructions.insert(1 + body.instructions.index(body.first_parameter), part)
            made[number, order] = part
        other.operands[matrix] = made[number, order]
        body.instructions[body.instructions.index(i)] = other
        body.replace(i, other)
    return bool(made)


def _turned(x: Instruction, order: tuple[int, ...]) -> Shape:
    return array(x.shape.dtype, [x.dims[d] for d in order])


def _with_operand(i: Instruction, matrix: int, turned: Instruction) -> Instruction:
    """The product with a matrix whose contracted dimensions come first."""
    name = f"{('lhs', 'rhs')[matrix]}_contracting_dims"
    terms = len(i.ints(name))
    operands = [turned if n == matrix else o for n, o in enumerate(i.operands)]
    return i.copy(operands, i.attributes | {name: tuple(range(terms))})
