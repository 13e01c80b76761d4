"""Bytes that have to leave VMEM and come back, whatever the order of execution.

When the last element of a value X is computed, everything that X depends on has been computed, and nothing that depends
on all of X has.  Values that the former made and the latter uses are *live* then, and the bytes beyond VMEM are written
and read once.  Users of a part of X only (the same rows, the same batch) may have been computed before, in blocks:
so for each product and each of its ancestors it is known how many indices of each dimension one element depends on.

Products, reductions and other sums are not computed again; elementwise operations and data movement are, where that
makes less live: the live bytes are the least cut between the sums that are done and the operations that are to come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import prod

import numpy as np

from systolith.compiler.bounds.products import PRODUCTS
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.index.affine import reshape_factors

Extents = tuple[int, ...]
"""How many indices of each dimension, at least."""

Region = dict[Instruction, Extents]

MOVEMENT = frozenset("broadcast reshape transpose slice reverse pad concatenate bitcast iota constant".split())
UNIT = 1024
"""Bytes that the flow counts in."""


def spilled_bytes(computation: Computation, vmem: int) -> int:
    """Bytes of HBM traffic for the live values that exceed VMEM, at the value where they are most."""
    most, users = 0, computation.users()
    order = {i: n for n, i in enumerate(computation.instructions)}
    sums = [i for i in computation.instructions if _is_sum(i) and i.shape.is_array and i.shape.size]
    needs = {u: _needs({u: (1,) * u.shape.rank}, order) for u in sums if u.opcode in PRODUCTS}
    for x in sums:
        after = _reachable([u for u in needs if u is not x and needs[u].get(x) == x.dims], users.__getitem__)
        if not after:
            continue
        before, late = _needs({x: x.dims}, order), _late(after, order)
        live = {i: _shared(i, before[i], late[i]) for i in before.keys() & late.keys() if _is_sum(i)}
        if sum(live.values()) - vmem > most:
            most = max(most, _least_cut(live, late, after) - vmem)
    return 2 * most


def _is_sum(i: Instruction) -> bool:
    """Whether a value is one that is not computed again."""
    return i.opcode not in ELEMENTWISE and i.opcode not in MOVEMENT and i.opcode != "parameter"


def _shared(i: Instruction, a: Extents, b: Extents) -> int:
    """Bytes in both regions; of a dimension that both take in part it may be none."""
    if not i.shape.is_array:
        return 0
    parts = [max(x, y) == n and min(x, y) for x, y, n in zip(a, b, i.dims, strict=True)]
    return int(prod(parts)) * i.shape.dtype.size


def _needs(start: Region, order: Mapping[Instruction, int]) -> Region:
    """The region that a region depends on, itself included."""
    found = dict(start)
    for i in sorted(_reachable(start, lambda i: i.operands), key=order.__getitem__, reverse=True):
        _ask(i, found[i], found)
    return found


def _late(after: Collection[Instruction], order: Mapping[Instruction, int]) -> Region:
    """The region of other values that the operations in `after` use, also through those that can be computed again."""
    found: Region = {}
    for i in sorted(_reachable(after, lambda j: _read_late(j, after)), key=order.__getitem__, reverse=True):
        if i in after:
            _ask(i, next(i.shape.leaves()).dims, found)
        elif not _is_sum(i):
            _ask(i, found[i], found)
    return {i: e for i, e in found.items() if i not in after}


def _read_late(i: Instruction, after: Collection[Instruction]) -> Sequence[Instruction]:
    """Operands of an operation that is to come, or that may be computed again for one; none of others."""
    return i.operands if i in after or not _is_sum(i) else ()


def _ask(i: Instruction, extents: Extents, found: Region) -> None:
    """Note the extents of its operands that a region of an instruction needs, where they are larger."""
    for k, o in enumerate(i.operands):
        needed = _operand_extents(i, k, extents)
        if o not in found or prod(found[o]) < prod(needed):
            found[o] = needed


def _reachable(start: Iterable[Instruction], step: Callable[[Instruction], Sequence[Instruction]]) -> set[Instruction]:
    seen, todo = set(start), list(start)
    while todo:
        for other in step(todo.pop()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def _least_cut(live: Mapping[Instruction, int], late: Region, after: Collection[Instruction]) -> int:
    """The fewest bytes from which the operations in `after` can be had, given the sums in `live`."""
    # It takes long to import, and few modules need it.
    from scipy.sparse import csr_array  # type: ignore[import-untyped]  # scipy ships no types
    from scipy.sparse.csgraph import maximum_flow  # type: ignore[import-untyped]

    number = {i: n for n, i in enumerate(late)}
    source, sink = 2 * len(number), 2 * len(number) + 1
    edges: dict[tuple[int, int], int] = {}
    endless = 1 << 30
    for i, n in number.items():
        size = prod(late[i]) * i.shape.dtype.size if i.shape.is_array else 0
        edges[2 * n, 2 * n + 1] = live.get(i, size) // UNIT
        if i in live:
            edges[source, 2 * n] = endless
        if not _is_sum(i):
            for o in i.operands:
                if o in number:
                    edges[2 * number[o] + 1, 2 * n] = endless
    for user in after:
        for o in user.operands:
            if o in number:
                edges[2 * number[o] + 1, sink] = endless
    rows, columns = np.array(list(edges)).T
    graph = csr_array((np.array(list(edges.values()), np.int32), (rows, columns)), (sink + 1, sink + 1))
    return int(maximum_flow(graph, source, sink).flow_value) * UNIT


def _operand_extents(i: Instruction, k: int, e: Extents) -> Extents:
    """Indices of an operand that so many of the result need, at least."""
    o = i.operands[k]
    rule = _OPERAND.get(i.opcode)
    if i.opcode in ELEMENTWISE and o.dims == i.dims:
        return e
    return rule(i, k, e) if rule is not None else (1,) * o.shape.rank


def _reshaped(source: Extents, target: Extents, e: Extents) -> Extents:
    """Through a reshape: whole dimensions stay whole, equal ones stay as they are."""
    found = [1] * len(target)
    for xs, ys in reshape_factors(source, target):
        if all(e[x] == source[x] for x in xs):
            for y in ys:
                found[y] = target[y]
        elif len(xs) == len(ys) == 1:
            found[ys[0]] = e[xs[0]]
    return tuple(found)


def _dot_dims(i: Instruction) -> tuple[list[tuple[int, ...]], list[list[int]]]:
    """(batch dimensions of both operands, their free dimensions)."""
    batch = [i.ints(f"{s}_batch_dims", ()) for s in ("lhs", "rhs")]
    taken = [set(b) | set(i.ints(f"{s}_contracting_dims", ())) for b, s in zip(batch, ("lhs", "rhs"), strict=True)]
    return batch, [[d for d in range(o.shape.rank) if d not in t] for o, t in zip(i.operands, taken, strict=True)]


def _dot_operand(i: Instruction, k: int, e: Extents) -> Extents:
    batch, free = _dot_dims(i)
    found = list(i.operands[k].dims)
    for place, d in enumerate(batch[k]):
        found[d] = e[place]
    first = len(batch[0]) + (len(free[0]) if k else 0)
    for place, d in enumerate(free[k]):
        found[d] = e[first + place]
    return tuple(found)


def _is_plain(i: Instruction) -> bool:
    return i.integer("feature_group_count", 1) == i.integer("batch_group_count", 1) == 1


def _conv_operand(i: Instruction, k: int, e: Extents) -> Extents:
    dims, o = i.conv_dims, i.operands[k]
    if not _is_plain(i):
        return (1,) * o.shape.rank
    found = [1] * o.shape.rank
    if k:
        found[dims.kernel_output], found[dims.kernel_input] = e[dims.output_feature], o.dims[dims.kernel_input]
        return tuple(found)
    found[dims.input_batch], found[dims.input_feature] = e[dims.output_batch], o.dims[dims.input_feature]
    for w, inner, outer in zip(i.window.dims, dims.input_spatial, dims.output_spatial, strict=True):
        spanned = (e[outer] - 1) * w.stride + 1 + (w.size - 1) * w.window_dilation - max(w.low, 0) - max(w.high, 0)
        dense = w.window_dilation == 1 and (e[outer] == 1 or w.stride <= w.size)
        found[inner] = max(1, min(o.dims[inner], spanned // w.base_dilation)) if dense else 1
    return tuple(found)


def _reduce_operand(i: Instruction, k: int, e: Extents) -> Extents:
    o, kept = i.operands[k], iter(e)
    if not i.shape.is_array or 2 * k >= len(i.operands):
        return (1,) * o.shape.rank
    reduced = i.ints("dimensions", ())
    return tuple(n if d in reduced else next(kept) for d, n in enumerate(o.dims))


def _broadcast_operand(i: Instruction, k: int, e: Extents) -> Extents:
    return tuple(e[d] for d in i.ints("dimensions", ()))


Rule = Callable[[Instruction, int, Extents], Extents]

_OPERAND: Mapping[str, Rule] = {
    "dot": _dot_operand,
    "convolution": _conv_operand,
    "reduce": _reduce_operand,
    "broadcast": _broadcast_operand,
    "reverse": lambda i, k, e: e,
    "slice": lambda i, k, e: e,
    "transpose": lambda i, k, e: tuple(e[i.ints("dimensions").index(d)] for d in range(len(e))),
    "reshape": lambda i, k, e: _reshaped(i.dims, i.operands[0].dims, e),
    "bitcast": lambda i, k, e: _reshaped(i.dims, i.operands[0].dims, e),
}
