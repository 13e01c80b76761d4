"""Splitting: a group that asks for more than an instruction has (streams, registers, constants, bounds and loops of an
address generator, data movement that is no index map) becomes several.

Which groups those are only lowering knows, since it depends on tiles and on how loops merge: it says so by a
`LimitError`, and goes on with the next group.  Each such group is then cut at one of its values, which is stored: where
the parts ask for the least beyond what kernels have, and of those choices at the fewest bytes.  A group of one
operation has no such value: the operation is written as several first (`groups/decompose.py`).  The module is placed
and lowered again until every group fits; a part has fewer operations than its group, so that ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from systolith.compiler.errors import CompileError, LimitError, compile_error
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.groups.cutting import Parts
from systolith.compiler.groups.decompose import decomposed
from systolith.compiler.groups.fusion import Limits
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import tuple_of
from systolith.compiler.hlo.visiting import cone, through
from systolith.compiler.index.affine import IndexMap
from systolith.compiler.ops.expression import Inside, Load, Micro, Node, Pieces, topological
from systolith.compiler.ops.expression_builder import NotFoldableError, analyze, group_roots
from systolith.compiler.ops.group import Group, Unit, root_operation, unit_of
from systolith.compiler.ops.reduction_builder import reduction_of
from systolith.compiler.ops.table import ROOTS, Family, family
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.tile.patterns import axis_coords
from systolith.isa.pattern import MAX_COORDS

CHOICES, LOOKED_AT = 4, 1200
"""Values of a group among which the one to store is chosen, those that cut it nearest to the middle: at least so many,
and as many as it takes to look at so many operations."""

UNFOLDED = 1000
"""Excess of a part whose data movement does not fold."""


@dataclass(frozen=True)
class Oversized:
    """A group that no instruction can hold.

    Attributes:
        computation: that it is in.
        group: that is too large.
        problem: the limit that it exceeds.
    """

    computation: Computation
    group: Group
    problem: LimitError


def split(oversized: Sequence[Oversized], taken: Names, module: Module | None = None) -> list[Decision]:
    """Split groups, in place.

    Args:
        oversized: the groups.
        taken: names of computations.
        module: whose computations they are; None: of one that is no module's.

    Returns:
        The values that were stored.

    Raises:
        CompileError: a group is one operation that cannot be written as several.
    """
    decisions: list[Decision] = []
    for computation in dict.fromkeys(o.computation for o in oversized):
        problems = {o.group: o.problem for o in oversized if o.computation is computation}
        parts = {group: _parts(group, problem) for group, problem in problems.items()}
        decisions += [_decision(group, parts[group], problem) for group, problem in problems.items()]
        made = _replace(computation, parts, taken)
        if module is not None and computation in module.computations:
            gone = {group.body for group in problems}
            at = module.computations.index(computation)
            module.computations[at:at] = made
            module.computations = [c for c in module.computations if c not in gone]
    return decisions


def _replace(computation: Computation, parts: Mapping[Group, Parts], taken: Names) -> list[Computation]:
    """Put groups in parts into a computation; gives the computations of the new groups."""
    names = Names(i.name for i in computation.instructions)
    value: dict[Instruction, Instruction] = {}
    out: list[Instruction] = []
    made: list[Computation] = []
    for i in computation.instructions:
        i.operands = [value.get(o, o) for o in i.operands]
        if not isinstance(i, Group) or i not in parts:
            out.append(i)
            continue
        replacement = _Replacement(i, parts[i], names, taken)
        value[i] = replacement.value
        out += replacement.instructions
        made += replacement.computations
    computation.root = value.get(computation.result, computation.result)
    computation.instructions = out
    return made


def _parts(group: Group, problem: LimitError) -> Parts:
    body = group.body
    parts = Parts.of(body, _cuts(group, problem))
    if not parts.progress and (stored := decomposed(body)) is not None:
        parts = Parts.of(body, stored or _cuts(group, problem))
    if not parts.progress:
        if problem.at is not None:
            raise problem
        raise compile_error(body.result, f"{problem}; write it as several operations")
    return parts


def _decision(group: Group, parts: Parts, problem: LimitError) -> Decision:
    names = ", ".join(i.name for i in parts.cuts)
    numbers = {"bytes stored": sum(i.shape.bytes for i in parts.cuts)}
    return Decision("fusion", group.name, f"{names} stored", "", numbers, (Alternative("one group", str(problem)),))


class _Replacement:
    """The instructions that replace a group.

    Attributes:
        value: what stands for it.
        instructions: those that make it.
        computations: of the new groups.
    """

    def __init__(self, group: Group, parts: Parts, names: Names, taken: Names) -> None:
        self.instructions: list[Instruction] = []
        self.computations: list[Computation] = []
        self._names, self._taken, self._group = names, taken, group
        self._values = dict(zip(parts.body.parameters, group.operands, strict=True))
        for i, part in parts.stored:
            self._values[i] = self._fusion(part.computation, part.leaves, names.fresh(i.name), i)
        if parts.rest is not None:
            several = len(parts.rest.roots) > 1
            name = names.fresh(f"{group.name}.rest") if several or len(parts.roots) > 1 else group.name
            rest = self._fusion(parts.rest.computation, parts.rest.leaves, name, group)
            for k, root in enumerate(parts.rest.roots):
                element = Instruction(names.fresh(root.name), "get-tuple-element", root.shape, [rest], {"index": k})
                self._values[root] = self._append(element) if several else rest
        self.value = self._value(parts.roots[0])
        if group.body.result.opcode == "tuple":
            values = [self._value(root) for root in parts.roots]
            shape = tuple_of([v.shape for v in values])
            self.value = self._append(Instruction(group.name, "tuple", shape, values, line=group.line))

    def _value(self, i: Instruction) -> Instruction:
        """The replacement of a stored value of the group; a reshape of one is a view."""
        if i not in self._values:
            source = self._value(i.operands[0])
            view = Instruction(self._names.fresh(i.name), "bitcast", i.shape, [source], line=i.line)
            self._values[i] = self._append(view)
        return self._values[i]

    def _fusion(
        self, computation: Computation, leaves: Sequence[Instruction], name: str, like: Instruction
    ) -> Instruction:
        computation.name = self._taken.fresh(f"group.{name}")
        self.computations.append(computation)
        operands = [self._value(leaf) for leaf in leaves]
        unit = _unit(self._group, computation)
        return self._append(Group.of(name, computation, operands, like, unit, why=f"a part of {self._group.name}"))

    def _append(self, i: Instruction) -> Instruction:
        self.instructions.append(i)
        return i


# Where to cut.


def _unit(group: Group, part: Computation) -> Unit:
    """The unit of a part of a group: a convolution stays where it is."""
    root = root_operation(part)
    return group.unit if group.unit and family(root) is Family.CONTRACTION else unit_of(root)


def _cuts(group: Group, problem: LimitError) -> list[Instruction]:
    """The values to store; none: the group has no value that would help."""
    body = group.body
    roots = group_roots(body)
    inner = [i for i in body.instructions if _may_be_stored(i) and (i not in roots or len(roots) > 1)]
    if isinstance(problem, NotFoldableError) and problem.at in inner:
        return [problem.at]
    if not inner:
        return []
    whole = len(body.instructions)
    sizes = {i: len(cone([i])) for i in inner}
    inner.sort(key=lambda i: abs(2 * sizes[i] - whole))
    fits = not _excess(body, _unit(group, body))

    def cost(i: Instruction) -> tuple[int, ...]:
        parts = Parts.of(body, [i])
        if not parts.progress:
            return (whole + UNFOLDED * whole, 0, 0)
        computations = parts.computations()
        largest = max(len(c.instructions) for c in computations)
        stored = sum(c.shape.bytes for c in parts.cuts)
        # Where no count says why the group does not fit, halves are the most likely to.
        return (
            (largest, stored, 0) if fits else (sum(_excess(c, _unit(group, c)) for c in computations), stored, largest)
        )

    return [min(inner[: max(CHOICES, LOOKED_AT // whole)], key=cost)]


def _may_be_stored(i: Instruction) -> bool:
    """Whether storing a value of a group can help: it is computed, and not one constant repeated."""
    if not i.shape.is_array or family(i) is Family.GIVEN:
        return False
    return i.opcode != "broadcast" or i.operands[0].opcode != "constant"


def _excess(group: Computation, unit: Unit) -> int:
    """By how much a group exceeds what a kernel has, as far as its expressions tell."""
    limits = Limits()
    try:
        nodes = _nodes(group, unit)
    except NotFoldableError:
        return UNFOLDED
    except CompileError:
        return 0
    stores = len(list(group.result.shape.leaves()))
    micro = sum(isinstance(n, Micro) for n in nodes)
    streams = sum(isinstance(n, (Load, Inside)) + (len(n.pieces) - 1 if isinstance(n, Pieces) else 0) for n in nodes)
    bounds = sum(max(0, _coords(n) - MAX_COORDS) for n in nodes)
    return bounds + max(0, micro - limits.micro_ops) + max(0, streams + stores - limits.streams)


def _coords(n: Node) -> int:
    """Coordinates of the pattern of a node's stream."""
    if isinstance(n, Load):
        return len(axis_coords(n.map.bounds, dict.fromkeys(n.map.quotients(), 0)))
    return len(axis_coords(n.bounds, dict.fromkeys(n.quotients, 0))) if isinstance(n, Inside) else 0


def _nodes(group: Computation, unit: Unit) -> list[Node]:
    """The nodes of a group's kernel."""
    root, results = root_operation(group), group_roots(group)
    if family(root) not in ROOTS:
        return analyze(results).all_nodes
    if unit is Unit.MXU:
        return analyze([through(i, "transpose") for i in results], frontier={root}).all_nodes
    r = reduction_of(group)
    index = IndexMap.identity(len(r.kept)).over([r.dims[d] for d in r.kept])
    made = r.results([r.graph.const(0)] * len(r.inputs), index)
    return topological([*r.inputs, *r.side_nodes, *made])
