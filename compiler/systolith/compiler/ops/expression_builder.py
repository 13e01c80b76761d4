"""Fusion groups as expressions over an iteration space.

`analyze` walks a computation from its results to its leaves, composing data movement into index maps, and gives a
`GroupPlan`: per output a graph of micro-operations on loads, coordinates and constants.  `vpu/emit.py` makes VPU
instructions of it for any box of the iteration space.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from systolith.compiler.errors import CompileError, LimitError, compile_error
from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.rules.shapes_control import branches
from systolith.compiler.hlo.trampoline import Steps, trampoline
from systolith.compiler.index.affine import Bound, Box, IndexMap
from systolith.compiler.ops.element_builder import Builder
from systolith.compiler.ops.elementwise import check_dtype
from systolith.compiler.ops.expression import (
    Const,
    Coordinate,
    Graph,
    Inside,
    Load,
    Micro,
    Node,
    Pieces,
    image_of,
    topological,
)
from systolith.compiler.ops.table import ROOTS, Family, family, info
from systolith.isa.dtypes import F32, PRED


class NotFoldableError(LimitError):
    """The data movement of `at` is no index map here: it, or its operand, has to be a value in memory."""


@dataclass(frozen=True)
class GroupPlan:
    """A group over an iteration space.

    Attributes:
        dims: sizes of the iteration space.
        nodes: what computes each of its results, of shape `dims`.
        graph: where the nodes were made.
        code: what `emit` made for boxes, for others like them.
    """

    dims: tuple[int, ...]
    nodes: tuple[Node, ...]
    graph: Graph
    code: dict[Hashable, object] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def all_nodes(self) -> list[Node]:
        """Every node, sources first, each once."""
        return topological(self.nodes)

    @cached_property
    def loads(self) -> list[Load]:
        """Every load, each once."""
        return [n for n in self.all_nodes if isinstance(n, Load)]

    @cached_property
    def _loads_of(self) -> dict[Instruction, list[Load]]:
        found: dict[Instruction, list[Load]] = {}
        for load in self.loads:
            found.setdefault(load.leaf, []).append(load)
        return found

    def is_uniform(self, box: Box) -> bool:
        """Whether all boxes of the size of this one are computed alike, wherever they lie, but for where one coordinate
        begins.
        """
        coordinates = self._uniform_coordinates
        if coordinates is None or len(coordinates) > 1:
            return False
        return all(lo < hi for lo, hi in (c.expr.interval(box) for c in coordinates))  # one value is a constant

    @cached_property
    def _uniform_coordinates(self) -> list[Coordinate] | None:
        """Every coordinate; None: other nodes depend on where a box lies, too."""
        others = [n for n in self.all_nodes if not isinstance(n, Coordinate)]
        if not all(n.map.total if isinstance(n, Load) else isinstance(n, (Const, Micro)) for n in others):
            return None
        return [n for n in self.all_nodes if isinstance(n, Coordinate)]

    @cached_property
    def leaves(self) -> list[Instruction]:
        """The instructions whose values are read: parameters of the group, constants that are arrays, the frontier."""
        return list(dict.fromkeys(load.leaf for load in self.loads))

    def footprint(self, leaf: Instruction, box: Box) -> Box:
        """The smallest box of a leaf that holds all elements that a box of the iteration space reads (dims 0: none)."""
        parts = [load.map.footprint(box, leaf.dims) for load in self._loads_of.get(leaf, ())]
        return Box.hull([p for p in parts if p.elements] or [Box((0,) * len(leaf.dims), (0,) * len(leaf.dims))])


def streams_of(plan: GroupPlan) -> int:
    """Streams that a plan's kernel needs at most."""
    nodes = plan.all_nodes
    coordinates = sum(isinstance(n, Coordinate) for n in nodes)
    others = sum(isinstance(n, (Load, Inside)) for n in nodes)
    return others + -(-coordinates // 4) + len(plan.nodes)


def group_roots(computation: Computation) -> list[Instruction]:
    """The instructions whose values a group's computation returns: its root, or the operands of a root tuple."""
    root = computation.result
    return list(root.operands) if root.opcode == "tuple" else [root]


def root_operations(computation: Computation) -> list[Instruction]:
    """The products and reductions of a group's computation."""
    return [i for i in computation.instructions if family(i) in ROOTS]


def reads_in_place(value: Instruction, operand: Instruction, leaves: Collection[Instruction]) -> bool:
    """Whether a value reads an instruction at its own index alone; `leaves`: what else it is computed from."""
    if value.dims != operand.dims:
        return False
    try:
        plan = analyze([value], frontier={operand, *leaves} - {value})
    except CompileError:
        return False
    same = IndexMap.identity(len(value.dims)).dims
    return all(load.map.dims == same for load in plan.loads if load.leaf is operand)


def analyze(roots: Sequence[Instruction], frontier: Collection[Instruction] = ()) -> GroupPlan:
    """The plan of a group.

    Args:
        roots: instructions to compute, all of the same dims, which are those of the iteration space.
        frontier: instructions taken as leaves (a dot whose result lies in the accumulators, a carried reduction),
            besides parameters and array constants.

    Raises:
        NotFoldableError: some data movement between two operations is no index map.
        CompileError: an operation that the vector unit does not have.
    """
    sizes = roots[0].dims
    for root in roots:
        if root.dims != sizes:
            raise compile_error(root, f"a group over {list(sizes)} cannot have a result of another shape")
    graph = Graph()
    identity = IndexMap.identity(len(sizes)).over(sizes)
    return GroupPlan(sizes, tuple(expressions(graph, roots, identity, frontier)), graph)


def expressions(
    graph: Graph, roots: Sequence[Instruction], index: IndexMap, frontier: Collection[Instruction] = ()
) -> list[Node]:
    """Nodes of the elements of `roots` that an index map picks; arguments and errors as for `analyze`."""
    walk = Expander(graph, frozenset(frontier))
    return [trampoline(walk.visit(root, index)) for root in roots]


def lower_elementwise(graph: Graph, i: Instruction, sources: Sequence[Node]) -> Node:
    """The node of an elementwise instruction on its operands' nodes.

    Raises:
        CompileError: no such operation, or not for these element types.
    """
    rule = info(i).compute
    if rule is None:
        raise compile_error(i, "not an operation of the vector unit")
    for shape in (i.shape, *(o.shape for o in i.operands)):
        check_dtype(i, shape.dtype)
    return rule(Builder(graph, i), sources)


def inline_scalar(graph: Graph, computation: Computation, arguments: Sequence[Node]) -> list[Node]:
    """The results of a scalar computation (of `reduce`, `map`, ...) on given nodes, one for each array in its shape.

    Raises:
        CompileError: it has an operation that is not elementwise.
    """
    values: dict[Instruction, list[Node]] = {p: [] for p in computation.parameters}
    leaves = (p for p in computation.parameters for _ in p.shape.leaves())
    for parameter, node in zip(leaves, arguments, strict=True):
        values[parameter].append(node)
    for i in computation.instructions:
        if i not in values:
            values[i] = _inlined(graph, i, [values[o] for o in i.operands])
    return values[computation.result]


def _inlined(graph: Graph, i: Instruction, sources: Sequence[Sequence[Node]]) -> list[Node]:
    """The nodes of an instruction of a scalar computation."""
    leaves = [leaf for source in sources for leaf in source]
    match i.opcode:
        case "constant" if i.shape.is_array:
            return [constant_node(graph, i)]
        case "broadcast" | "reshape" | "transpose" | "tuple":
            return leaves
        case "get-tuple-element":
            before = sum(len([*e.leaves()]) for e in i.operands[0].shape.elements[: i.integer("index")])
            return leaves[before : before + len([*i.shape.leaves()])]
        case "call":
            return inline_scalar(graph, i.computation(), leaves)
        case "conditional":
            return _both_ways(graph, i, leaves[0], sources[1:])
    return [lower_elementwise(graph, i, leaves)]


def _both_ways(graph: Graph, i: Instruction, selector: Node, arguments: Sequence[Sequence[Node]]) -> list[Node]:
    """A `conditional` on scalars: the results of all branches, of which those of one are selected."""
    named = "branch_computations" not in i.attributes
    in_order = reversed(arguments) if named else arguments
    results = [inline_scalar(graph, branch, given) for branch, given in zip(branches(i), in_order, strict=True)]
    if i.operands[0].shape.dtype is PRED:
        false, true = results if named else reversed(results)
        return [graph.micro("select", selector, *each) for each in zip(true, false, strict=True)]
    chosen = results[-1]
    for k, result in enumerate(results[:-1]):
        taken = graph.micro("eq.s32", selector, graph.const(k))
        chosen = [graph.micro("select", taken, *each) for each in zip(result, chosen, strict=True)]
    return chosen


def splat(instruction: Instruction) -> int | None:
    """The register image of a constant whose elements are all equal, else None."""
    check_dtype(instruction, instruction.shape.dtype)
    if instruction.literal is None:
        return None
    literal = np.asarray(instruction.literal)
    if literal.size == 0:
        return 0
    first = literal.reshape(-1)[:1]
    raw = np.ascontiguousarray(literal).view(np.uint8).reshape(literal.size, -1)
    if not (raw == raw[:1]).all():
        return None
    return image_of(first[0], instruction.shape.dtype)


def splat_or_none(i: Instruction) -> int | None:
    """The image of a splat constant; None for other constants, and for types that registers do not hold."""
    try:
        return splat(i)
    except CompileError:
        return None


def constant_node(graph: Graph, instruction: Instruction) -> Node:
    """The node of a scalar (or splat) constant."""
    image = splat(instruction)
    if image is None:
        raise compile_error(instruction, "an array constant where a scalar is needed")
    return graph.const(image)


@dataclass
class Expander:
    """From results to leaves, with the index map so far."""

    graph: Graph
    frontier: frozenset[Instruction]

    def __post_init__(self) -> None:
        self._seen: dict[tuple[Instruction, IndexMap], Node] = {}

    def visit(self, instruction: Instruction, index: IndexMap) -> Steps[Node]:
        """The node of the elements of an instruction that an index map picks; errors as for `analyze`."""
        key = (instruction, index)
        node = self._seen.get(key)
        if node is None:
            node = self._seen[key] = yield from self.expand(instruction, index)
        return node

    def expand(self, i: Instruction, index: IndexMap) -> Steps[Node]:
        """The node of an instruction that was not visited with this index map before."""
        check_dtype(i, i.shape.dtype)
        node: Node
        row = info(i)
        if i in self.frontier or i.opcode == "parameter":
            node = self.graph.node(Load(i, index))
            if row.family is Family.CONTRACTION and i.shape.dtype.is_float and i.shape.dtype is not F32:
                # The accumulators are f32; the product's own type is narrower.
                node = self.graph.micro(f"round.{i.shape.dtype}", node)
        elif i.opcode == "constant":
            image = splat(i)
            node = self.graph.const(image) if image is not None else self.graph.node(Load(i, index))
        elif row.move is not None:
            moved = row.move(i, index)
            if moved is None:
                raise _not_foldable(i)
            node = yield self.visit(i.operands[0], moved)
        elif i.opcode == "pad":
            node = yield self._pad(i, index)
        elif i.opcode == "concatenate":
            node = yield self._concatenate(i, index)
        elif i.opcode == "iota":
            node = self._iota(i, index)
        elif i.opcode == "map":
            node = inline_scalar(self.graph, i.computation(), (yield self._operands(i, index)))[0]
        elif row.compute is not None:
            node = lower_elementwise(self.graph, i, (yield from self._operands(i, index)))
        else:
            raise compile_error(i, "not an operation of the vector unit")
        return node

    def _operands(self, i: Instruction, index: IndexMap) -> Steps[list[Node]]:
        """The operands of an elementwise operation; `clamp` and `select` take scalars too."""
        nodes: list[Node] = []
        for operand in i.operands:
            scalar = index.dims and operand.shape.rank == 0 and i.shape.rank
            at = replace(index, dims=()) if scalar else index
            node = self.known(operand, at)
            nodes.append((yield self.visit(operand, at)) if node is None else node)
        return nodes

    def known(self, instruction: Instruction, index: IndexMap) -> Node | None:
        """The node of a visit that was made before."""
        return self._seen.get((instruction, index))

    def _iota(self, i: Instruction, index: IndexMap) -> Node:
        expr = index.dims[i.integer("iota_dimension")]
        if not expr.is_affine:
            raise _not_foldable(i)
        value = self.graph.node(Coordinate(expr))
        if not i.shape.dtype.is_float:
            return value if i.shape.dtype.bits == 32 else self.graph.micro(f"wrap.{i.shape.dtype}", value)
        value = self.graph.micro("cvt.f32.s32", value)
        return value if i.shape.dtype is F32 else self.graph.micro(f"round.{i.shape.dtype}", value)

    def _pad(self, i: Instruction, index: IndexMap) -> Steps[Node]:
        padding: tuple[PadDim, ...] = i.attributes["padding"]  # type: ignore[assignment]
        operand, value = i.operands
        inner = index.pad(padding, operand.dims, i.dims)
        if inner is None:
            raise _not_foldable(i)
        fill = yield self.visit(value, replace(index, dims=(), bounds=()))
        inside: Node = yield self.visit(operand, inner)
        if inner.bounds == index.bounds:
            return inside
        if isinstance(fill, Const) and isinstance(inside, Load):
            if set(inside.map.bounds) == set(inner.bounds):
                return self.graph.node(replace(inside, fill=fill.image))
            if inside.fill == fill.image and inside.map.bounds:
                return inside
        added = tuple(b for b in inner.bounds if b not in index.bounds)
        quotients = tuple(q for q in inner.quotients() if q not in index.quotients())
        return self.graph.micro("select", self.graph.node(Inside(added, quotients)), inside, fill)

    def _concatenate(self, i: Instruction, index: IndexMap) -> Steps[Node]:
        (d,) = i.ints("dimensions")
        expr = index.dims[d]
        if not expr.is_affine:
            raise _not_foldable(i)
        pieces, ends, start = [], [], 0
        for operand in i.operands:
            n = operand.dims[d]
            if n:
                local = expr.scaled(1, -start)
                dims = tuple(local if k == d else e for k, e in enumerate(index.dims))
                bounds = (*index.bounds, Bound(local, 0, n))
                pieces.append((yield self.visit(operand, replace(index, dims=dims, bounds=bounds))))
                start += n
                ends.append(start)
        return pieces[0] if len(pieces) == 1 else self.graph.node(Pieces(expr, tuple(ends), tuple(pieces)))


def _not_foldable(i: Instruction) -> NotFoldableError:
    return NotFoldableError(str(compile_error(i, "its data movement does not fold into an index map here")), i)
