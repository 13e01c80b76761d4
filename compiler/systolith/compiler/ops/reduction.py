"""Reductions: inputs over an iteration space of kept and reduced dimensions.

For `reduce` the space is the operand's; for `reduce-window` it is the result's dimensions and, after them, the
window's; for a convolution on the vector unit also the channels of a group.  Several `reduce`s of one space are one
reduction with an accumulator each; values of the whole space (what is reduced, if it is needed in memory too) are
stored on the way.  A `scan` is one over its steps, whose inputs are what a step makes of the values carried.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.hlo.trampoline import Steps, trampoline
from systolith.compiler.hlo.values.evaluator import evaluate_computation, flatten, in_any_order
from systolith.compiler.hlo.values.reduction import plain_operation, plain_parts
from systolith.compiler.hlo.visiting import cone
from systolith.compiler.index.affine import Bound, Expr, IndexMap, window_index
from systolith.compiler.ops.elementwise import check_dtype
from systolith.compiler.ops.expression import Carried, Const, Graph, Inside, Load, Node, topological
from systolith.compiler.ops.expression_builder import (
    Expander,
    expressions,
    group_roots,
    inline_scalar,
    root_operations,
)
from systolith.isa.dtypes import F32, S32, U32, DType, Kind

T = TypeVar("T")

NEGATIVE_ZERO, ONE, INFINITY, NEGATIVE_INFINITY = 0x80000000, 0x3F800000, 0x7F800000, 0xFF800000
ALL_ONES, LEAST, GREATEST = 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF

PLAIN: dict[tuple[str, Kind], tuple[str, int]] = {
    ("add", Kind.FLOAT): ("add.f32", NEGATIVE_ZERO),
    ("multiply", Kind.FLOAT): ("mul.f32", ONE),
    ("maximum", Kind.FLOAT): ("max.f32", NEGATIVE_INFINITY),
    ("minimum", Kind.FLOAT): ("min.f32", INFINITY),
    **{(op, k): row for k in (Kind.SIGNED, Kind.UNSIGNED) for op, row in (
        ("add", ("add.s32", 0)), ("multiply", ("mul.s32", 1)), ("and", ("and", ALL_ONES)), ("or", ("or", 0)),
        ("xor", ("xor", 0)))},
    ("maximum", Kind.SIGNED): ("max.s32", LEAST),
    ("minimum", Kind.SIGNED): ("min.s32", GREATEST),
    ("maximum", Kind.UNSIGNED): ("max.u32", 0),
    ("minimum", Kind.UNSIGNED): ("min.u32", ALL_ONES),
    **{(op, Kind.PRED): row for op, row in (
        ("add", ("or", 0)), ("or", ("or", 0)), ("maximum", ("or", 0)), ("xor", ("xor", 0)), ("and", ("and", ALL_ONES)),
        ("multiply", ("and", ALL_ONES)), ("minimum", ("and", ALL_ONES)))},
}  # fmt: skip
"""Reductions by one associative operation: micro-operation and identity."""


@dataclass(frozen=True)
class Reduction:
    """A reduction over an iteration space.

    Attributes:
        operations: the `reduce` or `reduce-window`; or several reduces by one operation each, over the same dimensions.
        roots: the group's results that are made of reduced values, each of those of one of `operations`.
        dims: sizes of the iteration space.
        kept, reduced: its dimensions, in order; `kept` are the result's.
        graph: where nodes are made.
        inputs: for each operand, its element at a point of the space.
        inits: for each operand, the initial value.
        plain: micro-operations, for each operand, of reductions by one associative operation; none for a general
            computation.
        identities: per operand, what changes nothing; None: not known, the initial value serves, which may be taken any
            number of times as it combines with itself to itself.
        flagged: whether a last accumulator, without a result, is 1 once there is a value in the others.  A general
            computation has it where its initial value has to be taken once, and what an accumulation starts from is
            its absence.
        halves: which of the result's dimensions is two kept ones here, and how many indices the second has (`split`).
        ordered: whether the computation is applied from the initial value on to one element after the other.
        stepwise: whether `inputs` are what a step makes of the values `Carried`, one for each.
        sides: the other results, elements of the space.
        side_nodes: for each of those, its element at a point of the space.
    """

    operations: tuple[Instruction, ...]
    roots: tuple[Instruction, ...]
    dims: tuple[int, ...]
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    graph: Graph
    inputs: tuple[Node, ...]
    inits: tuple[Node, ...]
    plain: tuple[str, ...]
    identities: tuple[int | None, ...]
    sides: tuple[Instruction, ...] = ()
    side_nodes: tuple[Node, ...] = ()
    flagged: bool = False
    ordered: bool = False
    stepwise: bool = False
    halves: tuple[int, int] | None = None

    @property
    def operation(self) -> Instruction:
        """The first of `operations`, for names."""
        return self.operations[0]

    @property
    def shapes(self) -> list[Shape]:
        """Shapes of what is accumulated over the kept dimensions: the reduction's results, and the flag."""
        types = [s.dtype for operation in self.operations for s in operation.shape.leaves()]
        dims = tuple(self.dims[d] for d in self.kept)
        return [array(t, dims) for t in (*types, *([S32] if self.flagged else []))]

    def reduced_and_sides(self, roots: Sequence[Instruction], of: Sequence[T]) -> tuple[list[T], list[T]]:
        """What belongs to the group's results that are reduced, and to its sides.

        `of`: for each of `roots`, or for each element of one that is a tuple.
        """
        aside = {n for n, root in enumerate(roots) if root in self.sides}
        return [x for n, x in enumerate(of) if n not in aside], [x for n, x in enumerate(of) if n in aside]

    def parts(self) -> list[Reduction]:
        """A reduction for each of `operations`, which load what `sides` hold."""
        index = IndexMap.identity(len(self.dims)).over(self.dims)
        held = {
            id(node): self.graph.node(Load(side, index)) for node, side in zip(self.side_nodes, self.sides, strict=True)
        }
        return [
            replace(
                self,
                operations=(operation,),
                roots=tuple(root for root in self.roots if reached(root, {operation})),
                inputs=tuple(self.graph.substitute(self.inputs[n : n + 1], held)),
                inits=self.inits[n : n + 1],
                plain=self.plain[n : n + 1],
                identities=self.identities[n : n + 1],
                sides=(),
                side_nodes=(),
            )
            for n, operation in enumerate(self.operations)
        ]

    def combine(self, a: Sequence[Node], b: Sequence[Node]) -> list[Node]:
        """The computation on two sets of values."""
        if self.stepwise:
            return list(b)
        if self.plain:
            return [self.graph.micro(*each) for each in zip(self.plain, a, b, strict=True)]
        if not self.flagged:
            return inline_scalar(self.graph, self.operation.computation(), [*a, *b])
        (*left, has_left), (*right, has_right) = a, b
        both = inline_scalar(self.graph, self.operation.computation(), [*left, *right])
        values = [
            self._select(has_left, self._select(has_right, c, x), y) for c, x, y in zip(both, left, right, strict=True)
        ]
        return [*values, self.graph.micro("or", has_left, has_right)]

    def _select(self, flag: Node, yes: Node, no: Node) -> Node:
        if isinstance(flag, Const):
            return yes if flag.image else no
        return self.graph.micro("select", flag, yes, no)

    def starts(self) -> list[Node]:
        """Values to start an accumulation from: the identity, or the initial value where there is none."""
        pairs = zip(self.identities, self.inits, strict=True)
        return [self.graph.const(image) if image is not None else init for image, init in pairs]

    def rounded(self, values: Sequence[Node]) -> list[Node]:
        """Accumulated values as elements of the results."""
        out = []
        for value, shape in zip(values, self.shapes, strict=True):
            t = shape.dtype
            narrow = bool(self.plain) and t.bits < 32 and t.kind is not Kind.PRED
            prefix = "round" if t.is_float else "wrap"
            out.append(self.graph.micro(f"{prefix}.{t}", value) if narrow else value)
        return out

    def results(self, values: Sequence[Node], index: IndexMap) -> list[Node]:
        """The group's results where `index` picks result elements and `values` are the reduction's there."""
        values = values[:-1] if self.flagged else values
        if self.roots == self.operations:
            return list(values)
        if self.halves is not None:
            p, inner = self.halves
            joined = index.dims[p].scaled(inner).plus(index.dims[p + 1])
            index = replace(index, dims=(*index.dims[:p], joined, *index.dims[p + 2 :]))
        nodes = expressions(self.graph, self.roots, index, self.operations)
        made = dict(zip(self.operations, values, strict=True))
        return self.graph.substitute(nodes, {id(n): made[n.leaf] for n in _loads(nodes) if n.leaf in made})

    def split(self, d: int, inner: int) -> Reduction:
        """The same where the kept dimension `d` is two, the second of `inner` indices."""

        def places(of: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(k + (k > d) for k in of)

        return replace(
            self,
            dims=(*self.dims[:d], self.dims[d] // inner, inner, *self.dims[d + 1 :]),
            kept=tuple(sorted((*places(self.kept), d + 1))),
            reduced=places(self.reduced),
            inputs=tuple(self.graph.split(self.inputs, d, inner)),
            inits=tuple(self.graph.split(self.inits, d, inner)),
            halves=(self.kept.index(d), inner),
        )

    def embedding(self) -> IndexMap:
        """From the iteration space to the result's elements."""
        rank = len(self.dims)
        units = tuple(Expr(tuple(int(k == d) for k in range(rank))) for d in self.kept)
        return IndexMap(rank, units, extents=self.dims)


def reached(root: Instruction, sources: Collection[Instruction]) -> bool:
    """Whether an instruction is one of `sources`, or computed from one."""
    return not cone([root], sources).isdisjoint(sources)


def _loads(nodes: Sequence[Node]) -> list[Load]:
    return [n for n in topological(nodes) if isinstance(n, Load)]


def register_type(t: DType) -> DType:
    """The 32-bit element type that holds an accumulated value."""
    return F32 if t.is_float else U32 if t.kind is Kind.UNSIGNED else S32


def row_type(function: str, t: DType) -> DType:
    """As what the cross-lane unit reads accumulated values of type t: a function's own where signs do not matter."""
    return S32 if function.endswith(".s32") else t


def reduction_of(computation: Computation) -> Reduction:
    """The reduction of a group.

    Raises:
        CompileError: element types or operations that the vector unit does not have.
    """
    operations = tuple(root_operations(computation))
    roots = tuple(group_roots(computation))
    if operations[0].opcode == "convolution":
        return _convolution(operations[0], roots)
    if operations[0].opcode == "scan":
        return _stepwise(operations[0])
    return _together(operations, roots)


def sums_of_product(computation: Computation, product: Instruction, roots: Sequence[Instruction]) -> Reduction | None:
    """The reductions of a product's group, a leaf of which is the product; None: the group has none.

    Args:
        computation: the group's.
        product: its root operation.
        roots: its results, but for transposes that end them.

    Raises:
        CompileError: as for `reduction_of`.
    """
    operations = tuple(i for i in root_operations(computation) if i is not product)
    return _together(operations, tuple(roots), frozenset({product})) if operations else None


def over_product(computation: Computation, product: Instruction) -> list[Instruction]:
    """What a product's group makes at each of the product's elements: what it reduces, and results that it does not."""
    sums = [i for i in root_operations(computation) if i is not product]
    return [*(i.operands[0] for i in sums), *(r for r in group_roots(computation) if not reached(r, sums))]


def _together(
    operations: tuple[Instruction, ...], roots: tuple[Instruction, ...], frontier: frozenset[Instruction] = frozenset()
) -> Reduction:
    """Reductions, and other results of a group with them; errors as for `reduction_of`."""
    graph = Graph()
    found = [_single(graph, operation, frontier) for operation in operations]
    first = found[0]
    sides = () if first.operation.shape.is_tuple else tuple(root for root in roots if not reached(root, operations))
    index = IndexMap.identity(len(first.dims)).over(first.dims)
    return replace(
        first,
        operations=operations,
        roots=first.roots if first.operation.shape.is_tuple else tuple(root for root in roots if root not in sides),
        inputs=tuple(node for r in found for node in r.inputs),
        inits=tuple(node for r in found for node in r.inits),
        plain=tuple(op for r in found for op in r.plain),
        identities=tuple(image for r in found for image in r.identities),
        sides=sides,
        side_nodes=tuple(expressions(graph, sides, index, frontier)),
    )


def _single(graph: Graph, operation: Instruction, frontier: frozenset[Instruction] = frozenset()) -> Reduction:
    """One `reduce` or `reduce-window`, its result being the group's; errors as for `reduction_of`."""
    half = len(operation.operands) // 2
    operands, inits = operation.operands[:half], operation.operands[half:]
    for shape in operation.shape.leaves():
        check_dtype(operation, shape.dtype)
    opcodes = plain_parts(operation.computation(), half) or []
    plain = [PLAIN.get((op, o.shape.dtype.kind)) for op, o in zip(opcodes, operands, strict=False)]
    dims, kept, reduced, index = _space(operation)
    rank0 = IndexMap(len(dims), (), extents=dims)
    first = [expressions(graph, [i], rank0)[0] for i in inits]
    inputs = []
    for operand, init in zip(operands, first, strict=True):
        if index is None:
            raise compile_error(operation, "base dilation of a dilated operand does not fold into an index map")
        (value,) = expressions(graph, [operand], index, frontier)
        inputs.append(_padded(graph, value, index, init))
    r = Reduction(
        (operation,), (operation,), dims, kept, reduced, graph, tuple(inputs), tuple(first), (), (None,) * half
    )
    known = [row for row in plain if row is not None]
    if known and len(known) == half:
        return replace(r, plain=tuple(op for op, _ in known), identities=tuple(image for _, image in known))
    if not in_any_order(operation.computation()):
        return replace(r, ordered=True)
    return r if repeatable(operation, inits) else _flagged(r)


def _stepwise(operation: Instruction) -> Reduction:
    """A `scan` that is its group's result, and all of whose values but the inputs have the dimensions of a step.

    Raises:
        CompileError: as for `reduction_of`; its computation reads what is carried elsewhere than at its own index.
    """
    (d,), step, count = operation.ints("dimensions"), operation.computation(), operation.integer("num_carries")
    given = len(operation.operands) - count
    carried = step.parameters[given:]
    dims = (*carried[0].dims[:d], scan_steps(operation), *carried[0].dims[d:])
    unit = [Expr(tuple(int(k == e) for k in range(len(dims)))) for e in range(len(dims))]
    kept = tuple(k for k in range(len(dims)) if k != d)
    index = IndexMap(len(dims), tuple(unit[k] for k in kept), extents=dims)
    at = unit[d].scaled(-1, dims[d] - 1) if operation.flag("is_reverse") else unit[d]
    graph = Graph()
    walk = _Step(
        graph, frozenset(), dict(zip(step.parameters[:given], operation.operands, strict=False)), carried, index, at, d
    )
    roots = group_roots(step)
    nodes = [trampoline(walk.visit(root, index)) for root in roots]
    made = len(roots) - count
    inits = expressions(graph, operation.operands[given:], index)
    return Reduction(
        operations=(operation,),
        roots=(operation,),
        dims=dims,
        kept=kept,
        reduced=(d,),
        graph=graph,
        inputs=tuple(nodes[made:]),
        inits=tuple(inits),
        plain=(),
        identities=(None,) * count,
        side_nodes=tuple(nodes[:made]),
        ordered=True,
        stepwise=True,
    )


def scan_steps(i: Instruction) -> int:
    """How many steps a `scan` has."""
    (d,), given = i.ints("dimensions"), len(i.operands) - i.integer("num_carries")
    return i.operands[0].dims[d] if given else next(i.shape.leaves()).dims[d]


@dataclass
class _Step(Expander):
    """The nodes of the values of a step.

    Attributes:
        given: for each parameter of the step that is part of an operand, the operand.
        carried: the other parameters.
        index: from a point of the iteration space to the element of the step's values.
        at: the step's index along the operands' dimension `dim`.
    """

    given: dict[Instruction, Instruction]
    carried: Sequence[Instruction]
    index: IndexMap
    at: Expr
    dim: int

    def expand(self, i: Instruction, index: IndexMap) -> Steps[Node]:
        """As for every instruction; parameters of the step are elements of operands, or carried."""
        if i in self.given:
            dims = (*index.dims[: self.dim], self.at, *index.dims[self.dim :])
            node: Node = yield self.visit(self.given[i], replace(index, dims=dims))
            return node
        if i not in self.carried:
            return (yield from super().expand(i, index))
        check_dtype(i, i.shape.dtype)
        pairs = zip(i.dims, index.dims, self.index.dims, strict=True)
        if index.bounds or any(n > 1 and a != b for n, a, b in pairs):
            raise compile_error(i, "a step reads what is carried elsewhere than at its own index")
        return self.graph.node(Carried(self.carried.index(i)))


def repeatable(operation: Instruction, inits: Sequence[Instruction]) -> bool:
    """Whether initial values combine with themselves to themselves: then each partial result may start from them."""
    if any(i.opcode != "constant" for i in inits):
        return False
    given = [np.asarray(i.literal) for i in inits]
    with np.errstate(all="ignore"):
        made = flatten(evaluate_computation(operation.computation(), [*given, *given]))
    return all(a.tobytes() == np.asarray(b).tobytes() for a, b in zip(given, made, strict=True))


def _flagged(r: Reduction) -> Reduction:
    """The reduction with a last accumulator that tells whether there is a value."""
    there = r.graph.const(1)
    return replace(
        r, inputs=(*r.inputs, there), inits=(*r.inits, there), identities=(0,) * (len(r.inputs) + 1), flagged=True
    )


def _convolution(operation: Instruction, roots: tuple[Instruction, ...]) -> Reduction:
    """A convolution whose groups make one feature each, as a sum over its window and the channels of a group."""
    labels, result = operation.conv_dims, operation.dims
    image, weights = operation.operands
    n, spatial = len(result), len(labels.input_spatial)
    dims = (*result, *(w.size for w in operation.window.dims), weights.dims[labels.kernel_input])
    unit = [Expr(tuple(int(k == d) for k in range(len(dims)))) for d in range(len(dims))]
    left = {labels.input_batch: unit[labels.output_batch]}
    left[labels.input_feature] = unit[labels.output_feature].scaled(dims[-1]).plus(unit[-1])
    right = {labels.kernel_output: unit[labels.output_feature], labels.kernel_input: unit[-1]}
    bounds: list[Bound] = []
    for s, w in enumerate(operation.window.dims):
        x = labels.input_spatial[s]
        y = labels.output_spatial[s]
        left[x], bound = window_index(w, len(dims), (y, n + s), image.dims[x], result[y])
        bounds += bound
        right[labels.kernel_spatial[s]] = unit[n + s]
    graph = Graph()
    zero = graph.const(0)
    index = IndexMap(len(dims), tuple(left[d] for d in range(n)), tuple(bounds), dims)
    (value,) = expressions(graph, [image], index)
    (weight,) = expressions(
        graph, [weights], IndexMap(len(dims), tuple(right[d] for d in range(spatial + 2)), (), dims)
    )
    product = graph.micro("mul.f32", _padded(graph, value, index, zero), weight)
    name, identity = PLAIN["add", Kind.FLOAT]
    kept, reduced = tuple(range(n)), tuple(range(n, len(dims)))
    return Reduction((operation,), roots, dims, kept, reduced, graph, (product,), (zero,), (name,), (identity,))


def _padded(graph: Graph, value: Node, index: IndexMap, init: Node) -> Node:
    """`value` where the index map reads an element, else `init`."""
    if index.total:
        return value
    if isinstance(value, Load) and isinstance(init, Const) and set(value.map.bounds) == set(index.bounds):
        return graph.node(Load(value.leaf, value.map, init.image))
    inside = graph.node(Inside(index.bounds, tuple(index.quotients())))
    return graph.micro("select", inside, value, init)


Space = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], "IndexMap | None"]


