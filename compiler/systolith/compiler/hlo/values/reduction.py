"""`reduce`, `reduce-window`, `select-and-scatter` and `map` for any computation on scalars.

A computation on scalars runs on whole arrays at once (`Calls.map`).  XLA leaves the order of a reduction open: here it
is a balanced tree over neighbours for `reduce`, from first to last for `reduce-window` and for computations that depend
on the order (`orders.py`).  Sums and products of floats (`plain_parts`) are taken in f64 and rounded once; in all other
computations each operation rounds to its type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from systolith.compiler.hlo.attributes import PadDim, WindowDim
from systolith.compiler.hlo.ir import Computation, Instruction, Literal
from systolith.compiler.hlo.values.convert import store, to_working
from systolith.compiler.hlo.values.movement import padded
from systolith.compiler.hlo.values.orders import Calls, any_order
from systolith.isa.dtypes import DType, Kind, dtype

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


IDEMPOTENT = frozenset({"maximum", "minimum", "and", "or"})
"""Operations of `plain_operation` that combine a value any number of times as once."""


def plain_operation(computation: Computation) -> str | None:
    """The opcode of a computation that is one associative operation on its two parameters, else None."""
    root = computation.result
    plain = root.opcode in _UFUNCS and len(computation.instructions) == 3
    return root.opcode if plain and {o.number for o in root.operands} == {0, 1} else None


def neutral_element(opcode: str, dtype: DType) -> object | None:
    """The value that changes nothing in an operation of `plain_operation`; None: the type has none."""
    integer = dtype.is_integer
    least: object = dtype.least if integer else -np.inf
    greatest: object = dtype.greatest if integer else np.inf
    if dtype.kind is Kind.PRED:
        least, greatest = False, True
    elif not integer and (not dtype.is_float or not np.isinf(np.asarray(np.inf, dtype.stored))):
        return 0 if opcode == "add" else None
    return {
        "add": -0.0 if dtype.is_float else 0,
        "multiply": 1,
        "maximum": least,
        "minimum": greatest,
        "and": True if dtype.kind is Kind.PRED else (-1 if dtype.kind is Kind.SIGNED else greatest),
        "or": 0,
        "xor": 0,
    }[opcode]


def _results(i: Instruction, values: Sequence[np.ndarray]) -> Literal:
    return tuple(values) if i.shape.is_tuple else values[0]


def plain_parts(computation: Computation, count: int) -> list[str] | None:
    """The opcode of each of `count` results, if each is one associative operation on its own two parameters."""
    root = computation.result
    parts = root.operands if root.opcode == "tuple" else [root]
    found = [
        p.opcode
        for k, p in enumerate(parts)
        if p.opcode in _UFUNCS
        and {(o.opcode, o.number) for o in p.operands} == {("parameter", k), ("parameter", count + k)}
    ]
    return found if len(found) == count == len(parts) else None


def reduce(i: Instruction, operands: Sequence[np.ndarray], calls: Calls) -> Literal:
    """`reduce`, variadic too."""
    count = len(operands) // 2
    arrays, inits = operands[:count], operands[count:]
    dims = sorted(i.ints("dimensions"))
    opcodes = plain_parts(i.computation(), count)
    if opcodes is not None:
        leaves = zip(opcodes, arrays, inits, i.shape.leaves(), strict=True)
        return _results(i, [_plain_reduce(op, x, init, dims, leaf.dtype) for op, x, init, leaf in leaves])
    kept = [d for d in range(arrays[0].ndim) if d not in dims]
    sizes = [arrays[0].shape[d] for d in kept]
    lines = [x.transpose(*dims, *kept).reshape(prod(x.shape[d] for d in dims), *sizes) for x in arrays]
    combine = _tree if any_order(i.computation(), calls) else _chain
    return _results(i, combine(i.computation(), lines, inits, sizes, calls))


def _chain(
    computation: Computation,
    lines: Sequence[np.ndarray],
    inits: Sequence[np.ndarray],
    sizes: Sequence[int],
    calls: Calls,
) -> list[np.ndarray]:
    """Combine along the first dimension, from the initial value on."""
    totals = [np.broadcast_to(init, tuple(sizes)) for init in inits]
    for elements in zip(*lines, strict=True):
        totals = calls.map(computation, [*totals, *elements])
    return totals


def _plain_reduce(opcode: str, x: np.ndarray, init: np.ndarray, dims: Sequence[int], dtype: DType) -> np.ndarray:
    wide = opcode in ("add", "multiply")
    function = _UFUNCS[opcode]
    with np.errstate(all="ignore"):
        work, first = to_working(x, dtype, wide), to_working(init, dtype, wide)
        if 0 in (x.shape[d] for d in dims):
            return np.broadcast_to(init, tuple(n for d, n in enumerate(x.shape) if d not in dims))
        result = function.reduce(work, axis=tuple(dims), dtype=work.dtype)
        return store(np.asarray(function(result, first)), dtype)


def _tree(
    computation: Computation,
    lines: Sequence[np.ndarray],
    inits: Sequence[np.ndarray],
    sizes: Sequence[int],
    calls: Calls,
) -> list[np.ndarray]:
    """Combine along the first dimension, neighbours first; the initial value comes in once, from the left."""
    lines = list(lines)
    if lines[0].shape[0] == 0:
        return [np.broadcast_to(init, tuple(sizes)) for init in inits]
    while (length := lines[0].shape[0]) > 1:
        even = length - length % 2
        left, right = ([x[start:even:2] for x in lines] for start in (0, 1))
        combined = calls.map(computation, [*left, *right])
        lines = [np.concatenate([c, x[even:]]) for c, x in zip(combined, lines, strict=True)]
    return calls.map(computation, [*(np.broadcast_to(v, tuple(sizes)) for v in inits), *(x[0] for x in lines)])


def _dilated(x: np.ndarray, init: np.ndarray, dims: Sequence[WindowDim]) -> np.ndarray:
    return padded(x, init, [PadDim(d.low, d.high, d.base_dilation - 1) for d in dims])


def _offset_slices(offset: Sequence[int], dims: Sequence[WindowDim], sizes: Sequence[int]) -> tuple[slice, ...]:
    """Slices of the padded operand that one element of the window reads over all positions."""
    starts = [o * d.window_dilation for o, d in zip(offset, dims, strict=True)]
    spans = zip(starts, dims, sizes, strict=True)
    return tuple(slice(s, s + (n - 1) * d.stride + 1 if n else s, d.stride) for s, d, n in spans)


def reduce_window(i: Instruction, operands: Sequence[np.ndarray], calls: Calls) -> Literal:
    """`reduce-window`, variadic too, with strides, padding and both dilations.

    Elements of a window that are none of the operand's, padding and the holes of a dilation, add nothing, as on XLA's
    CPU backend.
    """
    count = len(operands) // 2
    dims = i.window.dims
    sizes = [d.positions(n) for d, n in zip(dims, operands[0].shape, strict=True)]
    inits = operands[count:]
    if not operands[0].size:  # padding adds nothing
        return _results(i, [np.broadcast_to(init, tuple(sizes)) for init in inits])
    bases = [_dilated(x, init, dims) for x, init in zip(operands[:count], inits, strict=True)]
    inside = _dilated(np.ones(operands[0].shape, np.bool_), np.asarray(False), dims)
    opcodes = plain_parts(i.computation(), count)
    window = tuple(d.size for d in dims)
    if opcodes is not None:
        leaves = zip(opcodes, bases, inits, i.shape.leaves(), strict=True)
        return _results(
            i, [_plain_window(op, x, inside, init, dims, sizes, leaf.dtype) for op, x, init, leaf in leaves]
        )
    totals = [np.broadcast_to(init, tuple(sizes)) for init in inits]
    for offset in np.ndindex(*window):
        at = _offset_slices(offset, dims, sizes)
        combined = calls.map(i.computation(), [*totals, *(b[at] for b in bases)])
        totals = [np.where(inside[at], new, old) for new, old in zip(combined, totals, strict=True)]
    return _results(i, totals)


def _plain_window(
    opcode: str,
    base: np.ndarray,
    inside: np.ndarray,
    init: np.ndarray,
    dims: Sequence[WindowDim],
    sizes: Sequence[int],
    dtype: DType,
) -> np.ndarray:
    wide = opcode in ("add", "multiply")
    function: Callable[..., np.ndarray] = _UFUNCS[opcode]
    with np.errstate(all="ignore"):
        work = to_working(base, dtype, wide)
        total = np.full(tuple(sizes), to_working(init, dtype, wide), dtype=work.dtype)
        for offset in np.ndindex(*(d.size for d in dims)):
            at = _offset_slices(offset, dims, sizes)
            total = np.where(inside[at], function(total, work[at]), total)
        return store(np.asarray(total), dtype)


def window_elements(i: Instruction, x: np.ndarray, pad: np.ndarray) -> list[np.ndarray]:
    """For each offset in a `reduce-window`'s window, the elements there at all positions; `pad` for padding."""
    dims = i.window.dims
    sizes = [d.positions(n) for d, n in zip(dims, x.shape, strict=True)]
    base = _dilated(x, pad, dims)
    return [base[_offset_slices(offset, dims, sizes)] for offset in np.ndindex(*(d.size for d in dims))]


