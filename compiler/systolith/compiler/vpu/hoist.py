"""Hoisting: what a loop nest's inner loops do not change is computed once, in a kernel's prologue.

A bias or a scale of channels, with channels in the lanes and pixels in the loops, is loaded and prepared once and not
for every vector of pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

from systolith.compiler.cost.prices import kernel_length
from systolith.compiler.ops.expression import Const, Coordinate, Load, Micro, Node, topological
from systolith.compiler.tile.patterns import Loop
from systolith.compiler.vpu.vectorise import Access, Nest, Work, access_cycles
from systolith.isa.chip import Chip
from systolith.isa.dependence import latency_of, slot_interval
from systolith.isa.timing import nest_cycles


@dataclass(frozen=True)
class Hoisting:
    """A choice of inner loops.

    Attributes:
        nest: the nest with those loops innermost, as its inner loop.
        nodes: what the prologue computes for the body, sources before users.
    """

    nest: Nest
    nodes: tuple[Node, ...]


def hoisting(chip: Chip, roots: Sequence[Node], nest: Nest, work: Work, streams: Sequence[object]) -> Hoisting | None:
    """The best choice of inner loops for an elementwise kernel; None if hoisting does not pay.

    Args:
        chip: for costs.
        roots: what the kernel stores, specialised.
        nest: chosen loops.
        work: merged; its accesses belong to `streams`.
        streams: what each stream is, as `KernelBuilder.streams` has it.
    """
    access = {id(s): a for s, a in zip(streams, work.accesses, strict=True) if isinstance(s, Load)}
    stored = [a for s, a in zip(streams, work.accesses, strict=True) if isinstance(s, int)]
    stalls = {n: access_cycles(chip.vpu, a, nest) - 1 for n, a in access.items()}
    storing = sum(access_cycles(chip.vpu, a, nest) - 1 for a in stored)
    order = topological(roots)
    # The nest's cycles count a chain of a few operations; with an inner loop the whole chain is waited for often.
    few = kernel_length([_op(n) for n in order if not isinstance(n, Const)], chip)
    best, least = None, nest.cycles - few + _chain(chip, order)
    for count in range(1, len(nest.outer) + 1):
        for inner in combinations(nest.outer, count):
            still = unchanged(order, access, inner)
            nodes = held(order, roots, still)
            if not nodes or prod(p.count for p in inner) < 2:
                continue
            cycles = _cycles(chip, order, still, nest, inner, stalls, storing)
            if cycles < least:
                outer = tuple(p for p in nest.outer if p not in inner)
                turned = replace(nest, outer=(*outer, *inner), inner=count, cycles=cycles)
                best, least = Hoisting(turned, nodes), cycles
    return best


def unchanged(order: Sequence[Node], access: dict[int, Access], inner: Sequence[Loop]) -> set[int]:
    """Nodes (by id) that have the same value in every iteration of some loops; not constants."""
    dims = {p.dim for p in inner}
    still: set[int] = set()
    fixed = {id(n) for n in order if isinstance(n, Const)}
    for node in order:
        if isinstance(node, Load):
            a = access[id(node)]
            vectors = [a.strides, *(c.coefs for c in a.coords)]
            if all(v[d] == 0 for v in vectors for d in dims):
                still.add(id(node))
        elif isinstance(node, Micro):
            sources = [id(s) for s in node.sources]
            if any(s in still for s in sources) and all(s in still or s in fixed for s in sources):
                still.add(id(node))
    return still


def held(order: Sequence[Node], roots: Sequence[Node], still: set[int]) -> tuple[Node, ...]:
    """The unchanged nodes that changing ones, or stores, use."""
    used = {id(r) for r in roots}
    for node in order:
        if isinstance(node, Micro) and id(node) not in still:
            used |= {id(s) for s in node.sources}
    return tuple(n for n in order if id(n) in still and id(n) in used)


def _cycles(
    chip: Chip,
    order: Sequence[Node],
    still: set[int],
    nest: Nest,
    inner: Sequence[Loop],
    stalls: Mapping[int, int],
    storing: int,
) -> int:
    """With the nodes `still` in the prologue; loads stall the pipeline for `stalls`, stores for `storing`."""
    body = [_op(n) for n in order if id(n) not in still and not isinstance(n, Const)] + ["st"]
    prologue = [_op(n) for n in order if id(n) in still]
    iterations = prod(p.count for p in inner)
    held_stalls = sum(cost for n, cost in stalls.items() if n in still)
    stalled = sum(stalls.values()) - held_stalls + storing
    before = _chain(chip, [n for n in order if id(n) in still]) + slot_interval(prologue, chip) + held_stalls
    outer = prod(p.count for p in nest.outer) // iterations
    length = _chain(chip, [n for n in order if id(n) not in still]) + stalled
    return nest_cycles(outer, iterations, slot_interval(body, chip) + stalled, before + length)


def _chain(chip: Chip, order: Sequence[Node]) -> int:
    """Cycles from the first issue of some nodes, sources before users, to the last result's use."""
    ends: dict[int, int] = {}
    for node in order:
        if not isinstance(node, Const):
            sources = node.sources if isinstance(node, Micro) else ()
            ends[id(node)] = max((ends.get(id(s), 0) for s in sources), default=0) + latency_of(_op(node), chip)
    return max(ends.values(), default=0) + 1


def _op(node: Node) -> str:
    if isinstance(node, Micro):
        return node.op
    return "ld" if isinstance(node, Load) else "coord" if isinstance(node, Coordinate) else "inside"
