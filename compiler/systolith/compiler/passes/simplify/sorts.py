"""Sorts of several arrays, of which some are not used."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.clone import clone_computation
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import tuple_of
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.compiler.passes.callees import Callees


@dataclass(frozen=True)
class SimplifySorts:
    """Leave out operands of a `sort` that nothing uses and that the comparison does not look at."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        made: list[Computation] = []
        for computation in module.computations:
            made += _simplify(computation, callees)
        module.computations[:0] = made
        return bool(made)


def _simplify(computation: Computation, callees: Callees) -> list[Computation]:
    """Comparisons with fewer parameters, of the sorts that now have fewer operands."""
    if not any(i.opcode == "sort" and len(i.operands) > 1 for i in computation.instructions):
        return []
    users = computation.users()
    before = control_predecessors(computation)
    pinned = set(before).union(*before.values())
    made: list[Computation] = []
    value: dict[Instruction, Instruction] = {}
    for i in computation.instructions:
        i.operands = [value.get(o, o) for o in i.operands]
        if i.opcode != "sort" or i in pinned or i is computation.result or len(i.operands) < 2:
            continue
        elements = users[i]
        if any(u.opcode != "get-tuple-element" or u in pinned for u in elements):
            continue
        used = {u.integer("index") for u in elements} | _compared(i.computation())
        kept = sorted(used) or [0]
        if len(kept) < len(i.operands):
            made.append(_narrow(i, kept, elements, callees))
            if len(kept) == 1:
                value |= dict.fromkeys(elements, i)
    computation.root = value.get(computation.result, computation.result)
    computation.instructions = [i for i in computation.instructions if i not in value]
    return made


def _compared(comparison: Computation) -> set[int]:
    """Operands of the sort that the comparison looks at: of parameters 2k and 2k + 1, k."""
    looked = {o for j in comparison.instructions for o in j.operands} | {comparison.result}
    return {p.number // 2 for p in comparison.parameters if p in looked and p.number is not None}


def _narrow(i: Instruction, kept: list[int], elements: list[Instruction], callees: Callees) -> Computation:
    """Change a sort, and the elements taken of it, to the operands that are kept; gives its new comparison."""
    old = i.computation()
    comparison = clone_computation(old, callees.name(f"{old.name}.narrow"))
    place = {k: at for at, k in enumerate(kept)}
    for p in comparison.parameters:
        k = p.number or 0
        p.number = 2 * place[k // 2] + k % 2 if k // 2 in place else None
    comparison.root = comparison.result
    comparison.instructions = [j for j in comparison.instructions if j.opcode != "parameter" or j.number is not None]
    i.operands = [i.operands[k] for k in kept]
    shapes = [i.shape.elements[k] for k in kept]
    i.shape = shapes[0] if len(kept) == 1 else tuple_of(shapes)
    i.attributes["to_apply"] = comparison
    i.attributes.pop("sharding", None)
    for element in elements:
        element.attributes["index"] = place[element.integer("index")]
    return comparison