def window_sum(i: Instruction, x: np.ndarray) -> np.ndarray:
    """For each position of a `reduce-window`'s window, the f64 sum of x there; padding is 0."""
    dims = i.window.dims
    sizes = [d.positions(n) for d, n in zip(dims, x.shape, strict=True)]
    base = _dilated(x, np.zeros((), x.dtype), dims)
    inside = np.ones(base.shape, np.bool_)
    return _plain_window("add", base, inside, np.zeros((), x.dtype), dims, sizes, dtype("f64"))


def select_and_scatter(i: Instruction, operands: Sequence[np.ndarray], calls: Calls) -> np.ndarray:
    """Each source element is combined into the element that its window selects; padding is never chosen."""
    x, source, init = operands
    dims = i.window.dims
    sizes = list(source.shape)
    inside = _dilated(np.ones(x.shape, np.bool_), np.asarray(False), dims)
    index = _dilated(np.arange(x.size).reshape(x.shape), np.asarray(0), dims)
    values = _dilated(x, np.zeros((), x.dtype), dims)
    chosen = np.zeros(tuple(sizes), x.dtype)
    place = np.full(tuple(sizes), -1)
    for offset in np.ndindex(*(d.size for d in dims)):
        at = _offset_slices(offset, dims, sizes)
        keep = calls.map(i.computation("select"), [chosen, values[at]])[0].astype(np.bool_)
        take = inside[at] & ((place < 0) | ~keep)
        chosen, place = np.where(take, values[at], chosen), np.where(take, index[at], place)
    result = np.full(x.size, init, dtype=x.dtype)
    combine_at(i.computation("scatter"), [result], place.reshape(-1), [source.reshape(-1)], calls)
    return result.reshape(x.shape)


def combine_at(
    computation: Computation,
    results: Sequence[np.ndarray],
    places: np.ndarray,
    updates: Sequence[np.ndarray],
    calls: Calls,
) -> None:
    """results[places[k]] = computation(results[places[k]], updates[k]) for each k in order, negative places left out.

    Elements of `results` (flat, changed in place) that are named several times are combined one round at a time.
    """
    valid = np.flatnonzero(places >= 0)
    order = valid[np.argsort(places[valid], kind="stable")]
    sorted_places = places[order]
    new = np.flatnonzero(np.diff(sorted_places, prepend=-1))
    counts = np.diff(new, append=len(sorted_places))
    rounds = np.arange(len(sorted_places)) - np.repeat(new, counts)
    by_round = np.argsort(rounds, kind="stable")
    ends = np.searchsorted(rounds[by_round], np.arange(counts.max() + 1 if len(counts) else 1), side="left")
    for start, end in zip(ends, [*ends[1:], len(by_round)], strict=True):
        picked = by_round[start:end]
        at, which = sorted_places[picked], order[picked]
        combined = calls.map(computation, [*(r[at] for r in results), *(u[which] for u in updates)])
        for result, value in zip(results, combined, strict=True):
            result[at] = value
