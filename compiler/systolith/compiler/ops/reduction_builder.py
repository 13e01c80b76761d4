"""The reduction that a group is, and whether the vector unit makes it in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.trampoline import Steps, trampoline
from systolith.compiler.hlo.values.evaluator import evaluate_computation, flatten, in_any_order
from systolith.compiler.hlo.values.reduction import plain_operation, plain_parts
from systolith.compiler.index.affine import Bound, Expr, IndexMap, window_index
from systolith.compiler.ops.elementwise import check_dtype
from systolith.compiler.ops.expression import Carried, Const, Graph, Inside, Load, Node
from systolith.compiler.ops.expression_builder import (
    Expander,
    expressions,
    group_roots,
    root_operations,
)
from systolith.compiler.ops.reduction import Reduction, reached
from systolith.isa.dtypes import Kind

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
