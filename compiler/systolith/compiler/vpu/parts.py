"""Parts of an operand that lie far apart, as the two halves of an array that are added: each is staged by itself.

A leaf is staged as the box around all that a tile reads of it.  Where that box does not shrink with the tile, each part
gets a leaf of its own, so that what lies between them is not loaded, and tiles are as large as what they read.  So does
every second row, say, where nothing reads the others.  In VMEM what is read transposed has one, so that the cross-lane
unit can turn that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box
from systolith.compiler.ops.expression import Graph, Load, Node, topological
from systolith.compiler.ops.reduction import scratch_leaf
from systolith.compiler.tile.arrays import nesting
from systolith.compiler.tile.ir import Array
from systolith.compiler.tile.strided import compact
from systolith.isa.instruction import Space

FAR_APART = 1.25
"""Parts are staged one by one where the box around them has so many times their elements."""

Traffic = Callable[[Box], int]


def split_parts(
    graph: Graph,
    nodes: Sequence[Node],
    arrays: Mapping[Instruction, Array],
    dims: Sequence[int],
    written: Traffic,
    choose: Callable[[Traffic], tuple[int, ...]],
) -> tuple[tuple[Node, ...], Mapping[Instruction, Array]]:
    """Nodes and arrays, with a leaf for each part of an operand in HBM that is far from the others.

    Args:
        graph: where the nodes were made.
        nodes: what is computed over an iteration space.
        arrays: an array for each leaf.
        dims: of the iteration space.
        written: bytes of results of a box.
        choose: sizes of tiles, from the bytes that a box moves; parts are seen in the first of them that reads them.
    """
    by_leaf = _staged_loads(nodes, arrays)
    loads = [load for of_leaf in by_leaf.values() for load in of_leaf]
    if len(by_leaf) == len(loads):
        return tuple(nodes), arrays
    sizes = choose(lambda box: written(box) + sum(_bytes(n, box) for n in loads))
    swap: dict[int, Node] = {}
    made: dict[Instruction, Array] = {}
    for leaf, of_leaf in by_leaf.items():
        parts = [part for seen in _seen(of_leaf, leaf.dims, dims, sizes) for part in _far_apart(seen)]
        for part in parts[1:]:
            alias = replace(leaf)
            made[alias] = arrays[leaf]
            swap |= {id(load): graph.node(replace(load, leaf=alias)) for load in part}
    return (tuple(graph.substitute(nodes, swap)), {**arrays, **made}) if swap else (tuple(nodes), arrays)


def split_strided(
    graph: Graph, nodes: Sequence[Node], arrays: Mapping[Instruction, Array], dims: Sequence[int], least: int
) -> tuple[tuple[Node, ...], Mapping[Instruction, Array]]:
    """Nodes and arrays, with a leaf for what is read of an operand in HBM at every second index of a dimension, say.

    Args:
        graph: where the nodes were made.
        nodes: what is computed over an iteration space.
        arrays: an array for each leaf.
        dims: of the iteration space.
        least: bytes between neighbours from which a dimension is worth it.
    """
    swap: dict[int, Node] = {}
    made: dict[Instruction, Array] = {}
    for leaf, of_leaf in _staged_loads(nodes, arrays).items():
        found = [(load, *compact(arrays[leaf], load.map, dims, least)) for load in of_leaf]
        read = sum(prod(array.dims) for _, array, _ in found)
        if any(index is load.map for load, _, index in found) or read > prod(arrays[leaf].dims):
            continue
        for load, array, index in found:
            alias = scratch_leaf(leaf.name, leaf.shape.dtype, array.dims)
            made[alias] = array
            swap[id(load)] = graph.node(replace(load, leaf=alias, map=index))
    return (tuple(graph.substitute(nodes, swap)), {**arrays, **made}) if swap else (tuple(nodes), arrays)


def split_spread(
    graph: Graph, nodes: Sequence[Node], arrays: Mapping[Instruction, Array], dims: Sequence[int]
) -> tuple[tuple[Node, ...], Mapping[Instruction, Load]]:
    """Nodes, with a leaf for what is read of an operand in HBM at every second element, say, of its innermost
    dimension, and the load that each stands for: all of it is staged, and read through a view.

    What the cross-lane unit copies alone, as one load, is left as it is.
    """
    swap: dict[int, Node] = {}
    made: dict[Instruction, Load] = {}
    for leaf, of_leaf in _staged_loads(nodes, arrays).items():
        for load in of_leaf:
            array, index = compact(arrays[leaf], load.map, dims, 0)
            near = nesting(array.strides)[-1] if array.dims else 0
            if index is load.map or array.strides[near] == arrays[leaf].strides[near] or [*nodes] == [load]:
                continue
            alias = scratch_leaf(leaf.name, leaf.shape.dtype, array.dims)
            made[alias] = load
            swap[id(load)] = graph.node(replace(load, leaf=alias, map=index))
    return tuple(graph.substitute(nodes, swap)) if swap else tuple(nodes), made


def split_turned(
    graph: Graph, nodes: Sequence[Node], arrays: Mapping[Instruction, Array]
) -> tuple[tuple[Node, ...], Mapping[Instruction, Array]]:
    """Nodes and arrays, with a leaf for each way in which an operand in VMEM is turned."""

    def along(load: Load) -> tuple[int, ...]:
        neighbours = nesting(arrays[load.leaf].strides)[-1]
        return tuple(d for d, c in enumerate(load.map.dims[neighbours].coefs) if c)

    return _split_by(graph, nodes, arrays, along)


def split_repeated(
    graph: Graph, nodes: Sequence[Node], arrays: Mapping[Instruction, Array]
) -> tuple[tuple[Node, ...], Mapping[Instruction, Array]]:
    """Nodes and arrays, with a leaf for each set of dimensions along which an operand in VMEM is read: of all pairs of
    rows those of either side.
    """

    def dims(load: Load) -> tuple[int, ...]:
        return tuple(sorted({d for e in load.map.dims for d, c in enumerate(e.coefs) if c}))

    return _split_by(graph, nodes, arrays, dims)


def _split_by(
    graph: Graph,
    nodes: Sequence[Node],
    arrays: Mapping[Instruction, Array],
    way: Callable[[Load], tuple[int, ...]],
) -> tuple[tuple[Node, ...], Mapping[Instruction, Array]]:
    """Nodes and arrays, with a leaf for each way in which an operand in VMEM is read."""
    first: dict[Instruction, tuple[int, ...]] = {}
    aliases: dict[tuple[Instruction, tuple[int, ...]], Instruction] = {}
    swap: dict[int, Node] = {}
    for load in topological(nodes):
        if not isinstance(load, Load) or arrays[load.leaf].buf.space is not Space.VMEM or not load.leaf.dims:
            continue
        if first.setdefault(load.leaf, way(load)) != way(load):
            alias = aliases.setdefault((load.leaf, way(load)), replace(load.leaf))
            swap[id(load)] = graph.node(replace(load, leaf=alias))
    made = {alias: arrays[leaf] for (leaf, _), alias in aliases.items()}
    return (tuple(graph.substitute(nodes, swap)), {**arrays, **made}) if swap else (tuple(nodes), arrays)


def _staged_loads(nodes: Sequence[Node], arrays: Mapping[Instruction, Array]) -> dict[Instruction, list[Load]]:
    """The loads of each leaf in HBM."""
    found: dict[Instruction, list[Load]] = {}
    for n in topological(nodes):
        if isinstance(n, Load) and arrays[n.leaf].buf.space == Space.HBM:
            found.setdefault(n.leaf, []).append(n)
    return found


def _bytes(load: Load, box: Box) -> int:
    return load.map.footprint(box, load.leaf.dims).elements * load.leaf.shape.dtype.size


def _seen(
    loads: Sequence[Load], leaf: Sequence[int], dims: Sequence[int], sizes: Sequence[int]
) -> Iterator[list[tuple[Box, Load]]]:
    """What loads of a leaf read, by the first tile in which they read anything: other pieces of a concatenation do so
    in other tiles.
    """
    left = list(loads)
    for tile in _along_each(dims, sizes):
        read = [(load.map.footprint(tile, leaf), load) for load in left]
        left = [load for box, load in read if not box.elements]
        if len(left) < len(read):
            yield [(box, load) for box, load in read if box.elements]
        if not left:
            return


def _along_each(dims: Sequence[int], sizes: Sequence[int]) -> Iterator[Box]:
    """The first tile, and those further on along one dimension."""
    first = Box.whole([min(size, n) for size, n in zip(sizes, dims, strict=True)])
    yield first
    for d, (size, n) in enumerate(zip(sizes, dims, strict=True)):
        for at in range(size, n, size):
            origin = (*first.origin[:d], at, *first.origin[d + 1 :])
            yield Box(origin, (*first.dims[:d], min(size, n - at), *first.dims[d + 1 :]))


def _far_apart(loads: Iterable[tuple[Box, Load]]) -> list[list[Load]]:
    """Loads by the boxes that they read: those near each other are in one list."""
    parts: list[tuple[Box, list[Load]]] = []
    for box, load in loads:
        found, rest = [load], []
        for other, others in parts:
            hull = Box.hull((box, other))
            if hull.elements <= FAR_APART * (box.elements + other.elements):
                box, found = hull, others + found
            else:
                rest.append((other, others))
        parts = [*rest, (box, found)]
    return [found for _, found in parts]