def _space(operation: Instruction) -> Space:
    """Iteration space, kept and reduced dimensions, and from it to the operands' elements."""
    operand = operation.operands[0]
    if operation.opcode == "reduce":
        reduced = tuple(sorted(operation.ints("dimensions")))
        kept = tuple(d for d in range(len(operand.dims)) if d not in reduced)
        return operand.dims, kept, reduced, IndexMap.identity(len(operand.dims)).over(operand.dims)
    result = next(operation.shape.leaves()).dims
    window = operation.window.dims
    n = len(result)
    dims = (*result, *(w.size for w in window))
    exprs: list[Expr] = []
    bounds: list[Bound] = []
    for d, (w, size) in enumerate(zip(window, operand.dims, strict=True)):
        forwards = replace(w, reversal=False)  # a reversed window has its elements in the same order, as in XLA
        index, bound = window_index(forwards, 2 * n, (d, n + d), size, result[d])
        bounds += bound
        exprs.append(index)
    index_map = IndexMap(2 * n, tuple(exprs), tuple(bounds), dims)
    return dims, tuple(range(n)), tuple(range(n, 2 * n)), index_map


def is_depthwise(i: Instruction) -> bool:
    """Whether a convolution is one that the vector unit can sum: of floats, one feature for each group of channels."""
    groups = i.integer("feature_group_count", 1)
    types = {o.shape.dtype for o in i.operands} | {i.shape.dtype}
    one_type = len(types) == 1 and all(t.is_float and t.bits <= 32 for t in types)
    return one_type and groups == i.dims[i.conv_dims.output_feature] and i.integer("batch_group_count", 1) == 1


