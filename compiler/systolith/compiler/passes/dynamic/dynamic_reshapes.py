"""Reshapes of arrays of dynamic sizes: elements are brought together that are no neighbours within the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.values.dynamic import runs_of_dimensions
from systolith.compiler.passes.dynamic.dynamic_values import Padded, Padder, Sizes, Value, refused
from systolith.compiler.passes.real_expression import Real
from systolith.isa.dtypes import S32


def reshape(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """In each run of dimensions of equal products, one size at most follows from the others."""
    (x,) = xs
    if not x.sizes:
        return Padded(p.same(i, [x.i]))
    flags = i.shape.dynamic or (False,) * i.shape.rank
    sizes: dict[int, Instruction] = {}
    for sources, targets in runs_of_dimensions(x.i.dims, i.dims):
        if not any(d in x.sizes for d in sources):
            continue
        count = p.number(1)
        for d in sources:
            count = count * p.size(x, d)
        open_dims = [targets[0]] if len(sources) == len(targets) == 1 else [d for d in targets if flags[d]]
        if len(open_dims) != 1:
            raise refused(i, f"sizes of {i.operands[0].shape} do not tell those of its result")
        fixed = prod(i.dims[d] for d in targets if d not in open_dims)
        sizes[open_dims[0]] = (count / fixed).i if fixed else p.number(0).i
    return _moved(p, i, x, sizes, runs_of_dimensions(x.i.dims, i.dims))


def dynamic_reshape(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """To sizes that are operands."""
    x, *given = xs
    flags = i.shape.dynamic or (False,) * i.shape.rank
    sizes = {d: p.bounded(n.i, i.dims[d]) for d, n in enumerate(given) if flags[d]}
    return _moved(p, i, x, sizes, [(range(x.i.shape.rank), range(i.shape.rank))])


def _moved(p: Padder, i: Instruction, x: Padded, sizes: Sizes, runs: Sequence[tuple[range, range]]) -> Value:
    """The elements of each run of dimensions in their order, in the array of the result's bounds."""
    order = x.i
    for sources, targets in runs:
        scattered = any(d in x.sizes for d in sources[1:]) or any(d in sizes for d in targets[1:])
        if scattered and not len(sources) == len(targets) == 1:
            order = _brought(p, order, x, sources, [p.size(Padded(i, sizes), d) for d in targets], i.dims, targets)
    return Padded(p.reshaped(order, i.dims), sizes)


def _brought(
    p: Padder, x: Instruction, of: Padded, sources: range, sizes: Sequence[Real], dims: Sequence[int], targets: range
) -> Instruction:
    """The elements of a run of dimensions where they are to be in the run of the result."""
    before, after = of.i.dims[: sources.start], of.i.dims[sources.stop :]
    count = prod(of.i.dims[d] for d in sources)
    if not count:
        return x
    line = array(S32, (count,))

    def spread(n: Real) -> Real:
        return Real(p, p.spread(n.i, line))

    place = Real(p, p.emit("iota", shape=line, iota_dimension=0))
    number, rest = place.like(0), place
    for k in range(len(targets)):  # how manieth it is in the result
        behind = prod(dims[e] for e in targets[k + 1 :])
        number = number * spread(sizes[k]) + rest / behind
        rest = rest.of("remainder", behind)
    found, stride = place.like(0), 1
    for d in reversed(sources):  # where that one is in the operand
        size = spread(p.size(of, d).of("maximum", 1))
        found = found + number.of("remainder", size) * stride
        number = number / size
        stride *= of.i.dims[d]
    lead, behind = prod(before), prod(after)
    taken = p.emit(
        "gather",
        p.reshaped(x, (lead, count, behind)),
        p.reshaped(found.i, (count, 1)),
        shape=array(x.shape.dtype, (lead, count, behind)),
        offset_dims=(0, 2),
        collapsed_slice_dims=(1,),
        start_index_map=(1,),
        index_vector_dim=1,
        slice_sizes=(lead, 1, behind),
    )
    return p.reshaped(taken, x.dims)
