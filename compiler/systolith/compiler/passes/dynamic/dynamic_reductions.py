"""Reductions, windows and sorts of arrays of dynamic sizes: elements beyond the actual size take no part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from systolith.compiler.hlo.attributes import Window
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import array, tuple_of
from systolith.compiler.hlo.values.reduction import neutral_element, plain_operation
from systolith.compiler.passes.dynamic.dynamic_values import Padded, Padder, Sizes, Value
from systolith.compiler.passes.on_arrays import called
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import PRED, S32


def reduce(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """By one operation with what changes nothing beyond; by any other with a flag of what is there."""
    count = len(xs) // 2
    arrays, inits = xs[:count], xs[count:]
    reduced = i.ints("dimensions")
    sizes = _shared(p, arrays)
    kept = [d for d in range(arrays[0].i.shape.rank) if d not in reduced]
    found = {k: sizes[d] for k, d in enumerate(kept) if d in sizes}
    cut = {d: n for d, n in sizes.items() if d in reduced}
    if not cut:
        return p.opened(p.same(i, [x.i for x in xs]), found)
    operation = plain_operation(i.computation()) if count == 1 else None
    neutral = neutral_element(operation, arrays[0].i.shape.dtype) if operation else None
    if neutral is not None:
        taken = p.masked(Padded(arrays[0].i, cut), p.constant(neutral, arrays[0].i.shape.dtype))
        return p.opened(p.same(i, [taken, inits[0].i]), found)
    there = p.inside(arrays[0].i.shape, cut)
    shapes = [array(x.i.shape.dtype, [arrays[0].i.dims[d] for d in kept]) for x in arrays]
    operands = [*(x.i for x in arrays), there, *(x.i for x in inits), p.constant(True, PRED)]
    flagged = _flagged(p, i.computation(), count)
    wide = tuple_of([*shapes, array(PRED, shapes[0].dims)])
    made = p.emit("reduce", *operands, shape=wide, dimensions=reduced, to_apply=flagged)
    parts = tuple(Padded(p.emit("get-tuple-element", made, index=k), found) for k in range(count))
    return parts if i.shape.is_tuple else parts[0]


def _shared(p: Padder, arrays: Sequence[Padded]) -> Sizes:
    """The sizes of arrays that are taken together."""
    dims = sorted({d for x in arrays for d in x.sizes})
    return {d: p.least([x.sizes[d] for x in arrays if d in x.sizes]) for d in dims}


def _flagged(p: Padder, computation: Computation, count: int) -> Computation:
    """A computation of elements that are there or not."""
    shapes = [*(x.shape for x in computation.parameters[:count]), array(PRED)]
    given = [
        Instruction(f"{side}{k}", "parameter", shape, number=at * (count + 1) + k)
        for at, side in enumerate("ab")
        for k, shape in enumerate(shapes)
    ]
    made = Computation(p.callees.name(f"{computation.name}.flagged"), [*given])
    r = Rewriter(made)
    (*a, here), (*b, there) = given[: count + 1], given[count + 1 :]
    both = called(r, computation, [*a, *b])
    results = []
    for k in range(count):
        either = Real(r, both[k]).where(there, Real(r, a[k]))
        results.append(either.where(here, Real(r, b[k])).i)
    root = r.emit("tuple", *results, r.emit("or", here, there))
    made.instructions, made.root = [*given, *r.made], root
    return p.callees.add(made)


def reduce_window(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """Beyond the actual size lies padding, which is the initial value."""
    count = len(xs) // 2
    arrays, inits = xs[:count], xs[count:]
    sizes = _shared(p, arrays)
    dims = i.attributes["window"]
    assert isinstance(dims, Window)
    taken = [p.masked(Padded(x.i, sizes), start.i) for x, start in zip(arrays, inits, strict=True)]
    found = {}
    for d, n in sizes.items():
        w = dims.dims[d]
        spread = ((Real(p, n) - 1) * w.base_dilation + 1).of("maximum", 0) + (w.low + w.high)
        positions = ((spread - w.reach) + w.stride) / w.stride
        found[d] = positions.like(0).where(spread.test("LT", w.reach), positions).i
    return p.opened(p.same(i, [*taken, *(x.i for x in inits)]), found)


def sort(p: Padder, i: Instruction, xs: Sequence[Padded]) -> Value:
    """Sort so that elements beyond the actual size come last."""
    (d,) = i.ints("dimensions")
    sizes = _shared(p, xs)
    if d not in sizes:
        return p.opened(p.same(i, [x.i for x in xs]), sizes)
    beyond = p.emit("not", p.inside(xs[0].i.shape, {d: sizes[d]}))
    late = p.converted(beyond, S32)
    shapes = tuple_of([late.shape, *(x.i.shape for x in xs)])
    compare = _late_last(p, i.computation())
    made = p.emit("sort", late, *(x.i for x in xs), shape=shapes, dimensions=(d,), is_stable=i.flag("is_stable"),
                  to_apply=compare)  # fmt: skip
    parts = tuple(Padded(p.emit("get-tuple-element", made, index=k + 1), sizes) for k in range(len(xs)))
    return parts if i.shape.is_tuple else parts[0]


def _late_last(p: Padder, computation: Computation) -> Computation:
    """A comparison of elements of which some are beyond the actual size."""
    scalars = [Instruction(f"late{k}", "parameter", array(S32), number=k) for k in (0, 1)]
    given = [*scalars, *(replace(x, number=(x.number or 0) + 2) for x in computation.parameters)]
    made = Computation(p.callees.name(f"{computation.name}.late"), [*given])
    r = Rewriter(made)
    (before,) = called(r, computation, sorted(given[2:], key=lambda x: x.number or 0))
    a, b = (Real(r, x) for x in scalars)
    equal = r.emit("and", a.test("EQ", b), before)
    root = r.emit("or", a.test("LT", b), equal)
    made.instructions, made.root = [*given, *r.made], root
    return p.callees.add(made)