def one_pass_obstacle(computation: Computation, product: Instruction | None = None) -> str:
    """Why one pass of the vector unit cannot make several results or reductions; empty: it can.

    `product`: what it reads as it comes from the matrix units, if it does.
    """
    found = [i for i in root_operations(computation) if i is not product]
    roots = group_roots(computation)
    if not found:
        return "results of different shapes" if any(root.dims != roots[0].dims for root in roots) else ""
    first = found[0]
    dims = first.attributes.get("dimensions")
    for i in found:
        operand = i.operands[0]
        alike = operand.dims == first.operands[0].dims and i.attributes.get("dimensions") == dims
        if i.opcode != "reduce" or not i.shape.is_array or not alike:
            return "reductions that are not alike"
        if (plain_operation(i.computation()) or "", operand.shape.dtype.kind) not in PLAIN:
            return "a reduction by a general computation"
        if any(reached(o, found) for o in i.operands):
            return "one reduces what the other made"
    for root in roots:
        sources = [i for i in found if reached(root, {i})]
        if len(sources) > 1 or root.dims != (sources or first.operands)[0].dims:
            return "a result that is neither reduced nor of the whole space"
    return ""


def scratch_leaf(name: str, dtype: DType, dims: Sequence[int]) -> Instruction:
    """A leaf for values that a lowering keeps in VMEM between its steps."""
    return Instruction(name, "parameter", array(dtype, tuple(dims)), number=0)
